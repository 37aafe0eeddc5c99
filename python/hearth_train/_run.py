"""Functions and a class that start, follow, stop and resume runs."""

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

    `Run("runs/demo")` opens a run that this process or another one has started. It may still be training.
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
        """Path of the log, a file with a JSON object per line."""
        return self.folder / LOG_FILE

    @property
    def state(self) -> str:
        """State of the run: "running", "done", "stopped" (resume() continues it) or "failed" (wait() raises the error).

        A run that another process started is, after its end, "done" if the log contains the last step, otherwise "stopped".
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
        """Path of the weights with the best evaluation, or of the last weights if there are no best ones."""
        best = self.folder / "best.safetensors"
        return best if best.exists() else self.folder / "model.safetensors"

    def wait(self, timeout: Optional[float] = None) -> "Run":
        """Waits until training ends, at most `timeout` seconds, and returns the run.

        Raises HearthError if training failed, TimeoutError if training has not ended, and the exception that a callback has raised.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.state == "running":
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"{self.folder}: training has not ended within {timeout} s; call wait() again, or stop()")
            time.sleep(_POLL_SECONDS)
        if self._follower is not None:
            self._follower.join()
        if self._process is not None and self._errors is not None:
            self._errors.seek(0)
            stderr = self._errors.read().decode(errors="replace")
            self._errors.close()
            self._errors = None
            if self.state == "failed":
                self._error = error_of(self._process.returncode, stderr)
        if self._callback_error is not None:
            raise self._callback_error
        if self._error is not None:
            raise self._error
        return self

    def stop(self, timeout: Optional[float] = None) -> "Run":
        """Stops training after the current step with a checkpoint, from which resume() continues. Waits for the end, as wait() does.

        Has no effect if training has ended. Does not wait in a callback that runs on the background thread of start().
        """
        pid = self._trainer_pid()
        if pid is not None and not self._is_stop_sent:
            # A second signal would end the process without a checkpoint.
            self._is_stop_sent = True
            os.kill(pid, signal.SIGINT)
        return self if threading.current_thread() is self._follower else self.wait(timeout)

    def metrics(self, frame: Optional[bool] = None) -> Any:
        """Returns the metrics in the log, one row per step: step, loss, lr, grad_norm, eval_loss, eval_accuracy and so on.

        Returns a pandas DataFrame if `frame` is True, or if `frame` is None and pandas is installed; otherwise a list of dicts.
        """
        rows: Dict[int, Record] = {}
        for record in read_log(self.log):
            if "event" not in record:
                row = _row(record)
                rows.setdefault(row["step"], {}).update(row)
        sorted_rows = [rows[step] for step in sorted(rows)]
        if frame is False:
            return sorted_rows
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            if frame:
                raise
            return sorted_rows
        return pandas.DataFrame(sorted_rows)

    def events(self) -> List[Record]:
        """Returns the events in the log, such as rollbacks and restarts. Each is a dict with `step` and `event`, a sentence."""
        return [_row(record) for record in read_log(self.log) if "event" in record]

    # ------------------------------------------------------------------------------------------------ internal

    def _launch(self, arguments: List[str]) -> None:
        # Standard error is a file, not a pipe, because writing to a pipe fails after this process has ended.
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [str(program()), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            # A new session, because Ctrl-C and the end of a notebook's kernel send signals to the process group of this process.
            start_new_session=True,
        )

    def _trainer_pid(self) -> Optional[int]:
        """Returns the process that receives signals: the supervisor, or the worker if there is no supervisor. None if no process trains."""
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
                # Checked before reading, so that the last lines are read after the run has ended.
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
    """Returns a record of the log with the key "current_steps" renamed to "step"."""
    return {"step" if key == "current_steps" else key: value for key, value in record.items()}


def _lock_owner(lock: Path) -> Optional[int]:
    """Returns the process on this host that holds the lock of a run folder; None if there is no such process."""
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
    """Returns the default run folder of the program: runs/NAME, or runs/NAME-2 and so on if that folder exists."""
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
    """Starts training in a separate process and returns the run immediately.

    `recipe`: name of a built-in recipe ("demo"), a recipe file, or data (a folder or a file), for which the program chooses a recipe.
    `out`: run folder (default: runs/NAME). `values`: keys of the recipe; train={"steps": 9} and **{"train.steps": 9} are equivalent.

    A background thread calls the callbacks as callback(run, record). The record of on_step, which is called after each update, contains
    step, loss, lr and grad_norm; the record of on_evaluation contains eval_loss and the metrics; the record of on_event contains event, a
    sentence. If a callback raises an exception, training stops, and wait() raises the exception. wait() also raises HearthError if
    an argument is wrong.
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
    """Trains, and returns the run when training has ended. Raises HearthError if training fails.

    Arguments as for start(). `progress`: True to show a progress bar (default: on a terminal and in a notebook). The callbacks are called on
    the calling thread. Ctrl-C, the interruption of a notebook cell, or an exception in a callback stops training after the current step
    with a checkpoint, from which resume() continues.
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
    """Continues a run from its newest complete checkpoint.

    Returns when training has ended, as train() does; if `wait` is False, returns immediately, as start() does. `run`: run folder or Run.
    `values`: keys of the recipe to change, such as **{"train.epochs": 9}.
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
