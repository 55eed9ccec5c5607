"""Writes the records of a new batch of magic 2 (R-220, R-221) from columns of keys, values and headers."""

from __future__ import annotations

from numba import int64

from cleaner.kernels.compile import jit
from cleaner.kernels.memory import copy_bytes
from cleaner.kernels.varints import varint_size, write_field, write_varint

# Cells of the state array: the next record's position in each column, and the largest timestamp of the last call.
(
    NEXT_RECORD,
    NEXT_KEY,
    NEXT_VALUE,
    NEXT_HEADERS,
    MAX_TIMESTAMP,
) = range(5)
STATE_CELLS = 5

MAX_OVERHEAD_BYTES = 36
"""Most bytes of a record besides key, value and headers: five varints of 5 bytes, one of 10, and the attributes."""

NO_HEADERS = -1

# Cells of what `measure_records` finds.
(
    KEY_BYTES,
    VALUE_BYTES,
    HEADER_BYTES,
    NULL_KEYS,
    LARGEST_BYTES,
    FIRST_TIMESTAMP,
    LAST_TIMESTAMP,
) = range(7)
MEASURE_CELLS = 7


@jit
def measure_records(key_lengths, value_lengths, header_lengths, timestamps, found):
    """
    Measure columns of equal length in one pass.

    Args:
        key_lengths, value_lengths, header_lengths, timestamps: see `encode_records`.
        found: int64 cells, see above; the bytes of all keys, values and headers, how many keys are null, the most bytes
            of one record's key, value and headers, and the earliest and latest timestamp (-1 without a record).
    """
    found[:] = 0
    found[FIRST_TIMESTAMP] = found[LAST_TIMESTAMP] = -1
    if timestamps.size:
        found[FIRST_TIMESTAMP] = found[LAST_TIMESTAMP] = timestamps[0]
    for record in range(timestamps.size):
        key_bytes = max(key_lengths[record], int64(0))
        value_bytes = max(value_lengths[record], int64(0))
        header_bytes = max(header_lengths[record], int64(0))
        found[KEY_BYTES] += key_bytes
        found[VALUE_BYTES] += value_bytes
        found[HEADER_BYTES] += header_bytes
        found[NULL_KEYS] += int64(key_lengths[record] < 0)
        found[LARGEST_BYTES] = max(found[LARGEST_BYTES], key_bytes + value_bytes + header_bytes)
        found[FIRST_TIMESTAMP] = min(found[FIRST_TIMESTAMP], timestamps[record])
        found[LAST_TIMESTAMP] = max(found[LAST_TIMESTAMP], timestamps[record])


@jit
def encode_records(
    keys, key_lengths, values, value_lengths, headers, header_lengths, timestamps, state, out, at, max_bytes
):
    """
    Write records one after the other, from the next one on, until `max_bytes` are full or no record is left.

    The first record is written whatever its size. Offset deltas count from 0, timestamp deltas from the first record's.

    Args:
        keys, values: uint8 arrays, all keys (values) one after the other.
        key_lengths, value_lengths: int64 a record, -1 for null; their sum is the array's size.
        headers: uint8 array, the encoded headers of each record, including their count.
        header_lengths: int64 a record, or NO_HEADERS for a record without any; it has no bytes in `headers`.
        timestamps: int64 a record, not negative.
        state: int64 cells, see above; MAX_TIMESTAMP is set, the others are advanced.
        out: uint8 array with room from `at` on for `max_bytes`, or for the largest record with MAX_OVERHEAD_BYTES.
    Returns:
        The position after the last record.
    """
    first = state[NEXT_RECORD]
    key_at, value_at, headers_at = state[NEXT_KEY], state[NEXT_VALUE], state[NEXT_HEADERS]
    start = int64(at)
    end = start
    max_timestamp = int64(-1)
    base_timestamp = int64(0)
    if first < timestamps.size:
        base_timestamp = timestamps[first]
    record = first
    while record < timestamps.size:
        key_length, value_length = key_lengths[record], value_lengths[record]
        headers_length = header_lengths[record]
        timestamp_delta = timestamps[record] - base_timestamp
        size = (
            1
            + varint_size(timestamp_delta)
            + varint_size(record - first)
            + varint_size(key_length)
            + max(key_length, int64(0))
            + varint_size(value_length)
            + max(value_length, int64(0))
            + abs(headers_length)  # NO_HEADERS takes one byte: a count of 0
        )
        if record > first and end - start + varint_size(size) + size > max_bytes:
            break
        end = write_varint(out, end, size)
        out[end] = 0
        end = write_varint(out, end + 1, timestamp_delta)
        end = write_varint(out, end, record - first)
        end = write_field(out, end, keys, key_at, key_length)
        end = write_field(out, end, values, value_at, value_length)
        if headers_length == NO_HEADERS:
            out[end] = 0
            end += 1
        else:
            copy_bytes(out, end, headers, headers_at, headers_length)
            end += headers_length
            headers_at += headers_length
        key_at += max(key_length, int64(0))
        value_at += max(value_length, int64(0))
        max_timestamp = max(max_timestamp, timestamps[record])
        record += 1
    state[NEXT_RECORD] = record
    state[NEXT_KEY], state[NEXT_VALUE], state[NEXT_HEADERS] = key_at, value_at, headers_at
    state[MAX_TIMESTAMP] = max_timestamp
    return end
