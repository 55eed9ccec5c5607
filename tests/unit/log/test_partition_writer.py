"""A writer's files equal a broker's, whatever is appended in whatever order, and errors leave no trace."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.errors import (
    CleanerError,
    FailedFsyncError,
    ForkedError,
    InvalidTimestampError,
    InvalidTxnStateError,
    KeylessRecordError,
    LogClosedError,
    LogDirOfflineError,
    LogWriteError,
    NoSpaceError,
    OffsetOutOfRangeError,
    OutOfDescriptorsError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RecordTooLargeError,
    TruncationRefusedError,
    UsageError,
)
from cleaner.log.partition_writer import PartitionWriter
from cleaner.log.record import ProducerStamp, Record, RecordColumns
from cleaner.storage.fs.file_system import File, FileSystem, disk_errors
from cleaner.storage.load.loader import load_log
from cleaner.storage.log_dir import OffsetKind
from tests.support.batch_builder import Producer
from tests.support.batch_reader import batch_info, split_batches
from tests.support.log_builder import LogBuilder
from tests.support.watched_fs import FailingFileSystem, Operation, WatchedFileSystem
from tests.unit.log.writing import PARTITION, Writing, pair, writing

SMALL = {"internal.segment.bytes": "600", "index.interval.bytes": "100"}

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4), st.integers(0, 120)),
        st.tuples(st.just("produce"), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just("end"), st.integers(0, 2), st.booleans()),
        st.tuples(st.just("roll"), st.just(0), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 300), st.just(0)),
    ),
    max_size=25,
)


class Twin:
    """Takes the same steps with the log builder, which writes logs as a broker does."""

    def __init__(self) -> None:
        self.log = LogBuilder(PARTITION, segment_bytes=600, index_interval_bytes=100)
        self.sequences = [0, 0, 0]
        self.is_open = [False, False, False]

    def append(self, records: list[Record], producer: ProducerStamp | None, now_ms: int) -> None:
        """Append a batch."""
        stamp = Producer() if producer is None else Producer(*producer)
        self.log.append(*((each.key, each.value) for each in records), producer=stamp, timestamp_ms=now_ms)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_files_after_close_equal_those_of_a_broker(steps: list[tuple[str, int, int]]) -> None:
    """Batches, indexes, transaction indexes, snapshots, epochs: byte for byte (R-125, R-303, R-320, R-322, R-920)."""
    with TemporaryDirectory() as scratch, writing(Path(scratch)) as place:
        writer, twin = place.open(SMALL), Twin()
        for step, first, second in steps:
            now_ms = place.clock.now_ms()
            if step == "append":
                records = [pair(f"k{i}", "v" * second) for i in range(first)]
                writer.append(records)
                twin.append(records, None, now_ms)
            elif step == "produce":
                stamp = ProducerStamp(first + 10, 0, twin.sequences[first], True)
                records = [pair("t", "x")] * second
                writer.append(records, producer=stamp)
                twin.append(records, stamp, now_ms)
                twin.sequences[first] += second
                twin.is_open[first] = True
            elif step == "end" and twin.is_open[first]:
                writer.end_transaction(first + 10, 0, commit=bool(second))
                twin.log.end_transaction(first + 10, 0, commit=bool(second), timestamp_ms=now_ms)
                twin.is_open[first] = False
            elif step == "roll" and writer.log_end_offset > writer._log.active.base_offset:
                writer.roll()
                twin.log.roll()
            elif step == "wait":
                place.clock.move_on(first / 1000)
        end = writer.log_end_offset
        writer.close()
        expected = twin.log.files()
        del expected["partition.metadata"]
        expected["leader-epoch-checkpoint"] = b"0\n1\n0 0\n"
        assert place.files() == expected
        assert end == twin.log.next_offset
        assert _load_end(place) == end


def _load_end(place: Writing) -> int:
    """Load the log as after a clean stop, which checks every index; returns its end."""
    log = load_log(
        place.fs,
        place.directory,
        PARTITION,
        topic=TopicConfig(),
        log_start_offset=0,
        recovery_point=0,
        high_watermark=None,
        clean_shutdown=True,
        producer_id_expiration_ms=2**62,
        now_ms=place.clock.now_ms(),
    )
    return log.log_end_offset


def test_large_append_is_cut_into_batches_and_segments(tmp_path: Path) -> None:
    """Each batch is treated as if it came alone: rolled where it does not fit, whole in its segment (R-920)."""
    with writing(tmp_path / "log") as place:
        writer = place.open(SMALL, batch_bytes=300)
        result = writer.append(RecordColumns([b"v" * 100] * 20, [b"k"] * 20))
        assert (result.base_offset, result.last_offset, writer.log_end_offset) == (0, 19, 20)
        writer.close()
        assert [batch.base_offset for batch in place.batches()] == list(range(0, 20, 2))
        bases = [int(name[:20]) for name in place.files() if name.endswith(".log")]
        assert bases == [0, 4, 8, 12, 16]
        assert _load_end(place) == 20


def test_append_on_a_failing_disk_leaves_no_trace(tmp_path: Path) -> None:
    """Whichever call fails, an append that raises has changed nothing, or the log is closed until it is reopened."""
    number, outcomes = 0, set()
    while True:
        fs = FailingFileSystem(None, errno.ENOSPC)
        with writing(tmp_path / str(number), fs) as place:
            writer = place.open(SMALL, batch_bytes=300)
            writer.append([pair("a", "b")])
            writer.flush_to_disk()
            fs._fail_at = fs.calls + number
            try:
                writer.append(RecordColumns([b"v" * 100] * 20, [b"k"] * 20), producer=ProducerStamp(5, 0, 0, True))
                writer.abandon()
                assert number > 30
                assert outcomes == {"as it was", "closed"}
                return
            except CleanerError:
                fs._fail_at = None
            if writer.is_closed:
                outcomes.add("closed")
                with pytest.raises(LogClosedError):
                    writer.append([pair("c", "d")])
                writer = place.open(SMALL)
                assert writer.log_end_offset >= 1
            else:
                outcomes.add("as it was")
                assert writer.log_end_offset == 1
                assert [batch.last_offset for batch in place.batches()] == [0]
            offset = writer.append([pair("c", "d")]).base_offset
            writer.append([pair("e", "f")], producer=ProducerStamp(6, 0, 0))
            writer.close()
            assert place.batches()[-2].base_offset == offset
            assert _load_end(place) == offset + 2
        number += 1


def test_failed_fsync_closes_the_log_until_it_is_opened_again(tmp_path: Path) -> None:
    """It is unknown what is on disk: nothing is accepted, a second fsync is not trusted (C-2)."""
    fs = FailingFileSystem(None, errno.EIO, kinds=frozenset(("fsync",)))
    with writing(tmp_path / "log", fs) as place:
        writer = place.open()
        writer.append([pair("a", "b")])
        flushed = writer.flush_to_disk()
        writer.append([pair("c", "d")])
        fs._fail_at = fs.calls
        for call in (writer.flush_to_disk, writer.flush_to_disk, writer.roll, lambda: writer.append([pair("e", "f")])):
            with pytest.raises(FailedFsyncError):
                call()
        assert writer.flushed_offset == flushed == 1
        writer.close()
        with pytest.raises(FailedFsyncError):
            writer.require_closed_in_order()
        assert place.open().log_end_offset == 2


class FewDescriptors(FileSystem):
    """A system that refuses the `refused`-th opening (from 0), and some after it."""

    def __init__(self) -> None:
        self.openings = 0
        self.refused: int | None = None
        self.how_many = 1

    def open(self, path: Path, *, write: bool = False) -> File:
        self._count(path)
        return super().open(path, write=write)

    def create(self, path: Path, *, like: Path | None) -> File:
        self._count(path)
        return super().create(path, like=like)

    def fsync_dir(self, path: Path) -> None:
        self._count(path)
        super().fsync_dir(path)

    def stat(self, path: Path) -> os.stat_result:
        self._count(path)
        return super().stat(path)

    def _count(self, path: Path) -> None:
        number, self.openings = self.openings, self.openings + 1
        if self.refused is not None and self.refused <= number < self.refused + self.how_many:
            with disk_errors(path):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_roll_without_descriptors_leaves_the_log_usable(tmp_path: Path) -> None:
    """Whichever opening is refused: nothing is wrong with the disk, and the log goes on."""
    for number in range(100):
        fs = FewDescriptors()
        with writing(tmp_path / str(number), fs) as place:
            writer = place.open()
            writer.append([pair("a", "b")])
            writer.flush_to_disk()
            fs.refused = fs.openings + number
            try:
                writer.roll()
            except OutOfDescriptorsError:
                assert writer.append([pair("c", "d")]).base_offset == 1
                writer.roll()
                writer.close()
                writer.require_closed_in_order()
                assert _load_end(place) == 2
            else:
                assert number > 8
                writer.abandon()
                return
    raise AssertionError("a roll never ends")


def test_roll_without_a_single_descriptor_changes_nothing(tmp_path: Path) -> None:
    """Even the undo needs no descriptor."""
    fs = FewDescriptors()
    with writing(tmp_path / "log", fs) as place:
        writer = place.open()
        writer.append([pair("a", "b")])
        fs.refused, fs.how_many = fs.openings, 1000
        with pytest.raises(OutOfDescriptorsError):
            writer.roll()
        fs.refused = None
        assert writer.append([pair("c", "d")]).base_offset == 1
        writer.close()


class _FailedFsync(FailingFileSystem):
    """An fsync fails, and an interrupt comes before the error is seen."""

    def before(self, operation: Operation) -> None:
        try:
            super().before(operation)
        except OSError as error:
            raise KeyboardInterrupt from error


def test_interrupt_in_the_place_of_a_failed_fsync_is_no_success(tmp_path: Path) -> None:
    """The system reports the failure once; a second fsync would succeed without the data on disk (C-2)."""
    fs = _FailedFsync(None, errno.EIO, kinds=frozenset(("fsync",)))
    with writing(tmp_path / "log", fs) as place:
        writer = place.open()
        writer.append([pair("a", "b")])
        fs._fail_at = fs.calls
        with pytest.raises(KeyboardInterrupt):
            writer.flush_to_disk()
        with pytest.raises(FailedFsyncError):
            writer.flush_to_disk()
        assert writer.flushed_offset == 0


def test_cut_during_a_flush_waits_for_its_fsync(tmp_path: Path) -> None:
    """A running fsync has not failed."""
    is_in_fsync, may_end = threading.Event(), threading.Event()

    class Slow(WatchedFileSystem):
        def after(self, operation: Operation) -> None:
            if operation.kind == "fsync" and threading.current_thread().name == "flush":
                is_in_fsync.set()
                assert may_end.wait(20)

    with writing(tmp_path / "log", Slow()) as place:
        writer = place.open()
        for key in "abc":
            writer.append([pair(key, "v")])
        flush = threading.Thread(target=writer.flush_to_disk, name="flush")
        flush.start()
        assert is_in_fsync.wait(20)
        cut = threading.Thread(target=writer.truncate_to, args=(1,))
        cut.start()
        may_end.set()
        cut.join(20)
        flush.join(20)
        assert writer.append([pair("d", "v")]).base_offset == 1
        writer.close()
        writer.require_closed_in_order()


def test_flush_that_a_cut_overtakes_counts_nothing_that_came_after_it(tmp_path: Path) -> None:
    """Other records have the offsets that the flush was asked for, and are forced to disk on their own."""
    with writing(tmp_path / "log") as place:
        writer = place.open()
        for _ in range(5):
            writer.append([pair("a", "b")])
        segment = writer._log.active
        fsync = segment.fsync_log

        def cut_before() -> None:
            segment.fsync_log = fsync  # type: ignore[method-assign]
            writer.truncate_to(3)
            writer.append([pair("c", "d")])
            fsync()
            assert writer.flushed_offset == 3

        segment.fsync_log = cut_before  # type: ignore[method-assign]
        assert writer.flush_to_disk() == writer.flushed_offset == 4
        writer.close()


def test_append_by_a_signal_handler_inside_of_an_append_is_refused(tmp_path: Path) -> None:
    """A handler runs between any two steps; the interrupted append is completed."""
    refused: list[LogWriteError] = []

    class Handling(FileSystem):
        def fsync_dir(self, path: Path) -> None:
            if is_armed and not refused:
                try:
                    writer.append([pair("h", "h")])
                except LogWriteError as error:
                    refused.append(error)
            super().fsync_dir(path)

    is_armed = False
    with writing(tmp_path / "log", Handling()) as place:
        writer = place.open()
        writer.append([pair("a", "b")])
        is_armed = True
        writer.roll()
        assert "signal handler" in str(refused[0])
        assert writer.append([pair("c", "d")]).base_offset == 1
        writer.close()
        assert _load_end(place) == 2


def test_append_by_a_signal_handler_while_another_is_encoded_harms_neither(tmp_path: Path) -> None:
    """Both encode in one thread's memory: here the handler runs when the first append takes the log."""
    with writing(tmp_path / "log") as place:
        writer = place.open()
        real = writer.run

        def handled(step):  # type: ignore[no-untyped-def]
            writer.run = real
            writer.append([pair("handler", "h" * 50)] * 3)
            return real(step)

        writer.append([pair("a", "0")])
        writer.run = handled
        writer.append([pair("a", "1" * 20)] * 2)
        assert [(batch.base_offset, batch.last_offset) for batch in place.batches()] == [(0, 0), (1, 3), (4, 5)]
        writer.close()
        assert _load_end(place) == 6


