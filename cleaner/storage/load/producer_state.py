"""
The state of the producers of one partition at some offset, and how each batch changes it.

Brokers keep this in memory and snapshot it from time to time; here it is rebuilt from the newest snapshot and the
batches after it. It decides which batches a cleaner must keep (the last one of every active producer) and how far it
may clean (up to the first transaction that is not decided).

A batch changes a producer's *pending* entry. Pending entries are merged into the known ones after each segment (in a
replay) or each batch (in a recovery). Kafka does the same; where epochs go back, it decides what is forgotten.

Source: rules R-126, R-127, R-211, R-407, R-545, R-547, R-652, R-653; `ProducerStateManager.java`,
`ProducerAppendInfo.java`, `ProducerStateEntry.java`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cleaner.base.model import AbortedTxn, LastRecord
from cleaner.errors import CorruptCheckpointError
from cleaner.storage.files.producer_snapshot import (
    SNAPSHOT_ENTRY,
    ProducerEntry,
    SnapshotRows,
    java_order,
    sequence_after,
)
from cleaner.storage.load.open_offsets import UnstableTransactions
from cleaner.storage.load.snapshots import Snapshots

_NONE = -1

LastRecords = npt.NDArray[np.int64]
"""Rows of producer id, last data offset or -1, and epoch."""


@dataclass(slots=True)
class Producer:
    """
    One producer; -1 stands for "none" in every field, and `last_offset` is -1 while it has no data batch.
    """

    producer_id: int
    epoch: int = _NONE
    last_sequence: int = _NONE
    last_offset: int = _NONE
    offset_delta: int = 0
    timestamp_ms: int = _NONE
    coordinator_epoch: int = _NONE
    txn_first_offset: int = _NONE

    def forget_batches(self) -> None:
        """Forget the data batches, as a new epoch does."""
        self.last_sequence, self.last_offset, self.offset_delta = _NONE, _NONE, 0

    def without_batches(self) -> Producer:
        """Return a copy without data batches."""
        return Producer(
            self.producer_id,
            self.epoch,
            timestamp_ms=self.timestamp_ms,
            coordinator_epoch=self.coordinator_epoch,
            txn_first_offset=self.txn_first_offset,
        )

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; a different one forgets the data batches."""
        if epoch != self.epoch:
            self.forget_batches()
            self.epoch = epoch

    def merge(self, newer: Producer) -> None:
        """Merge a pending entry into this one."""
        self.set_epoch(newer.epoch)
        if newer.last_offset != _NONE:
            self.last_sequence = newer.last_sequence
            self.last_offset = newer.last_offset
            self.offset_delta = newer.offset_delta
        self.timestamp_ms = newer.timestamp_ms
        self.coordinator_epoch = newer.coordinator_epoch
        self.txn_first_offset = newer.txn_first_offset

    def to_entry(self) -> ProducerEntry:
        """Return the entry of a snapshot."""
        return ProducerEntry(
            self.producer_id,
            self.epoch,
            self.last_sequence,
            self.last_offset,
            self.offset_delta,
            self.timestamp_ms,
            self.coordinator_epoch,
            self.txn_first_offset,
        )


