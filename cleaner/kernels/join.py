"""
Joins adjacent batches into one whose records keep their offsets and timestamps (`cleaning/recopy/recompress.py`, D-18).

Only the deltas of records change, and so their lengths; attributes, key, value and headers are copied byte by byte.
"""

from __future__ import annotations

from numba import int64, uint64

from cleaner.kernels import batch_header as header
from cleaner.kernels.batch_header import HEADER_BYTES
from cleaner.kernels.compile import jit
from cleaner.kernels.memory import (
    copy_bytes,
    load_u16_be,
    store_u16_be,
    store_u32_be,
    store_u64_be,
)
from cleaner.kernels.records import RECORD_GOOD, read_record, read_varint
from cleaner.kernels.retain import GROWTH_PER_RECORD, seal_batch
from cleaner.kernels.varints import varint_size, write_varint

# Why `take_batches` returned.
TAKE_DONE = 0  # all batches are taken
TAKE_CLOSE = 1  # the batch belongs to another run: close this one first
TAKE_COPY = 2  # the batch is to be copied as it is; no run is open
TAKE_FULL = 3  # the buffers have no room for the batch
TAKE_BAD = 4  # the batch has a record that cannot be read

# Cells of the open run; without a batch none is open.
(
    RUN_BATCHES,
    RUN_RECORDS,
    RUN_END,  # of its header and records in the buffer
    RUN_ORIGINAL_BYTES,
    RUN_CODECS,  # a bit each
    RUN_BASE_OFFSET,
    RUN_LAST_OFFSET,
    RUN_BASE_TIMESTAMP,
    RUN_MAX_TIMESTAMP,
    RUN_ATTRIBUTES,  # without the codec
    RUN_LEADER_EPOCH,
    RUN_IS_ALONE,  # its batch can be joined with no other
    RUN_BAD_AT,  # with TAKE_BAD: position of the record in its body
    RUN_BAD_STATUS,
) = range(14)
RUN_CELLS = 14

_MAX_INT = 2**31 - 1
_KNOWN = (
    header.COMPRESSION_MASK
    | header.TIMESTAMP_TYPE_FLAG
    | header.TRANSACTIONAL_FLAG
    | header.CONTROL_FLAG
    | header.DELETE_HORIZON_FLAG
)
# Shorter than before a record can only become by as much as it can grow.
_MOST_SAVED_A_RECORD = GROWTH_PER_RECORD


@jit
def _needs_its_bounds(data, row):
    """Tell whether somebody may need the bounds of a batch, or it says something that another could not say."""
    return (
        row.producer_id != -1
        or row.producer_epoch != -1
        or row.base_sequence != -1
        or row.attributes & header.TRANSACTIONAL_FLAG != 0
        or row.attributes & ~_KNOWN != 0
        or load_u16_be(data, row.start + header.ATTRIBUTES_AT) > 255
    )


@jit
def _joins(state, row):
    """Tell whether a batch that needs no bounds of its own says the same as the run of all its records."""
    attributes = row.attributes & ~header.COMPRESSION_MASK
    if attributes != state[RUN_ATTRIBUTES] or row.leader_epoch != state[RUN_LEADER_EPOCH]:
        return False
    # The base timestamp of a batch with a delete horizon is that horizon; log append time is the batch's maximum.
    if attributes & header.DELETE_HORIZON_FLAG and row.base_timestamp != state[RUN_BASE_TIMESTAMP]:
        return False
    if attributes & header.TIMESTAMP_TYPE_FLAG and row.max_timestamp != state[RUN_MAX_TIMESTAMP]:
        return False
    return row.last_offset - state[RUN_BASE_OFFSET] <= _MAX_INT


@jit
def _append_records(body, row, state, raw, limit):
    """Write a batch's records after those of the run; returns (status, end or -1 if they exceed the limit)."""
    write_at = state[RUN_END]
    at = row.body_start
    # Deltas of 64 bits wrap, as they do when they are added again.
    base_moves = uint64(row.base_timestamp) - uint64(state[RUN_BASE_TIMESTAMP])
    offset_moves = row.base_offset - state[RUN_BASE_OFFSET]
    for _ in range(row.count):
        status, after, timestamp_delta, delta, tail, _, _, _, _ = read_record(body, at, row.body_end)
        if status != RECORD_GOOD:
            state[RUN_BAD_AT] = at - row.body_start
            state[RUN_BAD_STATUS] = status
            return TAKE_BAD, int64(-1)
        _, attributes_at, _ = read_varint(body, at, row.body_end, 5)
        new_delta = int64(uint64(timestamp_delta) + base_moves)
        size = 1 + varint_size(new_delta) + varint_size(delta + offset_moves) + (after - tail)
        if write_at + varint_size(size) + size > limit:
            return TAKE_DONE, int64(-1)
        write_at = write_varint(raw, write_at, size)
        raw[write_at] = body[attributes_at]
        write_at = write_varint(raw, write_at + 1, new_delta)
        write_at = write_varint(raw, write_at, delta + offset_moves)
        copy_bytes(raw, write_at, body, tail, after - tail)
        write_at += after - tail
        at = after
    return TAKE_DONE, write_at


