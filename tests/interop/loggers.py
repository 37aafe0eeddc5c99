"""Runs with all loggers at once, read back: python tests/interop/loggers.py.

A real MLflow server (SQLite, 127.0.0.1), wandb in offline mode and trackio in a local folder receive a run that is extended and
resumed. The server starts after the run, so the first metrics arrive late. Needs ./hearth (tools/build) and tools/deps services.
"""

import csv
import json
import os
import pathlib
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

from wandb.proto import wandb_internal_pb2

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS, MORE_STEPS = 40, 60
WAIT_SECONDS = 120  # for one event, on a busy machine


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: expected {wanted}, got {got}")


def wait_for(what, check):
    """Calls check() until it returns a true value, and returns that."""
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        if found := check():
            return found
        time.sleep(0.2)
    raise AssertionError(f"{what}: did not happen within {WAIT_SECONDS} s")


class MlflowServer:
    """A process group with an MLflow server, which the end of the `with` block ends."""

    def __init__(self, folder):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder = folder

    def __enter__(self):
        environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        arguments = [
            "--host=127.0.0.1", f"--port={self.port}", "--workers=1", f"--backend-store-uri=sqlite:///{self.folder}/mlflow.db",
            f"--artifacts-destination={self.folder}/artifacts",
        ]
        with open(self.folder / "server.txt", "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", *arguments], env=environment, stdout=output, stderr=output, start_new_session=True
            )
        return self

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def get(self, function, **values):
        with urllib.request.urlopen(f"{self.url}/api/2.0/{function}?{urllib.parse.urlencode(values)}", timeout=20) as answer:
            return json.load(answer)

    def history(self, run_id, key):
        found = self.get("mlflow/metrics/get-history", run_id=run_id, metric_key=key, max_results=10000)
        return [(metric["step"], metric["value"]) for metric in found["metrics"]]


def is_up(server):
    try:
        return server.get("mlflow/experiments/get-by-name", experiment_name="Default")
    except (urllib.error.URLError, OSError):
        return None


def log_lines(run):
    return [json.loads(line) for line in (run / "trainer_log.jsonl").read_text().splitlines()]


def points(run, key):
    return [(line["current_steps"], line[key]) for line in log_lines(run) if key in line]


def check_mlflow(server, run):
    """Checks the run on the server against the log, and returns its id."""
    experiment = server.get("mlflow/experiments/get-by-name", experiment_name="interop")["experiment"]["experiment_id"]
    query = json.dumps({"experiment_ids": [experiment]}).encode()
    request = urllib.request.Request(f"{server.url}/api/2.0/mlflow/runs/search", query, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        (found,) = json.load(answer)["runs"]
    run_id = found["info"]["run_id"]
    expect("status", found["info"]["status"], "FINISHED")
    expect("name", found["info"]["run_name"], "all loggers")
    parameters = {item["key"]: item["value"] for item in found["data"]["params"]}
    expect("parameter", parameters["train.batch"], "8")
    assert "secret" not in json.dumps(found), "the URL of the webhook is on the server"
    for key, name in (("loss", "train/loss"), ("lr", "train/learning_rate"), ("eval_loss", "eval/loss"), ("eval_accuracy", "eval/accuracy")):
        expect(name, server.history(run_id, name), points(run, key))
    files = {file["path"] for file in server.get("mlflow/artifacts/list", run_id=run_id)["files"]}
    expect("artifacts", files, {"config.yaml", "report.html", "trainer_log.jsonl"})
    stored = next((server.folder / "artifacts").rglob("report.html"))
    expect("report.html", stored.read_bytes(), (run / "report.html").read_bytes())
    return run_id


def wandb_records(path):
    """Returns the records of an offline file: a header of 7 bytes, then LevelDB's log format."""
    data, at, parts = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        parts += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a full record, or its last part
            record, parts = wandb_internal_pb2.Record.FromString(parts), b""
            yield record


def check_csv(run):
    with open(run / "metrics.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for key, name in (("loss", "train/loss"), ("eval_loss", "eval/loss")):
        expect(f"{name} of metrics.csv", [(int(row["step"]), float(row[name])) for row in rows if row[name]], points(run, key))


def check_wandb(run):
    steps, ids = [], set()
    for file in sorted((run / "wandb").glob("offline-run-*/*.wandb")):
        for record in wandb_records(file):
            if record.WhichOneof("record_type") == "run":
                ids.add(record.run.run_id)
                expect("project", record.run.project, "interop")
                expect("name", record.run.display_name, "all loggers")
            if record.WhichOneof("record_type") == "history":
                values = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
                steps += [(values["_step"], values["train/loss"])] if "train/loss" in values else []
    expect("ids of the wandb run", len(ids), 1)
    expect("wandb's losses", steps, points(run, "loss"))


def check_trackio(folder, run):
    with sqlite3.connect(folder / "trackio" / "interop.db") as database:
        rows = database.execute("select run_name, step, metrics from metrics order by id").fetchall()
    expect("names of the trackio run", {row[0] for row in rows}, {"all loggers"})
    losses = [(step, json.loads(metrics)["train/loss"]) for _, step, metrics in rows if b"train/loss" in metrics]
    expect("trackio's losses", losses, points(run, "loss"))


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run, server = folder / "run", MlflowServer(folder)
        environment = {
            **os.environ, "MLFLOW_TRACKING_URI": server.url, "WANDB_MODE": "offline", "TRACKIO_DIR": str(folder / "trackio"),
            "HEARTH_LOGGER_PYTHON": sys.executable, "no_proxy": "127.0.0.1",
        }
        hearth = [str(ROOT / "hearth")]
        values = [
            "train.log_every=1", "train.batch=8", "data.count=64", "data.val_count=16", "train.eval_every=10", "log.project=interop",
            "log.name=all loggers", "log.to=[mlflow, wandb, trackio, csv]", "log.webhook=http://127.0.0.1:9/secret",
        ]
        first = subprocess.run(
            [*hearth, "train", "demo", "--out", run, f"train.steps={STEPS}", *values], env=environment, capture_output=True, text=True, check=False
        )
        expect("exit status without a server", first.returncode, 0)
        assert "mlflow: " in first.stderr and "webhook: " in first.stderr, first.stderr
        assert "wandb: " not in first.stderr and "trackio: " not in first.stderr, first.stderr
        with server:
            wait_for("start of the MLflow server", lambda: is_up(server))
            more = [f"train.steps={MORE_STEPS}"]
            second = subprocess.run([*hearth, "resume", run, *more], env=environment, capture_output=True, text=True, check=False)
            expect("exit status with a server", second.returncode, 0)
            run_id = check_mlflow(server, run)
            third = subprocess.run([*hearth, "resume", run, f"train.steps={MORE_STEPS + 5}"], env=environment, capture_output=True, check=False)
            expect("exit status of another session", third.returncode, 0)
            expect("id after another session", check_mlflow(server, run), run_id)
        check_csv(run)
        check_wandb(run)
        check_trackio(folder, run)
    print("loggers: all points of an interrupted run are in MLflow, wandb and trackio")


main()
