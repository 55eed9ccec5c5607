"""
Where records can be put: a log of ours, a plain file, a table of SQLite; and the records that are put there.

A plain file has what a log cannot do without, the lengths of key and value in front of them, and nothing else: no
offsets, times, checksums, index. SQLite keeps its write-ahead log (`journal_mode=WAL`), from the standard library.
"""

from __future__ import annotations

import contextlib
import sqlite3
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from cleaner import Log, LogManager

KEY_BYTES = 16
BATCH_RECORDS = 1000
SEGMENT_BYTES = 100 << 20
Synchronous = Literal["OFF", "NORMAL", "FULL"]

_LENGTHS = struct.Struct("<II")
_POOL_BYTES = 1 << 22


@dataclass(frozen=True)
class Sample:
    """Records of one size, key and value together."""

    record_bytes: int
    keys: list[bytes]
    values: list[bytes]

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def size_bytes(self) -> int:
        """The bytes of all keys and values."""
        return len(self) * self.record_bytes

    def batches(self, count: int = BATCH_RECORDS) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Return keys and values, so many at a time."""
        for first in range(0, len(self), count):
            rows = slice(first, first + count)
            yield self.keys[rows], self.values[rows]


def sample(count: int, record_bytes: int, keys: int | None = None) -> Sample:
    """Make records whose keys are drawn evenly from so many (default: one for eight records); half a value is noise."""
    random = np.random.default_rng(1)
    drawn = random.integers(0, keys or -(-count // 8), count).tolist()
    pool = np.where(np.arange(_POOL_BYTES) % 64 < 32, random.integers(0, 256, _POOL_BYTES), 97).astype(np.uint8)
    data, value_bytes = pool.tobytes(), record_bytes - KEY_BYTES
    starts = random.integers(0, _POOL_BYTES - value_bytes, count).tolist()
    return Sample(
        record_bytes, [b"%016d" % key for key in drawn], [data[start : start + value_bytes] for start in starts]
    )


@contextlib.contextmanager
def open_log(log_dir: Path, settings: Mapping[str, str] | None = None, *, tasks: bool = False) -> Iterator[Log]:
    """Give a log through the public library, a new one when there is none; without `tasks` nothing else is at work."""
    with LogManager(log_dir, create=True, cleaner=False, tasks=tasks) as manager:
        if "records" not in manager.topics():
            manager.create_topic("records", 1, {"segment.bytes": str(SEGMENT_BYTES), **(settings or {})})
        yield manager.log("records")


class PlainFile:
    """A file of records; use it in a `with` block."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab+", buffering=0)

    def __enter__(self) -> PlainFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Append records with one write."""
        pack = _LENGTHS.pack
        parts = [
            part for key, value in zip(keys, values, strict=True) for part in (pack(len(key), len(value)), key, value)
        ]
        self._file.write(b"".join(parts))

    def fileno(self) -> int:
        """Return its descriptor."""
        return self._file.fileno()

    def read(self) -> Iterator[tuple[bytes, bytes]]:
        """Return key and value of all records."""
        self._file.seek(0)
        data, at = self._file.read(), 0
        unpack, head = _LENGTHS.unpack_from, _LENGTHS.size
        while at < len(data):
            key_bytes, value_bytes = unpack(data, at)
            value_at = at + head + key_bytes
            at = value_at + value_bytes
            yield data[value_at - key_bytes : value_at], data[value_at:at]


class Table:
    """
    A table of records in a file of SQLite; use it in a `with` block, in one thread at a time.

    Args:
        synchronous: OFF never waits for the disk, NORMAL when the write-ahead log is written back, FULL with each
            transaction.
    """

    def __init__(self, path: Path, synchronous: Synchronous) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute(f"PRAGMA synchronous={synchronous}")
        self.connection.execute("CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, at, key BLOB, value BLOB)")

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def append(self, keys: Iterable[bytes], values: Iterable[bytes]) -> None:
        """Append records in one transaction."""
        timestamp_ms = time.time_ns() // 1_000_000
        rows = ((timestamp_ms, key, value) for key, value in zip(keys, values, strict=True))
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany("INSERT INTO log (at, key, value) VALUES (?, ?, ?)", rows)
        self.connection.execute("COMMIT")

    def read(self) -> Iterator[tuple[int, int, bytes, bytes]]:
        """Return number, time, key and value of all records."""
        return self.connection.execute("SELECT id, at, key, value FROM log ORDER BY id")
