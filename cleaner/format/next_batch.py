"""
Where reading goes on behind a batch that cannot be read: decided here for checks, dumps, recovery and Spark's readers.

A damaged batch ends where its length says, if that leads to the end of the file or to what may be the head of a batch;
whether that one is sound is seen when it is read. Where the length leads nowhere no boundary is left to go by: every
byte is tried, and the next batch is the first whole one, with a right checksum and an offset not too far above its
segment's.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cleaner.format.checksums import crc32c
from cleaner.format.chunks import Batches, Bytes, Mask, ReadableFile
from cleaner.kernels.batch_header import (
    CRC_FROM,
    HEAD_BYTES,
    HEADER_DTYPE,
    LEAST_BATCH_BYTES,
    LEGACY_CRC_FROM,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    size_of,
)

Longs = npt.NDArray[np.int64]

_SEARCH_BYTES = 1 << 20
_ANY_MAGIC = 255
# Largest batch looked for. A broker's limit is 1 MiB by default and a few MiB in practice.
_LARGEST_BATCH_BYTES = 256 << 20
_CASTAGNOLI, _IEEE = 0x82F63B78, 0xEDB88320  # polynomials of CRC-32C and CRC-32, bits reversed
_FIRST_CANDIDATES = 8  # usually the first one is it
_MOST_OFFSETS = 2**31  # of a segment

# Up to and with the checksum; that of magic 0 and 1 lies where magic 2 has the leader epoch.
_HEAD = np.dtype(HEADER_DTYPE.descr[:5])
_NOWHERE: Longs = np.zeros(0, np.int64)


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
        base_offset: of the segment: a batch's offset is at most 2**31 - 1 above it (R-304). One below it is no better,
            but holes of zeros make such of batches that are whole otherwise. None: any offset will do.
    """
    while position + LEAST_BATCH_BYTES[0] <= end:
        data = np.frombuffer(_read(file, min(_SEARCH_BYTES + _HEAD.itemsize, end - position), position), np.uint8)
        places, heads, sizes = _candidates(data, end - position, base_offset)
        first, count = 0, _FIRST_CANDIDATES
        while first < len(places):
            some = slice(first, first + count)
            whole = np.flatnonzero(_are_whole(file, position + places[some], heads[some], sizes[some]))
            if len(whole):
                return position + int(places[first + whole[0]])
            first, count = first + count, 8 * count
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


def _candidates(data: Bytes, left: int, base_offset: int | None) -> tuple[Longs, Batches, Longs]:
    """Return where a head may be, the heads, and the sizes they say: a known magic, a size that fits, an offset."""
    if len(data) < _HEAD.itemsize or not data.any():  # zeros are what a broker allocates ahead
        return _NOWHERE, np.zeros(0, _HEAD), _NOWHERE
    heads = np.ndarray(min(len(data) - _HEAD.itemsize + 1, _SEARCH_BYTES), _HEAD, data.data, strides=(1,))
    places = np.flatnonzero((heads["magic"] >= 0) & (heads["magic"] <= MAGIC))
    heads = heads[places]
    sizes = heads["length"].astype(np.int64) + LOG_OVERHEAD_BYTES
    most = np.minimum(left - places, _LARGEST_BATCH_BYTES)
    fits = (sizes >= np.take(LEAST_BATCH_BYTES, heads["magic"])) & (sizes <= most)
    fits &= heads["baseOffset"] >= 0
    if base_offset is not None:
        fits &= heads["baseOffset"] - base_offset < _MOST_OFFSETS
    return places[fits], heads[fits], sizes[fits]


def _are_whole(file: ReadableFile, positions: Longs, heads: Batches, sizes: Longs) -> Mask:
    """Tell which batches have a right checksum."""
    whole = np.zeros(len(positions), bool)
    ends = positions + sizes
    modern = heads["magic"] == MAGIC
    for rows, begins, field, checksum, polynomial in (
        (modern, positions + CRC_FROM, "crc", crc32c, _CASTAGNOLI),
        (~modern, positions + LEGACY_CRC_FROM, "partitionLeaderEpoch", zlib.crc32, _IEEE),
    ):
        if rows.any():
            stored = heads[field][rows].astype(np.int64) & 0xFFFFFFFF
            whole[rows] = _checksums_fit(file, begins[rows], ends[rows], stored, checksum, polynomial)
    return whole


def _checksums_fit(
    file: ReadableFile,
    begins: Longs,
    ends: Longs,
    stored: Longs,
    checksum: Callable[[memoryview], int],
    polynomial: int,
) -> Mask:
    """
    Tell which parts of a file have the checksums that are stored for them, reading each byte once.

    Parts may overlap in any way: crafted heads would else have all that is behind them read for each. The file is cut
    where a part begins or ends. The checksum of joined pieces is the XOR of theirs, each as if zeros up to the end of
    the last one followed; so that of a part is the XOR of two such sums, as if as many zeros followed.
    """
    first, last = int(begins.min()), int(ends.max())
    cuts = np.unique(np.concatenate([begins, ends, np.arange(first, last, _SEARCH_BYTES)]))
    pieces = np.zeros(len(cuts), np.int64)
    data, data_at = memoryview(b""), first
    for number, (begin, end) in enumerate(pairwise(cuts.tolist()), start=1):
        if end - data_at > len(data):
            data, data_at = memoryview(_read(file, min(2 * _SEARCH_BYTES, last - begin), begin)), begin
        pieces[number] = checksum(data[begin - data_at : end - data_at])
    sums = np.bitwise_xor.accumulate(_with_zeros(polynomial, pieces, last - cuts))
    found = sums[np.searchsorted(cuts, ends)] ^ sums[np.searchsorted(cuts, begins)]
    fits: Mask = found == _with_zeros(polynomial, stored, last - ends)
    return fits


def _with_zeros(polynomial: int, checksums: Longs, counts: Longs) -> Longs:
    """Return what checksums become, without the inversions at both ends, when so many zero bytes follow."""
    checksums = checksums.copy()
    for power in range(int(counts.max()).bit_length()):
        rows = counts >> power & 1 == 1
        checksums[rows] = _apply(_zeros(polynomial, power), checksums[rows])
    return checksums


def _apply(table: Longs, checksums: Longs) -> Longs:
    found: Longs = table[0][checksums & 255]
    for byte in range(1, 4):
        found ^= table[byte][checksums >> 8 * byte & 255]
    return found


@functools.cache
def _zeros(polynomial: int, power: int) -> Longs:
    """Return a table: a word for each byte of a checksum; their XOR is what 2**power zero bytes behind make of it."""
    words = np.arange(256) << 8 * np.arange(4)[:, None]
    if power:
        half = _zeros(polynomial, power - 1)
        return _apply(half, _apply(half, words))
    for _ in range(8):
        words = np.where(words & 1, words >> 1 ^ polynomial, words >> 1)
    return words
