#!/usr/bin/env python3
"""Kernels on AMD's GPUs: turns what the instruction emulator counted and the compiler's remarks (tools/kernels hip) into bench/KERNELS.md.

kernels.py LOG CASES FILE, or kernels.py --bars LOG CASES, which prints `bar NAME VALUE` lines of what was counted for gfx1100.
Ends with status 1 and names the kernel where registers spill, scratch memory is used, a warp has not 32 lanes, matrix
instructions are missing, or bounds of kernel_counts.py are broken.
"""

import re
import sys
from pathlib import Path

import gpu_model
import kernel_counts
from kernel_counts import short_name

FIELDS = {"VGPRs": "VGPRs", "SGPRs": "SGPRs", "LDS Size [bytes/block]": "LDS", "Occupancy [waves/SIMD]": "waves",
          "ScratchSize [bytes/lane]": "scratch", "SGPRs Spill": "sgpr_spill", "VGPRs Spill": "vgpr_spill"}
HEAD = """# Kernels on AMD's GPUs

Made by `tools/kernels hip`; do not edit. No AMD GPU has run these kernels yet.

First what the cases of bench/gpu_cases.py take: each kernel's compiled code is executed by an instruction emulator (a few blocks stand for a
launch), and bench/gpu_model.py computes two figures from its counters:

- bound: a lower bound of the time. The busiest unit determines it, or the latency of loads; units overlap perfectly, at the boost
  clock and AMD's bandwidth.
- expected: the bound times a factor by class of kernel, with the range of its error bar in parentheses. `bench/calibrate.py` fits the factors to
  kernels of other projects on an RX 7900 XTX and prints the errors on those held out:

{fits}
Instructions are in millions and of a whole wave; passes of shared memory and lines of 128
bytes are beside the fewest that could do; waves are those of a SIMD; a case's rate stands in the row of its longest kernel.
"""
REMARKS = """
## What the compiler says

hipcc 5.7 (gfx1201: clang 19), of every kernel: vector and scalar registers, bytes of shared memory (without what a launch adds), waves
that fit a SIMD, matrix instructions (v_wmma) in its code. Warps have 32 lanes, nothing spills, nothing uses scratch memory, kernels of
matrix tiles have matrix instructions where the GPU has them: else the command fails.

| kernel | source | target | VGPRs | SGPRs | shared memory | waves | v_wmma |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
# Of 16 bits: f32 is multiplied by plain arithmetic, and so is everything on gfx10.
TILES = re.compile(r"(multiply_tiles|attend|gradient_of_queries|gradient_of_keys|multiply_scores)<(bf16|f16)")


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


def remarks_table(records):
    text = REMARKS
    for r in sorted(records, key=lambda r: (r["source"], r["short"], r["target"])):
        text += (f"| `{r['short']}` | {Path(r['source']).name} | {r['target']} | {r['VGPRs']} | {r['SGPRs']} | {r['LDS']} | "
                 f"{r['waves']} | {r['matrix']} |\n")
    return text


def read_counts(log, cases, target):
    """What was counted for a target; fails where nothing was."""
    counted = kernel_counts.read_cases(log, cases, target)
    if missing := [case["name"] for case in cases if case["name"] not in counted]:
        sys.exit(f"expected counts of every case for {target}, got none of {', '.join(missing)}")
    return counted


def report(notes, bad):
    for sentence in notes + bad:
        print(sentence)
    sys.exit(1 if bad else 0)


def fits_table():
    text = "| class of kernel | expected time / bound | error bar |\n| --- | --- | --- |\n"
    return text + "".join(f"| {name} | {fit.factor:.2f} | {fit.error:.2f} times either way |\n" for name, fit in gpu_model.fits().items())


def print_bars(log, cases):
    counted = read_counts(log, cases, "gfx1100")
    bars = kernel_counts.bars_of(cases, counted, gpu_model.usual_gpu("gfx1100"))
    for bar in bars:
        print(f"bar {bar.name} {bar}, {'met' if bar.is_met() else 'missed'}: {bar.target()}; expected {bar.expectation()}; "
              f"plans: {bar.planned:.2f} times the seconds")
    bad, loose = kernel_counts.check_bounds(cases, counted, "gfx1100")
    report(loose, bad + kernel_counts.check_plans(bars))


def write_tables(log, cases, path):
    records = read(log)
    if not records:
        sys.exit("expected the compiler's remarks on kernels, got none")
    for r in records:
        r["short"] = short_name(r["name"])
    bad = [f"{r['short']} on {r['target']}: {'; '.join(faults(r))}" for r in records if faults(r)]
    text, notes = HEAD.replace("{fits}", fits_table()), []
    targets = sorted(set(re.findall(r"^== counted (\w+) ", log, re.M)))
    if not targets:
        sys.exit("expected counts of kernels, got none")
    for target in targets:
        counted = read_counts(log, cases, target)
        text += kernel_counts.tables(cases, counted, target)
        broken, loose = kernel_counts.check_bounds(cases, counted, target)
        bad += broken
        notes += loose
        if target == "gfx1100":
            bad += kernel_counts.check_plans(kernel_counts.bars_of(cases, counted, gpu_model.usual_gpu(target)))
    path.write_text(text + remarks_table(records), encoding="utf-8")
    print(f"{len(records)} kernels, {len(bad)} faults; wrote {path}")
    report(notes, bad)


def main():
    bars = sys.argv[1] == "--bars"
    log, folder = sys.argv[1 + bars:3 + bars]
    text = Path(log).read_text(encoding="utf-8", errors="replace")
    cases = kernel_counts.load_cases(folder)
    if bars:
        print_bars(text, cases)
    else:
        write_tables(text, cases, Path(sys.argv[3]))


if __name__ == "__main__":
    main()
