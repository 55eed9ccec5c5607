"""Reads one record of magic 2 (R-220); checks every length before using it."""

from __future__ import annotations

from numba import int64, uint64

from cleaner.kernels.compile import inlined_jit, jit
from cleaner.kernels.memory import load_u8

# Errors of a record, or of a batch as a sequence of records. `format/records.py` has a message for each.
RECORD_GOOD = 0
RECORD_BAD_LENGTH = 1
RECORD_BAD_VARINT = 2
RECORD_BAD_KEY = 3
RECORD_BAD_VALUE = 4
RECORD_BAD_HEADERS = 5
RECORD_BAD_END = 6
RECORD_BAD_OFFSET = 7
RECORD_LEFT_OVER = 8
RECORD_MISSING = 9


@jit
def _long_varint(data, at, end, max_bytes):
    """Finish a varint of two or more bytes: (value, next position or -1, whether its encoding is the shortest)."""
    value = uint64(0)
    shift = uint64(0)
    for i in range(max_bytes):
        if at >= end:
            return int64(0), int64(-1), False
        byte = load_u8(data, at)
        at += 1
        if i == max_bytes - 1:
            # The last byte has room for 4 of 32 bits, or 1 of 64: more bits would be lost silently.
            room = uint64(15) if max_bytes == 5 else uint64(1)
            if byte > room:
                return int64(0), int64(-1), False
        value |= (byte & uint64(127)) << shift
        if byte < uint64(128):
            shortest = byte != uint64(0) or i == 0
            return int64(value >> uint64(1)) ^ -int64(value & uint64(1)), at, shortest
        shift += uint64(7)
    return int64(0), int64(-1), False


@inlined_jit
def read_varint(data, at, end, max_bytes):
    """
    Read a zig-zag varint (R-221): `max_bytes` 5 for an int, 10 for a long.

    Returns:
        (value, position after it or -1 if it is too long, whether its encoding is the shortest).
    """
    if at < end:
        byte = load_u8(data, at)
        if byte < uint64(128):
            return int64(byte >> uint64(1)) ^ -int64(byte & uint64(1)), at + 1, True
        if at + 1 < end:
            second = load_u8(data, at + 1)
            if uint64(0) < second < uint64(128):
                value = (byte & uint64(127)) | (second << uint64(7))
                return int64(value >> uint64(1)) ^ -int64(value & uint64(1)), at + 2, True
    return _long_varint(data, at, end, max_bytes)


@jit
def skip_headers(data, at, end):
    """
    Check and skip a record's headers.

    Returns:
        (position after them or -1, whether all varints are the shortest and all header keys plain ASCII).
    """
    count, at, plain = read_varint(data, at, end, 5)
    if at < 0 or count < 0 or count > end - at:
        return int64(-1), plain
    for _ in range(count):
        size, at, shortest = read_varint(data, at, end, 5)
        plain &= shortest
        if at < 0 or size < 0 or size > end - at:
            return int64(-1), plain
        for i in range(at, at + size):
            plain &= load_u8(data, i) < uint64(128)
        at += size
        size, at, shortest = read_varint(data, at, end, 5)
        plain &= shortest
        if at < 0 or size < -1 or size > end - at:
            return int64(-1), plain
        at += max(size, 0)
    return at, plain


