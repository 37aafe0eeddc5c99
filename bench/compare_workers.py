"""`tools/bench workers`: training steps of several workers on this machine beside one with the same threads, alternating.

Scaling is pictures or tokens per second over those of the one worker; exposed is the share of a step that a worker spends on
sums over workers, waiting included. The limit is what as many workers reach that know nothing of each other, at the same time:
what the machine's cores and memory give. Writes bench/RESULTS-workers.md and prints, last, lines `ratio CASE SCALING` and
`bar ...`.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys

from compare import ROOT, cpu_model, one_line, row

CASES = ["resnet18-b64-fp32", "llama15m-b8-fp32"]
# Of two workers.
SCALING_BAR, EXPOSED_BAR = 1.85, 0.1
HEAD = ["case", "one (ms)", "together (ms)", "scaling", "limit", "of the limit", "exposed (ms)", "of the step"]


def start(case, workers, options):
    command = [options.program, "bench", case, "--steps", options.steps, "--threads", options.threads]
    if workers > 1:
        command += ["--workers", workers]
    return subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True)


def result(process):
    out, _ = process.communicate()
    if process.returncode != 0:
        sys.exit(process.returncode)
    return json.loads(out.splitlines()[-1])


def rate(outcome):
    return outcome["samples_per_step"] / statistics.median(outcome["step_seconds"])


def run_case(case, options):
    """Medians over rounds of medians over steps."""
    rounds = []
    for _ in range(options.rounds):
        alone, together = result(start(case, 1, options)), result(start(case, options.workers, options))
        strangers = [start(case, 1, options) for _ in range(options.workers)]
        limit = sum(rate(result(process)) for process in strangers) / rate(alone)
        alone_s, together_s = statistics.median(alone["step_seconds"]), statistics.median(together["step_seconds"])
        exposed_s = statistics.median(together["exchange_seconds"])
        rounds.append((alone_s, together_s, rate(together) / rate(alone), limit, exposed_s))
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def parse_options():
    parser = argparse.ArgumentParser(prog="tools/bench workers", description="What further workers bring.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "hearth")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/RESULTS-workers.md")
    return parser.parse_args()


def main():
    options = parse_options()
    results = {case: run_case(case, options) for case in options.cases.split(",")}
    text = "# Several workers beside one\n\nMade by `tools/bench workers`; do not edit.\n\n"
    lines = [
        f"{datetime.date.today()}, {cpu_model()}, {os.cpu_count()} processors, "
        f"commit {one_line(['git', 'describe', '--always', '--dirty'])}",
        f"{options.workers} workers over shared memory against one, {options.threads} thread(s) each, a micro-batch each",
        f"{options.rounds} alternating rounds of {options.steps} steps; medians",
        f"Command: tools/bench workers {' '.join(sys.argv[1:])}".rstrip(),
    ]
    text += "".join(f"- {line}\n" for line in lines) + "\n" + row(HEAD) + row(["---"] * len(HEAD))
    for case, (alone, together, scaling, limit, exposed) in results.items():
        cells = [case, f"{alone * 1e3:.1f}", f"{together * 1e3:.1f}", f"{scaling:.2f}", f"{limit:.2f}"]
        text += row([*cells, f"{scaling / limit:.0%}", f"{exposed * 1e3:.1f}", f"{exposed / together:.1%}"])
    options.out.write_text(text)
    print(f"wrote {options.out}")
    for case, (_, together, scaling, limit, exposed) in results.items():
        print(f"ratio {case} {scaling:.3f}")
        print(f"limit {case} {limit:.3f}")
        print(f"bar {case} scaling {scaling:.3f} {SCALING_BAR} {'met' if scaling >= SCALING_BAR else 'missed'}")
        share = exposed / together
        print(f"bar {case} exposed {share:.3f} {EXPOSED_BAR} {'met' if share <= EXPOSED_BAR else 'missed'}")


if __name__ == "__main__":
    main()
