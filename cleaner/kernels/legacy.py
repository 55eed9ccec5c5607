"""Converts records of magic 0 and 1 (R-240..R-243) to records of magic 2 (R-577, R-578)."""

from __future__ import annotations

from numba import int8, int32, int64

from cleaner.kernels import batch_header as header
from cleaner.kernels.compile import jit
from cleaner.kernels.memory import load_u32_be, load_u64_be
from cleaner.kernels.varints import varint_size, write_field, write_varint

# Errors of a set of entries. `format/legacy.py` has a message for each.
LEGACY_GOOD = 0
LEGACY_BAD_SIZE = 1
LEGACY_BAD_MAGIC = 2
LEGACY_NESTED = 3
LEGACY_BAD_KEY = 4
LEGACY_BAD_VALUE = 5
LEGACY_BAD_OFFSET = 6
LEGACY_BAD_ORDER = 7
LEGACY_OFFSETS_TOO_FAR = 8
LEGACY_EMPTY = 9
LEGACY_BELOW_INNER = 10
LEGACY_ABOVE_LIMIT = 11

# Largest varints around key and value: length 5, attributes 1, timestamp 10, offset 5, lengths 5 and 5, no headers 1.
_MAX_RECORD_OVERHEAD = 32


@jit
def _read_entry(data, at, end):
    """
    Read the entry at `data[at]`, whose offset and size are before `end`.

    Returns:
        (status, position after it, magic, key start, key size or -1, value start, value size or -1). LEGACY_EMPTY means
        that it is cut off at `end`.
    """
    nothing = int64(0)
    size = int64(int32(load_u32_be(data, at + header.LENGTH_AT)))
    if size < header.MIN_BATCH_BYTES[0] - header.LOG_OVERHEAD_BYTES:
        return LEGACY_BAD_SIZE, nothing, nothing, nothing, nothing, nothing, nothing
    if size > end - at - header.LOG_OVERHEAD_BYTES:
        return LEGACY_EMPTY, nothing, nothing, nothing, nothing, nothing, nothing
    stop = at + header.LOG_OVERHEAD_BYTES + size
    magic = int64(int8(data[at + header.MAGIC_AT]))
    if magic != 0 and magic != 1:
        return LEGACY_BAD_MAGIC, nothing, nothing, nothing, nothing, nothing, nothing
    key_start = at + (header.LEGACY_KEY_AT[0] if magic == 0 else header.LEGACY_KEY_AT[1]) + 4
    if key_start > stop:
        return LEGACY_BAD_KEY, nothing, nothing, nothing, nothing, nothing, nothing
    # Any negative length is a null, as Kafka reads it.
    key_size = max(int64(int32(load_u32_be(data, key_start - 4))), int64(-1))
    if key_size > stop - key_start:
        return LEGACY_BAD_KEY, nothing, nothing, nothing, nothing, nothing, nothing
    value_start = key_start + max(key_size, int64(0)) + 4
    if value_start > stop:
        return LEGACY_BAD_VALUE, nothing, nothing, nothing, nothing, nothing, nothing
    value_size = max(int64(int32(load_u32_be(data, value_start - 4))), int64(-1))
    if value_size > stop - value_start:
        return LEGACY_BAD_VALUE, nothing, nothing, nothing, nothing, nothing, nothing
    # Bytes between the value and the end of the entry are ignored, as in Kafka.
    return LEGACY_GOOD, stop, magic, key_start, key_size, value_start, value_size


@jit
def locate_value(data, end):
    """Return (status, start, size or -1) of the value of the entry in `data[:end]`: a wrapper's inner entries."""
    status, _, _, _, _, start, size = _read_entry(data, int64(0), end)
    return status, start, size


@jit
def measure_entries(data, start, end, limit_bytes):
    """
    Check the entries in `data[start:end]` and compute the room for converting them.

    An entry that is cut off at `end` is left out (R-241).

    Args:
        data: uint8 array, padded.
        limit_bytes: the largest value that an entry's size field may have, also that of a cut-off entry (R-511).
    Returns:
        (status, position of the bad entry or of the end, entries, last entry's offset, most bytes records may take).
    """
    at = int64(start)
    count = int64(0)
    previous = int64(-1)
    first = int64(0)
    room = int64(0)
    while end - at >= header.LOG_OVERHEAD_BYTES:
        if int64(int32(load_u32_be(data, at + header.LENGTH_AT))) > limit_bytes:
            return LEGACY_ABOVE_LIMIT, at, count, previous, room
        status, stop, _, _, key_size, _, value_size = _read_entry(data, at, end)
        if status == LEGACY_EMPTY:
            break
        if status == LEGACY_GOOD:
            offset = int64(load_u64_be(data, at))
            if data[at + header.LEGACY_ATTRIBUTES_AT] & header.COMPRESSION_MASK:
                status = LEGACY_NESTED
            elif offset < 0:
                status = LEGACY_BAD_OFFSET
            elif offset <= previous:
                status = LEGACY_BAD_ORDER
            elif count and offset - first > 0x7FFFFFFF:
                status = LEGACY_OFFSETS_TOO_FAR
        if status != LEGACY_GOOD:
            return status, at, count, previous, room
        if count == 0:
            first = offset
        previous = offset
        count += 1
        room += _MAX_RECORD_OVERHEAD + max(key_size, int64(0)) + max(value_size, int64(0))
        at = stop
    return LEGACY_GOOD if count else LEGACY_EMPTY, at, count, previous, room


@jit
def convert_entries(data, start, end, base, has_append_time, append_time, target, at):
    """
    Write the entries in `data[start:end]`, which passed `measure_entries`, as records of magic 2.

    Offset deltas count from the first record's offset, timestamp deltas from its timestamp.

    Args:
        data: uint8 array, padded.
        base: added to each entry's offset.
        has_append_time: whether entries of magic 1 get `append_time` as timestamp (R-243).
        target: uint8 array with the measured room from `at` on; not `data`.
    Returns:
        (position after the last record, first offset, last offset, first timestamp, largest timestamp).
    """
    position = int64(start)
    first_offset = offset = int64(-1)
    first_timestamp = largest_timestamp = int64(-1)
    started = False
    while end - position >= header.LOG_OVERHEAD_BYTES:
        status, stop, magic, key_start, key_size, value_start, value_size = _read_entry(data, position, end)
        if status != LEGACY_GOOD:
            break
        offset = base + int64(load_u64_be(data, position))
        timestamp = int64(-1)
        if magic == 1:
            timestamp = (
                append_time if has_append_time else int64(load_u64_be(data, position + header.LEGACY_TIMESTAMP_AT))
            )
        if not started:
            first_offset, first_timestamp, largest_timestamp = offset, timestamp, timestamp
            started = True
        largest_timestamp = max(largest_timestamp, timestamp)
        offset_delta = offset - first_offset
        # Overflows for absurd timestamps as in Kafka: adding it to the first timestamp overflows back.
        timestamp_delta = timestamp - first_timestamp
        size = (
            2  # attributes before, the number of headers after: both 0
            + varint_size(timestamp_delta)
            + varint_size(offset_delta)
            + varint_size(key_size)
            + max(key_size, int64(0))
            + varint_size(value_size)
            + max(value_size, int64(0))
        )
        at = write_varint(target, at, size)
        target[at] = 0
        at = write_varint(target, at + 1, timestamp_delta)
        at = write_varint(target, at, offset_delta)
        at = write_field(target, at, data, key_start, key_size)
        at = write_field(target, at, data, value_start, value_size)
        target[at] = 0
        at += 1
        position = stop
    return at, first_offset, offset, first_timestamp, largest_timestamp
