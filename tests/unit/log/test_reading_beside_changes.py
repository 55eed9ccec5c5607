"""Readers of a log that is appended to, rolled, cleaned, cut and expired while they read."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.base.clock import SystemClock
from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.errors import (
    CleaningAborted,
    CorruptCheckpointError,
    LogChangedError,
    LogTruncatedError,
    OffsetOutOfRangeError,
)
from cleaner.log.manager import LogManager
from cleaner.log.partition_writer import PartitionWriter
from cleaner.log.reach import WriterView
from cleaner.log.reader import LogReader, open_reader
from cleaner.log.record import ProducerStamp, Record
from cleaner.log.stream import Isolation
from cleaner.read.aborted import AbortedTransactions
from cleaner.read.cursor import Cursor
from cleaner.read.directory_view import DirectoryView
from cleaner.read.partition_files import PartitionFiles
from cleaner.serve.partition import FileRecords, Partition
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.log_dir_lock import acquire_for_writing
from cleaner.storage.log_dir import LogDir, OffsetKind
from cleaner.storage.segment.generation import Generations
from tests.support.manual_clock import ManualClock

pytestmark = pytest.mark.kernels
TOPIC = TopicPartition("prices", 0)
SETTINGS = {
    "cleanup.policy": "compact",
    "log.cleaner.threads": "1",
    "cleaner.pipeline.threads": "1",
    "log.cleaner.dedupe.buffer.size": "1048576",
    "file.delete.delay.ms": "0",
    "min.cleanable.dirty.ratio": "0",
    "internal.segment.bytes": "4000",
}
FS, CLOCK = FileSystem(), SystemClock()


class Writing:
    """A writer with the log dir's lock, and what it has appended."""

    def __init__(self, path: Path) -> None:
        path.mkdir(exist_ok=True)
        self.path = path
        self.lock = acquire_for_writing(FS, path, CLOCK, patience_ms=20_000)
        self.generations = Generations(FS, path)
        self.log_dir = LogDir(FS, path)
        (path / str(TOPIC)).mkdir(exist_ok=True)
        self.writer = PartitionWriter.open(self.log_dir, TOPIC, TopicConfig(), CLOCK, was_closed=False)
        self.lock.logs.admit_cleaner()
        self.model: dict[int, tuple[bytes, bytes | None]] = {}
        self.reader = LogReader(FS, path, TOPIC, WriterView(self.writer), CLOCK)

    def append(self, *pairs: tuple[bytes, bytes | None], stamp: ProducerStamp | None = None) -> int:
        """Append a batch; returns its first offset."""
        base = self.writer.log_end_offset
        self.model |= {base + number: pair for number, pair in enumerate(pairs)}
        return self.writer.append([Record(*pair) for pair in pairs], producer=stamp).base_offset

    def flush(self) -> None:
        """Flush and publish the high watermark, as a log manager does."""
        flushed = self.writer.flush_to_disk()
        self.log_dir.put(OffsetKind.HIGH_WATERMARK, TOPIC, flushed)

    def clean(self) -> None:
        """Run one round while the writer is at work."""
        sources = Sources.of_call(None, SETTINGS, None, None)
        for outcome in clean_log_dir(self.path, [str(TOPIC)], sources, CleanOptions(), CallContext()):
            error = getattr(outcome, "error", None)
            if error is not None and not isinstance(error, CleaningAborted):
                raise error

    def close(self) -> None:
        self.writer.close()
        self.reader.close()
        self.generations.close()
        self.lock.release()


@contextmanager
def writing(path: Path) -> Iterator[Writing]:
    """A writer for the length of a test."""
    made = Writing(path)
    try:
        yield made
    finally:
        made.close()


def check(shown: list[Record], model: dict[int, tuple[bytes, bytes | None]], end_offset: int) -> None:
    """Each offset once and in order, each record as appended, and none missing except superseded ones."""
    offsets = [record.offset or 0 for record in shown]
    assert offsets == sorted(set(offsets))
    assert all((record.key, record.value) == model[record.offset or 0] for record in shown)
    # Records after the end of the read may have superseded records below it in the meantime.
    last = {key: offset for offset, (key, _) in sorted(model.items())}
    missing = {offset for offset in model if offset < end_offset} - set(offsets)
    assert not missing & set(last.values())


