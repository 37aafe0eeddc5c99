"""Runs: starting, following, stopping and resuming a training process."""

from __future__ import annotations

import fcntl
import importlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any, Callable, Dict, List, Mapping, Optional

from ._program import INTERRUPTED, HearthError, PathLike, error_of, overrides, program
from ._progress import Progress, shows_progress
from .log import LOG_FILE, LogReader, read_log

Record = Dict[str, Any]
Callback = Callable[["Run", Record], None]

_POLL_SECONDS = 0.1


class Run:
    """A run folder, and the process that trains in it, if there is one.

    `Run("runs/demo")` opens a run that this or another process has started, also while it trains.
    """

    def __init__(self, folder: PathLike) -> None:
        self.folder = Path(folder)
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._errors: Optional[IO[bytes]] = None
        self._error: Optional[HearthError] = None
        self._follower: Optional[threading.Thread] = None
        self._callback_error: Optional[BaseException] = None
        self._is_stop_sent = False

    def __repr__(self) -> str:
        return f"Run('{self.folder}', {self.state})"

    def __fspath__(self) -> str:
        return str(self.folder)

    @property
    def log(self) -> Path:
        """Path of the log, which has a JSON object per line."""
        return self.folder / LOG_FILE

    @property
    def state(self) -> str:
        """State of the run: "running", "done", "stopped" (resume() continues it) or "failed" (wait() raises the error).

        A run of another process that has ended is "done" if its log reaches the last step, otherwise "stopped".
        """
        if self._process is not None:
            status = self._process.poll()
            return "running" if status is None else {0: "done", INTERRUPTED: "stopped", -signal.SIGINT: "stopped"}.get(status, "failed")
        if self._trainer_pid() is not None:
            return "running"
        steps = [record for record in read_log(self.log) if "total_steps" in record]
        return "done" if steps and steps[-1]["current_steps"] >= steps[-1]["total_steps"] else "stopped"

    @property
    def best(self) -> Path:
        """Path of the weights with the best evaluation, or of the last weights if no evaluation was the best."""
        best = self.folder / "best.safetensors"
        return best if best.exists() else self.folder / "model.safetensors"

    def wait(self, timeout: Optional[float] = None) -> "Run":
        """Waits until training ends, for at most `timeout` seconds, and returns the run.

        Raises HearthError if training failed, TimeoutError if it has not ended, and the exception of a callback.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.state == "running":
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"{self.folder}: training has not ended within {timeout} s")
            time.sleep(_POLL_SECONDS)
        if self._follower is not None:
            self._follower.join()
        if self._process is not None and self._errors is not None:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace")
            self._errors.close()
            self._errors = None
            if self.state == "failed":
                self._error = error_of(self._process.returncode, said)
        if self._callback_error is not None:
            raise self._callback_error
        if self._error is not None:
            raise self._error
        return self

    def stop(self, timeout: Optional[float] = None) -> "Run":
        """Ends training after the current step with a checkpoint, from which resume() continues, and waits as wait() does.

        Has no effect if training has ended. In a callback, only the request is sent.
        """
        pid = self._trainer_pid()
        if pid is not None and not self._is_stop_sent:
            # A second signal would end the trainer without a checkpoint.
            self._is_stop_sent = True
            os.kill(pid, signal.SIGINT)
        return self if threading.current_thread() is self._follower else self.wait(timeout)

    def metrics(self, frame: Optional[bool] = None) -> Any:
        """Returns the metrics of the log, one row per step: step, loss, lr, grad_norm, eval_loss, eval_accuracy and so on.

        Returns a pandas DataFrame if `frame` is true, or if it is None and pandas is installed; otherwise a list of dicts.
        """
        rows: Dict[int, Record] = {}
        for record in read_log(self.log):
            if "event" not in record:
                row = _row(record)
                rows.setdefault(row["step"], {}).update(row)
        found = [rows[step] for step in sorted(rows)]
        if frame is False:
            return found
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            if frame:
                raise
            return found
        return pandas.DataFrame(found)

    def events(self) -> List[Record]:
        """Returns the events of the log, such as rollbacks and restarts: step and event, a sentence."""
        return [_row(record) for record in read_log(self.log) if "event" in record]

    # ------------------------------------------------------------------------------------------------ internal

    def _launch(self, arguments: List[str]) -> None:
        # A file, not a pipe: writing to it does not fail when this process has ended.
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [str(program()), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            # Ctrl-C and the end of a notebook's kernel signal the group of this process.
            start_new_session=True,
        )

    def _trainer_pid(self) -> Optional[int]:
        """Returns the process to signal: the supervisor, or the trainer if it runs without one. None if no process trains."""
        if self._process is not None:
            return self._process.pid if self._process.poll() is None else None
        worker = _lock_owner(self.folder / ".lock")
        if worker is None:
            return None
        try:
            parent = int(re.sub(r".*\) . (\d+) .*", r"\1", Path(f"/proc/{worker}/stat").read_text(), flags=re.S))
            is_supervised = os.path.samefile(f"/proc/{parent}/exe", f"/proc/{worker}/exe")
        except OSError:
            return worker
        return parent if is_supervised else worker

    def _follow(self, reader: LogReader, callbacks: Mapping[str, Optional[Callback]], progress: Optional[Progress]) -> None:
        """Calls the callbacks until training ends."""
        try:
            while True:
                # Before reading, so that the last lines are read after the end.
                is_running = self.state == "running"
                for record in reader.read():
                    row = _row(record)
                    kind = "event" if "event" in row else "step" if "loss" in row else "evaluation"
                    if progress is not None:
                        progress.show(row)
                    callback = callbacks.get(kind)
                    if callback is not None:
                        callback(self, row)
                if not is_running:
                    return
                time.sleep(_POLL_SECONDS)
        finally:
            reader.close()
            if progress is not None:
                progress.close()

    def _follow_in_thread(self, reader: LogReader, callbacks: Mapping[str, Optional[Callback]]) -> None:
        def follow() -> None:
            try:
                self._follow(reader, callbacks, None)
            except BaseException as error:  # wait() raises it.
                self._callback_error = error
                self.stop()

        self._follower = threading.Thread(target=follow, name=f"hearth {self.folder}", daemon=True)
        self._follower.start()


def _row(record: Record) -> Record:
    """Returns a record of the log with the key "step" in place of "current_steps"."""
    return {"step" if key == "current_steps" else key: value for key, value in record.items()}


def _lock_owner(lock: Path) -> Optional[int]:
    """Returns the process of this host that holds the lock of a run folder; None if there is none."""
    try:
        with open(lock, "rb") as file:
            owner = re.match(r"process (\d+) on (.*)", file.read().decode(errors="replace"))
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(owner[1]) if owner and owner[2] == socket.gethostname() else None
            return None
    except FileNotFoundError:
        return None


def _default_folder(recipe: str) -> Path:
    """Returns the folder that the program would choose: runs/NAME, or runs/NAME-2 and so on if that exists."""
    base = f"runs/{Path(recipe).stem}"
    folder, number = Path(base), 2
    while folder.exists():
        folder, number = Path(f"{base}-{number}"), number + 1
    return folder


def start(
    recipe: PathLike,
    *,
    out: Optional[PathLike] = None,
    on_step: Optional[Callback] = None,
    on_evaluation: Optional[Callback] = None,
    on_event: Optional[Callback] = None,
    **values: Any,
) -> Run:
    """Starts training in a separate process and returns the run at once.

    `recipe`: name of a built-in recipe ("demo"), a recipe file, or data (a folder or a file), for which the program chooses a recipe.
    `out`: run folder (default: runs/NAME). `values`: keys of the recipe; train={"steps": 9} and **{"train.steps": 9} are the same.

    The callbacks are called as callback(run, record) on a background thread: on_step after each update with step, loss, lr and
    grad_norm; on_evaluation with eval_loss and the metrics; on_event with a sentence. If a callback raises an exception, training
    stops and wait() raises it. Mistakes in the arguments are raised by wait(), too.
    """
    name = os.fspath(recipe)
    folder = Path(out) if out is not None else _default_folder(name)
    arguments = ["train", name, *overrides(values), "--yes", "--out", str(folder)]
    return _started(folder, arguments, {"step": on_step, "evaluation": on_evaluation, "event": on_event})


def train(
    recipe: PathLike,
    *,
    out: Optional[PathLike] = None,
    progress: Optional[bool] = None,
    on_step: Optional[Callback] = None,
    on_evaluation: Optional[Callback] = None,
    on_event: Optional[Callback] = None,
    **values: Any,
) -> Run:
    """Trains and returns the run when training has ended. Raises HearthError if it fails.

    The arguments are those of start(). `progress`: true to show a progress bar (default: on a terminal and in a notebook). Callbacks
    are called on the calling thread. Ctrl-C, the interruption of a notebook, or an exception of a callback stops training after the
    current step with a checkpoint, from which resume() continues.
    """
    run = start(recipe, out=out, **values)
    return _followed(run, LogReader(run.log), {"step": on_step, "evaluation": on_evaluation, "event": on_event}, progress)


def resume(
    run: PathLike,
    *,
    wait: bool = True,
    progress: Optional[bool] = None,
    on_step: Optional[Callback] = None,
    on_evaluation: Optional[Callback] = None,
    on_event: Optional[Callback] = None,
    **values: Any,
) -> Run:
    """Continues a run from its newest complete checkpoint, as train() does, or as start() does if `wait` is false.

    `run`: run folder or Run. `values`: keys of the recipe to change, such as **{"train.epochs": 9}.
    """
    folder = Path(run)
    arguments = ["resume", str(folder), *overrides(values)]
    callbacks = {"step": on_step, "evaluation": on_evaluation, "event": on_event}
    if not wait:
        return _started(folder, arguments, callbacks)
    reader = _reader_of_new_lines(folder)
    return _followed(_started(folder, arguments, {}), reader, callbacks, progress)


def _reader_of_new_lines(folder: Path) -> LogReader:
    reader = LogReader(folder / LOG_FILE)
    reader.read()
    return reader


def _started(folder: Path, arguments: List[str], callbacks: Mapping[str, Optional[Callback]]) -> Run:
    run = Run(folder)
    reader = _reader_of_new_lines(folder)
    run._launch(arguments)
    if any(callback is not None for callback in callbacks.values()):
        run._follow_in_thread(reader, callbacks)
    else:
        reader.close()
    return run


def _followed(run: Run, reader: LogReader, callbacks: Mapping[str, Optional[Callback]], progress: Optional[bool]) -> Run:
    bar = Progress() if (shows_progress() if progress is None else progress) else None
    try:
        run._follow(reader, callbacks, bar)
    except BaseException:
        run.stop()
        raise
    return run.wait()
