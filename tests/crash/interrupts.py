"""
An exception at a chosen point of an operation on a writable log, and the rules that hold afterwards.

A *point* is where CPython checks for signals, so that a handler's exception is raised there: at the beginning of a
function and after a call of a compiled one, in our code, in `contextlib`, `threading` and `concurrent.futures`. (It
also checks at the end of a loop's body; loops that call nothing have no points.) There is one exception in each run;
then the log is used again, closed and opened. In every case:

    a record acknowledged as durable, or committed, is there, once, unchanged, in order
    a `durable` future ends, and nothing else hangs
    the log accepts the next operation, or says that it is closed
    every raised error is one of the cleaner's
    the next opening works, and `check` finds nothing
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import cleaner
from cleaner import CleanerError, Log, LogManager, LogProducer, Record, open_reader
from cleaner.app.check_log_dir import CheckOptions, check_paths
from cleaner.app.options import CallContext
from cleaner.errors import InvalidTopicError, LogClosedError, TopicExistsError, UnknownTopicError
from cleaner.log.table import Table
from cleaner.log.topic_logs import TopicRecord
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import File, FileSystem, disk_errors
from cleaner.storage.segment.names import DirKind
from cleaner.verification.check.findings import Finding
from cleaner.verification.check.partition import CheckedPartition

_CODE = (str(Path(cleaner.__file__).parent), contextlib.__file__, threading.__file__, concurrent.futures._base.__file__)
_PATIENCE_SECONDS = 20
_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "1048576", "index.interval.bytes": "100"}


class Interrupt(KeyboardInterrupt):
    """A user presses Ctrl-C."""


class OutOfMemory(MemoryError):
    """No memory is left."""


class Interrupter:
    """Raises at the `point`-th point of a block; counts them."""

    def __init__(self, point: int, kind: type[BaseException] = Interrupt) -> None:
        self.point = point
        self.kind = kind
        self.points = 0
        self.where = "nowhere"

    def __enter__(self) -> Interrupter:
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Take an event of `sys.setprofile`."""
        name = frame.f_code.co_filename
        if event not in ("call", "c_return") or not name.startswith(_CODE):
            return
        self.points += 1
        if self.points == self.point:
            what = getattr(argument, "__qualname__", "")
            self.where = f"{Path(name).name}:{frame.f_lineno} {frame.f_code.co_name} ({event} {what})"
            sys.setprofile(None)
            raise self.kind


class FaultyFile(File):
    """A file that counts its calls and fails one of them."""

    def __init__(self, file: File, fault: FaultyFileSystem) -> None:
        super().__init__(file.path, file.handle)
        self._fault = fault

    def __getattribute__(self, name: str) -> Any:
        if name in _FILE_CALLS:
            object.__getattribute__(self, "_fault").inject(self, name)
        return super().__getattribute__(name)