def test_flush_by_a_signal_handler_inside_of_a_flush_is_refused(tmp_path: Path) -> None:
    """It cannot wait for its own thread, and the interrupted fsync has not failed."""
    refused: list[LogWriteError] = []

    class Handling(WatchedFileSystem):
        def after(self, operation: Operation) -> None:
            if operation.kind == "fsync" and is_armed and not refused:
                try:
                    writer.flush_to_disk()
                except LogWriteError as error:
                    refused.append(error)

    is_armed = False
    with writing(tmp_path / "log", Handling()) as place:
        writer = place.open()
        writer.append([pair("a", "b")])
        is_armed = True
        assert writer.flush_to_disk() == 1
        assert "signal handler" in str(refused[0])
        writer.append([pair("c", "d")])
        writer.close()
        writer.require_closed_in_order()


def test_cut_log_still_refuses_a_producer_that_was_fenced_off(tmp_path: Path) -> None:
    """A cut rebuilds the producers; fences set while the log is open stay."""
    with writing(tmp_path / "log") as place:
        writer = place.open()
        writer.append([pair("a", "b")])
        writer.append([pair("c", "d")])
        writer.fence(7, 3)
        writer.truncate_to(1)
        with pytest.raises(ProducerFencedError):
            writer.append([pair("e", "f")], producer=ProducerStamp(7, 2, 0))
        writer.close()


