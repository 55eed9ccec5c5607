"""
Reads batches of magic 0 and 1: Kafka 4.3.1 rewrites each one of which it retains a record as magic 2 (R-577, R-578).

    entry:   offset i64 | size i32 | crc u32 | magic i8 | attributes i8 | timestamp i64 (magic 1) | key | value
    key, value: length i32 (negative: null) | bytes

An uncompressed entry is a batch of one record. A compressed one, a wrapper, has a stream of inner entries as its value
and the offset of the last. Inner offsets are absolute in a wrapper of magic 0, relative in magic 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cleaner.format import compression
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.codec_errors import InnerEntryTooLargeError, LegacyFormatError
from cleaner.kernels import legacy as kernel
from cleaner.kernels.batch_header import (
    COMPRESSION_MASK,
    LEGACY_HEADER,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    MIN_BATCH_BYTES,
    TIMESTAMP_TYPE_FLAG,
    size_of,
)
from cleaner.kernels.codec_table import NONE
from cleaner.kernels.scan_status import LARGEST_RECORD_BYTES

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

_REASONS: Final = {
    kernel.LEGACY_BAD_SIZE: "a record's size is below 14 bytes",
    kernel.LEGACY_BAD_MAGIC: "a record of unknown magic",
    kernel.LEGACY_NESTED: "a compressed record within a compressed batch",
    kernel.LEGACY_BAD_KEY: "a key is longer than its record",
    kernel.LEGACY_BAD_VALUE: "a value is longer than its record",
    kernel.LEGACY_BAD_OFFSET: "a record's offset is negative",
    kernel.LEGACY_BAD_ORDER: "a record's offset is not above the one before",
    kernel.LEGACY_OFFSETS_TOO_FAR: "offsets of one batch are more than 2**31 - 1 apart",
    kernel.LEGACY_EMPTY: "no whole record",
    kernel.LEGACY_BELOW_INNER: "the batch's offset is below that of its last record",
}


@dataclass(frozen=True, slots=True)
class LegacyBatch:
    """
    A batch of magic 0 or 1, converted to header fields and records of an uncompressed batch of magic 2.

    Attributes:
        base_offset: the first record's offset; offset deltas count from here.
        last_offset: the last record's offset.
        base_timestamp: the first record's timestamp, ms (-1 for magic 0); timestamp deltas count from here.
        max_timestamp: the largest timestamp of a record, or the wrapper's for log append time.
        timestamp_type: CREATE_TIME or LOG_APPEND_TIME.
        count: records.
        codec: compression id of the source, which the converted batch keeps.
        length: bytes of records written.
    """

    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    timestamp_type: int
    count: int
    codec: int
    length: int


def convert_legacy(
    entry: memoryview,
    out: GrowingBuffer,
    at: int,
    limit_bytes: int,
    scratch: GrowingBuffer,
    record_limit_bytes: int = LARGEST_RECORD_BYTES,
) -> LegacyBatch:
    """
    Write the records of one magic 0 or 1 batch to `out.array[at:]` as uncompressed records of magic 2.

    A wrapper's inner checksums are not verified (as in Kafka, R-203): the batch's own checksum covers the same bytes. A
    set whose offsets do not ascend is refused; Kafka fails while it writes it.

    Args:
        entry: the whole batch from its offset field on, its checksum verified. Borrowed for the call.
        out: takes the records; the bytes before `at` are kept when it grows.
        at: start of the records.
        limit_bytes: the most bytes a wrapper may unpack to.
        scratch: takes the unpacked wrapper; its content is lost.
        record_limit_bytes: the largest value that the size field of an entry in a wrapper may have.
    Returns:
        The header fields of the converted batch.
    Raises:
        LegacyFormatError: not an entry of magic 0 or 1, or one with invalid lengths, offsets or nesting.
        DecompressionError: a damaged stream, a codec that magic 0 and 1 do not have, or more than `limit_bytes`.
        InnerEntryTooLargeError: an entry above `record_limit_bytes`.
    """
    data = np.frombuffer(entry, np.uint8)
    magic = _check_entry(entry)
    offset, _, _, _, attributes, wrapper_timestamp = LEGACY_HEADER.unpack_from(entry)
    codec = attributes & COMPRESSION_MASK
    appended = magic == 1 and bool(attributes & TIMESTAMP_TYPE_FLAG)
    if codec == NONE:
        count, last, room = _measure(data, data.size, LARGEST_RECORD_BYTES)
        end, base = data.size, 0
    else:
        end = _unpack(entry, data, magic, codec, limit_bytes, scratch)
        data = scratch.array
        count, last, room = _measure(data, end, record_limit_bytes)
        base = _base_of_inner_offsets(magic, offset, last)
    out.ensure(at + room, keep=at)
    stop, first_offset, last_offset, first_timestamp, largest_timestamp = kernel.convert_entries(
        data, 0, end, base, appended, wrapper_timestamp, out.array, at
    )
    return LegacyBatch(
        base_offset=int(first_offset),
        last_offset=int(last_offset),
        base_timestamp=int(first_timestamp),
        max_timestamp=wrapper_timestamp if appended else int(largest_timestamp),
        timestamp_type=LOG_APPEND_TIME if appended else CREATE_TIME,
        count=count,
        codec=codec,
        length=int(stop) - at,
    )


def _check_entry(entry: memoryview) -> int:
    """Return the entry's magic, after checking that its size field is right."""
    if len(entry) < MIN_BATCH_BYTES[0]:
        raise LegacyFormatError(f"a batch of {len(entry)} bytes")
    magic = entry[MAGIC_AT]
    if magic > 1:
        raise LegacyFormatError(f"magic {magic} is not 0 or 1")
    if len(entry) < MIN_BATCH_BYTES[magic]:
        raise LegacyFormatError(f"a batch of magic {magic} of {len(entry)} bytes")
    size = size_of(entry)
    if size != len(entry):
        raise LegacyFormatError(f"a batch of size {size - LOG_OVERHEAD_BYTES} in {len(entry)} bytes")
    return magic


