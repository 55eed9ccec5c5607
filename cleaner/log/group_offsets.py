"""
Stored places of readers: the next offset of a group in a partition, in Kafka's own `__consumer_offsets`.

The format is Kafka's, so a broker that starts on the directory lists the groups and goes on with their offsets, and
what a broker has kept is found here. A group's offsets are in one partition of that topic, chosen as Kafka does; where
there is no such topic it is made with one partition, as a broker takes any number.

The log is the only truth. A partition of it is read when the first group in it is asked for, and then followed by what
is committed here. In a transaction an offset counts from its commit on; of two the later record wins, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from cleaner.base import arguments, concurrency
from cleaner.base.clock import Clock
from cleaner.base.model import TopicPartition
from cleaner.errors import CorruptCheckpointError, UsageError
from cleaner.format.coordinator_records import (
    CONSUMER_OFFSETS,
    commit_key,
    commit_value,
    coordinator_partition,
    read_commit,
)
from cleaner.log.record import Appended, Record

if TYPE_CHECKING:
    from cleaner.log.log import Log
    from cleaner.log.manager_producer import ManagerProducer

_MOST_METADATA_BYTES = 4096  # Kafka's default of offset.metadata.max.bytes
_LONGEST_GROUP = 2**15 - 1


class Place(NamedTuple):
    """A committed offset; `record_offset`: of its record in `__consumer_offsets`."""

    record_offset: int
    next_offset: int
    metadata: str


_Places = dict[tuple[str, TopicPartition], Place]


class OffsetStore:
    """
    The committed offsets of a `LogManager`. Thread-safe.

    Args:
        log_of: returns an open log.
        topic: returns the number of partitions of a topic, which is made if it is not there.
        require_open: raises LogClosedError once the manager is closed, ForkedError in a fork.
        clock: the time of a commit.
    """

    def __init__(
        self,
        log_of: Callable[[TopicPartition], Log],
        topic: Callable[[str], int],
        require_open: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._log_of = log_of
        self._topic = topic
        self._require_open = require_open
        self._clock = clock
        # Held while a commit is written and remembered: the order in memory is that of the log.
        self._lock = concurrency.RLock()
        self._known: dict[TopicPartition, tuple[Log, _Places]] = {}

    def of(self, group: object, partition: TopicPartition) -> GroupOffsets:
        """Return the offsets of a group in a partition. Raises UsageError for a name that Kafka does not take."""
        name = arguments.utf8("group", group)
        if not name or len(name.encode()) > _LONGEST_GROUP:
            raise UsageError(f"group {name[:40]!r}: a name of 1 to {_LONGEST_GROUP} bytes is needed")
        return GroupOffsets(self, name, partition)

    def find(self, group: str, partition: TopicPartition) -> Place | None:
        """Return what a group has committed for a partition; raises as `GroupOffsets.load`."""
        self._require_open()
        with self._lock:
            return self._places(group)[1].get((group, partition))

    def commit(
        self, group: str, partition: TopicPartition, next_offset: int, metadata: str, within: ManagerProducer | None
    ) -> Appended:
        """Commit an offset; raises as `GroupOffsets.commit`."""
        self._require_open()
        record = Record(commit_key(group, partition), commit_value(next_offset, metadata, self._clock.now_ms()))
        with self._lock:
            log, places = self._places(group)
            if within is None:
                appended = log.append(record)
                _remember(places, group, partition, Place(appended.base_offset, next_offset, metadata))
                return appended
        # Not under the lock: a transaction that is ending holds its own, and asks for this one.
        appended = within.append(log, record)
        place = Place(appended.base_offset, next_offset, metadata)

        def committed() -> None:
            with self._lock:
                _remember(places, group, partition, place)

        within.on_commit(committed)
        return appended

    def _places(self, group: str) -> tuple[Log, _Places]:
        """Return the log that has a group, and what it holds; read when it is first asked for."""
        number = coordinator_partition(group, self._topic(CONSUMER_OFFSETS))
        home = TopicPartition(CONSUMER_OFFSETS, number)
        log = self._log_of(home)
        known = self._known.get(home)
        if known is None or known[0] is not log:
            known = self._known[home] = (log, _read(log))
        return known


def _remember(places: _Places, group: str, partition: TopicPartition, place: Place) -> None:
    before = places.get((group, partition))
    if before is None or before.record_offset < place.record_offset:
        places[group, partition] = place


def _read(log: Log) -> _Places:
    places: _Places = {}
    with log.latest(isolation="read_committed") as latest:
        for record in latest:
            try:
                found = read_commit(record.key, record.value or b"")
            except ValueError as error:
                raise CorruptCheckpointError(
                    log.directory, 0, f"offset {record.offset}: no record of a committed offset: {error}"
                ) from error
            if found is not None:
                group, partition, next_offset, metadata = found
                places[group, partition] = Place(record.offset or 0, next_offset, metadata)
    return places


class GroupOffsets:
    """
    The stored place of a group of readers in one log; made by `Log.offsets`. Safe to share between threads.

        place = log.offsets("billing")
        with log.follow(place.load() or log.log_start_offset) as follower:
            for record in follower:
                ...
                place.commit(follower.next_offset)

    Attributes:
        group: its name.
        topic_partition: what it reads.
    """

    def __init__(self, store: OffsetStore, group: str, topic_partition: TopicPartition) -> None:
        self.group = group
        self.topic_partition = topic_partition
        self._store = store

    def __repr__(self) -> str:
        return f"GroupOffsets({self.group!r}, {self.topic_partition})"

    def load(self) -> int | None:
        """
        Return the next offset to read, as it was committed last; None: never.

        Raises:
            CorruptLogError, CorruptCheckpointError: the log of offsets is damaged.
            LogClosedError, ForkedError: the manager is closed, or was opened by this process's parent.
        """
        place = self._store.find(self.group, self.topic_partition)
        return None if place is None else place.next_offset

    @property
    def metadata(self) -> str:
        """The text that was committed with the offset; empty without one. Raises as `load`."""
        place = self._store.find(self.group, self.topic_partition)
        return "" if place is None else place.metadata

    def commit(self, next_offset: int, *, metadata: str = "", transaction: ManagerProducer | None = None) -> Appended:
        """
        Store the next offset to read. It may be lower than before, as after a `seek`.

        It survives a kill at once, and a power cut when the answer's `durable` is done. In a transaction it counts
        when that is committed, and not at all when it is aborted.

        Args:
            next_offset: the offset behind the last record that is done: a follower's `next_offset`.
            metadata: a text to keep with it.
            transaction: a producer of the same manager, in a transaction.
        Raises:
            UsageError: an offset below 0, or a text of more than 4096 bytes.
            InvalidTxnStateError, ProducerFencedError: as `ManagerProducer.append`.
            CleanerError: what `Log.append` raises.
        """
        offset, text = arguments.whole("next_offset", next_offset, 0), arguments.utf8("metadata", metadata)
        if len(text.encode()) > _MOST_METADATA_BYTES:
            raise UsageError(f"metadata of {len(text)} characters; {_MOST_METADATA_BYTES} bytes are the most")
        if transaction is not None:
            arguments.require_methods("transaction", transaction, "append", "on_commit")
        return self._store.commit(self.group, self.topic_partition, offset, text, transaction)
