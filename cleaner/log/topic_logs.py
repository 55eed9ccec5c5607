"""All partitions of a topic as one: appended to as Kafka's producer does by default, and followed together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cleaner.base import arguments, concurrency
from cleaner.base.clock import Clock
from cleaner.errors import CleanerError, ForkedError, UndecodableRecordError, UsageError, shortened
from cleaner.log.follow import Follower
from cleaner.log.log import Log
from cleaner.log.manager_producer import ManagerProducer
from cleaner.log.partitioner import Partitioner
from cleaner.log.record import Appended, Record
from cleaner.log.serde import Serde
from cleaner.log.stream import Isolation, Until
from cleaner.read.view import Signal

_LONGEST_WAIT_SECONDS = 1.0  # the thread that should wake this one may be interrupted just then
_ODD_VALUES = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record that was read from a topic; `key` and `value` as its serdes make them, None: no key, or a tombstone."""

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


class TopicLogs:
    """
    The logs of a topic; made by `LogManager.topic`. Safe to share between threads.

    Partitions that are added later need another one.

    Attributes:
        name: of the topic.
        logs: by partition number.
    """

    def __init__(self, name: str, logs: Mapping[int, Log], clock: Clock, key: Serde, value: Serde) -> None:
        self.name = name
        self.logs = dict(sorted(logs.items()))
        self._clock = clock
        self._key, self._value = key, value
        self._lock = concurrency.RLock()  # reentrant for signal handlers
        self._partitioner = Partitioner(len(self.logs))  # guarded by _lock

    def __repr__(self) -> str:
        return f"TopicLogs({self.name!r}, {len(self.logs)} partitions)"

    def append(
        self,
        records: Record | Iterable[Record | tuple[Any, Any]],
        *,
        transaction: ManagerProducer | None = None,
    ) -> dict[int, Appended]:
        """
        Append records, each to the partition that Kafka's producer would choose: by its key's hash, or any.

        Args:
            records: `Record`s, or pairs of key and value; the serdes convert keys and values of both.
            transaction: a producer of the same manager, in a transaction: then it is all of them or none.
        Returns:
            The answers by partition. Without a transaction each partition's records are appended for themselves.
        Raises:
            UsageError: a record that the serdes cannot convert; names it, and nothing was appended.
            CleanerError: what `Log.append` raises; partitions before that one have their records.
        """
        if transaction is not None:
            arguments.require_methods("transaction", transaction, "append", "on_commit")
        parts: dict[int, list[Record]] = {}
        encoded = [self._encoded(row, each) for row, each in enumerate(_each(records))]
        with self._lock:
            for record in encoded:
                parts.setdefault(self._partitioner.partition_for(record), []).append(record)
        append = Log.append if transaction is None else transaction.append
        return {partition: append(self.logs[partition], some) for partition, some in sorted(parts.items())}

    def follow_all(
        self,
        *,
        group: str | None = None,
        offsets: Mapping[int, int] | None = None,
        isolation: Isolation = "read_uncommitted",
        until: Until = "high_watermark",
    ) -> TopicFollower:
        """
        Follow all partitions together; their order among each other is not kept.

        Args:
            group: begin at its stored places, and let `commit` store them.
            offsets: where to begin, by partition; others begin at the group's place, else at the log start.
            isolation, until: as for `Log.follow`.
        Raises:
            OffsetOutOfRangeError: a begin that is not within a log.
            UsageError: a partition that the topic has not.
        """
        given = {} if offsets is None else _checked_offsets(offsets, self.logs)
        if group is not None:
            arguments.text("group", group)

        def follow(partition: int, offset: int) -> Follower:
            return self.logs[partition].follow(offset, isolation=isolation, until=until)

        begins = {}
        for partition, log in self.logs.items():
            stored = None if group is None else log.offsets(group).load()
            start = log.log_start_offset
            begins[partition] = given.get(partition, start if stored is None else max(stored, start))
        return TopicFollower(self, group, begins, follow, self._clock)

    def decoded(self, partition: int, record: Record) -> TopicRecord:
        """Return a record with key and value as the serdes make them. Raises UndecodableRecordError."""
        offset = record.offset or 0
        key = self._decode(partition, offset, "key", self._key, record.key)
        value = self._decode(partition, offset, "value", self._value, record.value)
        return TopicRecord(self.name, partition, offset, key, value, record.headers, record.timestamp_ms or 0)

    def _encoded(self, row: int, given: object) -> Record:
        if isinstance(given, tuple) and len(given) == 2:
            given = Record(*given)
        if not isinstance(given, Record):
            what = f"record {row} is a {type(given).__name__}; a Record, or a pair of key and value is needed"
            raise UsageError(what)
        key, value = _encode(row, "key", self._key, given.key), _encode(row, "value", self._value, given.value)
        return Record(key, value, given.headers, given.timestamp_ms)

    def _decode(self, partition: int, offset: int, field: str, serde: Serde, data: bytes | None) -> Any:
        try:
            return None if data is None else serde.from_bytes(data)
        except _ODD_VALUES as error:
            raise UndecodableRecordError(f"{self.name}-{partition}", offset, field, str(error)) from error


