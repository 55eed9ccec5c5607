"""
Lists the records of many batches as columns: positions of key, value and headers, offset and timestamp; and joins their
bytes, as column libraries need them.
"""

from __future__ import annotations

from numba import int64, uint64

from cleaner.kernels.batch_header import TIMESTAMP_TYPE_FLAG
from cleaner.kernels.compile import inlined_jit, jit
from cleaner.kernels.memory import copy_bytes
from cleaner.kernels.records import (
    RECORD_BAD_OFFSET,
    RECORD_GOOD,
    RECORD_LEFT_OVER,
    RECORD_MISSING,
    read_record,
    read_varint,
)

# Rows of the array that `fill_columns` fills, one column a record.
(
    OFFSET,
    TIMESTAMP,
    KEY_START,
    KEY_SIZE,
    VALUE_START,
    VALUE_SIZE,
    HEADERS_START,
) = range(7)
COLUMNS = 7

# Cells of its state array.
STATE_ROWS, STATE_BATCH, STATE_STATUS, STATE_RECORD_POSITION = range(4)
STATE_CELLS = 4


@jit
def fill_columns(data, unpacked, unpacked_shift, batches, skipped, first_offset, end_offset, bits, columns, state):
    """
    List the records of some batches with offsets within [first_offset, end_offset), and check every record.

    Args:
        data, unpacked: uint8 arrays with the batches' records (`row.unpacked` says which one).
        unpacked_shift: added to positions in `unpacked`, because the caller will append it to `data`.
        batches: rows of BATCH_DTYPE.
        skipped: uint8 a batch; 1 for batches whose records are hidden; they are not read.
        bits: uint8 array, a bit for each offset from `first_offset` on: records without theirs are not listed. Offsets
            beyond the last bit are.
        columns: int64, shape (COLUMNS, n), room for all records of the batches that are not skipped. Sizes are -1 for
            null; headers begin with their number, a varint.
        state: STATE_ROWS is the number of records; the others describe a bad record.
    Returns:
        RECORD_GOOD, or the RECORD_ status of a bad record.
    """
    rows = int64(0)
    status = RECORD_GOOD
    at = int64(0)
    for b in range(batches.size):
        row = batches[b]
        if skipped[b]:
            continue
        body = unpacked if row.unpacked else data
        shift = unpacked_shift if row.unpacked else int64(0)
        at, end = row.body_start, row.body_end
        base_offset, last_delta = row.base_offset, row.last_offset - row.base_offset
        previous_delta = int64(-1)
        for _ in range(row.count):
            if at >= end:
                status = RECORD_MISSING
                break
            status, after, timestamp_delta, delta, _, key_start, key_size, value_size, _ = read_record(body, at, end)
            # Not "base + delta > last": signed sums are compiled as if they never overflowed.
            if status == RECORD_GOOD and (delta <= previous_delta or delta > last_delta):
                status = RECORD_BAD_OFFSET
            if status != RECORD_GOOD:
                break
            previous_delta = delta
            offset = base_offset + delta
            at = after
            if not first_offset <= offset < end_offset:
                continue
            place = uint64(offset) - uint64(first_offset)
            byte = place >> uint64(3)
            if byte >= uint64(bits.size) or uint64(bits[byte]) >> (place & uint64(7)) & uint64(1):
                # `read_record` has checked it.
                _, value_start, _ = read_varint(body, key_start + max(key_size, int64(0)), end, 5)
                if row.attributes & TIMESTAMP_TYPE_FLAG:
                    timestamp = row.max_timestamp
                else:
                    timestamp = int64(uint64(row.base_timestamp) + uint64(timestamp_delta))
                columns[OFFSET, rows] = offset
                columns[TIMESTAMP, rows] = timestamp
                columns[KEY_START, rows] = key_start + shift
                columns[KEY_SIZE, rows] = key_size
                columns[VALUE_START, rows] = value_start + shift
                columns[VALUE_SIZE, rows] = value_size
                columns[HEADERS_START, rows] = value_start + max(value_size, int64(0)) + shift
                rows += 1
        if status == RECORD_GOOD and at != end and row.count > 0:
            status = RECORD_LEFT_OVER
        if status != RECORD_GOOD:
            state[STATE_BATCH] = b
            state[STATE_RECORD_POSITION] = at - row.body_start
            break
    state[STATE_ROWS] = rows
    state[STATE_STATUS] = status
    return status