class FaultyFileSystem(FileSystem):
    """
    A file system of which one call fails: the `fail_at`-th after that was set.

    Attributes:
        calls: how many there have been since.
        what: makes the exception; an OSError is raised as the system would.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.fail_at: int | None = None
        self.what: Callable[[], BaseException] = Interrupt
        self.where = "nowhere"

    def inject(self, at: object, name: str) -> None:
        """Count a call, and raise if its turn has come."""
        self.calls += 1
        if self.calls == self.fail_at:
            self.where = name
            with disk_errors(getattr(at, "path", Path(name))):
                raise self.what()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in _CALLS:
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self.inject(self, name)
            result = found(*arguments, **named)
            return FaultyFile(result, self) if isinstance(result, File) else result

        return call


_CALLS = {name for name, _ in inspect.getmembers(FileSystem, inspect.isfunction) if name[0] != "_"} - {"accept"}
_FILE_CALLS = {"read_into", "read", "write", "truncate", "fsync", "stat", "drop_cache"}


@dataclass
class Life:
    """
    A log dir with one topic, `t`, and what was promised of it.

    Attributes:
        promised: values by offset of what was answered as durable.
        committed: values of transactions that were answered as committed and durable, whole or not at all.
        aborted: values that no reader of committed records may see.
        asked: futures that no caller waited for; they end all the same.
    """

    path: Path
    fs: FileSystem = field(default_factory=FileSystem)
    manager: LogManager = field(init=False)
    promised: dict[int, bytes] = field(default_factory=dict)
    committed: list[list[bytes]] = field(default_factory=list)
    aborted: set[bytes] = field(default_factory=set)
    asked: list[Future[None]] = field(default_factory=list)
    _count: int = 0

    def __post_init__(self) -> None:
        self.manager = LogManager(self.path, {}, create=True, cleaner=False, tasks=False, fs=self.fs)
        self.manager.create_topic("t", 1, _SETTINGS)

    @property
    def log(self) -> Log:
        """The topic's log."""
        return self.manager.log("t")

    def records(self, count: int, size: int = 10) -> list[Record]:
        """Return new records, each with its own value."""
        self._count += count
        return [Record(b"k%d" % (n % 7), b"%08d" % n + b"x" * size) for n in range(self._count - count, self._count)]

    def append(
        self,
        count: int = 3,
        size: int = 10,
        producer: LogProducer | None = None,
        patience_seconds: float | None = _PATIENCE_SECONDS,
    ) -> Callable[[], None]:
        """Append; returns a function that records the promise once it is durable."""
        records = self.records(count, size)
        appended = (producer or self.log).append(records)
        assert not appended.is_repeat
        values = [record.value or b"" for record in records]
        promised = dict(enumerate(values, appended.base_offset))
        return lambda: self._promise(appended.durable, promised, patience_seconds)

    def _promise(self, durable: Future[None], values: dict[int, bytes], patience_seconds: float | None) -> None:
        durable.result(patience_seconds)
        self.promised.update(values)

    def ask(self) -> None:
        """Append a record, and have it flushed without waiting for it."""
        self.asked.append(self.log.append(self.records(1)).durable)

    def go_on(self) -> bool:
        """Go on using the log; False when it says that it is closed."""
        try:
            for _ in range(3):
                self.append(2)()
        except LogClosedError:
            return False
        self._wait_for_asked()
        return True

    def _wait_for_asked(self) -> None:
        for future in self.asked:
            future.exception(_PATIENCE_SECONDS)

    def close_and_judge(self) -> None:
        """Close, open again, and compare the log with what was promised."""
        try:
            self.manager.close()
        except CleanerError:
            self.manager.abandon()
        self._wait_for_asked()
        with LogManager(self.path, {}, cleaner=False, tasks=False) as again:
            assert not again.failed
            log = again.log("t")
            there = [(record.offset, record.value) for record in log.read(log.log_start_offset)]
            offsets = [offset for offset, _ in there]
            assert offsets == sorted(set(offsets))
            values_there = dict(there)
            assert {n: values_there.get(n) for n in self.promised if n >= log.log_start_offset} == {
                n: value for n, value in self.promised.items() if n >= log.log_start_offset
            }
            seen = [record.value for record in log.read(log.log_start_offset, isolation="read_committed")]
            assert not self.aborted.intersection(seen)  # type: ignore[arg-type]
            for values in self.committed:
                assert [value for value in seen if value in values] == values
            assert log.last_stable_offset == log.log_end_offset
        findings = _Findings()
        check_paths([self.path], Sources(), CallContext(), CheckOptions(), findings)
        found = [(each.kind, str(each)) for each in findings.all]
        assert found == []


class _Findings:
    """Collects the findings of `check`."""

    def __init__(self) -> None:
        self.all: list[Finding] = []

    def on_log_dir(self, _path: Path, findings: Sequence[Finding]) -> None:
        self.all += findings

    def on_partition(self, partition: CheckedPartition, _repaired: object) -> None:
        self.all += partition.findings


