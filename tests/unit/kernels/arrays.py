"""Arrays to hand to kernels: padded as the readers pad them, between guards that show any store outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cleaner.format.batch import BATCH_DTYPE, NO_ORDER_CHECK
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.compression import decompress
from cleaner.kernels import PAD_BYTES
from cleaner.kernels import batches as scan_kernel

Bytes = npt.NDArray[np.uint8]
_GUARD_BYTES = 128
_GUARD = 0xA5


@dataclass
class Guards:
    """Arrays between guards that must not change."""

    _whole: list[tuple[Bytes, int]] = field(default_factory=list)

    def bytes(self, data: bytes, pad: int = PAD_BYTES) -> Bytes:
        """Return `data` with `pad` spare bytes behind it, as part of a larger array."""
        array = self.room(len(data) + pad)
        array[: len(data)] = np.frombuffer(data, np.uint8)
        return array

    def room(self, size: int) -> Bytes:
        """Return `size` bytes of zeros with guards around them."""
        whole = np.full(size + 2 * _GUARD_BYTES, _GUARD, np.uint8)
        whole[_GUARD_BYTES : _GUARD_BYTES + size] = 0
        self._whole.append((whole, size))
        return whole[_GUARD_BYTES : _GUARD_BYTES + size]

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """Return guarded uint64 words, all 0."""
        return self.room(8 * count).view(np.uint64)

    def check(self) -> None:
        """Assert that nothing was stored outside of the arrays given out."""
        for whole, size in self._whole:
            assert (whole[:_GUARD_BYTES] == _GUARD).all(), "a store before an array"
            assert (whole[_GUARD_BYTES + size :] == _GUARD).all(), "a store behind an array"


@contextmanager
def guarded() -> Iterator[Guards]:
    """Give out guarded arrays and check the guards at the end."""
    guards = Guards()
    yield guards
    guards.check()


def padded(data: bytes) -> Bytes:
    """Return `data` as the readers hold it: writable, with spare bytes after it."""
    array = np.zeros(len(data) + PAD_BYTES, np.uint8)
    array[: len(data)] = np.frombuffer(data, np.uint8)
    return array


@dataclass(frozen=True)
class Scan:
    """What `scan_batches` returned, with the rows it listed."""

    rows: npt.NDArray[np.void]
    covered: int
    status: int
    size: int


def scan(
    data: Bytes, length: int, previous_offset: int = NO_ORDER_CHECK, *, file_position: int = 0, room: int = 64
) -> Scan:
    """Scan `data[:length]` into a table of `room` rows."""
    table = np.zeros(room, BATCH_DTYPE)
    count, covered, status, size, _ = scan_kernel.scan_batches(
        data, length, file_position, previous_offset, True, table
    )
    return Scan(table[:count], int(covered), int(status), int(size))


def unpack(data: Bytes, rows: npt.NDArray[np.void], limit_bytes: int = 1 << 20) -> GrowingBuffer:
    """Unpack the compressed batches of magic 2 among `rows` into a buffer; ValueError as from `decompress`."""
    buffer, used = GrowingBuffer(), 0
    for row in rows:
        if row["attributes"] & 7 and row["count"] > 0:
            source = data[int(row["body_start"]) : int(row["body_end"])].data
            length = decompress(int(row["attributes"]) & 7, 2, source, buffer, used, limit_bytes)
            row["body_start"], row["body_end"], row["unpacked"] = used, used + length, 1
            used += length
    return buffer
