"""
Writes the surviving parts of a chunk's batches, including compressed ones (R-560..R-578).

`retain_batches` stops at a compressed batch that must be rebuilt. Here it is rebuilt in a separate buffer and packed
from there: all but gzip immediately, so that a whole chunk needs one call. Otherwise the caller packs, and
notes that for the next call, which seals the batch and continues.
"""

from __future__ import annotations

from numba import int64

from cleaner.kernels import zstd
from cleaner.kernels.batch_header import COMPRESSION_MASK, HEADER_BYTES
from cleaner.kernels.codec_table import KERNEL_CODECS, ZSTD
from cleaner.kernels.codecs import max_packed_bytes, pack_stream
from cleaner.kernels.compile import jit
from cleaner.kernels.memory import copy_bytes
from cleaner.kernels.retain import (
    GROWTH_PER_RECORD,
    RETAIN_COMPRESS,
    RETAIN_DONE,
    RETAIN_OUT_FULL,
    STATE_BATCH,
    STATE_BYTES_READ,
    STATE_MESSAGES_READ,
    STATE_ORDINAL,
    STATE_OUT,
    note_written,
    rebuild_apart,
    retain_batches,
    seal_batch,
)

# Cells of the array for the last rebuilt batch.
(
    REBUILT_END,  # its end in the buffer; 0: no batch is waiting
    REBUILT_PACKED_BYTES,  # packed size of its records, in the output after the header's room; set by the packer
    _REBUILT_LAST_OFFSET,
    _REBUILT_MAX_TIMESTAMP,
    _REBUILT_KEPT,
) = range(5)
REBUILT_CELLS = 5


@jit
def _seal_packed(batches, rebuilt, rebuilt_state, out, written, state):
    """Write header and checksum of the batch that was packed to the output, and count it."""
    row = batches[state[STATE_BATCH]]
    at = state[STATE_OUT]
    size = HEADER_BYTES + rebuilt_state[REBUILT_PACKED_BYTES]
    last_offset = rebuilt_state[_REBUILT_LAST_OFFSET]
    copy_bytes(out, at, rebuilt, int64(0), int64(HEADER_BYTES))
    seal_batch(out, at, at + size)
    note_written(
        written,
        state,
        size,
        last_offset,
        rebuilt_state[_REBUILT_MAX_TIMESTAMP],
        rebuilt_state[_REBUILT_KEPT],
        last_offset,
    )
    state[STATE_BYTES_READ] += row.size
    state[STATE_MESSAGES_READ] += row.count
    state[STATE_ORDINAL] += row.count
    state[STATE_BATCH] += 1
    rebuilt_state[REBUILT_END] = 0


@jit
def note_rebuilt(rebuilt_state, end, last_offset, max_timestamp, kept):
    """Note a batch that is rebuilt, but not packed, at the beginning of its buffer."""
    rebuilt_state[REBUILT_END] = end
    rebuilt_state[_REBUILT_LAST_OFFSET] = last_offset
    rebuilt_state[_REBUILT_MAX_TIMESTAMP] = max_timestamp
    rebuilt_state[_REBUILT_KEPT] = kept


@jit
def retain_and_pack(
    data, unpacked, batches, retention, is_empty_marker, verdicts, new_horizon_ms, out, capacity, written, state,
    rebuilt, rebuilt_capacity, rebuilt_state, table, zstd_cells,
):  # fmt: skip
    """
    Write the surviving parts of some batches, from STATE_BATCH on, until all are done or the caller must help.

    Args:
        data ... state: as for `retain_batches`.
        rebuilt, rebuilt_capacity: a buffer for one batch, and how much of it may be filled.
        rebuilt_state: int64 cells REBUILT_... If a batch is waiting there, it has been packed to the output.
        table: for `pack_stream`.
        zstd_cells: of `zstd.pack_frame`.
    Returns:
        a RETAIN_ status; RETAIN_COMPRESS if a batch is waiting to be packed, RETAIN_OUT_FULL if the output or the
        buffer has no room for the batch at STATE_BATCH, others as from `retain_batches`.
    """
    if rebuilt_state[REBUILT_END] > 0:
        _seal_packed(batches, rebuilt, rebuilt_state, out, written, state)
    while True:
        status = retain_batches(
            data, unpacked, batches, retention, is_empty_marker, verdicts, new_horizon_ms, out, capacity, written, state
        )
        if status != RETAIN_COMPRESS:
            return status
        at = state[STATE_BATCH]
        row = batches[at]
        codec = row.attributes & COMPRESSION_MASK
        most = HEADER_BYTES + row.body_end - row.body_start + row.count * GROWTH_PER_RECORD
        if most > rebuilt_capacity:
            return RETAIN_OUT_FULL
        status, end, last_offset, max_timestamp, kept = rebuild_apart(
            data,
            unpacked,
            batches[at : at + 1],
            retention[at],
            verdicts,
            state[STATE_ORDINAL],
            is_empty_marker[at] != 0,
            new_horizon_ms,
            rebuilt,
            state,
        )
        if status != RETAIN_DONE:
            return status
        note_rebuilt(rebuilt_state, end, last_offset, max_timestamp, kept)
        body_at = state[STATE_OUT] + HEADER_BYTES
        if codec == ZSTD:
            packed_end = zstd.pack_frame(rebuilt, int64(HEADER_BYTES), end, out, body_at, int64(capacity), zstd_cells)
            if packed_end < 0:
                return RETAIN_COMPRESS
        elif not KERNEL_CODECS >> codec & 1 or max_packed_bytes(end - HEADER_BYTES) > capacity - body_at:
            return RETAIN_COMPRESS
        else:
            packed_end = pack_stream(codec, rebuilt, int64(HEADER_BYTES), end, table, out, body_at)
        rebuilt_state[REBUILT_PACKED_BYTES] = packed_end - body_at
        _seal_packed(batches, rebuilt, rebuilt_state, out, written, state)