Operation = Callable[[], Callable[[], None] | None]
"""The operation; may return a function that records its promised outcome."""


def _append(life: Life) -> Operation:
    return lambda: life.append()


def _append_as_producer(life: Life) -> Operation:
    producer = life.log.producer()
    life.append(producer=producer)()

    def operation() -> None:
        try:
            life.append(producer=producer)
        finally:
            # With the same number of records: with the sequence of the append before, it would count as its repeat.
            sys.setprofile(None)
            life.append(producer=producer)()

    return operation


def _append_and_roll(life: Life) -> Operation:
    for _ in range(10):
        life.append(5, 20_000)()
    life.ask()
    return lambda: life.append(5, 20_000)


def _append_over_segments(life: Life) -> Operation:
    return lambda: life.append(30, 100_000)


def _durable(life: Life) -> Operation:
    def operation() -> None:
        life.append()()

    return operation


def _durable_alone(life: Life) -> Operation:
    for _ in range(3):
        life.append(1, patience_seconds=None)()

    def operation() -> None:
        life.append(patience_seconds=None)()

    return operation


def _flush(life: Life) -> Operation:
    promise = life.append()

    def operation() -> Callable[[], None]:
        life.log.flush()
        return promise

    return operation


def _roll(life: Life) -> Operation:
    life.ask()

    def operation() -> None:
        life.log.roll()

    return operation


def _truncate(life: Life) -> Operation:
    life.ask()

    def operation() -> None:
        life.promised = {offset: value for offset, value in life.promised.items() if offset < 3}
        life.log.truncate_to(5)

    return operation


def _truncate_in_transaction(life: Life) -> Operation:
    producer = life.log.producer("tx")
    producer.begin()
    appended = life.records(2)
    producer.append(appended)
    life.log.flush()
    life.aborted.update(record.value or b"" for record in appended)

    def operation() -> None:
        try:
            life.log.truncate_to(life.log.log_end_offset - 1)
        finally:
            sys.setprofile(None)
            if life.log.log_end_offset <= 9:
                # Cut, so it must not be committed.
                _must_fail(producer.commit)

    return operation


def _must_fail(call: Callable[[], object]) -> None:
    try:
        call()
    except CleanerError:
        return
    raise AssertionError("it succeeded")


def _commit(life: Life) -> Operation:
    producer = life.log.producer("tx")

    def operation() -> None:
        with producer.transaction():
            records = life.records(3)
            producer.append(records)

    return operation


def _transactions_after_an_interrupt(life: Life) -> Operation:
    producer = life.log.producer("tx")

    def operation() -> None:
        records = life.records(2)
        try:
            with producer.transaction():
                producer.append(records)
                raise ZeroDivisionError
        except ZeroDivisionError:
            life.aborted.update(record.value or b"" for record in records)
        finally:
            sys.setprofile(None)
            if producer.is_in_transaction:
                producer.abort()
            with producer.transaction():
                after = life.records(2)
                producer.append(after)
            life.log.flush()
            life.committed.append([record.value or b"" for record in after])

    return operation


def _take_over(life: Life) -> Operation:
    first = life.log.producer("tx")
    first.begin()
    records = life.records(2)
    first.append(records)
    life.aborted.update(record.value or b"" for record in records)

    def operation() -> None:
        life.log.producer("tx")

    return operation


def _expire(life: Life) -> Operation:
    for _ in range(3):
        life.append()()
        life.log.roll()
    life.manager.alter_topic("t", {"cleanup.policy": "delete", "retention.bytes": "100"})

    def operation() -> None:
        life.manager.upkeep.retain()

    return operation


def _create(life: Life) -> Operation:
    def operation() -> None:
        try:
            life.manager.create_topic("u", 2)
        except (Interrupt, OutOfMemory):
            # Whole or undone: it serves its logs, or can be created.
            sys.setprofile(None)
            try:
                life.manager.create_topic("u", 2)
            except TopicExistsError:
                life.manager.log("u", 1).append([Record(b"k", b"v")])
            raise

    return operation


