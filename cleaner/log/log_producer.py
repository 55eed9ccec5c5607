"""A producer of one log: its appends are numbered, so that repeats are recognised, and may form transactions."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from cleaner.base import arguments, concurrency
from cleaner.base.clock import Clock
from cleaner.errors import InvalidTxnStateError, OutOfOrderSequenceError, ProducerFencedError
from cleaner.log.opening import find_last_batch
from cleaner.log.partition_writer import PartitionWriter
from cleaner.log.producers import EndedTransaction
from cleaner.log.record import HIGHEST_SEQUENCE, SEQUENCES, Appended, ProducerStamp, Records
from cleaner.log.transaction_block import transaction_of
from cleaner.log.transactional_ids import Identity, TransactionalIds
from cleaner.log.writable_log import WritableLog

if TYPE_CHECKING:
    from cleaner.log.log import Log

DEFAULT_TRANSACTION_TIMEOUT_MS = 60_000
"""Kafka's default of `transaction.timeout.ms`."""


class LogProducer:
    """
    A producer; made by `Log.producer`.

        with producer.transaction():
            producer.append([Record(b"k", b"v")])

    Without a transactional id it has no transactions, and threads may share it; so if it is resumed by its name. With
    one, every append belongs to the one open transaction, whichever thread makes it: as with Kafka's producer, one
    thread begins and ends a transaction, or the threads coordinate. For concurrent transactions give each thread its
    own producer and transactional id.

    Attributes:
        identity: its producer id and epoch in the log.
        transactional_id: None without.
        name: of a producer that is resumed; None: another one.
    """

    def __init__(
        self,
        log: Log,
        writer: PartitionWriter,
        clock: Clock,
        identity: Identity,
        *,
        ids: TransactionalIds | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS,
        name: str | None = None,
    ) -> None:
        self.identity = identity
        self.name = name
        self.transactional_id = transactional_id
        self._log = log
        self._writer = writer
        self._clock = clock
        self._ids = ids
        self._timeout_ms = transaction_timeout_ms
        self._lock = concurrency.RLock()
        # Guarded by _lock. The log's knowledge of this producer decides; these are facts that it cannot know: the next
        # sequence where it has forgotten the producer, when and at which log end a transaction began, and whether one
        # of its appends was answered.
        self._next_sequence = writer.under_lock(lambda log: log.producers.next_sequence(*identity)) or 0
        self._began_ms: int | None = None
        self._began_by = 0
        self._began_at = 0
        self._has_appended = False
        self._is_ending = False  # a commit or abort has begun; one that was interrupted may be done

    def __repr__(self) -> str:
        given = self.name if self.transactional_id is None else self.transactional_id
        name = "" if given is None else f"{given!r}, "
        return f"LogProducer({name}id {self.identity.producer_id}, epoch {self.identity.epoch})"

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next record."""
        known = self._writer.under_lock(lambda log: log.producers.next_sequence(*self.identity))
        return self._next_sequence if known is None else known

    @property
    def is_in_transaction(self) -> bool:
        """Tell whether a transaction has begun and not ended."""
        self._writer.origin.require_own()
        return self._began_ms is not None

    def append(self, records: Records, *, sequence: int | None = None) -> Appended:
        """
        Append records; all of them, or none and an error.

        Args:
            sequence: of the first record; None: the next one, for new records. A caller that does not know whether an
                append was done repeats it with its number: if it was, nothing is written, and the answer is the same
                as before. The last five appends are known.
        Raises:
            InvalidTxnStateError: outside of a transaction, with a transactional id; or a commit or abort that was
                interrupted has ended it.
            ProducerFencedError: a newer instance has the id, or the transaction took too long and was aborted.
            OutOfOrderSequenceError: a number that leaves a gap, or that is too old to know whether it is a repeat.
            CleanerError: what `PartitionWriter.append` raises.
        """
        self._writer.origin.require_own()
        with self._lock:
            is_transactional = self.transactional_id is not None
            if is_transactional:
                self._require_transaction("append")
                if self._is_ending:
                    self._require_not_ended()
            first = (
                self.next_sequence if sequence is None else arguments.whole("sequence", sequence, 0, HIGHEST_SEQUENCE)
            )
            if self.name is not None and sequence is not None:
                self._require_known_or_next(first)
            stamp = ProducerStamp(*self.identity, first, is_transactional)
            result = self._writer.append(records, producer=stamp, may_repeat=sequence is not None)
            if not result.is_repeat:
                self._next_sequence = (first + result.last_offset - result.base_offset + 1) % SEQUENCES
                self._has_appended = True
            return self._log.appended_at(*result[:3], is_repeat=result.is_repeat)

    def _require_known_or_next(self, sequence: int) -> None:
        """
        Refuse the number of a resumed producer that the log has forgotten, unless it is the next one.

        A log takes any number from a producer that it does not know: an append that was done would be done again.
        """
        known = self._writer.under_lock(lambda log: log.producers.next_sequence(*self.identity))
        if known is None and sequence != self._next_sequence:
            raise OutOfOrderSequenceError(
                self._where,
                f"{self.name!r} sends sequence {sequence}, and the log knows none of its appends; "
                f"{self._next_sequence} is expected. They were lost in a crash before they were durable, cut off, or "
                "removed; or the log was idle for longer than producer.id.expiration.ms",
            )

    # ---- transactions ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """
        Begin a transaction.

        Raises:
            InvalidTxnStateError: without a transactional id, or one has begun already.
            ProducerFencedError: a newer instance has the id, the transaction before took too long, or the log was cut
                in the middle of it.
            LogClosedError: the log is closed.
        """
        self._writer.origin.require_own()
        with self._lock:
            self._writer.require_open()
            if self.transactional_id is None:
                raise InvalidTxnStateError(self._where, "this producer has no transactional id, so no transactions")
            if self._began_ms is not None:
                raise InvalidTxnStateError(
                    self._where, f"{self.transactional_id!r} has a transaction open already{self._by}"
                )
            self._require_epoch()
            began_ms, self._began_at, self._has_appended = self._clock.now_ms(), self._writer.log_end_offset, False
            self._began_by = concurrency.get_ident()
            self._is_ending = False
            self._began_ms = began_ms

    def commit(self) -> concurrency.Future[None]:
        """
        Make what the transaction has appended visible to readers of committed records.

        Returns:
            A future that is done once all of it is on disk, and so visible; a crash before that may abort it.
        Raises:
            InvalidTxnStateError: there is no transaction, or it was aborted, or what it has appended is gone.
            ProducerFencedError: it was aborted: a newer instance has the id, it took too long, or the log was cut.
            CleanerError: what `PartitionWriter.end_transaction` raises; it may be tried again.
        """
        return self._end(commit=True)

    def abort(self) -> concurrency.Future[None]:
        """Hide what the transaction has appended from readers of committed records. As `commit`."""
        return self._end(commit=False)

    def transaction(self) -> contextlib.AbstractContextManager[LogProducer]:
        """Begin a transaction for a `with` block; it is committed at the end, and aborted by an exception."""
        return transaction_of(self)

    def _end(self, *, commit: bool) -> concurrency.Future[None]:
        self._writer.origin.require_own()
        with self._lock:
            self._require_transaction("commit" if commit else "abort")
            self._is_ending = True
            try:
                marker_offset = self._end_in_log(commit)
            except (ProducerFencedError, InvalidTxnStateError):
                self._began_ms = None
                raise
            self._began_ms = None
            if marker_offset is None:
                done: concurrency.Future[None] = concurrency.Future()
                done.set_result(None)
                return done
            return self._log.appended_at(marker_offset, marker_offset, None).durable

    def _end_in_log(self, commit: bool) -> int | None:
        """Write the marker if the log has an open transaction; returns its offset, None without one."""
        producer_id, epoch = self.identity
        if self._writer.under_lock(lambda log: log.producers.has_open_transaction(producer_id)):
            return self._writer.end_transaction(producer_id, epoch, commit=commit)
        self._require_epoch()
        ended = self._find_end()
        if ended is not None:
            if ended.is_committed == commit:
                return ended.offset  # by an earlier call, which was interrupted before it could say so
            raise self._has_ended(ended)
        if commit and self._has_appended:
            raise InvalidTxnStateError(
                self._where, f"what {self.transactional_id!r} has appended was aborted or cut off"
            )
        return None

    def _find_end(self) -> EndedTransaction | None:
        """Return the end of the present transaction, written by a call that was interrupted; None: it is open."""
        ended = self._writer.under_lock(lambda log: log.producers.last_end(self.identity[0]))
        return ended if ended is not None and ended.offset >= self._began_at else None

    def _has_ended(self, ended: EndedTransaction) -> InvalidTxnStateError:
        what = "committed" if ended.is_committed else "aborted"
        return InvalidTxnStateError(self._where, f"the transaction of {self.transactional_id!r} was {what} already")

    def _require_not_ended(self) -> None:
        """Make sure that an append does not begin another transaction, which a crash would end in its own way."""
        ended = self._find_end()
        if ended is not None:
            raise self._has_ended(ended)

    def _require_transaction(self, what: str) -> None:
        self._writer.require_open()
        if self._began_ms is None:
            # commit or abort has reported the fencing once; report it again the next time.
            self._require_epoch()
            raise InvalidTxnStateError(self._where, f"{what} by {self.transactional_id!r} outside of a transaction")

    def _require_epoch(self) -> None:
        """Make sure that this producer's epoch is not over. Raises ProducerFencedError."""
        self._writer.under_lock(lambda log: log.producers.check_marker(*self.identity))

    def end_if_late(self, now_ms: int) -> bool:
        """
        Abort the transaction if it took longer than its timeout, and fence this producer; True if it did.

        Raises:
            CleanerError: it could not be aborted; it is tried again the next time.
        """
        self._writer.origin.require_own()
        with self._lock:
            began_ms, ids, name = self._began_ms, self._ids, self.transactional_id
            if began_ms is None or ids is None or name is None or now_ms - began_ms <= self._timeout_ms:
                return False
            raised = self._writer.run(lambda log: ids.raise_epoch(name, self.identity, log.producers.epoch_of, now_ms))
            self._log.fence(raised)
            return True

    @property
    def _by(self) -> str:
        """Return words for the message if another thread began the transaction."""
        if self._began_by == concurrency.get_ident():
            return ""
        return ", begun by another thread: have one thread at a time do transactions, or give each an id of its own"

    @property
    def _where(self) -> str:
        return str(self._writer.topic_partition)


def resume_producer(log: WritableLog, ids: TransactionalIds, name: str, now_ms: int) -> Identity:
    """
    Return the identity of a producer that is resumed, known to its log if any batch of it is left there; a step.

    Raises:
        UsageError, CorruptCheckpointError, LogDirOfflineError, NoSpaceError: as `TransactionalIds.resume`.
        CorruptLogError: damage in a log that had to be searched.
    """
    identity, is_new = ids.resume(name, log.producers.epoch_of, now_ms)
    if not is_new and log.producers.epoch_of(identity.producer_id) < 0:
        # Idle for too long, or its records have old timestamps, which is the same for a log.
        with log.locked():
            found = find_last_batch(log.log_dir.fs, log.directory, identity.producer_id)
        if found is not None:
            log.producers.take_from_log(found)
    return identity
