"""
Who works on the log: a writer with its clients, a cleaner, and readers, each in a process of its own.

    append      records, perhaps waiting until they are durable
    repeat      an idempotent producer's append, sent a second time with the same sequence
    transact    records in the client's open transaction, which is begun if there is none
    end         commit or abort it
    flush, roll, sleep, note (write the checkpoints), read (as a committed reader in another process)
    retain      remove expired segments of all logs
    remake      delete the client's topic and make it again under its name

Each client works on one topic.
"""

from __future__ import annotations

import contextlib
import uuid
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.reports import CleanReport, Refusal
from cleaner.base.model import TopicPartition
from cleaner.errors import (
    CleanerError,
    InvalidTxnStateError,
    LogClosedError,
    LogDirOfflineError,
    LogWriteError,
    OffsetOutOfRangeError,
    OutOfDescriptorsError,
    ProducerFencedError,
    TopicError,
    TopicExistsError,
)
from cleaner.log.manager import LogManager
from cleaner.log.reader import LogReader
from cleaner.log.record import ProducerStamp, Record
from cleaner.settings.sources import Sources
from cleaner.storage.files.published import ENTRY_BYTES
from cleaner.storage.segment.names import PUBLISHED
from tests.simulation.bench import Bench, Kept
from tests.simulation.disk import SimFiles
from tests.simulation.fetching import Shown, fetched
from tests.simulation.found import ID_HEADER, RoundBegun, Wrong, checkpoints_of, epochs_of, left_overs, number_of
from tests.simulation.oracle import Oracle
from tests.simulation.plan import Operation
from tests.simulation.retained import LOG_STARTS
from tests.simulation.rot import EPOCHS
from tests.simulation.sent import Sent, Transaction
from tests.simulation.topics import MAIN, SETTINGS

_PATIENCE_SECONDS = 600.0
_PAUSE_SECONDS = 6.0
_BEFORE_READ_SECONDS = 0.025
_BEFORE_CUT_SECONDS = (0.0, 0.04, 0.05, 0.06)
_TRIES = 8
_ANY_OFFSET = 1 << 62
_OF_STATES = 2  # a read with this number takes the last values alone
_SHORTLY = 3  # one with this number pauses for less time than `serve` believes what it has found
_SHORT_PAUSE_SECONDS = 0.06

Reads = Callable[[Bench, SimFiles, str, float], Iterator[Shown]]
"""Reads a log as a process that sees its files only: bench, disk, topic and a pause in seconds."""


