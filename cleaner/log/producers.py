"""
The writer's state of the producers of its partition: their epoch, next sequence, known appends and open transactions.

An append is checked before it is written and remembered afterwards, by Kafka's rules: the last five appends of a
producer are known, so that repeats are recognised. After a load only the last batch is known, however the log was left:
a snapshot holds no more, and recovery writes one at the end of what it recovers. An append outside of transactions is
one batch, as in Kafka, so the last append is always known. Within a transaction it may be several batches.

Source: rules R-125, R-211, R-407, R-653; `ProducerAppendInfo.java`, `ProducerStateEntry.java`,
`ProducerStateManager.java`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple

from cleaner.base.model import AbortedTxn
from cleaner.errors import InvalidTxnStateError, OutOfOrderSequenceError, ProducerFencedError
from cleaner.log.record import SEQUENCES, ProducerStamp
from cleaner.storage.files.producer_snapshot import ProducerEntry
from cleaner.storage.load.open_offsets import UnstableTransactions

_REMEMBERED = 5  # Kafka's ProducerStateEntry.NUM_BATCHES_TO_RETAIN
_NONE = -1


class KnownAppend(NamedTuple):
    """An append that may be repeated; all four numbers are inclusive."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class EndedTransaction(NamedTuple):
    """The offset of a transaction's marker, and whether it commits."""

    offset: int
    is_committed: bool


class Fence(NamedTuple):
    """The lowest epoch accepted from a producer, and the reason if it is not a newer instance."""

    epoch: int
    reason: str = ""


_NO_FENCE = Fence(_NONE)


