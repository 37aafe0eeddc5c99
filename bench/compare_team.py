"""`tools/bench team`: training steps of several workers on this machine beside one worker with the same threads, alternating.

Scaling is pictures or tokens per second over those of the one worker; exposed is the share of a step that a worker spends on
sums over workers, waiting included. Writes bench/RESULTS-team.md and prints, last, lines `ratio CASE SCALING` and `bar ...`.
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
HEAD = ["case", "one (ms)", "together (ms)", "scaling", "exposed (ms)", "of the step"]


def run(case, workers, options):
    command = [options.program, "bench", case, "--steps", options.steps, "--threads", options.threads]
    if workers > 1:
        command += ["--workers", workers]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def run_case(case, options):
    """Medians over rounds of medians over steps."""
    rounds = []
    for _ in range(options.rounds):
        alone, team = run(case, 1, options), run(case, options.workers, options)
        alone_s, team_s = statistics.median(alone["step_seconds"]), statistics.median(team["step_seconds"])
        scaling = team["samples_per_step"] / team_s / (alone["samples_per_step"] / alone_s)
        rounds.append((alone_s, team_s, scaling, statistics.median(team["exchange_seconds"])))
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def parse_options():
    parser = argparse.ArgumentParser(prog="tools/bench team", description="What further workers bring.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "hearth")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/RESULTS-team.md")
    return parser.parse_args()


def main():
    options = parse_options()
    results = {case: run_case(case, options) for case in options.cases.split(",")}
    text = "# Several workers beside one\n\nMade by `tools/bench team`; do not edit.\n\n"
    lines = [
        f"{datetime.date.today()}, {cpu_model()}, {os.cpu_count()} processors, "
        f"commit {one_line(['git', 'describe', '--always', '--dirty'])}",
        f"{options.workers} workers over shared memory against one, {options.threads} thread(s) each, a micro-batch each",
        f"{options.rounds} alternating rounds of {options.steps} steps; medians",
        f"Command: tools/bench team {' '.join(sys.argv[1:])}".rstrip(),
    ]
    text += "".join(f"- {line}\n" for line in lines) + "\n" + row(HEAD) + row(["---"] * len(HEAD))
    for case, (alone, team, scaling, exposed) in results.items():
        cells = [case, f"{alone * 1e3:.1f}", f"{team * 1e3:.1f}", f"{scaling:.2f}", f"{exposed * 1e3:.1f}"]
        text += row([*cells, f"{exposed / team:.1%}"])
    options.out.write_text(text)
    print(f"wrote {options.out}")
    for case, (_, team, scaling, exposed) in results.items():
        print(f"ratio {case} {scaling:.3f}")
        print(f"bar {case} scaling {scaling:.3f} {SCALING_BAR} {'met' if scaling >= SCALING_BAR else 'missed'}")
        share = exposed / team
        print(f"bar {case} exposed {share:.3f} {EXPOSED_BAR} {'met' if share <= EXPOSED_BAR else 'missed'}")


if __name__ == "__main__":
    main()
