"""The program `hearth`: its path, its arguments, its errors."""

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

#: Exit status of a training that was stopped and can be resumed.
INTERRUPTED = 130


class HearthError(RuntimeError):
    """An error of the program. The message is its sentence: what is wrong, where, and what to do.

    `exit_status` is the exit status of the program: 2 for a mistake in a recipe, data or arguments (docs/json.md has a table).
    """

    def __init__(self, message: str, exit_status: int = 2) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def program() -> Path:
    """Returns the path of the program: HEARTH_PROGRAM, the program of the wheel, or `hearth` in PATH.

    Raises HearthError if there is none.
    """
    named = os.environ.get("HEARTH_PROGRAM")
    found = named or _program_of_wheel() or shutil.which("hearth")
    if found is None:
        raise HearthError("there is no program 'hearth' in PATH; install it, or set HEARTH_PROGRAM to its path")
    if not os.access(found, os.X_OK):
        raise HearthError(f"HEARTH_PROGRAM: '{found}' is not a program; set it to the path of hearth")
    return Path(os.path.abspath(found))


def _program_of_wheel() -> Optional[str]:
    try:
        files = importlib.metadata.files("hearth-train") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = [str(file.locate()) for file in files if file.parts[-2:] == ("bin", "hearth")]
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def error_of(status: int, said: str) -> HearthError:
    """Returns the error of a process that ended with `status` after writing `said` to standard error."""
    start = said.rfind("hearth: ")
    sentence = said[start + len("hearth: ") :].strip() if start >= 0 else said.strip()
    return HearthError(sentence or f"hearth ended with status {status}", status)


def run_json(*arguments: str) -> Any:
    """Runs the program and returns the JSON document that it prints. Raises HearthError if it fails."""
    done = subprocess.run(
        [str(program()), *arguments], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode != 0:
        raise error_of(done.returncode, done.stderr)
    return json.loads(done.stdout)


def overrides(*mappings: Mapping[str, Any]) -> List[str]:
    """Returns KEY=VALUE arguments: {"train": {"steps": 9}} and {"train.steps": 9} give train.steps=9. None leaves a key unchanged."""
    return [f"{key}={_value_text(value)}" for mapping in mappings for key, value in _flat(mapping)]


def _flat(mapping: Mapping[str, Any], prefix: str = "") -> Iterator[Tuple[str, Any]]:
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield prefix + key, value


def _value_text(value: Any) -> str:
    """Returns the text of a value; lists are YAML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(json.dumps(x, ensure_ascii=False) if isinstance(x, str) else _value_text(x) for x in value) + "]"
    return str(value)


def plan(recipe: PathLike, *, memory: Optional[str] = None, gpu: Optional[str] = None, **values: Any) -> Dict[str, Any]:
    """Returns the plan of a run: its memory by purpose in bytes, and the FLOPs of a step.

    `memory`: memory budget such as "20GiB"; `gpu`: name of a GPU such as "rx7900xt", whose memory is the budget. With a budget the plan
    also contains the largest micro-batch that fits, and the fastest plan with its modeled time. `values`: keys of the recipe, as for
    train().
    """
    arguments = ["plan", os.fspath(recipe), *overrides(values), "--json"]
    if memory is not None:
        arguments += ["--memory", memory]
    if gpu is not None:
        arguments += ["--gpu", gpu]
    with tempfile.TemporaryDirectory() as folder:
        result: Dict[str, Any] = run_json(*arguments, "--svg", str(Path(folder, "plan.svg")))
    return result
