"""
Decides where reading continues after a batch that cannot be read, for checks, dumps, recovery and Spark's readers.

A damaged batch ends where its length says, if the file ends there or a batch may begin there; whether that batch is
sound shows when it is read. Otherwise the length is useless, and every byte is tried: the next batch is the first whole
one, with a right checksum and an offset not too far above the segment's base offset.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cleaner.base.segments import MAX_RELATIVE_OFFSET
from cleaner.format.checksums import crc32c
from cleaner.format.chunks import Batches, Bytes, FileWithHoles, Mask, ReadableFile
from cleaner.kernels.batch_header import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    COUNT_AT,
    CRC_FROM,
    DELETE_HORIZON_FLAG,
    HEAD_BYTES,
    HEADER_BYTES,
    HEADER_DTYPE,
    LAST_OFFSET_DELTA_AT,
    LEGACY_ATTRIBUTES_AT,
    LEGACY_CRC_FROM,
    LEGACY_KEY_AT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    MIN_BATCH_BYTES,
    TIMESTAMP_TYPE_FLAG,
    size_of,
)
from cleaner.kernels.codec_table import LAST_CODEC

Longs = npt.NDArray[np.int64]

_SEARCH_BYTES = 1 << 20
_ANY_MAGIC = 255
# Largest batch that is searched. A broker's limit is 1 MiB by default and a few MiB in practice.
LARGEST_BATCH_BYTES = 256 << 20
_CASTAGNOLI, _IEEE = 0x82F63B78, 0xEDB88320  # polynomials of CRC-32C and CRC-32, bits reversed
_UNDEFINED_ATTRIBUTES = DELETE_HORIZON_FLAG << 1
_UNDEFINED_LEGACY_ATTRIBUTES = TIMESTAMP_TYPE_FLAG << 1
_FIRST_CANDIDATES = 8  # usually the first one is right

# Up to and including the checksum; magic 0 and 1 have it in the place of the leader epoch of magic 2.
_HEAD = np.dtype(HEADER_DTYPE.descr[:5])
_NOWHERE: Longs = np.zeros(0, np.int64)


class NextBatch(NamedTuple):
    """
    The place where reading continues.

    Attributes:
        position: of the next batch; `end` if there is none.
        is_by_length: the bytes before it are one batch, by its own length.
    """

    position: int
    is_by_length: bool


def next_batch(file: ReadableFile, position: int, end: int, base_offset: int | None) -> NextBatch:
    """
    Return where reading continues after the batch at `position`, which cannot be read.

    Args:
        file: the open `.log`.
        end: bytes of it to use.
        base_offset: of the segment; None if it is unknown.
    """
    following = position + _size_at(file, position, end, max_magic=_ANY_MAGIC)
    if following > position and (following == end or _size_at(file, following, end, max_magic=MAGIC)):
        return NextBatch(following, is_by_length=True)
    found = find_whole_batch(file, position + 1, end, base_offset)
    return NextBatch(end if found is None else found, is_by_length=False)


def find_whole_batch(
    file: ReadableFile, position: int, end: int, base_offset: int | None = None, *, in_anything: bool = False
) -> int | None:
    """
    Return the position of the next whole batch from a position on; None if there is none.

    Args:
        file: the open `.log`.
        end: bytes of it to use.
        base_offset: of the segment: a batch's offset is at most 2**31 - 1 above it (R-304). A lower offset is wrong,
            too, but is accepted: holes of zeros leave such offsets in otherwise whole batches. None: any offset.
        in_anything: the file need not be a log. Headers that no broker writes are passed over: in random bytes so many
            places could begin a large batch that computing their checksums would take hours.
    """
    while position + MIN_BATCH_BYTES[0] <= end:
        data = np.frombuffer(_read(file, min(_SEARCH_BYTES + HEADER_BYTES, end - position), position), np.uint8)
        if not data.any():  # brokers preallocate zeros
            # A head may begin with zeros, right before the data.
            position = max(position + _SEARCH_BYTES, _data_from(file, position) - _HEAD.itemsize)
            continue
        places, heads, sizes = _candidates(data, end - position, base_offset)
        if in_anything:
            usual = _are_usual(file, position, data, places, heads["magic"], sizes)
            places, heads, sizes = places[usual], heads[usual], sizes[usual]
        first, count = 0, _FIRST_CANDIDATES
        while first < len(places):
            some = slice(first, first + count)
            whole = np.flatnonzero(_are_whole(file, position + places[some], heads[some], sizes[some]))
            if len(whole):
                return position + int(places[first + whole[0]])
            first, count = first + count, 8 * count
        position += _SEARCH_BYTES
    return None


def _data_from(file: ReadableFile, position: int) -> int:
    """Return where data may follow a position; for a file that cannot say so, the position."""
    return file.data_from(position) if isinstance(file, FileWithHoles) else position


def _read(file: ReadableFile, size: int, position: int) -> bytes:
    data = bytearray(size)
    return bytes(data[: file.read_into(memoryview(data), position)])


def _size_at(file: ReadableFile, position: int, end: int, *, max_magic: int) -> int:
    """Return the size field of the batch at a position; 0 if there cannot be a batch."""
    left = end - position
    if left < MIN_BATCH_BYTES[0]:
        return 0
    head = _read(file, HEAD_BYTES, position)
    if len(head) < HEAD_BYTES:
        return 0
    size, magic = size_of(head), head[MAGIC_AT]
    least = MIN_BATCH_BYTES[magic] if magic <= MAGIC else MIN_BATCH_BYTES[0]
    return size if least <= size <= left and magic <= max_magic else 0


def _candidates(data: Bytes, left: int, base_offset: int | None) -> tuple[Longs, Batches, Longs]:
    """Return positions of possible heads, the heads, and their sizes: known magic, fitting size, possible offset."""
    if len(data) < _HEAD.itemsize:
        return _NOWHERE, np.zeros(0, _HEAD), _NOWHERE
    heads = np.ndarray(min(len(data) - _HEAD.itemsize + 1, _SEARCH_BYTES), _HEAD, data.data, strides=(1,))
    places = np.flatnonzero((heads["magic"] >= 0) & (heads["magic"] <= MAGIC))
    heads = heads[places]
    sizes = heads["length"].astype(np.int64) + LOG_OVERHEAD_BYTES
    most = np.minimum(left - places, LARGEST_BATCH_BYTES)
    fits = (sizes >= np.take(MIN_BATCH_BYTES, heads["magic"])) & (sizes <= most)
    fits &= heads["baseOffset"] >= 0
    if base_offset is not None:
        fits &= heads["baseOffset"] - base_offset <= MAX_RELATIVE_OFFSET
    fits[fits] = _legacy_lengths_fit(data, places[fits], heads["magic"][fits], sizes[fits])
    return places[fits], heads[fits], sizes[fits]


def _legacy_lengths_fit(data: Bytes, places: Longs, magics: npt.NDArray[np.int8], sizes: Longs) -> Mask:
    """
    Tell which heads of magic 0 and 1 have a key and a value that fill the message, as far as lengths are in sight.

    Most words of zeros could begin such a message, and each would have its checksum computed.
    """
    fits: Mask = np.ones(len(places), bool)
    rows = np.flatnonzero(magics < MAGIC)
    key_at = places[rows] + np.take(LEGACY_KEY_AT, magics[rows])
    key = _signed_words(data, key_at)
    value_at = key_at + 4 + np.maximum(key, 0)
    value = _signed_words(data, value_at)
    filled = value_at + 4 + np.maximum(value, 0) - places[rows]
    is_seen = np.maximum(key_at, value_at) + 4 <= len(data)
    fits[rows] = ~is_seen | (key >= -1) & (value >= -1) & (filled == sizes[rows])
    fits[rows] &= (key_at + 4 > len(data)) | (key <= sizes[rows])
    return fits


def _are_usual(
    file: ReadableFile, position: int, data: Bytes, places: Longs, magics: npt.NDArray[np.int8], sizes: Longs
) -> Mask:
    """Tell which heads go on as a broker writes them; `position` is that of the data."""
    usual: Mask = np.ones(len(places), bool)
    rows = np.flatnonzero(magics == MAGIC)
    at = places[rows]
    attributes = _signed_words(data, at + ATTRIBUTES_AT) >> 16
    last_delta, count = _signed_words(data, at + LAST_OFFSET_DELTA_AT), _signed_words(data, at + COUNT_AT)
    usual[rows] = (attributes >= 0) & (attributes < _UNDEFINED_ATTRIBUTES) & (count >= 0) & (count <= last_delta + 1)
    usual[rows] &= (attributes & COMPRESSION_MASK) <= LAST_CODEC[MAGIC]
    rows = np.flatnonzero(magics < MAGIC)
    at = places[rows]
    usual[rows] = data[at + LEGACY_ATTRIBUTES_AT] < _UNDEFINED_LEGACY_ATTRIBUTES
    # Values whose lengths were not in sight.
    key_at = at + np.take(LEGACY_KEY_AT, magics[rows])
    value_at = key_at + 4 + np.maximum(_signed_words(data, key_at), 0)
    for row in np.flatnonzero(usual[rows] & (value_at + 4 > len(data))).tolist():
        place = rows[row]
        length = int.from_bytes(_read(file, 4, position + int(value_at[row])), "big", signed=True)
        usual[place] = length >= -1 and int(value_at[row]) + 4 + max(length, 0) == places[place] + sizes[place]
    return usual


def _signed_words(data: Bytes, at: Longs) -> Longs:
    """Return the big-endian words of 4 bytes at some places; any number for those outside of the data."""
    at = np.clip(at, 0, len(data) - 4)
    words = np.zeros(len(at), np.int64)
    for byte in range(4):
        words = words << 8 | data[at + byte]
    return words - (words >> 31 << 32)


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

    Parts may overlap in any way; otherwise each crafted head would cause everything after it to be read. The file is
    cut at the start and end of each part. The checksum of joined pieces is the XOR of their checksums, each extended by
    zeros up to the end of the last piece; so the checksum of a part is the XOR of two such sums, extended equally.
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
    """Return the checksums, without the inversions at both ends, extended by `counts` zero bytes."""
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
    """Return a table of words for each byte of a checksum; their XOR is the checksum after 2**power zero bytes."""
    words = np.arange(256) << 8 * np.arange(4)[:, None]
    if power:
        half = _zeros(polynomial, power - 1)
        return _apply(half, _apply(half, words))
    for _ in range(8):
        words = np.where(words & 1, words >> 1 ^ polynomial, words >> 1)
    return words