def test_record_appended_right_before_a_roll_is_not_passed_over(tmp_path: Path) -> None:
    """The cursor has found the end of the segment, and then finds the next one: it looks once more at this one."""
    with writing(tmp_path) as place, closing(PartitionFiles(FS, tmp_path, TOPIC, CLOCK)) as files:
        place.append((b"k", b"1"))
        cursor = Cursor(files, 0)
        assert cursor.next_chunk(1) is not None
        move_on = cursor._move_on

        def at_the_end() -> bool:
            if place.writer.log_end_offset == 1:
                place.append((b"l", b"2"))
                place.writer.roll()
                place.append((b"m", b"3"))
            return move_on()

        cursor._move_on = at_the_end  # type: ignore[method-assign]
        chunk = cursor.next_chunk(3)
        assert chunk is not None
        assert chunk.batches["base_offset"].tolist() == [1]
        cursor.close()


def test_abort_in_the_active_segment_is_seen_after_an_earlier_look(tmp_path: Path) -> None:
    """Its transaction index still grows; those of closed segments are read once."""
    with writing(tmp_path) as place, closing(PartitionFiles(FS, tmp_path, TOPIC, CLOCK)) as files:
        aborted = AbortedTransactions(FS, files.listing().places)
        for first, stamp in ((0, ProducerStamp(5, 0, 0, True)), (2, ProducerStamp(6, 0, 0, True))):
            place.append((b"k", b"v"), stamp=stamp)
            place.writer.end_transaction(stamp.producer_id, 0, commit=False)
            assert aborted.within(first, first + 2, 0)[:, 0].tolist() == [stamp.producer_id]


def test_readers_during_writing_and_cleaning_miss_nothing(tmp_path: Path) -> None:
    """Following in the process and by the directory, reading everything again, restoring: during swaps."""
    done = threading.Event()
    failures: list[BaseException] = []
    rounds = [0]

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - reported at the end
                failures.append(error)
                done.set()

        return run

    with writing(tmp_path) as log:
        final = 6_000

        def write() -> None:
            rng = random.Random(7)
            while log.writer.log_end_offset < final:
                count = rng.randint(1, 5)
                keys = rng.sample(range(40), count)
                log.append(*((b"k%d" % key, b"%d %d" % (log.writer.log_end_offset, key)) for key in keys))
                if rng.random() < 0.1:
                    log.flush()
                if rng.random() < 0.05:
                    log.writer.roll()
            log.flush()
            done.set()

        def clean() -> None:
            while not done.is_set():
                log.clean()
                rounds[0] += 1

        def follow(reader: LogReader) -> None:
            shown: list[Record] = []
            with reader.follow(0) as follower:
                while follower.next_offset < final and not failures:
                    shown += follower.poll(0.05, max_records=50)
            check(shown, log.model, follower.next_offset)
            assert shown[-1].offset == log.writer.log_end_offset - 1

        def restore(reader: LogReader) -> None:
            while not done.is_set():
                with reader.latest() as latest:
                    found, again = latest.to_dict(), {record.key: record.value for record in latest}
                model = {offset: pair for offset, pair in log.model.copy().items() if offset < latest.next_offset}
                assert found == again == dict(pair for _, pair in sorted(model.items()))

        def read_all(reader: LogReader) -> None:
            while not done.is_set():
                shown = list(reader.read(0, until="end"))
                check(shown, log.model.copy(), 1 + (shown[-1].offset or 0) if shown else 0)

        with open_reader(tmp_path, *TOPIC) as beside:
            works = [write, clean]
            works += [partial(follow, reader) for reader in (log.reader, beside)]
            works += [partial(restore, reader) for reader in (log.reader, beside)]
            works += [lambda: read_all(beside)]
            threads = [threading.Thread(target=guarded(work)) for work in works]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]
        assert rounds[0] > 3


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_swap_in_the_middle_of_a_read_shows_nothing_aborted(tmp_path: Path, isolation: Isolation) -> None:
    """The new files' transaction index does not name what the old files still hold."""
    with writing(tmp_path) as log:
        stamp = ProducerStamp(7, 0, 0, is_transactional=True)
        for number in range(6):
            log.append((b"plain", b"%d" % number))
            log.append((b"aborted", b"%d" % number), stamp=stamp._replace(base_sequence=number))
        log.writer.end_transaction(7, 0, commit=False)
        log.append((b"last", b"1"))
        log.writer.roll()
        log.append((b"head", b"1"))
        log.flush()
        read = log.reader.columns(0, chunk_bytes=1, isolation=isolation)
        shown = [record for _ in range(2) for record in next(read)]
        log.clean()
        shown += [record for some in read for record in some]
        keys = [record.key for record in shown]
        assert keys[-3:] == [b"plain", b"last", b"head"]
        assert isolation == "read_uncommitted" or b"aborted" not in keys
        offsets = [record.offset or 0 for record in shown]
        assert offsets == sorted(set(offsets))