def test_recovery_after_a_kill_continues_after_the_last_whole_batch(tmp_path: Path) -> None:
    """A torn end is cut, whole batches stay with their producers, a leader epoch begins, a transaction is aborted."""
    with writing(tmp_path / "log") as place:
        writer = place.open(SMALL)
        writer.append([pair("a", "b")] * 3, producer=ProducerStamp(5, 0, 0))
        writer.append([pair("t", "x")], producer=ProducerStamp(6, 1, 0, True))
        writer.abandon()
        with (place.directory / "00000000000000000000.log").open("ab") as log:
            log.write(b"\0\0\0\0\0\0\0\x04torn")
        writer = place.open(SMALL)
        assert (writer.truncated_bytes, writer.log_end_offset, writer.leader_epoch) == (12, 5, 1)
        assert writer._log.producers.open_transactions() == {}
        assert writer.append([pair("a", "b")] * 3, producer=ProducerStamp(5, 0, 0)).is_repeat
        assert writer.append([pair("g", "h")], producer=ProducerStamp(5, 0, 3)).base_offset == 5
        assert writer.end_offset_for_epoch(0) == (0, 4)
        writer.close()
        assert [batch.leader_epoch for batch in place.batches()] == [0, 0, 1, 1]


def test_damage_below_the_high_watermark_is_not_cut_unasked(tmp_path: Path) -> None:
    """The recovery point is noted more seldom: readers have seen more than it names."""
    with writing(tmp_path / "log") as place:
        writer = place.open()
        for _ in range(3):
            writer.append([pair("a", "b")])
        place.log_dir.put(OffsetKind.HIGH_WATERMARK, PARTITION, writer.flush_to_disk())
        writer.abandon()
        path = place.directory / "00000000000000000000.log"
        path.write_bytes(path.read_bytes()[:-1])
        before = place.files()
        with pytest.raises(TruncationRefusedError, match="up to offset 3"):
            PartitionWriter.open(
                *(place.log_dir, PARTITION, TopicConfig(), place.clock), was_closed=False, allow_truncate=False
            )
        assert place.files() == before


