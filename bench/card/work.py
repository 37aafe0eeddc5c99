"""A part of `tools/card` at work: its commands under one deadline, and what it finds."""

import dataclasses
import json
import os
import pathlib
import shlex
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TIMED_OUT = 124


class OutOfTime(Exception):
    """The part has used its time."""


class Missing(Exception):
    """What a part cannot do without and is not here, in a line."""


@dataclasses.dataclass
class Done:
    status: int
    text: str

    def last_line(self):
        return (self.text.strip().splitlines() or ["it said nothing"])[-1][:300]


def end(process):
    """Ends a process with all that it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


class Work:
    """`keep` is called with the result whenever something was found, so that nothing is lost at a stop."""

    def __init__(self, card, options, log, seconds, keep):
        self.card, self.options, self.log, self.keep = card, options, log, keep
        self.start = time.monotonic()
        self.deadline = self.start + seconds
        self.result = {"status": "running", "right": [], "wrong": [], "missing": [], "tables": [], "figures": {}}
        log.write_text("")

    def add(self, kind, found):
        if kind in ("wrong", "missing"):
            print(f"   {'not here' if kind == 'missing' else kind}: {found}", flush=True)
        self.result[kind].append(found)
        self.keep()

    def right(self, text):
        self.add("right", text)

    def wrong(self, text):
        self.add("wrong", text)

    def missing(self, text):
        self.add("missing", text)

    def table(self, title, head, rows):
        if rows:
            self.add("tables", {"title": title, "head": head, "rows": rows})

    def figure(self, name, value):
        if value is not None:
            self.result["figures"][name] = value

    def seconds(self):
        return time.monotonic() - self.start

    def seconds_left(self):
        return self.deadline - time.monotonic()

    def run(self, *command, seconds=None, **environment):
        """Runs a command, its output in the log; status 124 where it took longer than `seconds`."""
        command = [str(word) for word in command]
        words = [f"{name}={shlex.quote(value)}" for name, value in environment.items()] + [shlex.join(command)]
        with self.log.open("a") as log:
            log.write(f"\n$ {' '.join(words)}\n")
        begin = self.log.stat().st_size
        status = self.status_of(command, environment, seconds)
        text = self.log.read_bytes()[begin:].decode(errors="replace")
        with self.log.open("a") as log:
            log.write(f"\n({'stopped' if status == TIMED_OUT else f'status {status}'})\n")
        if self.seconds_left() <= 0:
            raise OutOfTime(shlex.join(command))
        return Done(status, text)

    def status_of(self, command, environment, seconds):
        """What hearth finds out about a GPU is kept here, apart from what its user's own trainings found out."""
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder("cache")), **environment}
        left = self.seconds_left()
        if left <= 0:
            raise OutOfTime(shlex.join(command))
        with self.log.open("a") as log:
            try:
                process = subprocess.Popen(
                    command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                    stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                )
            except OSError as error:
                log.write(f"{command[0]}: {error.strerror}\n")
                return 127
        try:
            return process.wait(min(left, seconds or left))
        except subprocess.TimeoutExpired:
            return TIMED_OUT
        finally:
            end(process)

    # ------------------------------------------------------------------------------------------- what was built

    def program(self, name="hearth"):
        """A program of the build; a part that needs it ends where it is not here."""
        path = self.options.build / name
        if not os.access(path, os.X_OK):
            raise FileNotFoundError(f"there is no {path}; tools/card --part build makes it")
        return path

    def folder(self, name):
        made = self.options.logs / name
        made.mkdir(parents=True, exist_ok=True)
        return made


def read_json(path):
    """What a JSON file holds; None where there is none or only half of one."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