def test_cut_log_is_an_error_for_readers_beyond_the_cut(tmp_path: Path) -> None:
    """With a writer and by the directory; readers that have not read that far go on."""
    with writing(tmp_path) as log, open_reader(tmp_path, *TOPIC) as beside:
        for number in range(8):
            log.append((b"k", b"%d" % number))
            if number == 3:
                log.writer.roll()
        log.flush()
        ahead = [reader.follow(0) for reader in (log.reader, beside)]
        behind = [reader.follow(0) for reader in (log.reader, beside)]
        assert all(len(follower.poll() + follower.poll()) == 8 for follower in ahead)
        log.writer.truncate_to(2)
        for number in range(12):
            log.append((b"n", b"%d" % number))
        log.flush()
        for follower in ahead:
            with pytest.raises(LogTruncatedError):
                follower.poll()
        for follower in behind:
            assert [record.key for record in follower.poll()] == [b"k"] * 2 + [b"n"] * 12


def test_cut_of_whole_segments_is_an_error_for_readers_that_hold_them(tmp_path: Path) -> None:
    """A deleted file has not changed: the new leader epoch of the cut shows it."""
    with writing(tmp_path) as log, open_reader(tmp_path, *TOPIC) as beside:
        for number in range(8):
            log.append((b"k", b"%d" % number))
            if number % 2:
                log.writer.roll()
        log.flush()
        reads = [reader.columns(0, chunk_bytes=1) for reader in (log.reader, beside)]
        assert [[len(next(read)) for _ in range(6)] for read in reads] == [[1] * 6] * 2
        log.writer.truncate_to(2)
        for number in range(12):
            log.append((b"n", b"%d" % number))
        log.flush()
        for read in reads:
            with pytest.raises(LogTruncatedError, match="cut below offset 6"):
                list(read)


def _cut_and_begin_a_transaction(log: Writing, offset: int) -> None:
    """Cut the log, and append a record, and one of a transaction that is open."""
    log.writer.truncate_to(offset)
    log.append((b"new", b"1"))
    log.append((b"undecided", b"1"), stamp=ProducerStamp(7, 0, 0, is_transactional=True))
    log.flush()


@pytest.mark.parametrize("is_beside", [False, True])
def test_cut_where_a_reader_is_ends_what_is_decided_there(tmp_path: Path, is_beside: bool) -> None:
    """Below the end that was known when it began, there may be a record now that nobody has committed."""
    with writing(tmp_path) as log, open_reader(tmp_path, *TOPIC) as beside:
        for number in range(8):
            log.append((b"k", b"%d" % number))
        log.flush()
        read = (beside if is_beside else log.reader).columns(0, chunk_bytes=1, isolation="read_committed")
        shown = [next(read) for _ in range(4)]
        _cut_and_begin_a_transaction(log, 4)
        shown += read
        assert [record.key for columns in shown for record in columns] == [b"k"] * 4 + [b"new"]


def test_log_that_grew_to_the_same_end_after_a_cut_is_searched_anew(tmp_path: Path) -> None:
    """A reader has looked for transactions up to that end; those that are there now are others."""
    with writing(tmp_path) as log, open_reader(tmp_path, *TOPIC) as beside:
        for number in range(8):
            log.append((b"k", b"%d" % number))
        log.flush()
        assert beside.last_stable_offset == 8
        _cut_and_begin_a_transaction(log, 6)
        assert (beside.high_watermark, beside.last_stable_offset) == (8, 7)


