"""
What writers and readers were answered, as lines of JSON in files that no accident reaches.

A line is written with one call, in append mode, before or after the deed that it is about:

    send        before an append: its records, by key and number
    answer      the append was answered with this base offset
    failed      it was answered with an error that promises that nothing was appended
    durable     its future is done
    flushed     everything below this offset was answered as durable
    ask         before the end of a transaction: commit or abort
    unask       the end was refused: the transaction was ended otherwise
    ended       the end was answered
    stable      the end's future is done
    error       a call failed
    begins      a reader is about to read
    shown       what it was shown
"""

from __future__ import annotations

import json
import os
import time
import zlib
from pathlib import Path
from typing import Any

Note = dict[str, Any]


class Notes:
    """Where a process notes what it was answered. Safe to share between threads."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, do: str, **note: object) -> None:
        """Write a line."""
        line = json.dumps({"t": time.monotonic(), "do": do, **note}, separators=(",", ":")) + "\n"
        data = line.encode()
        assert os.write(self._descriptor, data) == len(data)


class NotesReader:
    """Reads the lines of a file as they come; the last one of a killed process may be cut off."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open("rb")
        self._rest = b""

    def read(self) -> list[Note]:
        """Return the lines that have come since the last call."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def value_of(number: int, key: str, padding: int) -> bytes | None:
    """Return the value of a record; an upper-case key is a tombstone's."""
    return None if key.isupper() else f"{number}:{key}".encode() + b"." * padding


def digest_of(value: bytes | None) -> int | None:
    """Return what a reader notes of a value."""
    return None if value is None else zlib.crc32(value)