# Python's `marshal` format, unchanged since Python 2: a list is `[`, its length and its items; bytes are `s`, their
# length and the bytes; None is `N`. Lengths are 4 bytes, little endian.
MARSHAL_HEAD_BYTES = 5
_LIST, _BYTES, _NONE = 0x5B, 0x73, 0x4E


@inlined_jit
def _put_length(target, at, length):
    for i in range(4):
        target[at + i] = (length >> (8 * i)) & 0xFF


@jit
def marshal_fields(data, starts, sizes, target):
    """
    Write parts of an array as a marshalled list of bytes: Python loads it faster than it slices the parts.

    Args:
        data: uint8 array.
        starts, sizes: int64 arrays; a size of -1 is None. Each part lies within `data`.
        target: uint8 array, room for MARSHAL_HEAD_BYTES, and for each part its bytes and as much again.
    Returns:
        Bytes written.
    """
    target[0] = _LIST
    _put_length(target, 1, starts.size)
    at = int64(MARSHAL_HEAD_BYTES)
    for i in range(starts.size):
        size = sizes[i]
        if size < 0:
            target[at] = _NONE
            at += 1
            continue
        target[at] = _BYTES
        _put_length(target, at + 1, size)
        copy_bytes(target, at + MARSHAL_HEAD_BYTES, data, starts[i], size)
        at += MARSHAL_HEAD_BYTES + size
    return at


@jit
def join_fields(data, starts, sizes, target, at, ends, is_there, row):
    """
    Copy parts of an array one after the other, after those of earlier calls.

    Args:
        data: uint8 array.
        starts, sizes: int64 arrays; a size of -1 is null. Each part lies within `data`.
        target: uint8 array, room for all parts from `at` on.
        ends: int32 array; cell `row + i + 1` is set to the end of part i in `target`.
        is_there: uint8 array, zeroed; bit `row + i` (lowest bit of a byte first) is set unless part i is null.
    Returns:
        (end of the last part, how many are null).
    """
    nulls = int64(0)
    for i in range(starts.size):
        size = sizes[i]
        place = row + i
        if size < 0:
            nulls += 1
        else:
            copy_bytes(target, at, data, starts[i], size)
            at += size
            is_there[place >> 3] |= 1 << (place & 7)
        ends[place + 1] = at
    return at, nulls


@jit
def count_headers(data, starts, counts):
    """
    Read how many headers each record has.

    Args:
        data: uint8 array, records that are known to be sound.
        starts: int64 array, where each record's headers begin.
        counts: int64 array to fill.
    Returns:
        Total number of headers.
    """
    total = int64(0)
    for i in range(starts.size):
        counts[i], _, _ = read_varint(data, starts[i], data.size, 5)
        total += counts[i]
    return total


@jit
def find_headers(data, starts, places):
    """
    List the positions of some records' headers.

    Args:
        data, starts: as for `count_headers`.
        places: int64, shape (4, n), room for all headers: start and size of the name, start and size of the value; a
            size of -1 is null.
    """
    found = int64(0)
    for i in range(starts.size):
        count, at, _ = read_varint(data, starts[i], data.size, 5)
        for _ in range(count):
            for field in range(0, 4, 2):
                size, at, _ = read_varint(data, at, data.size, 5)
                places[field, found] = at
                places[field + 1, found] = size
                at += max(size, int64(0))
            found += 1
