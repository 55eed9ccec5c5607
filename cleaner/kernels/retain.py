"""
Writes the surviving parts of a chunk's batches (R-560..R-578): copied unchanged, rebuilt, or kept as an empty header.

The records' verdicts are known. A compressed batch is rebuilt uncompressed into a side buffer, packed by the caller and
sealed with `seal_batch`; everything else is written directly to the output.
"""

from __future__ import annotations

from numba import int64, uint64

from cleaner.kernels import batch_header as header
from cleaner.kernels.batch_header import HEADER_BYTES
from cleaner.kernels.compile import jit
from cleaner.kernels.crc32c import crc32c_range
from cleaner.kernels.memory import copy_bytes, store_u16_be, store_u32_be, store_u64_be
from cleaner.kernels.offset_map import DISCARDED, EXPIRED_TOMBSTONE, KEEP, KEEP_TOMBSTONE, KEYLESS, SUPERSEDED
from cleaner.kernels.records import read_record, read_varint
from cleaner.kernels.varints import varint_size, write_varint

# Why `retain_batches` returned.
RETAIN_DONE = 0
RETAIN_OUT_FULL = 1
RETAIN_COMPRESS = 2  # the caller must rebuild the batch at STATE_BATCH: it is compressed
RETAIN_ODD_BYTES = 3  # ... or has a record whose bytes a rewrite would change
RETAIN_EMPTY_LEGACY = 4
RETAIN_BAD_TIMESTAMP = 5  # R-576, this and the next four
RETAIN_NO_PRODUCER_ID = 6
RETAIN_NO_PRODUCER_EPOCH = 7
RETAIN_NO_SEQUENCE = 8
RETAIN_OFFSET_TOO_FAR = 9

BATCH_KEEP_IF_NOT_EMPTY = 0
BATCH_KEEP_EVEN_EMPTY = 1
BATCH_DROP = 2
BATCH_COPY = 3  # unchanged, whatever its content: its records are not read
BATCH_KEEP_END = 4  # even empty, and up to the same offset, also of magic 0 and 1: the log must not end before it

# Cells of the state array.
(
    STATE_BATCH,
    STATE_ORDINAL,
    STATE_OUT,
    STATE_WRITTEN_ROWS,
    STATE_BYTES_READ,
    STATE_MESSAGES_READ,
    STATE_MESSAGES_WRITTEN,
    STATE_SUPERSEDED,
    STATE_TOMBSTONES,
    STATE_ABORTED,
    STATE_MARKERS,
    STATE_KEYLESS,
    STATE_LARGEST_OFFSET,
) = range(13)
STATE_CELLS = 13

GROWTH_PER_RECORD = 20  # at most: a longer length (5), timestamp delta (10) and offset delta (5)
_MAX_INT = 2**31 - 1
# Attributes that an empty batch keeps, a rebuilt one, and one that had magic 0 or 1, whose other bits mean nothing.
_KEPT_EMPTY = header.TIMESTAMP_TYPE_FLAG | header.TRANSACTIONAL_FLAG | header.CONTROL_FLAG
_KEPT_REBUILT = header.COMPRESSION_MASK | _KEPT_EMPTY
_KEPT_LEGACY = header.COMPRESSION_MASK | header.TIMESTAMP_TYPE_FLAG


@jit
def _write_header(
    out, at, row, base_offset, last_offset, attributes, base_timestamp, max_timestamp, count, leader_epoch
):
    """Write a header except its length and CRC (R-210, R-570)."""
    store_u64_be(out, at + header.BASE_OFFSET_AT, uint64(base_offset))
    store_u32_be(out, at + header.LEADER_EPOCH_AT, uint64(leader_epoch))
    out[at + header.MAGIC_AT] = header.MAGIC
    store_u16_be(out, at + header.ATTRIBUTES_AT, uint64(attributes))
    store_u32_be(out, at + header.LAST_OFFSET_DELTA_AT, uint64(last_offset - base_offset))
    store_u64_be(out, at + header.BASE_TIMESTAMP_AT, uint64(base_timestamp))
    store_u64_be(out, at + header.MAX_TIMESTAMP_AT, uint64(max_timestamp))
    store_u64_be(out, at + header.PRODUCER_ID_AT, uint64(row.producer_id))
    store_u16_be(out, at + header.PRODUCER_EPOCH_AT, uint64(row.producer_epoch))
    store_u32_be(out, at + header.BASE_SEQUENCE_AT, uint64(row.base_sequence))
    store_u32_be(out, at + header.COUNT_AT, uint64(count))


