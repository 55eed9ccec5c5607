"""Transactions of a pass, batch by batch (R-530..R-534): the slow twin of `cleaner/cleaning/passes/transactions.py`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.base.model import AbortedTxn
from cleaner.errors import CorruptBatchError
from cleaner.format.batch import CONTROL_FLAG, HEADER_BYTES, TRANSACTIONAL_FLAG, Chunk
from cleaner.format.control import ControlType, read_control_type

Flags = npt.NDArray[np.uint8]


@dataclass
class _OpenAbort:
    entry: AbortedTxn
    has_data: bool = False


@dataclass
class SlowTransactions:
    """The transaction state of one pass; `retained_aborts` are the entries whose marker stays, in order."""

    retained_aborts: list[AbortedTxn] = field(default_factory=list)
    _committed: set[int] = field(default_factory=set)
    _aborted: dict[int, _OpenAbort] = field(default_factory=dict)
    _pending: deque[AbortedTxn] = field(default_factory=deque)

    def add_aborted(self, entries: Iterable[AbortedTxn]) -> None:
        """Add the transaction index entries of the part to read next."""
        merged = sorted([*self._pending, *entries], key=lambda entry: entry.first_offset)
        self._pending = deque(merged)

    def discardable(self, path: Path, chunk: Chunk) -> Flags:
        """Tell for each batch whether its transaction allows its removal, and advance the state."""
        batches = chunk.batches
        result: Flags = np.zeros(len(batches), np.uint8)
        concerned = (batches["attributes"] & (TRANSACTIONAL_FLAG | CONTROL_FLAG) != 0) & (batches["magic"] == 2)
        for index in np.flatnonzero(concerned):
            row = batches[index]
            self._consume_up_to(int(row["last_offset"]))
            producer_id = int(row["producer_id"])
            if row["attributes"] & CONTROL_FLAG:
                result[index] = self._marker_is_empty(path, chunk, row, producer_id)
            else:
                result[index] = self._is_aborted(producer_id)
        if len(batches):
            self._consume_up_to(int(batches[-1]["last_offset"]))  # every batch consumes, with any content
        return result

    def _consume_up_to(self, offset: int) -> None:
        while self._pending and self._pending[0].first_offset <= offset:
            entry = self._pending.popleft()
            self._aborted.setdefault(entry.producer_id, _OpenAbort(entry))

    def _is_aborted(self, producer_id: int) -> bool:
        abort = self._aborted.get(producer_id)
        if abort is None:
            self._committed.add(producer_id)
            return False
        abort.has_data = True
        return True

    def _marker_is_empty(self, path: Path, chunk: Chunk, row: np.void, producer_id: int) -> bool:
        if row["count"] == 0:
            return True
        start, size = int(row["start"]), int(row["size"])
        try:
            control_type = read_control_type(chunk.data[start + HEADER_BYTES : start + size].data)
        except ValueError as error:
            raise CorruptBatchError(path, int(row["position"]), str(error)) from error
        if control_type == ControlType.ABORT:
            abort = self._aborted.pop(producer_id, None)
            if abort is None or not abort.has_data:
                return True
            self.retained_aborts.append(abort.entry)
            return False
        if control_type == ControlType.COMMIT:
            if producer_id not in self._committed:
                return True
            self._committed.remove(producer_id)
        return False
