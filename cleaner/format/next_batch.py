"""
Where reading goes on behind a batch that cannot be read: decided here for checks, dumps, recovery and Spark's readers.

A damaged batch ends where its length says, if that leads to the end of the file or to what may be the head of a batch;
whether that one is sound is seen when it is read. Where the length leads nowhere no boundary is left to go by: every
byte is tried, and the next batch is the first whole one, with a right checksum and an offset that its segment can have.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import Bytes, ReadableFile, ReadBuffer
from cleaner.kernels.batch_header import (
    HEAD_BYTES,
    HEAD_DTYPE,
    LEAST_BATCH_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    size_of,
)

_SEARCH_BYTES = 1 << 20
_ANY_MAGIC = 255
# Largest batch looked for. A broker's limit is 1 MiB by default and a few MiB in practice.
_LARGEST_BATCH_BYTES = 256 << 20
_MOST_OFFSETS = 2**31  # of a segment


class NextBatch(NamedTuple):
    """
    Where reading goes on.

    Attributes:
        position: of the next batch; the end that was given if there is none.
        is_by_length: the bytes before it are one batch, by its own length.
    """

    position: int
    is_by_length: bool


def next_batch(file: ReadableFile, position: int, end: int, base_offset: int | None) -> NextBatch:
    """
    Return where reading goes on behind the batch at `position`, which cannot be read.

    Args:
        file: the open `.log`.
        end: bytes of it that count.
        base_offset: of the segment; None if that is not known.
    """
    following = position + _size_at(file, position, end, most_magic=_ANY_MAGIC)
    if following > position and (following == end or _size_at(file, following, end, most_magic=MAGIC)):
        return NextBatch(following, is_by_length=True)
    found = find_whole_batch(file, position + 1, end, base_offset)
    return NextBatch(end if found is None else found, is_by_length=False)


def find_whole_batch(file: ReadableFile, position: int, end: int, base_offset: int | None = None) -> int | None:
    """
    Return where the next whole batch begins from a position on; None without one.

    Args:
        file: the open `.log`.
        end: bytes of it that count.
        base_offset: of the segment: a batch's offset is at most 2**31 - 1 above it (R-304). None: any offset will do.
    """
    buffer = ReadBuffer(_SEARCH_BYTES)
    while position + LEAST_BATCH_BYTES[0] <= end:
        data = np.frombuffer(_read(file, min(_SEARCH_BYTES + HEAD_BYTES - 1, end - position), position), np.uint8)
        for start, size in _candidates(data, end - position, base_offset):
            if _is_whole(file, position + start, size, buffer):
                return position + start
        position += _SEARCH_BYTES
    return None


def _read(file: ReadableFile, size: int, position: int) -> bytes:
    data = bytearray(size)
    return bytes(data[: file.read_into(memoryview(data), position)])


def _size_at(file: ReadableFile, position: int, end: int, *, most_magic: int) -> int:
    """Return how large the batch at a position says it is; 0 if no batch can be."""
    left = end - position
    if left < LEAST_BATCH_BYTES[0]:
        return 0
    head = _read(file, HEAD_BYTES, position)
    if len(head) < HEAD_BYTES:
        return 0
    size, magic = size_of(head), head[MAGIC_AT]
    least = LEAST_BATCH_BYTES[magic] if magic <= MAGIC else LEAST_BATCH_BYTES[0]
    return size if least <= size <= left and magic <= most_magic else 0


def _candidates(data: Bytes, left: int, base_offset: int | None) -> Iterator[tuple[int, int]]:
    """Give the places where a head may be and the sizes it says: a known magic, a size that fits, an offset."""
    if len(data) < HEAD_BYTES or not data.any():  # zeros are what a broker allocates ahead
        return
    heads = np.ndarray(len(data) - HEAD_BYTES + 1, HEAD_DTYPE, data.data, strides=(1,))
    places = np.flatnonzero((heads["magic"] >= 0) & (heads["magic"] <= MAGIC))
    heads = heads[places]
    sizes = heads["length"].astype(np.int64) + LOG_OVERHEAD_BYTES
    fits = (sizes >= np.take(LEAST_BATCH_BYTES, heads["magic"])) & (
        sizes <= np.minimum(left - places, _LARGEST_BATCH_BYTES)
    )
    fits &= heads["baseOffset"] >= (base_offset or 0)
    if base_offset is not None:
        fits &= heads["baseOffset"] - base_offset < _MOST_OFFSETS
    yield from zip(places[fits].tolist(), sizes[fits].tolist(), strict=True)


def _is_whole(file: ReadableFile, position: int, size: int, buffer: ReadBuffer) -> bool:
    """Tell whether the checksum of a batch is right."""
    from cleaner.format.batch import SegmentReader  # loads kernels, and most files are sound

    try:
        return SegmentReader(file, size=position + size, start=position).next_chunk(buffer) is not None
    except CorruptBatchError:
        return False
    finally:
        buffer.shrink()
