"""
Writes the retained records of a block of batches into an output buffer (R-560..R-578).

The kernel copies, rebuilds and packs. Python code does the rest: packing with gzip, records whose bytes a rewrite would
change, and the errors for batches that Kafka's own builder refuses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.base.model import Removed
from cleaner.cleaning.passes.lane_memory import USUAL_OUTPUT_BYTES
from cleaner.cleaning.recopy.survivors import BlockRetention
from cleaner.errors import UncleanableError
from cleaner.format.batch import COMPRESSION_MASK, HEADER_BYTES
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.chunks import Bytes, Chunk, Flags
from cleaner.format.compression import compress
from cleaner.format.records import Block
from cleaner.format.rewrite import canonical_records
from cleaner.format.zstd_frame import kernel_cells
from cleaner.kernels import PAD_BYTES, codecs, repack
from cleaner.kernels import retain as kernel
from cleaner.kernels.memory import equal_bytes
from cleaner.storage.segment.index_builder import WRITTEN_DTYPE

_FIRST_OUTPUT_BYTES = USUAL_OUTPUT_BYTES // 2

_REFUSALS = {
    kernel.RETAIN_EMPTY_LEGACY: "the last batch of the range has magic 0 or 1 and keeps no record; only magic 2 can be"
    " kept empty (R-546)",
    kernel.RETAIN_BAD_TIMESTAMP: "a record to be rewritten has a negative timestamp (R-576)",
    kernel.RETAIN_NO_PRODUCER_ID: "a transactional batch to be rewritten has no producer id (R-576)",
    kernel.RETAIN_NO_PRODUCER_EPOCH: "a batch to be rewritten has a producer id but no producer epoch (R-576)",
    kernel.RETAIN_NO_SEQUENCE: "a batch to be rewritten has a producer id but no sequence (R-576)",
    kernel.RETAIN_OFFSET_TOO_FAR: "a batch to be rewritten spans more than 2**31 - 1 offsets (R-576)",
}


# The cells of the fields of `Removed`.
_REMOVED = (
    kernel.STATE_SUPERSEDED,
    kernel.STATE_TOMBSTONES,
    kernel.STATE_ABORTED,
    kernel.STATE_MARKERS,
    kernel.STATE_KEYLESS,
)


@dataclass
class CopyCounts:
    """
    Counts of what was read and what was retained (R-718): bytes of batches, and records; and how many tombstones and
    markers were held although their time had come; and how many records have expired, and became tombstones.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    messages_read: int = 0
    messages_written: int = 0
    removed: Removed = field(default_factory=Removed)
    held_tombstones: int = 0
    held_markers: int = 0
    expired_records: int = 0

    @staticmethod
    def total(parts: Iterable[CopyCounts]) -> CopyCounts:
        """Return the sum of several counts."""
        total = CopyCounts()
        for part in parts:
            for name, count in vars(part).items():
                setattr(total, name, getattr(total, name) + count)
        return total


@dataclass(frozen=True)
class Output:
    """
    The output of a chunk, borrowed from its writer until the next chunk begins.

    Attributes:
        data: bytes of whole batches.
        array: the same memory, with spare bytes after it.
        written: one row of WRITTEN_DTYPE a batch.
        largest_offset: highest last offset of a batch; -1 without any.
    """

    data: memoryview
    array: Bytes
    written: npt.NDArray[np.void]
    largest_offset: int