@jit
def take_batches(data, unpacked, batches, copied, first, limit, raw, raw_capacity, originals, room, state):
    """
    Add batches to the open run, or begin one, until a batch does not belong to it.

    Args:
        data, unpacked, batches: a block of batches, with their records unpacked.
        copied: uint8 a batch, 1 if it stays as it is, and ends a run.
        first: number of the first batch to take.
        limit: the most bytes of a joined batch, header and unpacked records.
        raw, raw_capacity: header and unpacked records of the run, and how much of it may be filled.
        originals, room: its batches as they are, one after the other, and how many bytes may be filled.
        state: int64 cells RUN_...
    Returns:
        (the batch it stopped before, TAKE_ status).
    """
    for b in range(first, batches.size):
        row = batches[b]
        if copied[b]:
            return b, TAKE_CLOSE if state[RUN_BATCHES] else TAKE_COPY
        body = unpacked if row.unpacked else data
        size = row.body_end - row.body_start
        is_alone = _needs_its_bounds(data, row)
        end = int64(0)
        if state[RUN_BATCHES]:
            least = state[RUN_END] + size - row.count * _MOST_SAVED_A_RECORD
            if state[RUN_IS_ALONE] or is_alone or least > limit or not _joins(state, row):
                return b, TAKE_CLOSE
            if (
                raw_capacity - state[RUN_END] < size + row.count * GROWTH_PER_RECORD
                or room - state[RUN_ORIGINAL_BYTES] < row.size
            ):
                return b, TAKE_FULL
            status, end = _append_records(body, row, state, raw, limit)
            if status != TAKE_DONE:
                return b, status
            if end < 0:
                return b, TAKE_CLOSE
            state[RUN_MAX_TIMESTAMP] = max(state[RUN_MAX_TIMESTAMP], row.max_timestamp)
        else:
            if raw_capacity < HEADER_BYTES + size or room < row.size:
                return b, TAKE_FULL
            copy_bytes(raw, int64(0), data, row.start, int64(HEADER_BYTES))
            copy_bytes(raw, int64(HEADER_BYTES), body, row.body_start, size)
            end = HEADER_BYTES + size
            state[RUN_RECORDS] = state[RUN_ORIGINAL_BYTES] = state[RUN_CODECS] = 0
            state[RUN_BASE_OFFSET] = row.base_offset
            state[RUN_BASE_TIMESTAMP] = row.base_timestamp
            state[RUN_MAX_TIMESTAMP] = row.max_timestamp
            state[RUN_ATTRIBUTES] = row.attributes & ~header.COMPRESSION_MASK
            state[RUN_LEADER_EPOCH] = row.leader_epoch
            state[RUN_IS_ALONE] = is_alone
        copy_bytes(originals, state[RUN_ORIGINAL_BYTES], data, row.start, row.size)
        state[RUN_END] = end
        state[RUN_LAST_OFFSET] = row.last_offset
        state[RUN_BATCHES] += 1
        state[RUN_RECORDS] += row.count
        state[RUN_ORIGINAL_BYTES] += row.size
        state[RUN_CODECS] |= int64(1) << (row.attributes & header.COMPRESSION_MASK)
    return batches.size, TAKE_DONE


@jit
def find_bound(data, batches, bound):
    """Fill `bound`, uint8 a batch: 1 if the batch can be joined with no other."""
    for b in range(batches.size):
        bound[b] = _needs_its_bounds(data, batches[b])


@jit
def seal_run(out, at, end, codec, state):
    """Finish the run's batch at `out[at:end]`, which has the header of the run's first batch and the packed records."""
    high_byte = load_u16_be(out, at + header.ATTRIBUTES_AT) & ~255
    # Of a single batch bits without a meaning stay, too.
    store_u16_be(out, at + header.ATTRIBUTES_AT, uint64(high_byte | state[RUN_ATTRIBUTES] | codec))
    store_u32_be(out, at + header.LAST_OFFSET_DELTA_AT, uint64(state[RUN_LAST_OFFSET] - state[RUN_BASE_OFFSET]))
    store_u64_be(out, at + header.MAX_TIMESTAMP_AT, uint64(state[RUN_MAX_TIMESTAMP]))
    store_u32_be(out, at + header.COUNT_AT, uint64(state[RUN_RECORDS]))
    seal_batch(out, at, end)
