"""
Damage must not get a good checksum: whatever is sound after a step was sound before it.

A batch with a good checksum is one that was there before, byte for byte, or all its records were in such batches, each
at its offset and with its time, key, value and headers.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import numpy as np

from tests.reference.batches import Rec, read_batches, read_records
from tests.support.batch_builder import HEADER_BYTES
from tests.support.codecs import BadStream, crc32c

_SHORTEST_BYTES = 26
_CONTROL = 0x20  # in the low byte of the attributes
_UNREADABLE = (ValueError, IndexError, struct.error, zlib.error, EOFError, OSError, BadStream, OverflowError)
# What the steps themselves append.
_APPENDED = frozenset(
    ((None, b"a\tx"), (None, b"b\ty"), (b"a", b"by the library"), (b"b", None), (b"t", b"committed"))
)  # fmt: skip


class SoundBatches:
    """The batches with a good checksum below some directories, whatever the files' names are."""

    def __init__(self, directories: Iterable[Path]) -> None:
        self._batches: set[bytes] = set()
        self._records: set[Rec] = set()
        for directory in directories:
            for batch in _sound_below(directory, at_any_byte=True):
                self._batches.add(_checked_part(batch))
                self._records.update(_records_of(batch) or ())

    def laundered(self, directory: Path, *, may_append: bool) -> list[str]:
        """List the batches of the `.log` files below a directory that come from nowhere."""
        return [
            f"{batch[:61].hex()} {_records_of(batch)}"
            for batch in _sound_below(directory, at_any_byte=False)
            if _checked_part(batch) not in self._batches and not self._is_known(batch, may_append)
        ]

    def _is_known(self, batch: bytes, may_append: bool) -> bool:
        if may_append and batch[16] == 2 and batch[22] & _CONTROL:
            return True
        records = _records_of(batch)
        if records is None:
            return False
        return all(r in self._records or (may_append and (r.key, r.value) in _APPENDED) for r in records)


def _checked_part(batch: bytes) -> bytes:
    """Leave out the leader epoch, which the checksum does not cover and which an append sets."""
    return batch if batch[16] < 2 else batch[:12] + batch[16:]


def _records_of(batch: bytes) -> Collection[Rec] | None:
    """Return the records of a batch; None if it cannot be read."""
    try:
        return read_records(read_batches(batch)[0])
    except _UNREADABLE:
        return None


def _sound_below(directory: Path, *, at_any_byte: bool) -> Iterator[bytes]:
    for path in sorted(directory.rglob("*")):
        if not path.is_symlink() and path.is_file() and (at_any_byte or path.suffix == ".log"):
            yield from sound_batches(path.read_bytes(), at_any_byte=at_any_byte)


def sound_batches(data: bytes, *, at_any_byte: bool) -> Iterator[bytes]:
    """Give the batches with a good checksum; unless at any byte, one after the other, up to the first that is none."""
    at = 0
    for start in _candidates(data):
        if at_any_byte or start == at:
            size = int.from_bytes(data[start + 8 : start + 12], "big")
            batch = data[start : start + 12 + size]
            if _is_sound(batch):
                at = start + len(batch)
                yield batch


def _candidates(data: bytes) -> Iterator[int]:
    """Give the positions at which magic and length could be those of a batch."""
    count = len(data) - _SHORTEST_BYTES + 1
    if count <= 0:
        return
    octets = np.frombuffer(data, np.uint8).astype(np.int64)
    sizes = 12 + sum(octets[8 + i : 8 + i + count] << (24 - 8 * i) for i in range(4))
    fits = (sizes >= _SHORTEST_BYTES) & (sizes <= len(data) - np.arange(count))
    yield from np.flatnonzero(fits & (octets[16 : 16 + count] <= 2)).tolist()


def _is_sound(batch: bytes) -> bool:
    if batch[16] < 2:
        return int.from_bytes(batch[12:16], "big") == zlib.crc32(batch[16:])
    return len(batch) >= HEADER_BYTES and int.from_bytes(batch[17:21], "big") == crc32c(batch[21:])