def test_clean_reopening_continues_in_the_same_epoch(tmp_path: Path) -> None:
    """An epoch without batches counts too: its number is not used twice (R-123)."""
    with writing(tmp_path / "log") as place:
        place.open().append([pair("a", "b")])
        writer = place.open()  # after a kill
        assert writer.leader_epoch == 1
        writer.close()
        writer = place.open(was_closed=True)
        assert writer.leader_epoch == 1
        assert writer.end_offset_for_epoch(0) == (0, 1)
        writer.close()


def test_segment_age_rolls_before_an_append(tmp_path: Path) -> None:
    """The first batch's time and the new one's are compared; an idle log does not roll (R-920)."""
    with writing(tmp_path / "log") as place:
        writer = place.open({"segment.ms": "100", "cleanup.policy": "compact"})
        for wait_ms, expected in ((0, 0), (100, 0), (1, 2), (1000, 3)):
            place.clock.move_on(wait_ms / 1000)
            writer.append([pair("k", "v")])
            assert writer._log.active.base_offset == expected
        writer.close()


def test_log_append_time_dates_the_batch(tmp_path: Path) -> None:
    """The batch has the log's time and says so, the records keep their own in their deltas (R-222)."""
    with writing(tmp_path / "log") as place:
        writer = place.open({"message.timestamp.type": "LogAppendTime"})
        result = writer.append([Record(b"k", b"v", timestamp_ms=77)])
        assert result.append_time_ms == place.clock.now_ms()
        writer.close()
        (batch,) = place.batches()
        assert (batch.max_timestamp_ms, batch.attributes) == (place.clock.now_ms(), 8)


