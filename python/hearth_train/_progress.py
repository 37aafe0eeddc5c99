"""Progress bar of a run, on a terminal or in a notebook."""

from __future__ import annotations

import sys
from typing import Any, Dict, TextIO

_BAR_CELLS = 30


def _is_notebook() -> bool:
    """Returns True in the kernel of a notebook, whose output is not a terminal but supports carriage returns."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def shows_progress() -> bool:
    """Returns True if a line can be updated in place: standard error is a terminal, or Python runs in a notebook."""
    return sys.stderr.isatty() or _is_notebook()


class Progress:
    """A line with percentage, step, loss, speed and remaining time, updated in place. Evaluations and events are printed above it."""

    def __init__(self) -> None:
        # Notebooks show standard error on the background color of errors.
        self._stream: TextIO = sys.stdout if _is_notebook() else sys.stderr
        self._first_row: Dict[str, Any] = {}
        self._width = 0

    def show(self, row: Dict[str, Any]) -> None:
        """Shows a record of the log: a step, an evaluation or an event."""
        if "event" in row:
            self._put_line(f"step {row['step']}: {row['event']}")
        elif "loss" in row:
            self._put(self._bar(row))
        elif "eval_loss" in row:
            values = ", ".join(f"{key} {value:.4g}" for key, value in row.items() if key.startswith("eval_") and value is not None)
            self._put_line(f"step {row['step']}: {values}{', the best so far' if row.get('best') else ''}")

    def close(self) -> None:
        """Ends the current line."""
        if self._width > 0:
            self._stream.write("\n")
            self._stream.flush()
        self._width = 0

    def _bar(self, row: Dict[str, Any]) -> str:
        step, total = row["step"], row["total_steps"]
        self._first_row = self._first_row or row
        fraction = step / max(total, 1)
        cells = "#" * int(fraction * _BAR_CELLS)
        loss = "skipped" if row["loss"] is None else f"{row['loss']:.4f}"
        text = f"{100 * fraction:5.1f}% [{cells:<{_BAR_CELLS}}] {step}/{total}  loss {loss}"
        seconds_passed = row["elapsed_time"] - self._first_row["elapsed_time"]
        if seconds_passed > 0:
            rate = (step - self._first_row["step"]) / seconds_passed
            minutes, seconds = divmod(int((total - step) / rate), 60)
            text += f"  {rate:.1f} steps/s  ETA {minutes}:{seconds:02}"
        return text

    def _put(self, text: str) -> None:
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)

    def _put_line(self, text: str) -> None:
        self._put(text)
        self.close()
