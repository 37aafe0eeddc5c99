#!/usr/bin/env python3
"""Cost of loggers that do not answer: bench/loggers.py [PAIRS] [STEPS].

Alternates runs without loggers and runs with all of them: MLflow and a webhook at a server that accepts connections and never answers,
wandb and trackio with a Python that never answers. Prints the median ratios of the time of an update and of the CPU time of all
processes of a run, from its first update on. Needs ./hearth (tools/build).
"""

import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[1]
VALUES = ["threads=1", "data.count=2000", "data.val_count=100", "train.batch=32", "train.log_every=1", "train.eval_every=1000000"]
LOGGERS = "log.to=[tensorboard, csv, mlflow, wandb, trackio]"


def accept_forever(listener, connections):
    while True:
        connections.append(listener.accept()[0])


def run(folder, number, steps, values, environment):
    """Trains once. Returns the median seconds of an update and the CPU seconds of all processes."""
    out = folder / f"run{number}"
    command = [str(ROOT / "hearth"), "train", "demo", "--out", str(out), f"train.steps={steps}", *VALUES, *values]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{' '.join(command)}: status {status}")
    lines = [json.loads(line) for line in (out / "trainer_log.jsonl").read_text().splitlines()]
    times = [line["elapsed_time"] for line in lines if "elapsed_time" in line]
    return statistics.median(b - a for a, b in zip(times, times[1:])), usage.ru_utime + usage.ru_stime


def main():
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    connections = []
    with socket.socket() as listener, tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        threading.Thread(target=accept_forever, args=(listener, connections), daemon=True).start()
        python = folder / "python3"
        python.write_text("#!/bin/sh\nexec sleep 600\n")
        python.chmod(0o755)
        environment = {**os.environ, "MLFLOW_TRACKING_URI": url, "HEARTH_LOGGER_PYTHON": str(python)}
        ratios = []
        for pair in range(pairs):
            plain = run(folder, 2 * pair, steps, ["log.to=tensorboard"], environment)
            dead = run(folder, 2 * pair + 1, steps, [LOGGERS, f"log.webhook={url}/hook"], environment)
            ratios.append([b / a for a, b in zip(plain, dead)])
            print(f"pair {pair + 1}: update x {ratios[-1][0]:.4f}, CPU time x {ratios[-1][1]:.4f}", flush=True)
        update, cpu = (statistics.median(column) for column in zip(*ratios))
        print(f"median: update x {update:.4f}, CPU time x {cpu:.4f}")


main()