class RetainedWriter:
    """
    Turns judged blocks into output bytes, chunk by chunk. One instance a thread.

    Args:
        new_horizon_ms: the delete horizon that batches get in this round (R-563).
        memory: for the output of a chunk and the batch being rebuilt, reused for every chunk; None: its own.

    Attributes:
        counts: of all chunks so far.
        library_calls: number of batches that a library has packed so far.
    """

    def __init__(self, new_horizon_ms: int, memory: tuple[GrowingBuffer, GrowingBuffer] | None = None) -> None:
        self.counts = CopyCounts()
        self.library_calls = 0
        self._new_horizon_ms = new_horizon_ms
        self._out, self._rebuilt = memory or (GrowingBuffer(), GrowingBuffer())
        self._written = np.zeros(0, WRITTEN_DTYPE)
        self._state = np.zeros(kernel.STATE_CELLS, np.int64)
        self._rebuilt_state = np.zeros(repack.REBUILT_CELLS, np.int64)
        self._table = np.zeros(codecs.TABLE_WORDS, np.uint16)

    def begin(self, batches: int) -> None:
        """Begin a chunk of `batches` batches; the output of the last chunk becomes invalid."""
        if len(self._written) < batches:
            self._written = np.zeros(batches, WRITTEN_DTYPE)
        self._out.shrink(USUAL_OUTPUT_BYTES)
        self._rebuilt.shrink(USUAL_OUTPUT_BYTES)
        self._out.ensure(_FIRST_OUTPUT_BYTES)  # in one step: growing to it would copy as much again
        self._state[:] = 0
        self._rebuilt_state[:] = 0
        self._state[kernel.STATE_LARGEST_OFFSET] = -1

    def write(self, path: Path, block: Block, retention: BlockRetention, verdicts: Flags) -> None:
        """
        Add a block's survivors to the output.

        Args:
            path: the source, for errors.
            block, retention, verdicts: the batches and the decisions on them.
        Raises:
            UncleanableError: Kafka's cleaner could not write a batch either (R-546, R-576).
        """
        self._state[kernel.STATE_BATCH] = self._state[kernel.STATE_ORDINAL] = 0
        while True:
            status = repack.retain_and_pack(
                block.data,
                block.unpacked,
                block.batches,
                retention.batches,
                retention.is_empty_marker,
                verdicts,
                self._new_horizon_ms,
                self._out.array,
                self._out.capacity,
                self._written,
                self._state,
                self._rebuilt.array,
                self._rebuilt.capacity,
                self._rebuilt_state,
                self._table,
                kernel_cells(),
            )
            if status == kernel.RETAIN_DONE:
                return
            row = block.batches[int(self._state[kernel.STATE_BATCH])]
            if status == kernel.RETAIN_COMPRESS:
                self._pack(int(row["attributes"]) & COMPRESSION_MASK)
            elif status == kernel.RETAIN_OUT_FULL:
                filled, room = int(self._state[kernel.STATE_OUT]), self._out.capacity + self._rebuilt.capacity
                self._out.ensure(filled + self._rebuilt_bytes(row), keep=filled)
                self._rebuilt.ensure(self._rebuilt_bytes(row))
                # Calling again would loop forever.
                if self._out.capacity + self._rebuilt.capacity == room:
                    raise RuntimeError("a batch comes out larger than its records can make it")
            elif status == kernel.RETAIN_ODD_BYTES:
                self._rebuild_odd(path, block, int(self._state[kernel.STATE_BATCH]), retention, verdicts)
            else:
                raise self._refusal(path, row, int(status))

    def end(self) -> Output:
        """Return the chunk's output, and count it."""
        filled, rows = int(self._state[kernel.STATE_OUT]), int(self._state[kernel.STATE_WRITTEN_ROWS])
        self._count(filled)
        largest_offset = int(self._state[kernel.STATE_LARGEST_OFFSET])
        return Output(self._out.view[:filled], self._out.array, self._written[:rows], largest_offset)

    def equals(self, chunk: Chunk) -> bool:
        """Tell whether the output is, byte for byte, the chunk it was made of."""
        filled = int(self._state[kernel.STATE_OUT])
        return filled == chunk.length and equal_bytes(self._out.array, chunk.data, filled)

    @staticmethod
    def _rebuilt_bytes(row: np.void) -> int:
        body = max(int(row["size"]), int(row["body_end"] - row["body_start"]))
        return body + int(row["count"]) * kernel.GROWTH_PER_RECORD + HEADER_BYTES

    def _rebuild_odd(self, path: Path, block: Block, index: int, retention: BlockRetention, verdicts: Flags) -> None:
        """Rebuild a batch whose records a rewrite changes: write them as Kafka would, and pack the batch."""
        rows = block.batches[index : index + 1].copy()
        ordinal, count = int(self._state[kernel.STATE_ORDINAL]), int(rows[0]["count"])
        body = (block.unpacked if rows[0]["unpacked"] else block.data).data[
            int(rows[0]["body_start"]) : int(rows[0]["body_end"])
        ]
        data = np.frombuffer(bytearray(canonical_records(body, count) + bytes(PAD_BYTES)), np.uint8)
        rows["body_start"], rows["body_end"] = 0, len(data) - PAD_BYTES
        self._rebuilt.ensure(self._rebuilt_bytes(rows[0]))
        status, end, last_offset, max_timestamp, kept = kernel.rebuild_apart(
            data, data, rows, retention.batches[index], verdicts, ordinal, bool(retention.is_empty_marker[index]),
            self._new_horizon_ms, self._rebuilt.array, self._state,
        )  # fmt: skip
        if status != kernel.RETAIN_DONE:
            raise self._refusal(path, rows[0], int(status))
        repack.note_rebuilt(self._rebuilt_state, int(end), int(last_offset), int(max_timestamp), int(kept))
        self._pack(int(rows[0]["attributes"]) & COMPRESSION_MASK)

    def _pack(self, codec: int) -> None:
        """Pack the records of the last rebuilt batch to the output, after the place of its header."""
        body_at = int(self._state[kernel.STATE_OUT]) + HEADER_BYTES
        self._out.ensure(body_at, keep=body_at - HEADER_BYTES)
        records = self._rebuilt.view[HEADER_BYTES : int(self._rebuilt_state[repack.REBUILT_END])]
        self._rebuilt_state[repack.REBUILT_PACKED_BYTES] = compress(codec, records, self._out, body_at)
        self.library_calls += 1

    def _count(self, written_bytes: int) -> None:
        counts, state = self.counts, self._state
        counts.bytes_written += written_bytes
        counts.bytes_read += int(state[kernel.STATE_BYTES_READ])
        counts.messages_read += int(state[kernel.STATE_MESSAGES_READ])
        counts.messages_written += int(state[kernel.STATE_MESSAGES_WRITTEN])
        counts.removed += Removed(*(int(state[cell]) for cell in _REMOVED))

    @staticmethod
    def _refusal(path: Path, row: np.void, status: int) -> UncleanableError:
        return UncleanableError(path, f"at byte {row['position']}: {_REFUSALS[status]}")