@inlined_jit
def read_record(data, at, end):
    """
    Read the record that starts at `data[at]`; the batch's records end at `end`.

    Returns:
        (status, position after the record, timestamp delta, offset delta, position of the key-length field, key start,
        key size or -1, value size or -1, whether rewriting it would give the same bytes: R-220, R-223).
    """
    nothing = int64(0)
    size, at, plain = read_varint(data, at, end, 5)
    if at < 0:
        return RECORD_BAD_VARINT, nothing, nothing, nothing, nothing, nothing, nothing, nothing, False
    if size < 0 or size > end - at:
        return RECORD_BAD_LENGTH, nothing, nothing, nothing, nothing, nothing, nothing, nothing, False
    stop = at + size
    if size == 0:
        return RECORD_BAD_LENGTH, nothing, nothing, nothing, nothing, nothing, nothing, nothing, False
    plain &= load_u8(data, at) == uint64(0)
    timestamp_delta, at, shortest = read_varint(data, at + 1, stop, 10)
    plain &= shortest
    if at < 0:
        return RECORD_BAD_VARINT, nothing, nothing, nothing, nothing, nothing, nothing, nothing, False
    offset_delta, at, shortest = read_varint(data, at, stop, 5)
    plain &= shortest
    if at < 0:
        return RECORD_BAD_VARINT, nothing, nothing, nothing, nothing, nothing, nothing, nothing, False
    tail = at
    key_size, at, shortest = read_varint(data, at, stop, 5)
    plain &= shortest
    if at < 0 or key_size < -1 or key_size > stop - at:
        return RECORD_BAD_KEY, nothing, nothing, nothing, nothing, nothing, nothing, nothing, False
    key_start = at
    at += max(key_size, 0)
    value_size, at, shortest = read_varint(data, at, stop, 5)
    plain &= shortest
    if at < 0 or value_size < -1 or value_size > stop - at:
        return RECORD_BAD_VALUE, nothing, nothing, nothing, nothing, nothing, nothing, nothing, False
    at += max(value_size, 0)
    if at == stop - 1 and load_u8(data, at) == uint64(0):
        at += 1  # no headers, as almost always
    else:
        at, shortest = skip_headers(data, at, stop)
        plain &= shortest
        if at < 0:
            return RECORD_BAD_HEADERS, nothing, nothing, nothing, nothing, nothing, nothing, nothing, False
    if at != stop:
        return RECORD_BAD_END, nothing, nothing, nothing, nothing, nothing, nothing, nothing, False
    return RECORD_GOOD, stop, timestamp_delta, offset_delta, tail, key_start, key_size, value_size, plain


@jit
def find_record_above(data, batches, limit_bytes):
    """
    Find the first record whose length is above a limit, in batches whose records were unpacked (R-511, R-560).

    Batches of magic 0 and 1 are skipped: their entries had other sizes before they were converted. So is the rest of a
    batch behind a length that cannot be right: reading the records finds the damage.

    Args:
        data: uint8 array with the unpacked records.
        batches: rows of BATCH_DTYPE.
        limit_bytes: the largest length that a record may have.
    Returns:
        (the batch's number or -1, number of the record in it, position of the record in `data`, its length).
    """
    for b in range(batches.size):
        row = batches[b]
        if row.unpacked == 0 or row.magic < 2 or row.body_end - row.body_start <= limit_bytes:
            continue
        at = int64(row.body_start)
        for n in range(row.count):
            size, after, _ = read_varint(data, at, row.body_end, 5)
            if after < 0 or size < 0:
                break
            if size > limit_bytes:
                return int64(b), int64(n), at, size
            if size > row.body_end - after:
                break
            at = after + size
    return int64(-1), int64(0), int64(0), int64(0)


@inlined_jit
def read_next_record(body, end, last_delta, at, previous_delta):
    """
    Read the next record of a batch, and check its offset against the previous record's and the batch's.

    Args:
        body: the array with the batch's records.
        end: where they end.
        last_delta: the batch's last offset delta.
        at: where the record begins.
        previous_delta: offset delta of the record before, -1 for the first.
    Returns:
        (RECORD_ status, position after the record, offset delta, key start, key size or -1, value size or -1).
    """
    if at >= end:
        return RECORD_MISSING, at, int64(0), int64(0), int64(0), int64(0)
    status, after, _, delta, _, key_start, key_size, value_size, _ = read_record(body, at, end)
    # Not "base + delta > last": signed sums are compiled as if they never overflowed.
    if status == RECORD_GOOD and (delta <= previous_delta or delta > last_delta):
        status = RECORD_BAD_OFFSET
    return status, after, delta, key_start, key_size, value_size
