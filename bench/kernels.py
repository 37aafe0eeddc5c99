#!/usr/bin/env python3
"""What kernels need of AMD's GPUs: turns the compiler's remarks (tools/kernels hip) into bench/KERNELS.md.

Ends with status 1 and names the kernel where registers spill, scratch memory is used, a warp has not 32 lanes, or
matrix instructions are missing.
"""

import re
import subprocess
import sys
from pathlib import Path

FIELDS = {"VGPRs": "VGPRs", "SGPRs": "SGPRs", "LDS Size [bytes/block]": "LDS", "Occupancy [waves/SIMD]": "waves",
          "ScratchSize [bytes/lane]": "scratch", "SGPRs Spill": "sgpr_spill", "VGPRs Spill": "vgpr_spill"}
HEAD = """# Kernels on AMD's GPUs

Made by `tools/kernels hip`; do not edit. What hipcc 5.7 (gfx1201: clang 19) says of every kernel: vector and scalar registers, bytes of shared
memory (without what a launch adds), waves that fit a SIMD, matrix instructions (v_wmma) in its code. Warps have 32 lanes,
nothing spills, nothing uses scratch memory, kernels of matrix tiles have matrix instructions where the GPU has them: else the
command fails. No AMD GPU has run them yet.

| kernel | source | target | VGPRs | SGPRs | shared memory | waves | v_wmma |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
# Of 16 bits: f32 is multiplied by plain arithmetic, and so is everything on gfx10.
TILES = re.compile(r"(multiply_tiles|attend|gradient_of_queries|gradient_of_keys)<(bf16|f16)")


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
        elif line.startswith("assembly: "):
            _, name, matrix, lanes = line.split()
            for record in records:
                if (record["name"], record["target"], record["source"]) == (name, target, source):
                    record.update(matrix=int(matrix), lanes=int(lanes))
    return records


def faults(record):
    """What is wrong with a kernel, in words."""
    found = []
    if record["scratch"] or record["sgpr_spill"] or record["vgpr_spill"]:
        found.append(f"{record['scratch']} bytes of scratch memory, {record['vgpr_spill']} vector and "
                     f"{record['sgpr_spill']} scalar registers spilled")
    if record["lanes"] != 32:
        found.append(f"warps of {record['lanes']} lanes")
    if not record["target"].startswith("gfx10") and TILES.match(record["short"]) and not record["matrix"]:
        found.append("no matrix instruction")
    return found


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
    for r in records:
        r["short"] = short_name(r["name"])
    text = HEAD
    for r in sorted(records, key=lambda r: (r["source"], r["short"], r["target"])):
        text += (f"| `{r['short']}` | {Path(r['source']).name} | {r['target']} | {r['VGPRs']} | {r['SGPRs']} | {r['LDS']} | "
                 f"{r['waves']} | {r['matrix']} |\n")
    Path(sys.argv[2]).write_text(text, encoding="utf-8")
    bad = [r for r in records if faults(r)]
    for r in bad:
        print(f"{r['short']} on {r['target']}: {'; '.join(faults(r))}")
    print(f"{len(records)} kernels, {len(bad)} with faults; wrote {sys.argv[2]}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