def _measure(data: npt.NDArray[np.uint8], end: int, record_limit_bytes: int) -> tuple[int, int, int]:
    status, position, count, last, room = kernel.measure_entries(data, 0, end, record_limit_bytes)
    if status == kernel.LEGACY_ABOVE_LIMIT:
        raise InnerEntryTooLargeError(int(position), size_of(data.data[int(position) :]) - LOG_OVERHEAD_BYTES)
    if status != kernel.LEGACY_GOOD:
        raise LegacyFormatError(f"{_REASONS[int(status)]} (record {int(count)} of the batch, byte {int(position)})")
    return int(count), int(last), int(room)


def _unpack(
    entry: memoryview, data: npt.NDArray[np.uint8], magic: int, codec: int, limit_bytes: int, scratch: GrowingBuffer
) -> int:
    status, start, size = kernel.locate_value(data, data.size)
    if status != kernel.LEGACY_GOOD:
        raise LegacyFormatError(_REASONS[int(status)])
    if size < 0:
        raise LegacyFormatError("a compressed batch without a value")
    return compression.decompress(codec, magic, entry[int(start) : int(start + size)], scratch, 0, limit_bytes)


def _base_of_inner_offsets(magic: int, wrapper_offset: int, last_inner_offset: int) -> int:
    """Return what to add to the inner offsets (R-242)."""
    if magic == 1 and wrapper_offset == 0:
        return 0  # some versions of librdkafka never set a wrapper's offset
    if wrapper_offset < last_inner_offset:
        # Kafka checks this only for magic 1; with magic 0 it would continue with offsets that the next batch has, too.
        raise LegacyFormatError(_REASONS[kernel.LEGACY_BELOW_INNER])
    return wrapper_offset - last_inner_offset if magic == 1 else 0