@jit
def seal_batch(out, at, end):
    """Write length and CRC of the batch at `out[at:end]`, after the rest of it is written."""
    store_u32_be(out, at + header.LENGTH_AT, uint64(end - at - header.LOG_OVERHEAD_BYTES))
    store_u32_be(out, at + header.CRC_AT, uint64(crc32c_range(out, at + header.CRC_FROM, end)))


@jit
def write_empty_header(out, at, row):
    """Keep a batch as a header without records (R-575)."""
    attributes = row.attributes & (_KEPT_EMPTY if row.magic == 2 else header.TIMESTAMP_TYPE_FLAG)
    _write_header(
        out, at, row, row.base_offset, row.last_offset, attributes, int64(-1), row.max_timestamp, 0, row.leader_epoch
    )
    seal_batch(out, at, at + HEADER_BYTES)


@jit
def _is_utf8(data, at, end):
    """Tell whether bytes are well-formed UTF-8 (no overlong forms, no surrogates, at most U+10FFFF)."""
    while at < end:
        first = int64(data[at])
        if first < 0x80:
            at += 1
            continue
        if 0xC2 <= first <= 0xDF:
            more, low, high = 1, 0x80, 0xBF
        elif 0xE0 <= first <= 0xEF:
            more = 2
            low = 0xA0 if first == 0xE0 else 0x80
            high = 0x9F if first == 0xED else 0xBF
        elif 0xF0 <= first <= 0xF4:
            more = 3
            low = 0x90 if first == 0xF0 else 0x80
            high = 0x8F if first == 0xF4 else 0xBF
        else:
            return False
        if at + more >= end:
            return False
        if int64(data[at + 1]) < low or int64(data[at + 1]) > high:
            return False
        for i in range(at + 2, at + more + 1):
            if data[i] & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


@jit
def _headers_survive_rewriting(body, at, end):
    """Tell whether a record's headers, at `body[at:end]`, have shortest varints and UTF-8 keys (R-223)."""
    count, at, shortest = read_varint(body, at, end, 5)
    for _ in range(count):
        size, at, plain = read_varint(body, at, end, 5)
        shortest &= plain
        if not _is_utf8(body, at, at + size):
            return False
        at += size
        size, at, plain = read_varint(body, at, end, 5)
        shortest &= plain
        at += max(size, 0)
    return shortest


@jit
def _survives_rewriting(body, at, after):
    """Tell whether a record that is not plain would still be rewritten with the same bytes."""
    _, at, shortest = read_varint(body, at, after, 5)
    if body[at] != 0:
        return False
    _, at, plain = read_varint(body, at + 1, after, 10)
    shortest &= plain
    _, at, plain = read_varint(body, at, after, 5)
    shortest &= plain
    for _ in range(2):
        size, at, plain = read_varint(body, at, after, 5)
        shortest &= plain
        at += max(size, 0)
    return shortest and _headers_survive_rewriting(body, at, after)


@jit
def _check_rebuild(row):
    """Return why Kafka's builder would refuse this batch (R-576); RETAIN_DONE if it would not."""
    if row.attributes & header.TRANSACTIONAL_FLAG and row.producer_id == -1:
        return RETAIN_NO_PRODUCER_ID
    if row.producer_id != -1:
        if row.producer_epoch == -1:
            return RETAIN_NO_PRODUCER_EPOCH
        if row.base_sequence < 0 and row.attributes & header.CONTROL_FLAG == 0:
            return RETAIN_NO_SEQUENCE
    return RETAIN_DONE


