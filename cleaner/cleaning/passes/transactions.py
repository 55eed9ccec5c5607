"""
Follows transactions while a log is read in order: aborted data is removed, markers outlive their data (R-530..R-534).

One state covers all segments of a pass: which transactional producers have data without a marker so far, and which of
the known aborts are open. Only transactional and control batches change it, so a log without them costs one numpy test
for each chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cleaner.base.model import AbortedTxn
from cleaner.cleaning.passes.producer_table import ProducerTable, Rows
from cleaner.errors import CorruptBatchError
from cleaner.format.batch import CONTROL_FLAG, HEADER_BYTES, TRANSACTIONAL_FLAG, Chunk
from cleaner.format.chunks import Flags
from cleaner.format.control import read_control_type
from cleaner.kernels import producer_table as table
from cleaner.kernels import transactions as kernel
from cleaner.storage.segment.indexes import Aborts, abort_rows

_COLUMNS = len(AbortedTxn._fields)


class CleanedTransactions:
    """
    The transaction state of one pass over a log (R-530).

    Args:
        known: state of producers where the pass begins, as the property `known` returns it; None at a log's start.
        pending: aborted transactions that the pass has not reached.
    """

    def __init__(self, known: Rows | None = None, pending: Aborts | None = None) -> None:
        self._producers = ProducerTable(np.zeros((0, table.COLUMNS), np.int64) if known is None else known.copy())
        self._pending: Aborts = np.zeros((0, _COLUMNS), np.int64)
        self._first_offsets = np.zeros(0, np.int64)
        self._retained: Aborts = np.zeros((0, _COLUMNS), np.int64)
        self._state = np.zeros(kernel.STATE_CELLS, np.int64)
        self._state[kernel.STATE_PRODUCERS] = len(self._producers.rows)
        if pending is not None:
            self.add_aborted(pending)

    @property
    def known(self) -> Rows:
        """The state of producers with an open transaction, one row for each."""
        rows: Rows = self._producers.rows[: int(self._state[kernel.STATE_PRODUCERS])]
        return rows[np.flatnonzero(rows[:, table.STATE])].copy()

    @property
    def pending(self) -> Aborts:
        """Aborted transactions that no batch has reached yet, by first offset."""
        return self._pending[int(self._state[kernel.STATE_PENDING]) :].copy()

    @property
    def retained_aborts(self) -> Aborts:
        """
        Entries with retained markers, in order, since `begin_segment`: the transaction index of the segment being
        written (R-533).
        """
        return self._retained[: int(self._state[kernel.STATE_RETAINED])].copy()

    def begin_segment(self) -> None:
        """Begin a transaction index."""
        self._state[kernel.STATE_RETAINED] = 0

    def add_aborted(self, entries: Aborts | Sequence[AbortedTxn]) -> None:
        """Add the transaction index entries of the part to read next; repeated entries are harmless (R-536)."""
        left = self._pending[int(self._state[kernel.STATE_PENDING]) :]
        merged = np.concatenate([left, abort_rows(entries)])
        self._pending = merged[np.argsort(merged[:, kernel.ABORT_FIRST], kind="stable")]
        self._first_offsets = np.ascontiguousarray(self._pending[:, kernel.ABORT_FIRST])
        self._state[kernel.STATE_PENDING] = 0

    def discardable(self, path: Path, chunk: Chunk) -> Flags:
        """
        Tell for each batch whether its transaction allows its removal (R-532, R-533), and advance the state.

        Args:
            path: the chunk's file, for errors.
        Returns:
            uint8 for each batch: 1 for aborted data, and for markers none of whose data was read.
        Raises:
            CorruptBatchError: a control record that cannot be read.
        """
        batches = chunk.batches
        result: Flags = np.zeros(len(batches), np.uint8)
        transactional = int(np.count_nonzero(batches["attributes"] & (TRANSACTIONAL_FLAG | CONTROL_FLAG)))
        begun = self._begun_by(int(batches["last_offset"][-1])) if len(batches) else 0
        if not transactional and not begun:
            return result
        self._make_room(transactional, begun)
        status = kernel.discard_batches(
            chunk.data,
            batches,
            self._pending,
            self._producers.rows,
            self._producers.slots,
            self._producers.key,
            self._retained,
            result,
            self._state,
        )
        if status != kernel.TXN_DONE:
            raise _bad_marker(path, chunk, batches[int(self._state[kernel.STATE_BATCH])])
        return result

    def _begun_by(self, offset: int) -> int:
        """Return how many pending entries begin up to `offset`."""
        return int(np.searchsorted(self._first_offsets, offset, side="right")) - int(self._state[kernel.STATE_PENDING])

    def _make_room(self, transactional: int, begun: int) -> None:
        used = int(self._state[kernel.STATE_PRODUCERS])
        self._state[kernel.STATE_PRODUCERS] = self._producers.reserve(used, transactional + begun)
        retained = int(self._state[kernel.STATE_RETAINED])
        if retained + transactional > len(self._retained):
            larger = np.zeros((2 * (retained + transactional), _COLUMNS), np.int64)
            larger[:retained] = self._retained[:retained]
            self._retained = larger


def _bad_marker(path: Path, chunk: Chunk, row: np.void) -> CorruptBatchError:
    """Return the error for a control record that the kernel could not read; `format/control.py` words it."""
    start, size = int(row["start"]), int(row["size"])
    reason = "a control record that cannot be read"
    try:
        read_control_type(chunk.data[start + HEADER_BYTES : start + size].data)
    except ValueError as error:
        reason = str(error)
    return CorruptBatchError(path, int(row["position"]), reason)
