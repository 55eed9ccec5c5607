"""
Transactions over several partitions and topics: what is decided about them, and that it comes about.

    append     the partition is noted in the transaction log, then the record is written, in an open transaction there
    commit     1  everything of the transaction is forced to disk
               2  the decision is written and forced to disk: from here on it is committed, whatever happens
               3  a marker is written in each partition and forced to disk
               4  the end is noted, so that nobody decides again
    open       the transaction log is opened and read before all others: each of those ends its open transactions as
               decided there, and aborts the rest
    abort      a marker in each partition; without a decision a crash does the same

The decision record is Kafka's own: `__transaction_state` with the states Ongoing, PrepareCommit and CompleteCommit. A
broker that starts on the directory instead of us therefore does the same, by its own coordinator.

Each transaction has an epoch of its own and each instance a producer id of its own, so no decision is ever taken for
that of a later transaction, whatever a power cut has left of both.

Source: `TransactionCoordinator.scala`, `TransactionStateManager.scala`; rules R-230, R-653.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from cleaner.base import concurrency
from cleaner.base.model import TopicPartition
from cleaner.errors import CleanerError, CorruptCheckpointError, LogClosedError, LogWriteError, UnknownTopicError
from cleaner.format.coordinator_records import (
    TRANSACTION_STATE,
    TransactionRecord,
    TransactionStatus,
    coordinator_partition,
)
from cleaner.log.interrupted import in_the_middle
from cleaner.log.manager_producer import ManagerProducer
from cleaner.log.origin import Origin
from cleaner.log.partitions import Partitions, ServedLog, Services
from cleaner.log.record import Appended, Record

_OUR_PRODUCER_IDS = 1 << 62
_BUMPED_AT_THE_END = 2  # from this version of transactions on, a prepared end has the epoch after that of the data


class Ended(NamedTuple):
    """Where a transaction was ended: a log, and the offset up to which it has to be on disk, inclusive."""

    served: ServedLog
    offset: int


class Coordinator:
    """
    The transactions of a `LogManager`. Thread-safe.

    Args:
        services: those of the logs.
        partitions: the open logs; those of the transaction log are the first.
        topic: returns the number of partitions of a topic, which is made if it is not there.
        require_open: raises LogClosedError once the manager is closed, ForkedError in a fork.
    """

    def __init__(
        self,
        services: Services,
        partitions: Partitions,
        topic: Callable[[str], int],
        require_open: Callable[[], None],
    ) -> None:
        self.origin = Origin("the log dirs")
        self.clock = services.clock
        self._services = services
        self._partitions = partitions
        self._topic = topic
        self._partition_count = 0  # of the transaction log; 0: not known yet
        self.require_open = require_open
        # Held while an instance takes the place of another. Both are reentrant for signal handlers.
        self._making, self._is_making = concurrency.RLock(), False
        self._lock = concurrency.RLock()
        # Guarded by _lock: the present instance of each id; by producer id, what is decided and not ended everywhere,
        # and the epoch of what may be decided.
        self._producers: dict[str, ManagerProducer] = {}
        self._decided: dict[int, TransactionRecord] = {}
        self._in_doubt: dict[int, int] = {}
        self._left_open: list[TransactionRecord] = []
        self._unknown: CleanerError | None = None

    # ---- opening ---------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the transaction log, whose partitions are open; all other logs are opened afterwards."""
        failed = [error for partition, error in self._partitions.failed.items() if is_transaction_log(partition)]
        self._unknown = failed[0] if failed else None
        for served in self._partitions.all():
            if is_transaction_log(served.partition):
                self._load_one(served)

    def _load_one(self, served: ServedLog) -> None:
        try:
            with served.log.latest(isolation="read_committed") as latest:
                for record in latest:
                    found = TransactionRecord.read(record.key, record.value or b"")
                    if found is not None and found.status == TransactionStatus.PREPARE_COMMIT:
                        self._decided[found.producer_id] = found
                    elif found is not None and found.status == TransactionStatus.ONGOING:
                        self._left_open.append(found)
        except CleanerError as error:
            self._unknown = error
        except ValueError as error:
            self._unknown = CorruptCheckpointError(served.directory, 0, f"no record of a transaction log: {error}")

    def verdict(self, partition: TopicPartition, producer_id: int, epoch: int) -> bool | None:
        """
        Tell how an open transaction that nobody ends is to end in a partition: True: it is committed; None: it stays.

        Raises:
            CleanerError: the transaction log cannot be read.
        """
        if self._unknown is not None:
            raise self._unknown.with_traceback(None)
        with self._lock:
            decided, doubtful = self._decided.get(producer_id), self._in_doubt.get(producer_id)
        if decided is not None and partition in decided.partitions:
            bumped = decided.version >= _BUMPED_AT_THE_END
            if epoch in ((decided.epoch - 1, decided.epoch) if bumped else (decided.epoch,)):
                return True
        return None if doubtful == epoch else False

    def settle(self) -> None:
        """Note the end of what an earlier process has left: all logs are open, so it has ended in each of them."""
        for left, end in (
            *((each, TransactionStatus.COMPLETE_COMMIT) for each in tuple(self._decided.values())),
            *((each, TransactionStatus.COMPLETE_ABORT) for each in self._left_open),
        ):
            served = {each.partition for each in self._partitions.all()}
            if left.producer_id >= _OUR_PRODUCER_IDS and served.issuperset(left.partitions):
                try:
                    self._note(replace(left, status=end, partitions=frozenset(), updated_ms=self.clock.now_ms()))
                except CleanerError as error:
                    self.report(left.transactional_id, error)  # the next opening finds it once more
                self._decided.pop(left.producer_id, None)
        self._left_open = []

    # ---- producers -------------------------------------------------------------------------------------------------

    def producer(self, transactional_id: str, timeout_ms: int) -> ManagerProducer:
        """
        Make a producer; the earlier instance is fenced off, and its open transaction is aborted.

        Raises:
            CleanerError: its transaction could not be aborted, or it is not known whether it is committed.
        """
        self.require_open()
        with self._making:
            if self._is_making:
                raise in_the_middle(transactional_id)
            try:
                self._is_making = True
                self.state_log(transactional_id)
                with self._lock:
                    before = self._producers.get(transactional_id)
                if before is not None:
                    before.fence("a newer producer has its id")
                made = ManagerProducer(self, transactional_id, timeout_ms)
                with self._lock:
                    self._producers[transactional_id] = made
                return made
            finally:
                self._is_making = False

    def end_late_transactions(self) -> int:
        """
        Abort transactions that take longer than their timeout, and end those that are decided; returns how many.

        Raises:
            CleanerError: one could not be ended; it is tried again the next time.
        """
        with self._lock:
            producers = list(self._producers.values())
        return sum(each.end_if_late() for each in producers)

    def close(self) -> None:
        """End all transactions, as decided or else by an abort; what cannot be ended now is ended when a log closes."""
        with self._lock:
            producers = list(self._producers.values())
        for each in producers:
            try:
                each.fence("its manager was closed")
            except CleanerError as error:
                self.report(each.transactional_id, error)

    # ---- steps of a transaction ------------------------------------------------------------------------------------

    def served(self, partition: TopicPartition) -> ServedLog:
        """Return an open log; raises as `Partitions.get`."""
        return self._partitions.get(partition)

    def state_log(self, transactional_id: str) -> ServedLog:
        """Return the partition of the transaction log that has an id."""
        if not self._partition_count:
            self._partition_count = self._topic(TRANSACTION_STATE)
        number = coordinator_partition(transactional_id, self._partition_count)
        return self.served(TopicPartition(TRANSACTION_STATE, number))

    def begin(self, record: TransactionRecord) -> None:
        """Note which partitions a transaction is about to write to, for a broker that has to abort it."""
        self._note(record)

    def decide(self, record: TransactionRecord) -> None:
        """
        Decide, durably, that a transaction is committed; everything of it is on disk.

        Raises:
            LogClosedError, LogWriteError: it is not known whether it is decided; asked again, or opened again, it is.
            CleanerError: it is not decided, and may be aborted.
        """
        served = self.state_log(record.transactional_id)
        served.writer.require_open()
        with self._lock:
            was_in_doubt = record.producer_id in self._in_doubt
            self._in_doubt[record.producer_id] = record.epoch
        try:
            noted = self._note(record)
        except (LogClosedError, LogWriteError):
            raise
        except CleanerError:
            if not was_in_doubt:
                with self._lock:
                    self._in_doubt.pop(record.producer_id, None)
            raise
        noted.durable.result()
        with self._lock:
            self._decided[record.producer_id] = record
            self._in_doubt.pop(record.producer_id, None)

    def may_be_committed(self, record: TransactionRecord) -> bool:
        """Tell whether a transaction is decided, or may be, and has not ended."""
        with self._lock:
            decided = self._decided.get(record.producer_id)
            is_decided = decided is not None and decided.epoch == record.epoch
            return is_decided or self._in_doubt.get(record.producer_id) == record.epoch

    def end(self, record: TransactionRecord, *, commit: bool) -> None:
        """
        Write the markers of a transaction, and note its end once those of a commit are on disk; may be called again.

        Raises:
            CleanerError: not in all partitions.
        """
        ended = [self._mark(partition, record, commit=commit) for partition in sorted(record.partitions)]
        if commit:
            # Before the end is noted: a crash that loses a marker must still find the decision.
            for future in [each.served.flusher.durable(each.offset) for each in ended if each is not None]:
                future.result()
        status = TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT
        self._note(replace(record, status=status, partitions=frozenset(), updated_ms=self.clock.now_ms()))
        with self._lock:
            self._decided.pop(record.producer_id, None)

    def _mark(self, partition: TopicPartition, record: TransactionRecord, *, commit: bool) -> Ended | None:
        """Write a marker unless it is there; None: the topic was deleted, or its log is closed and aborts it later."""
        try:
            served = self.served(partition)
        except UnknownTopicError:
            return None
        writer, producer_id = served.writer, record.producer_id
        if writer.is_closed and not commit:
            return None
        writer.require_open()
        if not writer.under_lock(lambda log: log.producers.has_open_transaction(producer_id)):
            return Ended(served, writer.log_end_offset - 1)
        epoch = writer.under_lock(lambda log: log.producers.latest_epoch(producer_id))
        offset = writer.end_transaction(producer_id, epoch, commit=commit)
        served.flusher.appended()
        if not commit:
            served.flusher.durable(offset)  # readers of committed records wait for it, and nobody else might ask
        return Ended(served, offset)

    def _note(self, record: TransactionRecord) -> Appended:
        served = self.state_log(record.transactional_id)
        return served.log.append([Record(record.key(), record.value())])

    def report(self, transactional_id: str, error: CleanerError) -> None:
        """Tell that a transaction could not be ended yet."""
        self._services.logger.warning(
            "a transaction could not be ended and is tried again", transactional_id=transactional_id, reason=str(error)
        )


def is_transaction_log(partition: TopicPartition) -> bool:
    """Tell whether a partition is of the transaction log, which is opened before all others."""
    return partition.topic == TRANSACTION_STATE