@dataclass
class KnownProducer:
    """
    One producer; -1 stands for none.

    Attributes:
        appends: the last ones of this epoch, oldest first.
        last_batch_delta: last minus first offset of its last batch, for snapshots.
        last_end: of its last transaction; None if that ended before the log was loaded.
    """

    producer_id: int
    epoch: int = _NONE
    appends: deque[KnownAppend] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    last_batch_delta: int = 0
    timestamp_ms: int = _NONE
    coordinator_epoch: int = _NONE
    txn_first_offset: int = _NONE
    last_end: EndedTransaction | None = None

    def clone(self) -> KnownProducer:
        """Return an independent copy."""
        other = copy(self)
        other.appends = deque(self.appends, maxlen=_REMEMBERED)
        return other

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; a different one forgets the appends."""
        if epoch != self.epoch:
            self.appends.clear()
            self.last_batch_delta = 0
            self.epoch = epoch

    def to_entry(self) -> ProducerEntry:
        """Return the entry of a snapshot."""
        last = self.appends[-1] if self.appends else KnownAppend(_NONE, _NONE, _NONE, _NONE)
        return ProducerEntry(
            self.producer_id,
            self.epoch,
            last.last_sequence,
            last.last_offset,
            self.last_batch_delta,
            self.timestamp_ms,
            self.coordinator_epoch,
            self.txn_first_offset,
        )


class Producers:
    """
    The producers of one partition; the caller has the log's lock.

    Args:
        where: the partition, for errors.
        entries: those known as of the log end, in the order in which they became known.
        fences: by producer id; `fence` adds to them. They last as long as the log is open, also across a cut, after
            which the producers are rebuilt.
    """

    def __init__(
        self, where: str, entries: Iterable[ProducerEntry] = (), fences: dict[int, Fence] | None = None
    ) -> None:
        self._where = where
        self._known: dict[int, KnownProducer] = {}
        self._transactions = UnstableTransactions()
        self._max_known = 0
        self._fences = {} if fences is None else fences
        for entry in entries:
            self._take(entry)

    def _take(self, entry: ProducerEntry) -> None:
        producer = KnownProducer(
            entry.producer_id,
            entry.producer_epoch,
            last_batch_delta=entry.offset_delta,
            timestamp_ms=entry.timestamp_ms,
            coordinator_epoch=entry.coordinator_epoch,
            txn_first_offset=entry.current_txn_first_offset,
        )
        if entry.last_offset >= 0:
            first = (entry.last_sequence - entry.offset_delta) % SEQUENCES if entry.last_sequence >= 0 else _NONE
            base_offset = entry.last_offset - entry.offset_delta
            producer.appends.append(KnownAppend(first, entry.last_sequence, base_offset, entry.last_offset))
        self._known[entry.producer_id] = producer
        if producer.txn_first_offset >= 0:
            self._transactions.begin(producer.txn_first_offset, producer.producer_id)
        self._max_known = max(self._max_known, len(self._known))

    def take_from_log(self, entry: ProducerEntry) -> None:
        """Know a producer again whose last batch was found in the log, after it was forgotten."""
        if entry.producer_id not in self._known:
            self._take(entry)

    # ---- what is known ---------------------------------------------------------------------------------------------

    def entries(self) -> list[ProducerEntry]:
        """Return the entries of a snapshot."""
        return [producer.to_entry() for producer in self._known.values()]

    @property
    def max_known(self) -> int:
        """How many producers were known at one time: it decides the order of a snapshot's entries."""
        return self._max_known

    def epoch_of(self, producer_id: int) -> int:
        """Return a producer's epoch, -1 when it is not known."""
        producer = self._known.get(producer_id)
        return _NONE if producer is None else producer.epoch

    def latest_epoch(self, producer_id: int) -> int:
        """Return the lowest epoch accepted from a producer, -1 for any."""
        return max(self.epoch_of(producer_id), self._fences.get(producer_id, _NO_FENCE).epoch)

    def next_sequence(self, producer_id: int, epoch: int) -> int | None:
        """Return the sequence after the known ones of a producer's epoch; None if none is known."""
        producer = self._known.get(producer_id)
        if producer is None or producer.epoch != epoch or not producer.appends:
            return None
        return (producer.appends[-1].last_sequence + 1) % SEQUENCES

    def last_end(self, producer_id: int) -> EndedTransaction | None:
        """Return how a producer's last transaction ended; None if none has ended since the log was loaded."""
        producer = self._known.get(producer_id)
        return None if producer is None else producer.last_end

    def open_transactions(self) -> dict[int, int]:
        """Return the first offset of each open transaction by producer id."""
        return self._transactions.open_by_producer()

    def first_unstable_offset(self) -> int | None:
        """Return the lowest first offset of a transaction that is open, or whose end is not flushed (R-407)."""
        return self._transactions.first_offset()

    def has_open_transaction(self, producer_id: int, epoch: int | None = None) -> bool:
        """Tell whether a producer has a transaction open; with an epoch: one of it."""
        producer = self._known.get(producer_id)
        is_open = producer is not None and producer.txn_first_offset >= 0
        return is_open and (epoch is None or self.epoch_of(producer_id) == epoch)

    # ---- data ------------------------------------------------------------------------------------------------------

    def find_repeat(self, stamp: ProducerStamp, record_count: int) -> KnownAppend | None:
        """Return the append that this one repeats."""
        producer = self._known.get(stamp.producer_id)
        if producer is None or producer.epoch != stamp.epoch:
            return None
        last_sequence = (stamp.base_sequence + record_count - 1) % SEQUENCES
        wanted = (stamp.base_sequence, last_sequence)
        return next((known for known in producer.appends if known[:2] == wanted), None)

    def check(self, stamp: ProducerStamp) -> None:
        """
        Make sure that a producer may append now.

        Raises:
            ProducerFencedError: its epoch is older than the one known.
            OutOfOrderSequenceError: its sequence does not follow the last one.
            InvalidTxnStateError: outside of a transaction although it has one open.
        """
        self._check_epoch(stamp.producer_id, stamp.epoch)
        producer = self._known.get(stamp.producer_id)
        if producer is None:
            return
        self._check_sequence(producer, stamp)
        if producer.txn_first_offset >= 0 and not stamp.is_transactional:
            raise InvalidTxnStateError(
                self._where,
                f"producer {stamp.producer_id} appends outside of its transaction, which began at offset "
                f"{producer.txn_first_offset}",
            )

    def _check_sequence(self, producer: KnownProducer, stamp: ProducerStamp) -> None:
        if producer.epoch == _NONE:
            return  # no known sequence to compare with
        last = _NONE
        if stamp.epoch == producer.epoch and producer.appends:
            last = producer.appends[-1].last_sequence
        expected = (last + 1) % SEQUENCES
        if stamp.base_sequence != expected:
            raise OutOfOrderSequenceError(
                self._where,
                f"producer {stamp.producer_id} with epoch {stamp.epoch} sends sequence {stamp.base_sequence} where "
                f"{expected} is expected",
            )

    def remember(
        self, stamp: ProducerStamp, base_offset: int, last_offset: int, timestamp_ms: int, *, goes_on: bool
    ) -> None:
        """
        Remember a batch that was written.

        Args:
            stamp: with the sequence of the batch.
            goes_on: it belongs to the same append as the one before.
        """
        producer = self._known.get(stamp.producer_id)
        if producer is None:
            producer = self._known[stamp.producer_id] = KnownProducer(stamp.producer_id)
            self._max_known = max(self._max_known, len(self._known))
        producer.set_epoch(stamp.epoch)
        last_sequence = (stamp.base_sequence + last_offset - base_offset) % SEQUENCES
        append = KnownAppend(stamp.base_sequence, last_sequence, base_offset, last_offset)
        if goes_on and producer.appends:
            earlier = producer.appends.pop()
            append = append._replace(first_sequence=earlier.first_sequence, base_offset=earlier.base_offset)
        producer.appends.append(append)
        producer.last_batch_delta = last_offset - base_offset
        producer.timestamp_ms = timestamp_ms
        if stamp.is_transactional and producer.txn_first_offset < 0:
            producer.txn_first_offset = base_offset
            self._transactions.begin(base_offset, stamp.producer_id)

    # ---- the end of a transaction ----------------------------------------------------------------------------------

    def check_marker(self, producer_id: int, epoch: int) -> None:
        """
        Make sure that a marker may be written.

        Raises:
            ProducerFencedError: the epoch is older than the one known.
        """
        self._check_epoch(producer_id, epoch)

    def fence(self, producer_id: int, epoch: int, reason: str = "") -> None:
        """Accept nothing more from a producer with an epoch below this one, for as long as the log is open."""
        if epoch > self._fences.get(producer_id, _NO_FENCE).epoch:
            self._fences[producer_id] = Fence(epoch, reason)

    def _check_epoch(self, producer_id: int, epoch: int) -> None:
        latest = self.latest_epoch(producer_id)
        if epoch < latest:
            fence = self._fences.get(producer_id, _NO_FENCE)
            why = (fence.reason if fence.epoch == latest else "") or f"{latest} has begun"
            raise ProducerFencedError(self._where, f"producer {producer_id} with epoch {epoch}, which is over: {why}")

    def remember_marker(
        self, producer_id: int, epoch: int, offset: int, timestamp_ms: int, *, commit: bool
    ) -> AbortedTxn | None:
        """Remember a marker that was written; returns its transaction index entry, if it has one (R-653)."""
        producer = self._known.get(producer_id)
        if producer is None:
            producer = self._known[producer_id] = KnownProducer(producer_id)
        first = producer.txn_first_offset
        producer.set_epoch(epoch)
        producer.coordinator_epoch = max(producer.coordinator_epoch, 0)
        producer.timestamp_ms = timestamp_ms
        producer.txn_first_offset = _NONE
        if first < 0:
            return None
        producer.last_end = EndedTransaction(offset, commit)
        self._transactions.decide(first, offset)
        return None if commit else self._transactions.aborted(producer_id, first, offset)

    # ---- time ------------------------------------------------------------------------------------------------------

    def on_flushed(self, offset: int) -> None:
        """Forget decided transactions whose marker is below the flushed offset."""
        self._transactions.settle(offset)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that are idle for longer than this and have no open transaction."""
        over = [
            producer.producer_id
            for producer in self._known.values()
            if producer.txn_first_offset < 0 and now_ms - producer.timestamp_ms >= expiration_ms
        ]
        for producer_id in over:
            del self._known[producer_id]

    def save(self, producer_id: int) -> KnownProducer | None:
        """Return a copy of a producer's state, for `restore`."""
        producer = self._known.get(producer_id)
        return None if producer is None else producer.clone()

    def restore(self, producer_id: int, saved: KnownProducer | None) -> None:
        """Restore a producer's saved state."""
        present = self._known.get(producer_id)
        if present is not None and present.txn_first_offset >= 0:
            self._transactions.forget(present.txn_first_offset)
        if saved is None:
            self._known.pop(producer_id, None)
            return
        self._known[producer_id] = saved
        if saved.txn_first_offset >= 0:
            self._transactions.begin(saved.txn_first_offset, producer_id)
