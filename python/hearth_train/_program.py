"""Path, arguments and errors of the program `hearth`."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, Union

PathLike = Union[str, "os.PathLike[str]"]

#: Exit status of a run that was stopped and can be resumed.
INTERRUPTED = 130


class HearthError(RuntimeError):
    """An error of the program. The message is the error message of the program: what is wrong, where, and what to do.

    `exit_status` is the exit status of the program, such as 2 for a mistake in a recipe, data or arguments (table in docs/json.md).
    """

    def __init__(self, message: str, exit_status: int = 2) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def program() -> Path:
    """Returns the path of the program: HEARTH_PROGRAM, otherwise the program of the wheel, otherwise `hearth` in PATH.

    Raises HearthError if there is no program.
    """
    path = os.environ.get("HEARTH_PROGRAM") or _program_of_wheel() or shutil.which("hearth")
    if path is None:
        raise HearthError("there is no program 'hearth' in PATH; install Hearth, or set HEARTH_PROGRAM to the path of the program")
    if not os.access(path, os.X_OK):
        raise HearthError(f"HEARTH_PROGRAM is '{path}', which is not a program; set it to the path of the program hearth")
    return Path(os.path.abspath(path))


def _program_of_wheel() -> Optional[str]:
    try:
        files = importlib.metadata.files("hearth-train") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = [str(file.locate()) for file in files if file.parts[-2:] == ("bin", "hearth")]
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def error_of(status: int, stderr: str) -> HearthError:
    """Returns the error of a process that ended with exit status `status` after it wrote `stderr` to standard error."""
    start = stderr.rfind("hearth: ")
    message = stderr[start + len("hearth: ") :].strip() if start >= 0 else stderr.strip()
    return HearthError(message or f"hearth ended with exit status {status} and no message; run hearth doctor to check the machine", status)


def run_json(*arguments: str) -> Any:
    """Runs the program and returns the JSON document that it prints. Raises HearthError if it fails."""
    process = subprocess.run(
        [str(program()), *arguments], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if process.returncode != 0:
        raise error_of(process.returncode, process.stderr)
    return json.loads(process.stdout)


def overrides(*mappings: Mapping[str, Any]) -> List[str]:
    """Returns arguments KEY=VALUE: {"train": {"steps": 9}} and {"train.steps": 9} become train.steps=9. Skips values that are None."""
    return [f"{key}={_value_text(value)}" for mapping in mappings for key, value in _flat(mapping)]


def _flat(mapping: Mapping[str, Any], prefix: str = "") -> Iterator[Tuple[str, Any]]:
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield prefix + key, value


def _value_text(value: Any) -> str:
    """Returns a value as text; a list as a YAML list."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(json.dumps(x, ensure_ascii=False) if isinstance(x, str) else _value_text(x) for x in value) + "]"
    return str(value)


def plan(recipe: PathLike, *, memory: Optional[str] = None, gpu: Optional[str] = None, **values: Any) -> Dict[str, Any]:
    """Returns the plan of a run: its memory by purpose in bytes, and the FLOPs of a step (keys: docs/json.md).

    `memory`: memory budget such as "20GiB". `gpu`: name of a GPU such as "rx7900xt", whose memory is the budget. If there is a budget, the
    result also contains the largest micro-batch that fits, and the fastest plan with its predicted time. `values`: keys of the recipe, as
    for train().
    """
    arguments = ["plan", os.fspath(recipe), *overrides(values), "--json"]
    if memory is not None:
        arguments += ["--memory", memory]
    if gpu is not None:
        arguments += ["--gpu", gpu]
    with tempfile.TemporaryDirectory() as folder:
        result: Dict[str, Any] = run_json(*arguments, "--svg", str(Path(folder, "plan.svg")))
    return result