def _delete(life: Life) -> Operation:
    life.manager.create_topic("u", 2)
    life.manager.log("u", 1).append([Record(b"k", b"v")]).durable.result(_PATIENCE_SECONDS)

    def operation() -> None:
        try:
            life.manager.delete_topic("u")
        except (Interrupt, OutOfMemory):
            sys.setprofile(None)
            with contextlib.suppress(UnknownTopicError):
                life.manager.delete_topic("u")
            raise
        finally:
            sys.setprofile(None)
            _stop_faults(life)
            with contextlib.suppress(UnknownTopicError):
                life.manager.delete_topic("u")
            deleted = {each for each in life.path.iterdir() if each.name.endswith(DirKind.DELETE.value)}
            waiting = {each.directory for each in life.manager._removals._waiting}
            assert deleted <= waiting

    return operation


def _close(life: Life) -> Operation:
    life.append()
    life.ask()

    def operation() -> None:
        life.manager.close()

    return operation


def _follow(life: Life) -> Operation:
    for _ in range(5):
        life.append()()
    wanted = sorted(life.promised.items())
    follower = life.log.follow(0, timeout_seconds=0)

    def operation() -> None:
        got: list[tuple[int | None, bytes | None]] = []
        with follower:
            try:
                _read(follower, got)
            finally:
                sys.setprofile(None)
                _stop_faults(life)
                _read(follower, got)
                assert got == wanted

    return operation


def _follow_topic(life: Life) -> Operation:
    life.manager.create_topic("u", 3, _SETTINGS)
    topic = life.manager.topic("u")
    for number, log in topic.logs.items():
        log.append([Record(b"k", b"%d" % value) for value in range(number + 2)]).durable.result(_PATIENCE_SECONDS)
    wanted = [(number, offset) for number in topic.logs for offset in range(number + 2)]
    follower = topic.follow_all()

    def operation() -> None:
        got: list[TopicRecord] = []
        with follower:
            try:
                got += follower.poll()
            finally:
                sys.setprofile(None)
                _stop_faults(life)
                for _ in topic.logs:
                    got += follower.poll()
                assert sorted((record.partition, record.offset) for record in got) == wanted

    return operation


def _look_beside(life: Life) -> Operation:
    reader = open_reader(life.path, "t", fs=life.fs)
    assert reader.log_end_offset == 9
    life.append(10, 37)()
    life.log.roll()
    life.append(5, 11)()

    def operation() -> None:
        with reader:
            try:
                _ = reader.log_end_offset
            finally:
                sys.setprofile(None)
                _stop_faults(life)
                assert reader.log_end_offset == 24
                life.append(5, 53)()
                assert reader.log_end_offset == 29

    return operation


def _look_up(life: Life) -> Operation:
    life.append(30)()
    life.log.roll()
    life.append(3)()
    table = life.log.table(life.path.with_name(life.path.name + "-table"))
    with life.log.latest() as latest:
        wanted = latest.to_dict()

    def operation() -> None:
        with table:
            try:
                _begin_again(table)
                table.get_many(list(wanted))
            finally:
                sys.setprofile(None)
                _stop_faults(life)
                assert dict(zip(wanted, table.get_many(list(wanted)), strict=True)) == wanted
                assert {key: table.get(key) for key in wanted} == dict(table.items()) == wanted

    return operation


def _begin_again(table: Table) -> None:
    """As a lookup does that finds an entry of a record that an erasure has removed."""
    table._index.begin()


def _grow(life: Life) -> Operation:
    def operation() -> None:
        try:
            life.manager.add_partitions("t", 3)
        except BaseException:
            sys.setprofile(None)
            _stop_faults(life)
            # It goes on where it was, unless it was done.
            with contextlib.suppress(InvalidTopicError):
                life.manager.add_partitions("t", 3)
            raise
        finally:
            for log in life.manager.topic("t").logs.values():
                log.append([Record(b"k", b"v")])

    return operation