@jit
def rebuild_batch(body, row, verdicts, ordinal, horizon_ms, keeps_end, out, at):
    """
    Rebuild a batch from its surviving records, uncompressed and not sealed (R-570..R-578).

    Args:
        body: the array with the batch's records.
        verdicts, ordinal: the batch's verdicts begin at `verdicts[ordinal]`; at least one record stays.
        horizon_ms: the delete horizon, or negative for none (R-563, R-568).
        keeps_end: a batch of magic 0 or 1 reaches as far as before, not only to its last surviving record.
        out, at: where to write; there is room for the body, GROWTH_PER_RECORD a record, and a header.
    Returns:
        (RETAIN_ status, end of the batch in `out`, last offset, maximum timestamp).
    """
    refusal = _check_rebuild(row)
    if refusal != RETAIN_DONE:
        return refusal, at, int64(0), int64(0)
    legacy = row.magic < 2
    append_time = row.attributes & header.TIMESTAMP_TYPE_FLAG != 0
    base_offset, last_offset = row.base_offset, row.last_offset
    base_timestamp, max_timestamp = horizon_ms, int64(-1)
    write_at = at + HEADER_BYTES
    read_at = row.body_start
    kept = 0
    for i in range(row.count):
        if not verdicts[ordinal + i] & KEEP:
            # The record was checked when its verdict was given, so its length is enough to skip it.
            size, read_at, _ = read_varint(body, read_at, row.body_end, 5)
            read_at += size
            continue
        _, after, timestamp_delta, delta, tail, _, _, _, plain = read_record(body, read_at, row.body_end)
        if not plain and not _survives_rewriting(body, read_at, after):
            return RETAIN_ODD_BYTES, at, int64(0), int64(0)
        # A set of magic 1 with log append time may hold records of magic 0, which have none: R-578.
        timestamp = row.base_timestamp + timestamp_delta
        if append_time and not legacy:
            timestamp = row.max_timestamp
        if timestamp < -1:
            return RETAIN_BAD_TIMESTAMP, at, int64(0), int64(0)
        offset = row.base_offset + delta
        if kept == 0:
            if horizon_ms < 0:
                base_timestamp = timestamp
            if legacy:
                base_offset = offset
        if offset - base_offset > _MAX_INT:
            return RETAIN_OFFSET_TOO_FAR, at, int64(0), int64(0)
        if legacy and not keeps_end:
            last_offset = offset
        max_timestamp = max(max_timestamp, timestamp)
        new_delta = timestamp - base_timestamp
        size = 1 + varint_size(new_delta) + varint_size(offset - base_offset) + (after - tail)
        write_at = write_varint(out, write_at, size)
        out[write_at] = 0
        write_at = write_varint(out, write_at + 1, new_delta)
        write_at = write_varint(out, write_at, offset - base_offset)
        copy_bytes(out, write_at, body, tail, after - tail)
        write_at += after - tail
        kept += 1
        read_at = after
    if append_time:
        max_timestamp = row.max_timestamp
    attributes = row.attributes & _KEPT_REBUILT
    if legacy:
        attributes = row.attributes & _KEPT_LEGACY
    if horizon_ms >= 0:
        attributes |= header.DELETE_HORIZON_FLAG
    _write_header(
        out, at, row, base_offset, last_offset, attributes, base_timestamp, max_timestamp, kept, row.leader_epoch
    )
    return RETAIN_DONE, write_at, last_offset, max_timestamp


@jit
def batch_horizon(row, has_tombstones, is_empty_marker, new_horizon_ms):
    """Return (whether the batch must be rebuilt for a horizon, the horizon it gets or -1) (R-561, R-563, R-568)."""
    has_horizon = row.magic == 2 and row.attributes & header.DELETE_HORIZON_FLAG != 0
    if (has_tombstones or is_empty_marker) and not has_horizon:
        return True, new_horizon_ms
    return False, row.base_timestamp if has_horizon else int64(-1)


@jit
def count_verdicts(verdicts, first, count, is_control, state):
    """Count the removed records of a batch, by reason."""
    kept = superseded = 0
    for i in range(first, first + count):
        kept += verdicts[i] & KEEP
        superseded += verdicts[i] == SUPERSEDED
    state[STATE_SUPERSEDED] += superseded
    if kept + superseded == count:
        return  # the usual case, without a branch for each record
    for i in range(first, first + count):
        verdict = verdicts[i]
        if verdict == EXPIRED_TOMBSTONE:
            state[STATE_TOMBSTONES] += 1
        elif verdict == KEYLESS:
            state[STATE_KEYLESS] += 1
        elif verdict == DISCARDED:
            if is_control:
                state[STATE_MARKERS] += 1
            else:
                state[STATE_ABORTED] += 1


@jit
def rebuild_apart(data, unpacked, rows, retention, verdicts, ordinal, is_empty_marker, new_horizon_ms, out, state):
    """
    Rebuild the one batch in `rows` at the beginning of a separate buffer, and count its verdicts.

    Returns:
        (RETAIN_ status, end of the batch in `out`, last offset, maximum timestamp, number of surviving records).
    """
    row = rows[0]
    kept = 0
    has_tombstones = False
    for i in range(ordinal, ordinal + row.count):
        kept += verdicts[i] & KEEP
        has_tombstones |= verdicts[i] == KEEP_TOMBSTONE
    _, horizon_ms = batch_horizon(row, has_tombstones, is_empty_marker, new_horizon_ms)
    body = unpacked if row.unpacked else data
    status, end, last_offset, max_timestamp = rebuild_batch(
        body, row, verdicts, ordinal, horizon_ms, retention == BATCH_KEEP_END, out, int64(0)
    )
    if status == RETAIN_DONE:
        count_verdicts(
            verdicts, ordinal, row.count, row.attributes & header.CONTROL_FLAG != 0 and row.magic == 2, state
        )
    return status, end, last_offset, max_timestamp, kept


