"""Reader of trainer_log.jsonl, the log of a run: one JSON object per line."""

from __future__ import annotations

import json
import os
from array import array
from typing import Any, BinaryIO, Dict, List, Optional

from ._program import PathLike

#: Name of the log in a run folder.
LOG_FILE = "trainer_log.jsonl"


class LogReader:
    """Reads the lines that were added to a log since the last call. The run may still be writing the log.

    A run that resumes replaces its log by the lines up to its checkpoint. The reader then continues after the last line that the old and
    the new log have in common, so that no line is returned twice unless the run has computed it again.
    """

    def __init__(self, path: PathLike) -> None:
        self._path = path
        self._file: Optional[BinaryIO] = None
        self._part = b""  # start of a line whose end is not written yet
        self._hashes = array("q")  # hashes of all lines that were returned
        self._num_common = 0  # number of lines of the open file that were compared with _hashes

    def read(self) -> List[Dict[str, Any]]:
        """Returns the new records in order; an empty list if there is no log yet or no new line."""
        if not self._is_current():
            self._open()
        if self._file is None:
            return []
        *lines, self._part = (self._part + self._file.read()).split(b"\n")
        return [record for line in lines if self._is_new(line) and (record := _record(line)) is not None]

    def close(self) -> None:
        """Closes the log. A later read() opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _is_current(self) -> bool:
        if self._file is None:
            return False
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return True

    def _open(self) -> None:
        self.close()
        self._part, self._num_common = b"", 0
        try:
            self._file = open(self._path, "rb")
        except FileNotFoundError:
            pass

    def _is_new(self, line: bytes) -> bool:
        number, self._num_common = self._num_common, self._num_common + 1
        line_hash = hash(line)
        if number < len(self._hashes):
            if self._hashes[number] == line_hash:
                return False
            del self._hashes[number:]
        self._hashes.append(line_hash)
        return True


def read_log(path: PathLike) -> List[Dict[str, Any]]:
    """Returns all records of a log; an empty list if there is no log."""
    reader = LogReader(path)
    try:
        return reader.read()
    finally:
        reader.close()


def _record(line: bytes) -> Optional[Dict[str, Any]]:
    """Returns the record in a line; None if the line is damaged, for example after a crash, or contains no record."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("current_steps"), int) else None
