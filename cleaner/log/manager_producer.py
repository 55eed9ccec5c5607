"""A producer of a manager: its transactions are over several partitions and topics. See `coordinator.py`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from cleaner.base import arguments, concurrency
from cleaner.base.model import TopicPartition
from cleaner.errors import CleanerError, InvalidTxnStateError, ProducerFencedError, UsageError
from cleaner.format.coordinator_records import TransactionRecord, TransactionStatus
from cleaner.log.record import Appended, ProducerStamp, Records
from cleaner.log.transaction_block import transaction_of
from cleaner.log.transactional_ids import MAX_EPOCH, Identity, new_producer_id

if TYPE_CHECKING:
    from cleaner.log.coordinator import Coordinator
    from cleaner.log.log import Log
    from cleaner.log.partitions import ServedLog

_LONGEST_TIMEOUT_MS = 2**31 - 1


class ManagerProducer:
    """
    A producer with transactions over partitions and topics; made by `LogManager.producer`.

        with producer.transaction():
            producer.append(manager.log("orders", 3), [Record(b"k", b"v")])
            producer.append(manager.log("payments"), [Record(b"k", b"v")])

    Readers of committed records see all of it or nothing, in every partition, also after a crash. One thread begins
    and ends a transaction, as with Kafka's producer.

    Attributes:
        transactional_id: one instance has it at a time.
        identity: its producer id, and the epoch of its present or last transaction, -1 before the first.
    """

    def __init__(self, coordinator: Coordinator, transactional_id: str, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self._coordinator = coordinator
        self._timeout_ms = timeout_ms
        self._lock = concurrency.RLock()
        # Guarded by _lock. Each transaction has an epoch of its own.
        self.identity = Identity(new_producer_id(), -1)
        self._began_ms: int | None = None
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._on_commit: list[Callable[[], None]] = []
        self._unfinished: TransactionRecord | None = None  # committed, but without a marker in some partition
        self._fenced = ""

    def __repr__(self) -> str:
        return f"ManagerProducer({self.transactional_id!r}, id {self.identity.producer_id})"

    @property
    def is_in_transaction(self) -> bool:
        """Tell whether a transaction has begun and not ended."""
        self._coordinator.origin.require_own()
        return self._began_ms is not None

    def begin(self) -> None:
        """
        Begin a transaction.

        Raises:
            InvalidTxnStateError: one has begun already.
            ProducerFencedError: a newer instance has the id, or the transaction before took too long.
            CleanerError: the one before is committed and has no marker in some partition yet, which failed again.
        """
        self._coordinator.origin.require_own()
        with self._lock:
            self._require_unfenced()
            if self._began_ms is not None:
                raise InvalidTxnStateError(self.transactional_id, "it has a transaction open already")
            self._finish()
            producer_id, epoch = self.identity
            self.identity = Identity(producer_id, epoch + 1) if epoch < MAX_EPOCH else Identity(new_producer_id(), 0)
            self._partitions, self._on_commit = frozenset(), []
            self._began_ms = self._coordinator.clock.now_ms()

    def append(self, log: Log, records: Records) -> Appended:
        """
        Append records to a log of the same manager, in the transaction; all of them, or none and an error.

        Raises:
            InvalidTxnStateError: outside of a transaction, or while its commit is in doubt.
            ProducerFencedError: a newer instance has the id, or the transaction took too long and was aborted.
            UsageError: the log is of another manager.
            CleanerError: what `Log.append` raises.
        """
        self._coordinator.origin.require_own()
        with self._lock:
            self._require_transaction("append")
            self._require_certain()
            served = self._served(log)
            if served.partition not in self._partitions:
                partitions = self._partitions | {served.partition}
                self._coordinator.begin(self._record(TransactionStatus.ONGOING, partitions))
                self._partitions = partitions
            known = served.writer.under_lock(lambda log: log.producers.next_sequence(*self.identity))
            return log.append(records, producer=ProducerStamp(*self.identity, known or 0, is_transactional=True))

    def on_commit(self, call: Callable[[], None]) -> None:
        """Have something called when the present transaction is committed; for stores that keep what it appended."""
        self._coordinator.origin.require_own()
        if arguments.function("call", call) is None:
            raise UsageError("call is None; a function is needed")
        with self._lock:
            self._require_transaction("append")
            self._on_commit.append(call)

    def commit(self) -> None:
        """
        Commit the transaction. When it returns, it is committed whatever happens, and its readers see it.

        Forces everything to disk: the records, the decision, and the markers. Should a marker fail, it is written
        later, or when the logs are opened again; the transaction is committed.

        Raises:
            InvalidTxnStateError: there is none, or what it has appended is gone; it is aborted.
            ProducerFencedError: a newer instance has the id, or it took too long and was aborted.
            LogClosedError, LogWriteError: it is not known whether it is committed. Commit again; or open the logs
                again, which settles it.
            CleanerError: it is not committed; it may be tried again, or aborted.
        """
        self._coordinator.origin.require_own()
        with self._lock:
            self._require_transaction("commit")
            self._commit()

    def abort(self) -> None:
        """
        Abort the transaction: its readers never see it.

        Raises:
            InvalidTxnStateError: there is none, or its commit is in doubt.
            ProducerFencedError: it was aborted already.
            CleanerError: in some partition it could not be aborted; try again. Opening the logs again aborts it, too.
        """
        self._coordinator.origin.require_own()
        with self._lock:
            self._require_transaction("abort")
            self._require_certain()
            self._abort()

    def transaction(self) -> contextlib.AbstractContextManager[ManagerProducer]:
        """Begin a transaction for a `with` block; it is committed at the end, and aborted by an exception."""
        return transaction_of(self)

    # ---- the end of a transaction ----------------------------------------------------------------------------------

    def fence(self, why: str) -> None:
        """
        Let this instance do nothing more, and end its transaction; for its coordinator.

        Raises:
            CleanerError: it could not be ended, or it is not known whether it is committed.
        """
        with self._lock:
            if self._began_ms is not None:
                if self._may_be_committed:
                    self._commit()
                else:
                    self._abort()
            self._finish()
            self._fenced = self._fenced or why

    def end_if_late(self) -> bool:
        """
        Abort the transaction if it took longer than its timeout, and end one that is committed; True if it did.

        Raises:
            CleanerError: it could not be ended; it is tried again the next time.
        """
        self._coordinator.origin.require_own()
        with self._lock:
            if self._began_ms is None:
                self._finish()
                return False
            if self._coordinator.clock.now_ms() - self._began_ms <= self._timeout_ms:
                return False
            self.fence(f"its transaction took longer than {self._timeout_ms} ms")
            return True

    def _commit(self) -> None:
        if self._partitions:
            record = self._record(TransactionStatus.PREPARE_COMMIT, self._partitions)
            if not self._coordinator.may_be_committed(record):
                self._force_to_disk()
            self._coordinator.decide(record)
            self._unfinished = record
        for call in self._on_commit:
            call()
        self._began_ms = None
        self._finish_later()

    def _force_to_disk(self) -> None:
        """
        Force what the transaction has appended to disk, and make sure that all of it is still there.

        Raises:
            InvalidTxnStateError: it is not; it is aborted.
        """
        served = [self._coordinator.served(partition) for partition in sorted(self._partitions)]
        for each in served:
            each.writer.require_open()
        for future in [each.flusher.durable(each.writer.log_end_offset - 1) for each in served]:
            future.result()
        producer_id, epoch = self.identity
        for each in served:
            if not each.writer.under_lock(lambda log: log.producers.has_open_transaction(producer_id, epoch)):
                self._abort()
                what = f"what it has appended to {each.partition} was cut off or aborted"
                raise InvalidTxnStateError(self.transactional_id, what)

    def _abort(self) -> None:
        if self._partitions:
            self._coordinator.end(self._record(TransactionStatus.COMPLETE_ABORT, self._partitions), commit=False)
        self._began_ms = None

    def _finish(self) -> None:
        """Write the markers that a committed transaction still lacks. Raises CleanerError: not all of them."""
        if self._unfinished is not None:
            self._coordinator.end(self._unfinished, commit=True)
            self._unfinished = None

    def _finish_later(self) -> None:
        try:
            self._finish()
        except CleanerError as error:
            self._coordinator.report(self.transactional_id, error)

    # ---- small parts -----------------------------------------------------------------------------------------------

    def _record(self, status: TransactionStatus, partitions: frozenset[TopicPartition]) -> TransactionRecord:
        now_ms = self._coordinator.clock.now_ms()
        began_ms = now_ms if self._began_ms is None else self._began_ms
        return TransactionRecord(
            *(self.transactional_id, *self.identity, self._timeout_ms, status, partitions, now_ms, began_ms)
        )

    def _served(self, log: Log) -> ServedLog:
        partition = getattr(log, "topic_partition", None)
        if not isinstance(partition, TopicPartition):
            raise UsageError(f"log is a {type(log).__name__}; a Log of this manager is needed")
        served = self._coordinator.served(partition)
        if served.log is not log:
            raise UsageError(f"{log.topic_partition} is a log of another manager, or was deleted")
        return served

    def _require_transaction(self, what: str) -> None:
        self._require_unfenced()
        if self._began_ms is None:
            raise InvalidTxnStateError(self.transactional_id, f"{what} outside of a transaction")

    def _require_certain(self) -> None:
        if self._may_be_committed:
            raise InvalidTxnStateError(
                self.transactional_id, "its transaction is committed, or may be: call commit once more"
            )

    @property
    def _may_be_committed(self) -> bool:
        return self._coordinator.may_be_committed(self._record(TransactionStatus.PREPARE_COMMIT, self._partitions))

    def _require_unfenced(self) -> None:
        self._coordinator.require_open()
        if self._fenced:
            raise ProducerFencedError(self.transactional_id, f"this producer is over: {self._fenced}")


def checked(transactional_id: object, timeout_ms: object) -> tuple[str, int]:
    """Return the arguments of `LogManager.producer`. Raises UsageError."""
    name = arguments.utf8("transactional_id", transactional_id)
    if not name:
        raise UsageError("a transaction over partitions needs a transactional id")
    return name, arguments.whole("transaction_timeout_ms", timeout_ms, 1, _LONGEST_TIMEOUT_MS)