def test_truncation_at_every_offset_leaves_a_sound_log(tmp_path: Path) -> None:
    """The batches left are unchanged; the checkpoints name nothing beyond the cut; producers agree."""
    for offset in range(13):
        with writing(tmp_path / str(offset)) as place:
            writer = place.open({"internal.segment.bytes": "300", "index.interval.bytes": "50"})
            for number in range(6):
                writer.append([pair(f"k{number}", "v" * 40)] * 2, producer=ProducerStamp(5, 0, 2 * number))
            writer.flush_to_disk()
            before = place.batches()
            for kind in (OffsetKind.HIGH_WATERMARK, OffsetKind.RECOVERY_POINT, OffsetKind.CLEANER):
                place.log_dir.put(kind, PARTITION, 12)
            writer.truncate_to(offset)
            end = offset - offset % 2
            assert (writer.log_end_offset, writer.flushed_offset, writer.leader_epoch) == (end, end, int(offset < 12))
            assert place.batches() == before[: end // 2]
            if offset < 12:
                lines = [
                    place.log_dir.offsets(kind)[PARTITION] for kind in OffsetKind if kind is not OffsetKind.LOG_START
                ]
                assert max(lines) <= offset
            assert writer.append([pair("n", "n")], producer=ProducerStamp(5, 0, end)).base_offset == end
            writer.close()
            assert _load_end(place) == end + 1


def test_truncation_reopens_no_transaction(tmp_path: Path) -> None:
    """If a commit is cut off, its transaction is aborted: no producer will commit it again."""
    with writing(tmp_path / "log") as place:
        writer = place.open()
        writer.append([pair("k", "v")], producer=ProducerStamp(5, 0, 0, True))
        marker = writer.end_transaction(5, 0, commit=True)
        writer.truncate_to(marker)
        assert (writer._log.producers.open_transactions(), writer.log_end_offset) == ({}, 2)
        writer.flush_to_disk()
        assert writer.last_stable_offset == 2
        with pytest.raises(OffsetOutOfRangeError):
            writer.truncate_to(3)


def test_last_stable_offset_waits_for_the_flush_of_the_marker(tmp_path: Path) -> None:
    """An open transaction holds it back, and a decided one until its marker is on disk (R-407)."""
    with writing(tmp_path / "log") as place:
        writer = place.open()
        writer.append([pair("a", "b")])
        writer.append([pair("t", "x")], producer=ProducerStamp(5, 0, 0, True))
        writer.flush_to_disk()
        assert (writer.high_watermark, writer.last_stable_offset) == (2, 1)
        writer.end_transaction(5, 0, commit=True)
        assert (writer.high_watermark, writer.last_stable_offset) == (2, 1)
        writer.flush_to_disk()
        assert (writer.high_watermark, writer.last_stable_offset) == (3, 3)


def test_repeats_of_the_last_five_appends_are_answered_as_before(tmp_path: Path) -> None:
    """A repeat is not written again, one that is too old or leaves a gap is refused, an old epoch is fenced."""
    with writing(tmp_path / "log") as place:
        writer = place.open(batch_bytes=100)
        appended = [
            writer.append([pair("k", "v" * 20)] * 4, producer=ProducerStamp(5, 1, 4 * number)) for number in range(6)
        ]
        assert len(place.batches()) == 6

        for number in range(1, 6):
            again = writer.append([pair("k", "v" * 20)] * 4, producer=ProducerStamp(5, 1, 4 * number))
            assert again == appended[number]._replace(is_repeat=True)
        assert writer.log_end_offset == 24
        for stamp, error in (
            (ProducerStamp(5, 1, 0), OutOfOrderSequenceError),
            (ProducerStamp(5, 1, 25), OutOfOrderSequenceError),
            (ProducerStamp(5, 2, 1), OutOfOrderSequenceError),
            (ProducerStamp(5, 0, 24), ProducerFencedError),
        ):
            with pytest.raises(error):
                writer.append([pair("k", "v")] * 4, producer=stamp)
        assert writer.append([pair("k", "v")], producer=ProducerStamp(5, 2, 0)).base_offset == 24


def test_repeat_of_several_batches_gets_the_first_answer(tmp_path: Path) -> None:
    """In a transaction an append may be more than one; its offsets are those of all of them."""
    with writing(tmp_path / "log") as place:
        writer = place.open(batch_bytes=100)
        records, stamp = [pair("k", "v" * 20)] * 4, ProducerStamp(6, 0, 0, True)
        appended = writer.append(records, producer=stamp)
        assert len(place.batches()) > 1
        assert writer.append(records, producer=stamp) == appended._replace(is_repeat=True)


def test_fenced_transaction_leaves_no_sequence_to_the_next_epoch(tmp_path: Path) -> None:
    """The marker has the new epoch, whose first record has the sequence 0."""
    with writing(tmp_path / "log") as place:
        writer = place.open()
        writer.append([pair("k", "v")] * 3, producer=ProducerStamp(6, 0, 0, True))
        assert writer.fence(6, 1) == 3
        assert writer.append([pair("k", "w")], producer=ProducerStamp(6, 1, 0, True)).base_offset == 4


def test_repeat_of_the_last_append_is_known_after_reopening(tmp_path: Path) -> None:
    """Killed or closed in order: a snapshot holds a producer's last batch, and such an append is one (R-652)."""
    with writing(tmp_path / "log") as place:
        writer = place.open()
        values = RecordColumns([b"v" * 1000] * 300, [b"k"] * 300)
        appended = [writer.append(values, producer=ProducerStamp(5, 0, 300 * number)) for number in range(3)]
        writer.abandon()
        for was_closed in (False, True):
            writer = place.open(was_closed=was_closed)
            again = writer.append(values, producer=ProducerStamp(5, 0, 600))
            assert again == appended[2]._replace(is_repeat=True)
            with pytest.raises(OutOfOrderSequenceError):
                writer.append(values, producer=ProducerStamp(5, 0, 300))
            assert writer.log_end_offset == 900
            writer.close()


def test_append_is_one_batch_up_to_the_topics_limit(tmp_path: Path) -> None:
    """So that no crash leaves a part; a larger append of a producer outside of transactions is refused, as by Kafka."""
    with writing(tmp_path / "log") as place:
        writer = place.open({"max.message.bytes": "5000", "compression.type": "lz4"})
        writer.append([pair("k", "v" * 100)] * 40)
        writer.append([pair("k", "v" * 100)] * 400, producer=ProducerStamp(5, 0, 0))
        assert [batch.last_offset for batch in place.batches()] == [39, 439], "what counts is the size it is packed to"
        noise = RecordColumns([os.urandom(100) for _ in range(60)], [b"k"] * 60)
        with pytest.raises(RecordTooLargeError, match="fewer at a time, or in a transaction"):
            writer.append(noise, producer=ProducerStamp(5, 0, 400))
        assert len(place.batches()) == 2
        writer.append(noise)
        writer.append(noise, producer=ProducerStamp(6, 0, 0, True))
        assert [batch.record_count for batch in place.batches()][2:] == [44, 16, 44, 16]


@pytest.mark.parametrize(
    ("records", "error"),
    [
        ([], UsageError),
        ([pair(None, "v")], KeylessRecordError),
        ([pair("k", "v"), pair("k", "v" * 5000)], RecordTooLargeError),
        ([Record("text", b"v")], UsageError),  # type: ignore[arg-type]
        ([Record(b"k", b"v", timestamp_ms=-1)], UsageError),
        (RecordColumns([b"v"], [b"k", b"k"]), UsageError),
    ],
    ids=["none", "keyless", "too-large", "text", "negative-time", "columns"],
)
def test_append_of_what_a_log_refuses_changes_nothing(
    tmp_path: Path, records: list[Record], error: type[Exception]
) -> None:
    """Each wrong append raises its own error before anything is written."""
    with writing(tmp_path / "log") as place:
        writer = place.open({"cleanup.policy": "compact", "max.message.bytes": "1000"})
        before = place.files()
        with pytest.raises(error):
            writer.append(records)
        assert place.files() == before


@pytest.mark.parametrize(
    ("milliseconds", "limits"),
    [
        (-1001, {"message.timestamp.before.max.ms": "1000"}),
        (3_600_001, {}),
        (1, {"message.timestamp.after.max.ms": "0"}),
    ],
)
def test_record_dated_too_far_from_the_clock_is_refused(
    tmp_path: Path, milliseconds: int, limits: dict[str, str]
) -> None:
    """Kafka's InvalidTimestamp; a millisecond less is accepted, and any time where the log's clock dates records."""
    with writing(tmp_path / "log") as place:
        writer, now_ms = place.open(limits), place.clock.now_ms()
        late = Record(b"k", b"v", timestamp_ms=now_ms + milliseconds)
        with pytest.raises(InvalidTimestampError, match=f"record 1 is of {late.timestamp_ms}"):
            writer.append([pair("k", "v"), late, pair("k", "v")])
        assert writer.log_end_offset == 0
        nearer = milliseconds - (1 if milliseconds > 0 else -1)
        writer.append([Record(b"k", b"v", timestamp_ms=now_ms + nearer)])
        writer.topic = TopicConfig.from_mapping({"message.timestamp.type": "LogAppendTime", **limits})
        writer.append([late])
        assert writer.log_end_offset == 2


def test_compression_that_does_not_help_makes_smaller_batches(tmp_path: Path) -> None:
    """`max.message.bytes` limits compressed bytes: a batch that compression makes larger is divided again."""
    with writing(tmp_path / "log") as place:
        writer = place.open({"compression.type": "snappy", "max.message.bytes": "4000"})
        values = [os.urandom(383) for _ in range(40)]  # ten of them take 3991 bytes unpacked, and more packed
        writer.append(RecordColumns(values, [b"k"] * 40))
        writer.close()
        counts = [batch.record_count for batch in place.batches()]
        assert sum(counts) == 40
        assert max(counts) == 4


def test_outside_of_a_transaction_a_producer_with_one_open_is_refused(tmp_path: Path) -> None:
    """A broker could not load what a producer writes past its own open transaction (R-653)."""
    with writing(tmp_path / "log") as place:
        writer = place.open()
        writer.append([pair("t", "x")], producer=ProducerStamp(5, 0, 0, True))
        with pytest.raises(InvalidTxnStateError):
            writer.append([pair("t", "x")], producer=ProducerStamp(5, 0, 1))


def test_writer_in_a_forked_child_is_refused(tmp_path: Path) -> None:
    """A child has the parent's files open: it must not write to them."""
    with writing(tmp_path / "log") as place:
        writer = place.open()
        writer.origin.is_parents = True
        for call in (writer.roll, writer.flush_to_disk, writer.close, lambda: writer.append([pair("a", "b")])):
            with pytest.raises(ForkedError):
                call()


def test_listeners_are_called_at_every_change(tmp_path: Path) -> None:
    """Callers that wait for records, for a flush, or for the end, are woken."""
    with writing(tmp_path / "log") as place:
        writer = place.open()
        seen: list[tuple[int, int, bool]] = []
        writer.on_append.append(lambda: seen.append((writer.log_end_offset, writer.high_watermark, writer.is_closed)))
        writer.append([pair("a", "b")])
        writer.flush_to_disk()
        writer.close()
        assert seen == [(1, 0, False), (1, 1, False), (1, 1, True)]


def test_listeners_are_called_when_the_log_must_be_closed(tmp_path: Path) -> None:
    """A follower must not wait forever because the disk failed."""
    fs = FailingFileSystem(None, errno.EIO, kinds=frozenset(("fsync",)))
    with writing(tmp_path / "log", fs) as place:
        for fails in (
            lambda writer: writer.roll(),
            lambda writer: writer.flush_to_disk(),
            lambda writer: writer.close(),
        ):
            writer = place.open()
            writer.append([pair("a", "b")])
            calls: list[bool] = []
            writer.on_append.append(lambda writer=writer, calls=calls: calls.append(writer.is_closed))  # type: ignore[misc]
            fs._fail_at = fs.calls
            with pytest.raises(FailedFsyncError):
                fails(writer)
            fs._fail_at = None
            assert calls[-1] is True


def test_threads_that_append_flush_and_roll_share_one_sequence_of_offsets(tmp_path: Path) -> None:
    """Every append has its own offsets, without gaps, and the flushed offset never decreases."""
    with writing(tmp_path / "log") as place:
        writer = place.open({"internal.segment.bytes": "20000"}, batch_bytes=400)
        found: list[tuple[int, int, bytes]] = []
        flushed: list[int] = []

        def append(name: bytes) -> None:
            for number in range(40):
                result = writer.append(RecordColumns([b"v" * 30] * (1 + number % 20), [name] * (1 + number % 20)))
                found.append((result.base_offset, result.last_offset, name))

        def disturb() -> None:
            for _ in range(30):
                flushed.append(writer.flush_to_disk())
                writer.roll()

        threads = [threading.Thread(target=append, args=(name,)) for name in (b"a", b"b", b"c")]
        threads.append(threading.Thread(target=disturb))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.close()
        found.sort()
        assert [base for base, _, _ in found] == [0, *(last + 1 for _, last, _ in found[:-1])]
        assert flushed == sorted(flushed)
        assert _load_end(place) == found[-1][1] + 1 == writer.flushed_offset
        logs = [data for name, data in place.files().items() if name.endswith(".log")]
        written = {batch_info(batch).base_offset: batch for log in logs for batch in split_batches(log)}
        assert all(name in written[base] for base, _, name in found)


def test_failed_roll_leaves_the_old_segment_active(tmp_path: Path) -> None:
    """No new `.log` stays while writes go on in the old one: a cleaner would take the old one for closed."""
    number = 0
    while True:
        kinds = frozenset(("create", "fsync_dir", "rename"))
        fs = FailingFileSystem(None, errno.EIO, kinds=kinds)
        with writing(tmp_path / str(number), fs) as place:
            writer = place.open()
            writer.append([pair("a", "b")])
            fs._fail_at = fs.calls + number
            try:
                writer.roll()
            except (LogDirOfflineError, NoSpaceError):
                fs._fail_at = None
                assert [name for name in place.files() if name.endswith(".log")] == ["00000000000000000000.log"]
                writer.append([pair("a", "b")])
                writer.roll()
                assert writer._log.active.base_offset == 2
            else:
                assert number == 7
                return
        number += 1


def test_roll_takes_no_file_over_that_an_earlier_attempt_has_left(tmp_path: Path) -> None:
    """R-921: by a stale transaction index readers would leave out records of the new segment."""
    with writing(tmp_path / "log") as place:
        writer = place.open()
        writer.append([pair("a", "b")])
        for suffix in ("index", "timeindex", "txnindex"):
            (place.directory / f"00000000000000000001.{suffix}").write_bytes(b"stale")
        writer.roll()
        writer.append([pair("c", "d")])
        writer.close()
        assert "00000000000000000001.txnindex" not in place.files()
        assert place.files()["00000000000000000001.index"] == b""


def test_cut_within_a_batch_leaves_no_line_beyond_the_end(tmp_path: Path) -> None:
    """R-116: otherwise the next start misses records that a checkpoint says are on disk, and refuses the log."""
    with writing(tmp_path) as made:
        writer = made.open()
        writer.append([pair("a", "1")])
        writer.append([pair("a", "2"), pair("b", "3"), pair("c", "4")])
        end = writer.flush_to_disk()
        for kind in (OffsetKind.HIGH_WATERMARK, OffsetKind.RECOVERY_POINT):
            made.log_dir.put(kind, PARTITION, end)
        writer.truncate_to(3)
        assert (writer.log_end_offset, writer.flushed_offset) == (1, 1)
        assert made.log_dir.high_watermarks[PARTITION] == 1
        assert made.log_dir.recovery_points[PARTITION] <= 1


def test_cut_lowers_what_is_flushed_before_the_lines(tmp_path: Path) -> None:
    """Another thread may write the flushed offset into a line at any time, and the cut has been made by then."""
    with writing(tmp_path / "log") as place:
        writer = place.open()
        for key in "abc":
            writer.append([pair(key, "1")])
        end = writer.flush_to_disk()
        for kind in (OffsetKind.HIGH_WATERMARK, OffsetKind.RECOVERY_POINT):
            place.log_dir.put(kind, PARTITION, end)
        put, seen = place.log_dir.put, list[int]()

        def watched(kind: OffsetKind, topic_partition: TopicPartition, offset: int | None) -> bool:
            seen.append(writer.flushed_offset)
            return put(kind, topic_partition, offset)

        place.log_dir.put = watched  # type: ignore[method-assign]
        writer.truncate_to(1)
        assert set(seen) == {1}
        writer.close()


def test_flush_during_an_interrupted_roll_reaches_the_end(tmp_path: Path) -> None:
    """The flush finds its segment closed and nothing noted: callers that wait for it need no further flush."""
    with writing(tmp_path / "log") as place:
        writer = place.open()
        writer.append([pair("a", "b")])
        log, segment = writer._log, writer._log.active
        note, fsync = log.note_flushed, segment.fsync_log

        def interrupted(_: int) -> None:
            raise KeyboardInterrupt

        def rolled_before() -> None:
            log.note_flushed = interrupted  # type: ignore[method-assign, assignment]
            with pytest.raises(KeyboardInterrupt):
                writer.roll()
            log.note_flushed = note  # type: ignore[method-assign]
            fsync()

        segment.fsync_log = rolled_before  # type: ignore[method-assign]
        assert writer.flush_to_disk() == writer.flushed_offset == 1
        writer.close()


def test_roll_interrupted_before_the_old_segment_is_closed_leaves_no_file_open(tmp_path: Path) -> None:
    """The new segment is active by then, and undoing the roll loads the log again."""
    with writing(tmp_path / "log") as place:
        writer = place.open()
        writer.append([pair("a", "b")])
        segment = writer._log.active
        retire = segment.retire

        def interrupted() -> None:
            segment.retire = retire  # type: ignore[method-assign]
            raise KeyboardInterrupt

        segment.retire = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            writer.roll()
        writer.append([pair("a", "c")])
        writer.close()
        open_files = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        assert [path for path in open_files if place.directory in path.parents] == []
        assert [batch.base_offset for batch in place.batches()] == [0, 1]