def _alter(life: Life) -> Operation:
    life.manager.create_topic("u", 2, _SETTINGS)

    def operation() -> None:
        try:
            life.manager.alter_topic("u", {"segment.bytes": "2222222"})
        except BaseException:
            sys.setprofile(None)
            _stop_faults(life)
            life.manager.alter_topic("u", {"segment.bytes": "2222222"})
            raise
        finally:
            sys.setprofile(None)
            _stop_faults(life)
            life.manager.upkeep.look_at_settings()
            served = [each for each in life.manager._partitions.all() if each.partition.topic == "u"]
            assert [each.settings.config.segment_bytes for each in served] == [2222222] * 2

    return operation


def _read(follower: Iterator[Record], into: list[tuple[int | None, bytes | None]]) -> None:
    for record in follower:
        into.append((record.offset, record.value))


def _stop_faults(life: Life) -> None:
    if isinstance(life.fs, FaultyFileSystem):
        life.fs.fail_at = None


OPERATIONS: dict[str, Callable[[Life], Operation]] = {
    "append": _append,
    "append-as-producer": _append_as_producer,
    "append-and-roll": _append_and_roll,
    "append-over-segments": _append_over_segments,
    "durable": _durable,
    "durable, by a caller alone": _durable_alone,
    "flush": _flush,
    "roll": _roll,
    "truncate": _truncate,
    "truncate-in-transaction": _truncate_in_transaction,
    "commit": _commit,
    "abort": _transactions_after_an_interrupt,
    "take-over": _take_over,
    "expire": _expire,
    "create-topic": _create,
    "delete-topic": _delete,
    "close": _close,
    "follow": _follow,
    "follow-topic": _follow_topic,
    "look-beside": _look_beside,
    "look-up": _look_up,
    "add-partitions": _grow,
    "alter-topic": _alter,
}


@dataclass(frozen=True)
class Outcome:
    """How many points the operation has, whether it was interrupted and where, and whether the log went on."""

    points: int
    where: str
    was_interrupted: bool
    went_on: bool


def interrupt(path: Path, name: str, point: int, kind: type[BaseException] = Interrupt) -> Outcome:
    """Do an operation with an exception at one of its points, and judge the result."""
    life = _begin(path, FileSystem())
    operation = OPERATIONS[name](life)
    interrupter = Interrupter(point, kind)
    return _carry_out(life, name, operation, interrupter, (kind, LogClosedError), lambda: interrupter)


def fail_call(path: Path, name: str, number: int, what: Callable[[], BaseException]) -> Outcome:
    """Do an operation in which one call of the file system fails, and judge the result."""
    fs = FaultyFileSystem()
    life = _begin(path, fs)
    operation = OPERATIONS[name](life)
    fs.what, fs.calls, fs.fail_at = what, 0, number
    return _carry_out(life, name, operation, contextlib.nullcontext(), (Interrupt, CleanerError), lambda: fs)


def _begin(path: Path, fs: FileSystem) -> Life:
    life = Life(path, fs)
    for _ in range(3):
        life.append()()
    return life


def _carry_out(
    life: Life,
    name: str,
    operation: Operation,
    around: contextlib.AbstractContextManager[object],
    expected: tuple[type[BaseException], ...],
    counted: Callable[[], Any],
) -> Outcome:
    was_interrupted = False
    promise = None
    try:
        with around:
            promise = operation()
    except expected:
        was_interrupted = True
    _stop_faults(life)
    seen = counted()
    points, where = getattr(seen, "points", getattr(seen, "calls", 0)), seen.where
    if promise is not None:
        promise()
    went_on = name != "close" and life.go_on()
    life.close_and_judge()
    return Outcome(points, where, was_interrupted, went_on)
