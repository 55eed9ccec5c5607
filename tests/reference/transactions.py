"""Which transactional batches and markers may go (R-530..R-534)."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from tests.reference.batches import Batch, read_records
from tests.reference.log_state import ABORT, COMMIT, Abort


class TransactionState:
    """Carried through one pass over a log, from its first segment to its last."""

    def __init__(self) -> None:
        self.committed: set[int] = set()
        self.aborted: dict[int, tuple[Abort, bool]] = {}
        self.waiting: list[Abort] = []
        # What the transaction index of the segment being written gets; the map pass does not look at it.
        self.output: list[Abort] = []

    def add(self, aborts: Iterable[Abort]) -> None:
        """Queue collected entries, ordered by first offset (R-530)."""
        self.waiting = sorted([*self.waiting, *aborts], key=lambda abort: abort.first_offset)

    def _consume(self, offset: int) -> None:
        """R-531."""
        while self.waiting and self.waiting[0].first_offset <= offset:
            abort = self.waiting.pop(0)
            self.aborted.setdefault(abort.producer_id, (abort, False))

    def can_discard(self, batch: Batch) -> bool:
        """Note a batch that is read; True when it belongs to an aborted transaction or is a marker without data."""
        self._consume(batch.last_offset)
        if batch.control:
            return self._on_marker(batch)
        if not batch.transactional:
            return False
        if batch.producer_id in self.aborted:
            self.aborted[batch.producer_id] = (self.aborted[batch.producer_id][0], True)
            return True
        self.committed.add(batch.producer_id)
        return False

    def _on_marker(self, batch: Batch) -> bool:
        """R-533."""
        records = read_records(batch)
        if not records:
            return True
        _, kind = struct.unpack_from(">hh", records[0].key or b"")
        if kind == ABORT:
            abort, seen = self.aborted.pop(batch.producer_id, (None, False))
            if abort is None or not seen:
                return True
            self.output.append(abort)
            return False
        if kind == COMMIT:
            had_data = batch.producer_id in self.committed
            self.committed.discard(batch.producer_id)
            return not had_data
        return False