@jit
def note_written(written, state, size, last_offset, max_timestamp, messages, largest_offset):
    """Note a batch written to the output: its row for the indexes, and the counters."""
    row = written[state[STATE_WRITTEN_ROWS]]
    row.size = size
    row.last_offset = last_offset
    row.max_timestamp = max_timestamp
    state[STATE_WRITTEN_ROWS] += 1
    state[STATE_OUT] += size
    state[STATE_MESSAGES_WRITTEN] += messages
    state[STATE_LARGEST_OFFSET] = max(state[STATE_LARGEST_OFFSET], largest_offset)


@jit
def retain_batches(
    data, unpacked, batches, retention, is_empty_marker, verdicts, new_horizon_ms, out, capacity, written, state
):
    """
    Write the surviving parts of some batches, from STATE_BATCH on, until all are done or the caller must help.

    Args:
        data, unpacked, batches: the batches and their records.
        retention: int8 a batch, BATCH_... (R-541).
        is_empty_marker: uint8 a batch; 1 for a marker without any data left (R-542).
        verdicts: uint8 a record of batches that are not dropped, from `judge_records`.
        new_horizon_ms: now + delete.retention.ms (R-563).
        out, capacity: the output and how much of it may be filled.
        written: rows of WRITTEN_DTYPE, one for each batch written, as many as there are batches.
        state: int64 cells STATE_..., advanced batch by batch.
    Returns:
        a RETAIN_ status; any except RETAIN_DONE concerns the batch at STATE_BATCH, which is not counted yet.
    """
    for b in range(state[STATE_BATCH], batches.size):
        row = batches[b]
        state[STATE_BATCH] = b
        at = state[STATE_OUT]
        first = state[STATE_ORDINAL]
        is_control = row.attributes & header.CONTROL_FLAG != 0 and row.magic == 2
        if retention[b] == BATCH_DROP:
            state[STATE_BYTES_READ] += row.size
            state[STATE_MARKERS if is_control else STATE_ABORTED] += row.count
            continue
        if retention[b] == BATCH_COPY:
            if capacity - at < row.size:
                return RETAIN_OUT_FULL
            copy_bytes(out, at, data, row.start, row.size)
            note_written(written, state, row.size, row.last_offset, row.max_timestamp, row.count, row.last_offset)
            state[STATE_BYTES_READ] += row.size
            state[STATE_MESSAGES_READ] += row.count
            continue
        body_size = row.body_end - row.body_start
        if capacity - at < max(row.size, body_size) + row.count * GROWTH_PER_RECORD + HEADER_BYTES:
            return RETAIN_OUT_FULL
        kept = 0
        has_tombstones = False
        for i in range(first, first + row.count):
            kept += verdicts[i] & KEEP
            has_tombstones |= verdicts[i] == KEEP_TOMBSTONE
        stamp, horizon_ms = batch_horizon(row, has_tombstones, is_empty_marker[b], new_horizon_ms)
        if kept == 0:
            if retention[b] == BATCH_KEEP_EVEN_EMPTY or retention[b] == BATCH_KEEP_END:
                if row.magic < 2 and retention[b] != BATCH_KEEP_END:
                    return RETAIN_EMPTY_LEGACY
                write_empty_header(out, at, row)
                note_written(written, state, HEADER_BYTES, row.last_offset, row.max_timestamp, 0, row.last_offset)
        elif kept == row.count and row.magic == 2 and not stamp:
            copy_bytes(out, at, data, row.start, row.size)
            note_written(written, state, row.size, row.last_offset, row.max_timestamp, kept, row.last_offset)
        else:
            if row.attributes & header.COMPRESSION_MASK:
                return RETAIN_COMPRESS
            body = unpacked if row.unpacked else data
            status, end, last_offset, max_timestamp = rebuild_batch(
                body, row, verdicts, first, horizon_ms, retention[b] == BATCH_KEEP_END, out, at
            )
            if status != RETAIN_DONE:
                return status
            seal_batch(out, at, end)
            note_written(written, state, end - at, last_offset, max_timestamp, kept, last_offset)
        if kept < row.count:
            count_verdicts(verdicts, first, row.count, is_control, state)
        state[STATE_BYTES_READ] += row.size
        state[STATE_MESSAGES_READ] += row.count
        state[STATE_ORDINAL] += row.count
    state[STATE_BATCH] = batches.size
    return RETAIN_DONE