class TopicFollower:
    """
    Reads all partitions of a topic; made by `TopicLogs.follow_all`. For one thread at a time; close it.

        with manager.topic("orders", value=Serde.json).follow_all(group="billing") as follower:
            for record in follower.poll(timeout_seconds=1):
                ...
            follower.commit()
    """

    def __init__(
        self,
        topic: TopicLogs,
        group: str | None,
        begins: Mapping[int, int],
        follow: Callable[[int, int], Follower],
        clock: Clock,
    ) -> None:
        self._topic = topic
        self._group = group
        self._follow = follow
        self._clock = clock
        self._signal = Signal()
        self._paused: set[int] = set()
        self._first = 0  # whose turn it is, so that a busy partition does not keep others waiting
        self._stored = dict(begins)
        self._followers: dict[int, Follower] = {}
        self._stops: list[Callable[[], None]] = []
        try:
            for partition, offset in begins.items():
                self._followers[partition] = follow(partition, offset)
                self._stops.append(topic.logs[partition].listen(self._signal.notify))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> TopicFollower:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ForkedError):
            self.close()

    @property
    def next_offsets(self) -> dict[int, int]:
        """First offset of each partition not read yet."""
        return {partition: follower.next_offset for partition, follower in self._followers.items()}

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or all its logs were."""
        return self._signal.is_closed or all(each.is_closed for each in self._followers.values())

    def poll(self, timeout_seconds: float | None = 0.0, max_records: int | None = None) -> list[TopicRecord]:
        """
        Return some unread records, after a wait for the first; an empty list when none comes in time.

        Raises:
            UndecodableRecordError: the next record is not what the serdes read; `seek` behind it, or close.
            CleanerError: as `Follower.poll`.
        """
        wait = arguments.seconds("timeout_seconds", timeout_seconds)
        most = None if max_records is None else arguments.whole("max_records", max_records, 0)
        until = None if wait is None else self._clock.monotonic_ns() / 1e9 + wait
        while not self.is_closed:
            seen = self._signal.version
            found = self._take(most)
            if found or most == 0:
                return found
            left = None if until is None else until - self._clock.monotonic_ns() / 1e9
            if left is not None and left <= 0:
                return []
            self._signal.wait(seen, _LONGEST_WAIT_SECONDS if left is None else min(left, _LONGEST_WAIT_SECONDS))
        return []

    def __iter__(self) -> Iterator[TopicRecord]:
        """Yield records until it is closed; `next_offsets` are behind the last one."""
        while not self.is_closed:
            yield from self.poll(None, 1)

    def commit(self, transaction: ManagerProducer | None = None) -> None:
        """
        Store the next offset of each partition in which it has moved, for the group; in a transaction with that.

        Raises:
            UsageError: it follows without a group.
            CleanerError: as `GroupOffsets.commit`.
        """
        if self._group is None:
            raise UsageError("commit without a group: follow_all(group=...)")
        for partition, offset in self.next_offsets.items():
            if transaction is not None or self._stored.get(partition) != offset:
                self._topic.logs[partition].offsets(self._group).commit(offset, transaction=transaction)
                if transaction is None:
                    self._stored[partition] = offset

    def seek(self, partition: int, offset: int) -> None:
        """Go on at an offset of a partition. Raises OffsetOutOfRangeError, UsageError."""
        [number] = _checked_offsets({arguments.whole("partition", partition): offset}, self._topic.logs)
        follower = self._follow(number, offset)
        self._followers[number].close()
        self._followers[number] = follower

    def pause(self, *partitions: int) -> None:
        """Read nothing more of some partitions until `resume`."""
        self._paused |= self._checked_partitions(partitions)

    def resume(self, *partitions: int) -> None:
        """Read some partitions again."""
        self._paused -= self._checked_partitions(partitions)
        self._signal.notify()

    def _checked_partitions(self, partitions: tuple[int, ...]) -> set[int]:
        offsets = {arguments.whole("partition", each): 0 for each in partitions}
        return set(_checked_offsets(offsets, self._topic.logs))

    def close(self) -> None:
        """End it; a second call does nothing."""
        self._signal.close()
        for stop in self._stops:
            stop()
        for follower in self._followers.values():
            follower.close()

    def _take(self, most: int | None) -> list[TopicRecord]:
        begins = self.next_offsets
        found: list[TopicRecord] = []
        try:
            self._take_in_turn(most, found)
        except CleanerError:
            if not found:
                raise
            # The next call that finds no others raises it.
        except BaseException:
            for number, offset in begins.items():
                self._followers[number].go_back(offset)
            raise
        return found

    def _take_in_turn(self, most: int | None, found: list[TopicRecord]) -> None:
        """Add records of all partitions; after a CleanerError those that were not added are still unread."""
        numbers = list(self._followers)
        self._first += 1
        for place in range(len(numbers)):
            number = numbers[(self._first + place) % len(numbers)]
            if number in self._paused or (most is not None and len(found) >= most):
                continue
            follower = self._followers[number]
            for record in follower.poll(0, None if most is None else most - len(found)):
                try:
                    found.append(self._topic.decoded(number, record))
                except CleanerError:
                    follower.go_back(record.offset or 0)
                    raise


def _each(records: object) -> Iterable[object]:
    if isinstance(records, Record):
        return [records]
    if isinstance(records, str | bytes | Mapping) or not isinstance(records, Iterable):
        raise UsageError(f"an append of a {type(records).__name__}: Records, or pairs of key and value are needed")
    return records


def _encode(row: int, field: str, serde: Serde, value: object) -> bytes | None:
    try:
        return None if value is None else serde.to_bytes(value)
    except _ODD_VALUES as error:
        raise UsageError(f"record {row}: its {field} {shortened(repr(value))} cannot be written: {error}") from error


def _checked_offsets(offsets: object, logs: Mapping[int, Log]) -> dict[int, int]:
    if not isinstance(offsets, Mapping):
        raise UsageError(f"offsets is a {type(offsets).__name__}; a mapping of partition to offset is needed")
    for partition, offset in offsets.items():
        if arguments.whole("partition", partition) not in logs:
            raise UsageError(f"no partition {partition}; there are {len(logs)}")
        arguments.whole("offset", offset, 0)
    return dict(offsets)


def checked_serde(name: str, serde: object) -> Serde:
    """Return a serde. Raises UsageError."""
    if not isinstance(serde, Serde):
        raise UsageError(f"{name} is {shortened(repr(serde))}; a cleaner.Serde such as Serde.json is needed")
    return serde