def test_epochs_that_end_below_their_batches_are_damage(tmp_path: Path) -> None:
    """No checksum covers their file: a reader that takes them for a cut must not look for it for ever."""
    with writing(tmp_path) as log, open_reader(tmp_path, *TOPIC) as beside:
        for number in range(4):
            log.append((b"k", b"%d" % number))
            log.writer.roll()
        log.append((b"k", b"4"))
        log.flush()
        for snapshot in (tmp_path / str(TOPIC)).glob("*.snapshot"):
            snapshot.unlink()
        (tmp_path / str(TOPIC) / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 1\n")
        with pytest.raises(CorruptCheckpointError, match="an epoch ended below batches"):
            list(beside.read(0, isolation="read_committed"))


class _Meanwhile(DirectoryView):
    """Calls the next of some functions before it says where the last stable offset is, and the next one then."""

    happens: Iterator[Callable[[], object]] = iter(())

    @property
    def last_stable_offset(self) -> int:
        """As it was before."""
        next(self.happens, int)()
        found = super().last_stable_offset
        next(self.happens, int)()
        return found


def test_table_takes_nothing_from_behind_a_cut_that_is_not_decided(tmp_path: Path) -> None:
    """The end up to which it catches up may be older than the cut."""
    with writing(tmp_path / "log-dir") as log:
        later = ManualClock()
        later.move_on(time.time())  # so that an unchanged directory is known for one
        files = PartitionFiles(FS, tmp_path / "log-dir", TOPIC, later)
        view = _Meanwhile(files)
        with LogReader(FS, tmp_path / "log-dir", TOPIC, view, later) as reader:
            for number in range(4):
                log.append((b"k", b"%d" % number))
            log.flush()
            with reader.table(tmp_path / "table") as table:
                assert table.get(b"k") == b"3"
                for number in range(4):
                    log.append((b"k", b"%d" % number))
                log.flush()
                later.move_on(1)

                def abort() -> None:
                    log.writer.end_transaction(7, 0, commit=False)
                    log.append((b"last", b"1"))
                    log.flush()

                cut = partial(_cut_and_begin_a_transaction, log, 4)
                view.happens = iter((int, int, int, cut, abort))  # by the second answer it catches up
                assert table.get(b"undecided") is None
                assert next(view.happens, None) is None
                later.move_on(1)
                assert table.get(b"new") == b"1"
                assert table.get(b"last") == b"1"
                assert table.get(b"undecided") is None
        view.close()
        files.close()


def test_answer_after_a_cut_ends_where_the_log_is_decided_now(tmp_path: Path) -> None:
    """How far a partition that is served reaches may have been found just before."""
    with writing(tmp_path) as log:
        for number in range(8):
            log.append((b"k", b"%d" % number))
        log.flush()
        with closing(Partition(FS, tmp_path, TOPIC, ManualClock(), tmp_path)) as served:
            reach = served.reach(committed=True)
            assert reach.end == 8
            _cut_and_begin_a_transaction(log, 4)
            records, _ = served.extent(4, reach, 1 << 20, whole_batch=True)
            assert records is not None
            with closing(records):
                assert records.extent.upper_offset == 5
            assert served.extent(5, reach, 1 << 20, whole_batch=True) == (None, ())


@contextmanager
def _served(path: Path) -> Iterator[Callable[[], FileRecords]]:
    """Return what chooses the records of the log as `cleaner serve` does, to be read later."""
    opened: list[FileRecords] = []
    with closing(Partition(FS, path, TOPIC, ManualClock(), path)) as partition:

        def choose() -> FileRecords:
            reach = partition.reach(committed=True)
            records, _ = partition.extent(0, reach, 1 << 20, whole_batch=True)
            assert records is not None
            opened.append(records)
            return records

        yield choose
        for each in opened:
            each.close()


def test_records_that_are_sent_while_the_log_is_cut_are_void(tmp_path: Path) -> None:
    """Other records, undecided ones, may have been read in their place; until all are read nobody knows."""
    with writing(tmp_path) as log, _served(tmp_path) as choose:
        for number in range(8):
            log.append((b"k", b"%d" % number))
        log.flush()
        assert choose().read_end(10)
        records = choose()
        _cut_and_begin_a_transaction(log, 4)
        with pytest.raises(LogChangedError, match="was cut while it was read"):
            records.read_end(10)
        assert choose().read_end(10)


def test_records_that_are_sent_while_others_are_appended_or_cleaned_are_sound(tmp_path: Path) -> None:
    """A swap leaves the open file alone, and an append what is before it."""
    with writing(tmp_path) as log, _served(tmp_path) as choose:
        for number in range(200):
            log.append((b"k", b"%d" % number))
        log.flush()
        records = choose()
        assert records.size > 100
        wanted = records.read_end(records.size)
        log.append((b"k", b"new"))
        assert records.read_end(records.size) == wanted
        log.writer.roll()
        log.append((b"k", b"newer"))
        log.flush()
        records = choose()
        generation = records.files.generation()
        log.clean()
        assert records.files.generation() != generation, "the first segment was swapped"
        log.append((b"k", b"newest"))
        assert records.read_end(records.size) == wanted


def test_records_are_copied_before_they_are_sent_while_a_writer_is_at_work(tmp_path: Path) -> None:
    """It may cut the log before a client has taken them, and pages of the file would change in its hands."""
    with LogManager(tmp_path, create=True, cleaner=False) as manager:
        manager.create_topic(TOPIC.topic)
        manager.log(TOPIC.topic).append([Record(b"k", b"v")]).durable.result(10)
        with _served(tmp_path) as choose:
            assert choose().must_be_copied
    with _served(tmp_path) as choose:
        assert not choose().must_be_copied


def test_state_ends_within_a_batch_where_the_high_watermark_does(tmp_path: Path) -> None:
    """Later records of the batch are ignored, in every form of the state."""
    with writing(tmp_path) as log:
        log.append((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None))
        log.flush()
        log.log_dir.put(OffsetKind.HIGH_WATERMARK, TOPIC, 2)
        with open_reader(tmp_path, *TOPIC) as beside, beside.latest() as latest:
            assert latest.to_dict() == {b"a": b"1", b"b": b"1"}
            assert [record.offset for record in latest] == [0, 1]


def test_state_of_a_log_that_was_cut_since_is_refused(tmp_path: Path) -> None:
    """The files held open are those that are cut: in the last segment, in an earlier one, even if it grew again."""
    for cut in (1, 5, 7):
        with writing(tmp_path / str(cut)) as log:
            for number in range(8):
                log.append((b"k%d" % number, b"v"))
                if number % 3 == 2:
                    log.writer.roll()
            log.flush()
            with log.reader.latest() as latest:
                assert len(latest.to_dict()) == 8
                log.writer.truncate_to(cut)
                for _ in range(9):
                    log.append((b"k", b"w"))
                for _ in range(2):
                    with pytest.raises(LogTruncatedError, match="cut below offset 8"):
                        latest.to_dict()


def test_follower_waits_for_records_and_ends_with_the_log(tmp_path: Path) -> None:
    """Woken by a flush, by `close()` of the log, by its own `close()`, and by its timeout."""
    with writing(tmp_path) as log:
        log.append((b"a", b"1"))
        follower = log.reader.follow(0)
        assert follower.poll() == []
        seen: list[Record] = []
        thread = threading.Thread(target=lambda: seen.extend(follower))
        thread.start()
        log.flush()
        log.append((b"b", b"2"))
        log.flush()
        with log.reader.follow(1) as second:
            assert next(second).key == b"b"
            assert second.poll(0.01) == []
        assert list(second) == []
        assert list(log.reader.follow(2, timeout_seconds=0.01)) == []
        with open_reader(tmp_path, *TOPIC) as beside:
            assert [record.key for record in beside.follow(0, timeout_seconds=0.01)] == [b"a", b"b"]
    thread.join(10)
    assert not thread.is_alive()
    assert [record.key for record in seen] == [b"a", b"b"]


def test_follower_in_an_event_loop_lets_others_work(tmp_path: Path) -> None:
    """`async for` gets new records, by the writer's signal or by polling, and ends when closed."""
    with writing(tmp_path) as log, open_reader(tmp_path, *TOPIC) as beside:

        async def main() -> list[list[bytes | None]]:
            followers = [reader.follow(0, until="end") for reader in (log.reader, beside)]

            async def gather(number: int) -> list[bytes | None]:
                found = []
                async for record in followers[number]:
                    found.append(record.value)
                    if len(found) == 20:
                        followers[number].close()
                return found

            async def write() -> None:
                for number in range(20):
                    log.append((b"k", b"%d" % number))
                    await asyncio.sleep(0)

            *found, _ = await asyncio.gather(gather(0), gather(1), write())
            assert [record async for record in log.reader.follow(20, until="end", timeout_seconds=0.01)] == []
            return found

        assert asyncio.run(main()) == [[b"%d" % number for number in range(20)]] * 2


def test_cancelled_task_loses_no_record(tmp_path: Path) -> None:
    """A timeout around a wait leaves the follower where it was."""
    with writing(tmp_path) as log:

        async def main() -> bytes | None:
            follower = log.reader.follow(0, until="end")
            with suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(follower)
            log.append((b"k", b"v"))
            return (await anext(follower)).value

        assert asyncio.run(main()) == b"v"


def test_reader_overtaken_by_retention_gets_an_error(tmp_path: Path) -> None:
    """The log start offset moved beyond it: `OffsetOutOfRangeError`, as in Kafka's consumer."""
    with writing(tmp_path) as log, open_reader(tmp_path, *TOPIC) as beside:
        for number in range(3):
            log.append((b"k%d" % number, b"v"))
            log.writer.roll()
        log.flush()
        follower = beside.follow(0)
        assert follower.poll(max_records=1)[0].offset == 0
        restored = beside.latest()
        log.log_dir.put(OffsetKind.LOG_START, TOPIC, 2)
        with pytest.raises(OffsetOutOfRangeError, match="offset 1 is not within 2 and 3"):
            list(beside.read(1))
        with restored:
            assert len(restored.to_dict()) == 3
