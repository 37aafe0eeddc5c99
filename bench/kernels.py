#!/usr/bin/env python3
"""What kernels need of AMD's cards: turns the compiler's remarks (tools/kernels hip) into bench/KERNELS.md.

Ends with status 1 and names the kernel where registers spill or scratch memory is used.
"""

import re
import subprocess
import sys
from pathlib import Path

FIELDS = {"VGPRs": "VGPRs", "SGPRs": "SGPRs", "LDS Size [bytes/block]": "LDS", "Occupancy [waves/SIMD]": "waves",
          "ScratchSize [bytes/lane]": "scratch", "SGPRs Spill": "sgpr_spill", "VGPRs Spill": "vgpr_spill"}
HEAD = """# Kernels on AMD's cards

Made by `tools/kernels hip`; do not edit. What {compiler} says of every kernel: vector and scalar registers, bytes of shared
memory (without what a launch adds), waves that fit a SIMD. Warps have 32 lanes, nothing spills, nothing uses scratch memory:
else the command fails. No AMD card has run them yet.

| kernel | source | target | VGPRs | SGPRs | shared memory | waves |
| --- | --- | --- | --- | --- | --- | --- |
"""


def read(log):
    """One record for each kernel, source and target."""
    records, target, source = [], "", ""
    for line in log.splitlines():
        if match := re.match(r"== (gfx\w+) (\S+)", line):
            target, source = match.groups()
        elif match := re.search(r"remark: Function Name: (\S+)", line):
            records.append({"name": match.group(1), "target": target, "source": source})
        elif (match := re.search(r"remark:\s+([^:]+): (\d+) \[-R", line)) and match.group(1) in FIELDS:
            records[-1][FIELDS[match.group(1)]] = int(match.group(2))
    return records


def short_name(mangled):
    """`losses<bf16>` of the mangled name."""
    name = subprocess.run(["c++filt", mangled], capture_output=True, text=True, check=True).stdout
    name = name.replace("(anonymous namespace)::", "").replace("hearth::rt::", "").replace("hearth::ops::", "")
    return re.search(r"(\w+(?:<[^(]*>)?)\(", name).group(1)


def main():
    log = Path(sys.argv[1]).read_text(encoding="utf-8", errors="replace")
    records = read(log)
    if not records:
        sys.exit("expected the compiler's remarks on kernels, got none")
    bad = [r for r in records if r["scratch"] or r["sgpr_spill"] or r["vgpr_spill"]]
    rows = sorted((r["source"], short_name(r["name"]), r["target"], r) for r in records)
    text = HEAD.format(compiler="hipcc")
    for source, name, target, r in rows:
        text += f"| `{name}` | {Path(source).name} | {target} | {r['VGPRs']} | {r['SGPRs']} | {r['LDS']} | {r['waves']} |\n"
    Path(sys.argv[2]).write_text(text, encoding="utf-8")
    for r in bad:
        print(f"{short_name(r['name'])} on {r['target']}: {r['scratch']} bytes of scratch memory, "
              f"{r['vgpr_spill']} vector and {r['sgpr_spill']} scalar registers spilled")
    print(f"{len(records)} kernels, {len(bad)} that spill; wrote {sys.argv[2]}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