class Client:
    """One client of the writer: a thread's operations, in order."""

    def __init__(self, bench: Bench, manager: LogManager, number: int) -> None:
        self._bench = bench
        self._manager = manager
        self._number = number
        self._topic = bench.topic_of(number)
        self._kept = bench.kept.pop(number, None)
        self._oracle = bench.topics.now[self._topic]
        self._log: Any = None
        # Only without a timeout may a caller flush by itself.
        self._patience_seconds = _PATIENCE_SECONDS if len(bench.operations[number]) % 3 == 0 else None

    def _open(self) -> None:
        """Begin with the log that the topic has now; it is made if it is gone and nobody else makes it."""
        if self._topic not in self._manager.topics():
            with contextlib.suppress(TopicExistsError):
                make_topic(self._bench, self._manager, self._topic)
        log = self._manager.log(self._topic)
        oracle = self._bench.topics.there(self._topic)
        if oracle is None or log.is_closed:
            raise LogClosedError(self._topic)  # the topic has been deleted since
        self._oracle, self._log = oracle, log
        self._transactional: Any = None
        self._idempotent: Any = None
        self._transaction: Transaction | None = None
        self._in_transaction: list[Sent] = []

    @property
    def _must_open(self) -> bool:
        """Whether there is no log yet, or somebody deletes its topic."""
        return self._log is None or self._oracle.is_deleted_soon

    def run(self) -> None:
        """Take operations until there are none, or the writer stops."""
        left = self._bench.operations[self._number]
        while left and not self._bench.stopping and (self._must_open or not self._log.is_closed):
            place, operation = left.popleft()
            self._bench.begun(place)
            try:
                if self._must_open:
                    self._open()
                getattr(self, f"_{operation.kind}")(operation)
                self._bench.count(operation.kind)
            except Wrong:
                raise
            except TimeoutError as error:
                raise Wrong(f"a durable future did not end in {_PATIENCE_SECONDS:.0f} s: {operation}") from error
            except (CleanerError, OSError, KeyboardInterrupt, MemoryError) as error:
                self._bench.count(f"{operation.kind}: {type(error).__name__}")
                self._bench.has_failed()
                if self._bench.topics.is_remade(self._topic) and isinstance(error, LogClosedError | TopicError):
                    continue
                is_damaged = self._bench.topics.is_damaged(self._topic)
                # A cut has to open files in its middle.
                is_damaged |= operation.kind == "cut"
                if self._bench.lacks_descriptors and not is_damaged and isinstance(error, LogClosedError):
                    raise Wrong(f"a lack of descriptors has closed the log for good: {error}") from error
                if not self._bench.is_troubled(self._topic) and not self._bench.stopping:
                    raise
            self._bench.done += 1

    # ---- appends ---------------------------------------------------------------------------------------------------

    def _append(self, operation: Operation) -> None:
        self._send(operation, self._log.append, None)

    def _repeat(self, operation: Operation) -> None:
        self._repeat_kept()
        if self._idempotent is None:
            self._idempotent = self._log.producer()
        producer = self._idempotent
        self._bench.kept.pop(self._number, None)  # if it ends in the middle, it is unknown which is the last
        sequence = producer.next_sequence
        sent = self._send(operation, lambda records: producer.append(records, sequence=sequence), None)
        again = producer.append(records_of(sent), sequence=sequence)
        if not again.is_repeat or again.base_offset != sent[0].offset:
            raise Wrong(f"a repeated append got offset {again.base_offset}, before {sent[0].offset}")
        producer_id, epoch = producer.identity
        self._bench.kept[self._number] = Kept(ProducerStamp(producer_id, epoch, sequence, False), sent, self._oracle)

    def _repeat_kept(self) -> None:
        """Repeat the last append of the life before, unless it was lost or has expired."""
        kept, self._kept = self._kept, None
        if kept is None or kept.oracle is not self._oracle or any(sent.is_lost for sent in kept.sent):
            return
        self._oracle.start.look()
        if (kept.sent[0].offset or 0) < self._oracle.start.offset:
            return  # segments below the log start may be there, after a power cut
        again = self._log.append(records_of(kept.sent), producer=kept.stamp)
        if not again.is_repeat or again.base_offset != kept.sent[0].offset:
            raise Wrong(f"an append repeated after an opening got {again.base_offset}, before {kept.sent[0].offset}")

    def _transact(self, operation: Operation) -> None:
        if self._transaction is not None and self._transaction.asked is not None:
            self._end(operation)  # it was interrupted, and may have been done: records now would be of another one
        if self._transactional is None:
            self._transactional = self._log.producer(f"client-{self._number}")
        try:
            if self._transaction is None:
                self._transactional.begin()
                self._transaction, self._in_transaction = Transaction(), []
            self._in_transaction += self._send(operation, self._transactional.append, self._transaction)
        except (ProducerFencedError, InvalidTxnStateError):
            self._give_up()  # it took longer than its timeout

    def _end(self, operation: Operation) -> None:
        transaction = self._transaction
        if transaction is None:
            return
        # An end that was interrupted is tried again as it was; it may have been done.
        before = transaction.asked
        commit = transaction.asked = operation.is_committed if before is None else before
        try:
            future = self._transactional.commit() if commit else self._transactional.abort()
        except (ProducerFencedError, InvalidTxnStateError):
            transaction.asked = before
            self._give_up()
            return
        transaction.answered, transaction.end = commit, self._log.log_end_offset
        self._transaction = None
        if operation.is_waited:
            future.result(self._patience_seconds)
            transaction.is_durable = True
            self._oracle.durable(self._in_transaction)

    def _give_up(self) -> None:
        self._transaction = self._transactional = None

    def _send(self, operation: Operation, append: Any, transaction: Transaction | None) -> list[Sent]:
        is_gone = self._oracle.is_deleted
        sent = self._oracle.send(operation.keys, operation.number, transaction)
        try:
            appended = append(records_of(sent))
        except (LogClosedError, LogWriteError):
            raise  # it may be there
        except CleanerError:
            for each in sent:
                each.has_failed = True
            raise
        if is_gone:
            raise Wrong(f"the log of a deleted topic has taken an append: {operation}")
        self._oracle.answered(sent, appended.base_offset)
        if appended.last_offset - appended.base_offset + 1 != len(sent):
            raise Wrong(f"{len(sent)} records got offsets {appended.base_offset} to {appended.last_offset}")
        if operation.is_waited:
            appended.durable.result(self._patience_seconds)
            self._oracle.durable(sent)
        return sent

    # ---- others ----------------------------------------------------------------------------------------------------

    def _flush(self, _operation: Operation) -> None:
        self._oracle.durable_below(self._log.flush())

    def _roll(self, _operation: Operation) -> None:
        self._log.roll()

    def _sleep(self, operation: Operation) -> None:
        self._bench.clock.sleep(operation.number)

    def _note(self, _operation: Operation) -> None:
        self._bench.is_noting()
        self._manager.upkeep.note_all()
        self._bench.has_noted()

    def _retain(self, _operation: Operation) -> None:
        self._manager.upkeep.retain()

    def _remake(self, _operation: Operation) -> None:
        old = self._oracle
        old.is_deleted_soon = True
        with self._bench.topics.being_deleted(self._topic):
            self._manager.delete_topic(self._topic)
        old.is_deleted = True
        self._bench.has_deleted()
        make_topic(self._bench, self._manager, self._topic)

    def _cut(self, operation: Operation) -> None:
        """Cut the log at the beginning of one of its last appends; no other client may work on it."""
        truth, log = self._oracle, self._log
        directory = self._bench.directory(self._topic)
        # Into the pause of a reader that began before, or not.
        self._bench.clock.sleep(_BEFORE_CUT_SECONDS[operation.number % len(_BEFORE_CUT_SECONDS)])
        offset = truth.begin_of_append(operation.number // len(_BEFORE_CUT_SECONDS))
        if offset is None or offset < log.log_start_offset:
            return
        self._give_up()
        self._idempotent = None
        self._bench.kept.pop(self._number, None)
        before = epochs_of(directory)
        truth.begin_cut(offset)
        try:
            log.truncate_to(offset)
        except (CleanerError, OSError, KeyboardInterrupt, MemoryError):
            # Of one that was not done, or closed the log, nobody knows more until the log is judged.
            if log.is_closed or epochs_of(directory) == before:
                raise
            truth.end_cut(list(epochs_of(directory).values())[-1])
            raise
        # Within a batch, or behind what a round has removed, the log ends below the offset.
        truth.end_cut(list(epochs_of(directory).values())[-1])

    def _read(self, operation: Operation) -> None:
        pause = _PAUSE_SECONDS if operation.number >= _OF_STATES else 0
        if operation.number == _SHORTLY:
            pause = _SHORT_PAUSE_SECONDS
        if self._bench.reads_within:
            read_committed(self._bench, None, self._topic, pause, _within(self._log))
            return

        def read(fs: SimFiles) -> None:
            if operation.number:
                # So that the directory's time is old enough to prove that it is unchanged: else each look lists anew.
                self._bench.clock.sleep(_BEFORE_READ_SECONDS)
            how = _latest if operation.number == _OF_STATES else _followed if operation.number % 2 else _columns
            read_committed(self._bench, fs, self._topic, pause, how)

        self._bench.world.begin("reader", read)


def records_of(sent: list[Sent]) -> list[Record]:
    """Return records to append, each with its number."""
    return [Record(each.key.encode(), each.value, ((ID_HEADER, str(each.number).encode()),)) for each in sent]


def make_topic(bench: Bench, manager: LogManager, name: str) -> None:
    """Make a topic that is not there."""
    topic_id = uuid.uuid4()
    with bench.topics.being_made(name, topic_id):
        manager.create_topic(name, settings=SETTINGS[name], topic_id=topic_id)


def read_committed(bench: Bench, fs: SimFiles | None, topic: str, pause: float, how: Reads | None = None) -> None:
    """
    Read a log from its start, as another process that only sees its files, or in the writer's.

    Args:
        fs: of that process; None: `how` needs none.
        pause: seconds, behind some records.
        how: one of the functions below; None: as columns.
    """
    oracle, calm = bench.topics.now[topic], bench.calm()
    (expected, stable), start = oracle.must_be_shown(), _log_start(bench, topic, oracle)
    # Without a writer readers know an older high watermark, and so they do while he has written half of a new one.
    writer = bench.writer if _are_whole(bench.log_dir / PUBLISHED) else None
    torn, cuts = bench.world.disk.torn_entries, oracle.cuts
    shown: list[Shown] = []
    try:
        read = fetched if bench.is_served and fs is not None else how or _columns
        shown.extend(read(bench, fs, topic, pause))  # type: ignore[arg-type]  # `how` needs none
    except (CleanerError, OSError) as error:
        bench.count(f"read: {type(error).__name__}")
        has_expired = isinstance(error, OffsetOutOfRangeError) and _log_start(bench, topic, oracle) > start
        is_expected = oracle.is_deleted_soon or has_expired or bool(oracle.rots.names) or oracle.cuts != cuts
        if bench.is_calm_since(calm) and not is_expected:
            raise
        return
    if fs is not None:
        require_closed(fs)
    is_up = writer is not None and bench.writer is writer and not writer.is_dead and not bench.has_errors
    is_up = is_up and bench.world.disk.torn_entries == torn and oracle.cuts == cuts
    # A writer does not open a log whose leader epochs are damaged, and publishes nothing of it.
    is_up = is_up and not oracle.rots.has_hit(EPOCHS)
    if oracle.is_deleted_soon:
        is_up = False
        oracle = bench.topics.of_record(topic, shown[0][3]) if shown else oracle
    if oracle.rots.has_hit(".txnindex") or oracle.rots.has_hit("-offset-checkpoint"):
        return  # nothing but these says what is aborted, and from where to where the log is
    # What has expired since is in the checkpoint before its segments go.
    start = _log_start(bench, topic, oracle)
    expected = {at: sent for at, sent in expected.items() if at >= start}
    if read is _latest and is_up:  # else the truth may be that of a topic made since
        expected = _last_values(oracle, expected)
    is_told = fs is not None and read in (
        _columns,
        _followed,
    )  # of a cut; nobody tells a consumer that does not send leader epochs
    oracle.shown(shown, expected if is_up else {}, stable, was_cut=oracle.cuts != cuts, is_told=is_told)
    bench.count("fetched" if bench.is_served else "shown")
    bench.has_read()


def _are_whole(published: Path) -> bool:
    """Tell whether all entries of the high watermarks that are written at once have their checksums."""
    data = published.read_bytes() if published.exists() else b""
    entries = [data[at : at + ENTRY_BYTES] for at in range(0, len(data), ENTRY_BYTES)]
    return all(zlib.crc32(each[:-8]).to_bytes(8, "little") == each[-8:] for each in entries)


def _within(log: Any) -> Reads:
    """Return what reads a log by the writer's own calls."""

    def read(bench: Bench, _fs: SimFiles, _topic: str, pause: float) -> Iterator[Shown]:
        for some in log.columns(log.log_start_offset, isolation="read_committed"):
            yield from map(_shown, some)
            if pause:
                bench.clock.sleep(pause)
                pause = 0

    return read


def _columns(bench: Bench, fs: SimFiles, topic: str, pause: float) -> Iterator[Shown]:
    with LogReader(fs, bench.log_dir, TopicPartition(topic, 0), clock=bench.clock) as reader:
        chunk = {"chunk_bytes": 1} if pause else {}
        for some in reader.columns(reader.log_start_offset, isolation="read_committed", **chunk):
            yield from map(_shown, some)
            if pause:
                bench.clock.sleep(pause)
                pause = 0


def _latest(bench: Bench, fs: SimFiles, topic: str, pause: float) -> Iterator[Shown]:
    """Read the last value of each key, of the files that were there before the pause; what is put there is no cut."""
    with (
        LogReader(fs, bench.log_dir, TopicPartition(topic, 0), clock=bench.clock) as reader,
        reader.latest(isolation="read_committed") as state,
    ):
        if pause:
            bench.clock.sleep(pause)
        yield from map(_shown, state)


def _last_values(oracle: Oracle, expected: dict[int, Sent]) -> dict[int, Sent]:
    """Return which of these records a reader of states has to be shown: with a value, and superseded by nothing."""
    superseded: dict[str, int] = {}
    for sent in oracle.sent.values():
        offset = _ANY_OFFSET if sent.offset is None else sent.offset
        superseded[sent.key] = max(superseded.get(sent.key, -1), offset)
    return {at: sent for at, sent in expected.items() if superseded[sent.key] <= at and sent.value is not None}


def _followed(bench: Bench, fs: SimFiles, topic: str, pause: float) -> Iterator[Shown]:
    with (
        LogReader(fs, bench.log_dir, TopicPartition(topic, 0), clock=bench.clock) as reader,
        reader.follow(reader.log_start_offset, isolation="read_committed", timeout_seconds=0) as follower,
    ):
        errors, fs.fails = 0, Random(bench.done)
        while True:
            try:
                for record in follower:
                    yield _shown(record)
                    if pause:
                        bench.clock.sleep(pause)
                        pause = 0
            except (LogDirOfflineError, OutOfDescriptorsError) as error:
                errors += 1
                if errors == _TRIES:
                    fs.fails = None
                if errors == 2 * _TRIES:
                    raise
                bench.count(f"went on: {type(error).__name__}")
                bench.clock.sleep(_BEFORE_READ_SECONDS)
            else:
                if fs.fails is None:
                    return
                fs.fails = None  # a published high watermark that cannot be read is no error, but an earlier end


def _shown(record: Record) -> Shown:
    assert record.offset is not None
    return record.offset, (record.key or b"").decode(), record.value, number_of(record.headers)


def _log_start(bench: Bench, topic: str, oracle: Oracle) -> int:
    """Return where readers may begin: what has expired is in the checkpoint before its segments go."""
    return max(oracle.start.look(), oracle.start.offset, checkpoints_of(bench.log_dir, topic).get(LOG_STARTS, 0))


def clean_once(bench: Bench, fs: SimFiles) -> None:
    """Run one round as `cleaner clean` would, alongside the writer or without one."""
    topics, log_dir = bench.topics, bench.log_dir
    lent = CallContext(fs=fs, clock=bench.clock)
    for name in topics.compacted:
        if bench.directory(name).exists():
            checkpoint = checkpoints_of(log_dir, name).get("cleaner-offset-checkpoint", 0)
            bench.rounds_began[name] = RoundBegun(
                checkpoint, frozenset(left_overs(bench.directory(name))), "delete" in SETTINGS[name]["cleanup.policy"]
            )
    if bench.stops_clock:
        # If there is one, a millisecond before a tombstone or a marker may go.
        horizons = topics.now[MAIN].horizons()
        bench.clock.frozen_ms = horizons[bench.done % len(horizons)] - 1 if horizons else bench.clock.now_ms()
    names = [str(TopicPartition(name, 0)) for name in topics.compacted]
    bench.cleaned.clear()
    writer, damaged = bench.writer, bench.damaged_bytes()
    outcomes = clean_log_dir(
        log_dir, names, Sources(config=bench.settings), CleanOptions(index_dir=bench.index_dir), lent
    )
    try:
        with topics.rounds_run(), contextlib.closing(outcomes):
            for outcome in outcomes:
                if isinstance(outcome, Refusal):
                    bench.count(f"round: {type(outcome.error).__name__}")
                else:
                    bench.count("round")
                if isinstance(outcome, CleanReport) and outcome.rounds:  # with nothing to clean, nothing is read
                    bench.cleaned.add(outcome.partition.rpartition("-")[0])
    except (CleanerError, OSError) as error:
        bench.count(f"round: {type(error).__name__}")
    else:
        require_closed(fs)
        if writer is not None and bench.writer is writer and not writer.is_dead:  # no recovery has cut damage off
            _require_damage_kept(bench, damaged)
    finally:
        bench.clock.frozen_ms = None


def _require_damage_kept(bench: Bench, damaged: dict[str, int]) -> None:
    """Make sure that no round that was told of nothing has made damage sound, or dropped it."""
    left = bench.damaged_bytes()
    for name in bench.cleaned:
        is_same = "delete" not in SETTINGS[name]["cleanup.policy"] and not bench.topics.is_remade(name)
        if is_same and left[name] < damaged[name]:
            raise Wrong(
                f"a round has cleaned a log with {damaged[name]} damaged bytes, and told nothing: {left[name]} left"
            )


def require_closed(fs: SimFiles) -> None:
    """Make sure that a process that has done its work has no file open, whatever errors it met."""
    open_files = sorted(file.path.name for file in fs.process.open_files())
    if open_files:
        raise Wrong(f"files are left open: {open_files}")