class CompletedTxn(NamedTuple):
    """A transaction whose marker was read."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class TransactionStateError(ValueError):
    """A batch outside any transaction by a producer with an open one: no broker writes that (R-653)."""


class ProducerState:
    """
    The producers of one partition.

    Attributes:
        map_end_offset: the offset up to which (exclusive) batches are included.
    """

    def __init__(self, snapshots: Snapshots, *, now_ms: int, expiration_ms: int) -> None:
        self.snapshots = snapshots
        self.map_end_offset = 0
        self._now_ms = now_ms
        self._expiration_ms = expiration_ms
        self._last_snapshot_offset = 0
        # A snapshot's rows, not unpacked until a batch changes one of them: there may be very many.
        self._loaded: SnapshotRows = np.empty(0, SNAPSHOT_ENTRY)
        self._known: dict[int, Producer] = {}
        self._pending: dict[int, Producer] = {}
        self._started: dict[int, list[int]] = {}
        self._completed: list[CompletedTxn] = []
        self._transactions = UnstableTransactions()

    # ---- what is known ---------------------------------------------------------------------------------------------

    def _all(self) -> dict[int, Producer]:
        """Return all known producers by id, in the order in which they became known."""
        if len(self._loaded):
            self._known.update((entry[0], _producer_of(ProducerEntry._make(entry))) for entry in self._loaded.tolist())
            self._loaded = self._loaded[:0]
        return self._known

    def last_records(self) -> LastRecords:
        """Return each active producer's last data offset and epoch (R-545); of two rows with one id the last counts."""
        if len(self._loaded):
            names = ("producer_id", "last_offset", "producer_epoch")
            columns = [self._loaded[name].astype(np.int64) for name in names]
            columns[1] = np.maximum(columns[1], _NONE)
            return np.stack(columns, axis=1)
        rows = [(producer.producer_id, producer.last_offset, producer.epoch) for producer in self._known.values()]
        return np.array(rows, np.int64).reshape(-1, 3)

    def active_producers(self) -> dict[int, LastRecord]:
        """Return the same by producer id."""
        return {
            producer_id: LastRecord(last_offset if last_offset >= 0 else None, epoch)
            for producer_id, last_offset, epoch in self.last_records().tolist()
        }

    def entries(self) -> list[ProducerEntry]:
        """Return each active producer as a snapshot has it, in the order in which they became known."""
        return [producer.to_entry() for producer in self._all().values()]

    def is_empty(self) -> bool:
        """Tell whether nothing is known: no producer, no transaction awaiting the high watermark."""
        return not self._known and not len(self._loaded) and not self._transactions.has_decided

    def first_unstable_offset(self) -> int | None:
        """Return the lowest first offset of a transaction that is open or not yet replicated (R-407)."""
        return self._transactions.first_offset()

    def has_open_transaction(self, producer_id: int) -> bool:
        """Tell whether a producer has an open transaction, pending batches included."""
        producer = self._pending.get(producer_id) or self._all().get(producer_id)
        return producer is not None and producer.txn_first_offset != _NONE

    def aborted_txn(self, txn: CompletedTxn) -> AbortedTxn:
        """Return the transaction index entry of an aborted transaction; call it before `commit`."""
        return self._transactions.aborted(txn.producer_id, txn.first_offset, txn.last_offset)

    # ---- batches ---------------------------------------------------------------------------------------------------

    def touch(self, producer_id: int) -> Producer:
        """Return a producer's pending entry; a new producer becomes known, whatever its batch does."""
        pending = self._pending.get(producer_id)
        if pending is None:
            known = self._all().get(producer_id)
            if known is None:
                pending = Producer(producer_id)
            else:
                pending = known.without_batches()
            self._pending[producer_id] = pending
        return pending

    def append_data(
        self,
        producer_id: int,
        *,
        epoch: int,
        base_sequence: int,
        base_offset: int,
        last_offset: int,
        timestamp_ms: int,
        is_transactional: bool,
    ) -> None:
        """
        Add a data batch.

        Raises:
            TransactionStateError: it is not transactional although the producer has an open transaction.
        """
        producer = self.touch(producer_id)
        producer.set_epoch(epoch)
        producer.last_sequence = sequence_after(base_sequence, last_offset - base_offset)
        producer.last_offset = last_offset
        producer.offset_delta = last_offset - base_offset
        producer.timestamp_ms = timestamp_ms
        if producer.txn_first_offset == _NONE and is_transactional:
            producer.txn_first_offset = base_offset
            self._started.setdefault(producer_id, []).append(base_offset)
        elif producer.txn_first_offset != _NONE and not is_transactional:
            raise TransactionStateError(
                f"producer {producer_id} wrote outside its transaction, which began at {producer.txn_first_offset}"
            )

    def append_marker(
        self, producer_id: int, *, epoch: int, coordinator_epoch: int, offset: int, timestamp_ms: int, is_abort: bool
    ) -> CompletedTxn | None:
        """Add a commit or abort marker; returns the transaction it decides, None if none is open."""
        producer = self.touch(producer_id)
        completed = None
        if producer.txn_first_offset != _NONE:
            completed = CompletedTxn(producer_id, producer.txn_first_offset, offset, is_abort)
            self._completed.append(completed)
        producer.set_epoch(epoch)
        producer.coordinator_epoch = coordinator_epoch
        producer.timestamp_ms = timestamp_ms
        producer.txn_first_offset = _NONE
        return completed

    def discard_pending(self) -> None:
        """Forget the batches since the last `commit`."""
        self._pending.clear()
        self._started.clear()
        self._completed.clear()

    def commit(self) -> None:
        """Merge the pending entries into the known ones, and close the decided transactions."""
        # This order becomes that of a snapshot's entries. A recovery commits batch by batch: mostly one producer.
        for producer_id in self._pending if len(self._pending) == 1 else java_order(self._pending):
            known = self._all().get(producer_id)
            if known is None:
                self._all()[producer_id] = self._pending[producer_id]
            else:
                known.merge(self._pending[producer_id])
        for producer_id, firsts in self._started.items():
            for first in firsts:
                self._transactions.begin(first, producer_id)
        for txn in self._completed:
            self._transactions.decide(txn.first_offset, txn.last_offset)
        self.discard_pending()

    # ---- high watermark and log start ------------------------------------------------------------------------------

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forget decided transactions whose marker is below the high watermark."""
        self._transactions.settle(high_watermark)

    def on_log_start_raised(self, log_start_offset: int) -> None:
        """Follow a log start offset that retention raised."""
        self.on_high_watermark(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.snapshots.latest()
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    # ---- snapshots -------------------------------------------------------------------------------------------------

    def take_snapshot(self) -> None:
        """Take a snapshot at `map_end_offset`, unless the last one is there."""
        if self.map_end_offset > self._last_snapshot_offset:
            self.snapshots.write(self.map_end_offset, self.entries())
            self._last_snapshot_offset = self.map_end_offset

    def take_empty_snapshots(self, offsets: Iterable[int]) -> None:
        """Take empty snapshots at ascending offsets, as Kafka does after a clean stop that left none (R-127)."""
        for offset in offsets:
            self.map_end_offset = offset
            self.take_snapshot()

    def reload(self, log_start_offset: int, log_end_offset: int) -> None:
        """Cut the snapshots to the log and start from the newest readable one (R-652)."""
        self.snapshots.remove_outside(log_start_offset, log_end_offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_raised(log_start_offset)
            return
        self._known.clear()
        self._loaded = self._loaded[:0]
        self._transactions = UnstableTransactions()
        self._load_latest(log_start_offset)

    def _load_latest(self, log_start_offset: int) -> None:
        while (latest := self.snapshots.latest()) is not None:
            try:
                entries = self.snapshots.read(latest)
            except CorruptCheckpointError:
                # A damaged snapshot is no loss: the next older one and the batches after it give the same.
                self.snapshots.remove(latest)
                continue
            self._load(entries)
            self._last_snapshot_offset = self.map_end_offset = latest
            return
        self._last_snapshot_offset = self.map_end_offset = log_start_offset

    def _load(self, entries: SnapshotRows) -> None:
        has_txn = entries["current_txn_first_offset"] >= 0
        self._loaded = entries[has_txn | (entries["timestamp_ms"] > self._now_ms - self._expiration_ms)]
        for entry in entries[has_txn]:
            self._transactions.begin(int(entry["current_txn_first_offset"]), int(entry["producer_id"]))


def _producer_of(entry: ProducerEntry) -> Producer:
    producer = Producer(
        entry.producer_id,
        epoch=entry.producer_epoch,
        timestamp_ms=entry.timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
    )
    if entry.last_offset >= 0:
        producer.last_sequence = entry.last_sequence
        producer.last_offset = entry.last_offset
        producer.offset_delta = entry.offset_delta
    if entry.current_txn_first_offset >= 0:
        producer.txn_first_offset = entry.current_txn_first_offset
    return producer
