"""
Decides about transactional batches while a log is read in order (R-530..R-534): aborted data and empty markers.

The caller keeps the state between chunks: a table of producers (`producer_table.py`), the aborted transactions not yet
reached, and those whose marker stays. All arrays are large enough when a kernel is called; none is created here.
"""

from __future__ import annotations

from numba import int64

from cleaner.kernels.batch_header import CONTROL_FLAG, HEADER_BYTES, TRANSACTIONAL_FLAG
from cleaner.kernels.compile import jit
from cleaner.kernels.memory import load_u16_be
from cleaner.kernels.producer_table import ID, NO_ROW, STATE, WORD_1, WORD_2, WORD_3, find_slot, take_row
from cleaner.kernels.records import read_varint

TXN_DONE = 0
TXN_BAD_MARKER = 1  # the control record of the batch at STATE_BATCH cannot be read

# Cells of the state array; the first is the number of rows in the table.
STATE_PRODUCERS, STATE_PENDING, STATE_RETAINED, STATE_BATCH = range(4)
STATE_CELLS = 4

# Columns of an aborted transaction, in the order of `model.AbortedTxn`.
ABORT_PRODUCER, ABORT_FIRST, ABORT_LAST, ABORT_LAST_STABLE = range(4)

# State of a producer; with ABORTED, its words are the offsets of the transaction index entry.
COMMITTED = 1  # it has transactional data that is not aborted, and no marker since
ABORTED = 2
HAS_DATA = 4  # of the aborted transaction

MARKER_ABORT, MARKER_COMMIT, _MARKER_OTHER, _MARKER_EMPTY, _MARKER_BAD = range(5)
NO_MARKER = -1


@jit
def _skip_field(data, at, end):
    """Return (start, size or -1 for null) of the bytes whose length is at `data[at]`; size -2 if they do not fit."""
    size, at, _ = read_varint(data, at, end, 5)
    if at < 0 or size < -1 or size > end - at:
        return int64(0), int64(-2)
    return at, size


@jit
def marker_kind(data, at, end):
    """Return the kind of the control record in `data[at:end]` (R-230, R-231)."""
    if at == end:
        return _MARKER_OTHER
    size, at, _ = read_varint(data, at, end, 5)
    if at < 0 or size < 1 or size > end - at:
        return _MARKER_BAD
    stop = at + size
    _, at, _ = read_varint(data, at + 1, stop, 10)
    if at < 0:
        return _MARKER_BAD
    _, at, _ = read_varint(data, at, stop, 5)
    if at < 0:
        return _MARKER_BAD
    key, key_size = _skip_field(data, at, stop)
    if key_size < 4 or _skip_field(data, key + key_size, stop)[1] < -1:
        return _MARKER_BAD
    if load_u16_be(data, key) > 0x7FFF:
        return _MARKER_BAD
    kind = int64(load_u16_be(data, key + 2))
    return kind if kind in (MARKER_ABORT, MARKER_COMMIT) else _MARKER_OTHER


@jit
def list_markers(data, batches, kinds):
    """
    List the kinds of the control batches of a chunk.

    Args:
        data, batches: the chunk; rows of BATCH_DTYPE.
        kinds: int8 a batch to fill: MARKER_...; NO_MARKER for batches of data.
    """
    for b in range(batches.size):
        row = batches[b]
        kinds[b] = NO_MARKER
        if row.magic == 2 and row.attributes & CONTROL_FLAG and row.count:
            kinds[b] = marker_kind(data, row.start + HEADER_BYTES, row.start + row.size)


@jit
def _begin_abort(pending, at, producers, slots, key_word, rows):
    """Open an aborted transaction, unless the producer has one open (R-531). Returns the number of rows in use."""
    producer_id = pending[at, ABORT_PRODUCER]
    slot = find_slot(producers, slots, producer_id, key_word)
    if slots[slot] == 0:
        rows = take_row(producers, slots, slot, producer_id, rows)
    producer = int64(slots[slot]) - 1
    if producers[producer, STATE] & ABORTED == 0:
        producers[producer, STATE] |= ABORTED
        producers[producer, WORD_1] = pending[at, ABORT_FIRST]
        producers[producer, WORD_2] = pending[at, ABORT_LAST]
        producers[producer, WORD_3] = pending[at, ABORT_LAST_STABLE]
    return rows


@jit
def _retain(producers, producer, retained, at):
    retained[at, ABORT_PRODUCER] = producers[producer, ID]
    retained[at, ABORT_FIRST] = producers[producer, WORD_1]
    retained[at, ABORT_LAST] = producers[producer, WORD_2]
    retained[at, ABORT_LAST_STABLE] = producers[producer, WORD_3]


@jit
def discard_batches(data, batches, pending, producers, slots, key, retained, can_discard, state):
    """
    Decide for each batch of a chunk whether its transaction allows to discard it, and advance the state.

    Args:
        data, batches: the chunk; rows of BATCH_DTYPE.
        pending: aborted transactions by first offset, ABORT_... columns; those before STATE_PENDING are done.
        producers, slots, key: a table of producers with room for each batch and each pending entry.
        retained: aborted transactions whose marker stays, STATE_RETAINED of them; room for one more a batch.
        can_discard: uint8 a batch, all 0; set to 1 for aborted data, and for markers without any data seen.
        state: int64 cells STATE_....
    Returns:
        TXN_DONE, or TXN_BAD_MARKER.
    """
    # Arrays are passed to other functions in rare cases only: it costs as much as everything else.
    at = state[STATE_PENDING]
    for b in range(batches.size):
        row = batches[b]
        while at < pending.shape[0] and pending[at, ABORT_FIRST] <= row.last_offset:
            state[STATE_PRODUCERS] = _begin_abort(pending, at, producers, slots, key[0], state[STATE_PRODUCERS])
            at += 1
            state[STATE_PENDING] = at
        if row.magic != 2 or row.attributes & (TRANSACTIONAL_FLAG | CONTROL_FLAG) == 0:
            continue
        slot = find_slot(producers, slots, row.producer_id, key[0])
        producer = int64(slots[slot]) - 1
        if row.attributes & CONTROL_FLAG == 0:
            if producer == NO_ROW:
                producer = state[STATE_PRODUCERS]
                state[STATE_PRODUCERS] = take_row(producers, slots, slot, row.producer_id, producer)
            is_aborted = producers[producer, STATE] & ABORTED != 0
            producers[producer, STATE] |= HAS_DATA if is_aborted else COMMITTED
            can_discard[b] = is_aborted
            continue
        kind = marker_kind(data, row.start + HEADER_BYTES, row.start + row.size) if row.count else _MARKER_EMPTY
        if kind == _MARKER_BAD:
            state[STATE_BATCH] = b
            return TXN_BAD_MARKER
        if kind == _MARKER_OTHER:
            continue
        known = int64(0) if producer == NO_ROW or kind == _MARKER_EMPTY else producers[producer, STATE]
        ends = COMMITTED if kind == MARKER_COMMIT else ABORTED | HAS_DATA
        can_discard[b] = known & ends != ends
        if known & ends:
            producers[producer, STATE] = known & ~ends
        if kind == MARKER_ABORT and known & ends == ends:
            _retain(producers, producer, retained, state[STATE_RETAINED])
            state[STATE_RETAINED] += 1
    return TXN_DONE
