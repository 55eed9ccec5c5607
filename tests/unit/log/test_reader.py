"""Reading a partition from its directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cleaner.base.model import TopicPartition
from cleaner.errors import CorruptBatchError, LogTruncatedError, OffsetOutOfRangeError, UnknownTopicError, UsageError
from cleaner.log.epochs import EpochEnd
from cleaner.log.log import Log
from cleaner.log.manager import LogManager
from cleaner.log.reader import LogReader, open_reader
from cleaner.log.record import Record
from cleaner.read.snapshot import LogSnapshots
from cleaner.spark.source.damage import transactions_reader
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment import names
from tests.support import batch_builder
from tests.support.batch_builder import Producer, data_batch
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir

pytestmark = pytest.mark.kernels
TOPIC = TopicPartition("prices", 0)


def reader_of(tmp_path: Path, log: LogBuilder, **lines: dict[TopicPartition, int]) -> LogReader:
    """Write a log dir and open its log."""
    return open_reader(write_log_dir(tmp_path, log, **lines), *log.topic_partition)


def filled(batches: int = 12, codec: str = "none") -> LogBuilder:
    """A log of three segments, two records a batch."""
    log = LogBuilder(TOPIC, index_interval_bytes=0)
    for number in range(batches):
        log.append((f"k{number}", f"a{number}"), (f"k{number}", f"b{number}"), codec=codec)
        if number % 5 == 4:
            log.roll()
    return log


def offsets(records: object) -> list[int]:
    """The offsets of some records."""
    return [record.offset for record in records]  # type: ignore[attr-defined]


@pytest.mark.parametrize("offset", range(25))
def test_read_from_any_offset_gives_all_from_there(tmp_path: Path, offset: int) -> None:
    """Whether a batch begins there or not; at the end it gives nothing."""
    with reader_of(tmp_path, filled()) as reader:
        assert offsets(reader.read(offset)) == list(range(offset, 24))


def test_read_from_a_gap_gives_the_next_record(tmp_path: Path) -> None:
    """Removed offsets are skipped, within a batch, between batches, and between segments."""
    log = LogBuilder(TOPIC)
    log.append(batch_builder.Record(b"a", b"1", offset=2), batch_builder.Record(b"b", b"2", offset=5), last_offset=9)
    log.skip(10)
    log.append(("c", "3"))
    log.roll()
    log.skip(7)
    log.append(("d", "4"))
    with reader_of(tmp_path, log) as reader:
        assert [next(reader.read(offset)).offset for offset in (0, 2, 3, 5, 6, 12, 20, 21, 28)] == [
            2, 2, 5, 5, 20, 20, 20, 28, 28,
        ]  # fmt: skip


def test_read_outside_of_the_log_is_refused(tmp_path: Path) -> None:
    """Below the log start offset, even if the segment has it, and above the end; the error names the range."""
    with reader_of(tmp_path, filled(), log_start_offsets={TOPIC: 3}) as reader:
        for offset in (-1, 2, 25):
            with pytest.raises(OffsetOutOfRangeError, match=f"offset {offset} is not within 3 and 24"):
                reader.read(offset)
        assert offsets(reader.read(3, max_records=2)) == [3, 4]


def test_read_ends_at_the_high_watermark_by_default(tmp_path: Path) -> None:
    """Records that a crash could lose are shown only on request."""
    with reader_of(tmp_path, filled(), high_watermarks={TOPIC: 6}) as reader:
        assert (reader.high_watermark, reader.log_end_offset) == (6, 24)
        assert offsets(reader.read(0)) == list(range(6))
        assert offsets(reader.read(0, until="end")) == list(range(24))
        assert offsets(reader.read(10)) == []


def test_archive_without_checkpoints_is_read_to_its_end(tmp_path: Path) -> None:
    """A partition's directory alone is enough, even without indexes; nothing is written to it."""
    directory = filled().write(tmp_path)
    for path in [*directory.glob("*index"), *directory.glob("*.snapshot")]:
        path.unlink()
    before = sorted(tmp_path.rglob("*"))
    with open_reader(tmp_path, "prices") as reader:
        assert offsets(reader.read(7)) == list(range(7, 24))
        assert reader.offset_for_time(START_MS + 3) == 4
        assert reader.last_stable_offset == 24
    assert sorted(tmp_path.rglob("*")) == before


def test_torn_end_is_the_end(tmp_path: Path) -> None:
    """An unfinished or torn append is not shown."""
    log = filled()
    log.append_damaged(data_batch([batch_builder.Record(b"k", b"v")], 24)[:-3])
    with reader_of(tmp_path, log) as reader:
        assert reader.log_end_offset == 24
        assert offsets(reader.read(20, until="end")) == [20, 21, 22, 23]


def test_preallocated_indexes_of_an_active_segment_say_nothing(tmp_path: Path) -> None:
    """Zeros after the entries, or only zeros, do no harm."""
    log = filled()
    directory = log.write(write_log_dir(tmp_path, log))
    for suffix in (names.INDEX, names.TIME_INDEX):
        path = directory / names.segment_file_name(log.base_offsets[-1], suffix)
        path.write_bytes(path.read_bytes() + bytes(480))
    with open_reader(tmp_path, *TOPIC) as reader:
        assert offsets(reader.read(23)) == [23]
        assert reader.offset_for_time(START_MS + 12) == 22
        assert reader.log_end_offset == 24


def test_wrong_index_hides_no_record(tmp_path: Path) -> None:
    """An entry that points after its offset or into a batch is not used."""
    log = filled()
    directory = log.write(write_log_dir(tmp_path, log))
    for base in log.base_offsets[:-1]:
        index = directory / names.segment_file_name(base, names.INDEX)
        entries = np.frombuffer(index.read_bytes(), ">i4").reshape(-1, 2).copy()
        entries[:, 1] += 7
        entries[::2, 1] = entries[-1, 1] - 7
        index.write_bytes(entries.tobytes())
    with open_reader(tmp_path, *TOPIC) as reader:
        for offset in range(24):
            assert offsets(reader.read(offset)) == list(range(offset, 24))


def test_damage_is_raised_after_the_records_before_it(tmp_path: Path) -> None:
    """The error names file and position."""
    log = filled()
    directory = log.write(write_log_dir(tmp_path, log))
    path = directory / names.segment_file_name(10, names.LOG)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    seen: list[Record] = []
    with (
        open_reader(tmp_path, *TOPIC) as reader,
        pytest.raises(CorruptBatchError, match=r"00000000000000000010\.log: at byte \d+: the CRC-32C"),
    ):
        seen.extend(reader.read(0))
    assert offsets(seen) == list(range(18))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_limits_end_a_read(tmp_path: Path, codec: str) -> None:
    """After that many records, or after the chunk that reaches that many bytes; at least one batch."""
    with reader_of(tmp_path, filled(codec=codec)) as reader:
        assert offsets(reader.read(1, max_records=4)) == [1, 2, 3, 4]
        assert offsets(reader.read(0, max_bytes=1)) == [0, 1]
        assert [columns.next_offset for columns in reader.columns(3, chunk_bytes=1, max_bytes=300)][-1] < 24
        with pytest.raises(UsageError, match="isolation"):
            reader.read(0, isolation="committed")  # type: ignore[arg-type]


def test_columns_know_what_records_know(tmp_path: Path) -> None:
    """Nulls, headers and times; `where` keeps some of them; the memory stays."""
    log = LogBuilder(TOPIC)
    log.append(
        batch_builder.Record(b"a", b"1", headers=((b"h", b"x"), (b"h", None), (b"\xff", b""))),
        batch_builder.Record(None, b"2"),
        batch_builder.Record(b"", None),
        codec="lz4",
    )
    log.append(("c", "3"), append_time_ms=77)
    with reader_of(tmp_path, log) as reader:
        first, second = list(reader.columns(0, chunk_bytes=1))
        assert first.keys() == [b"a", None, b""] and first.values() == [b"1", b"2", None]
        assert first.key_is_null.tolist() == [False, True, False]
        assert first.value_is_null.tolist() == [False, False, True]
        assert first.headers(0) == (("h", b"x"), ("h", None), ("�", b""))
        assert first.has_headers.tolist() == [True, False, False]
        assert list(first.where(first.key_is_null)) == [Record(None, b"2", (), START_MS + 1, 1)]
        assert second.timestamps_ms.tolist() == [77] and second.next_offset == 4
        assert len(first) == 3


def transactions() -> LogBuilder:
    """Committed, aborted and open transactions of two producers, over three segments."""
    log = LogBuilder(TOPIC, index_interval_bytes=0)
    one, two = Producer(1, 0, 0, True), Producer(2, 0, 0, True)
    log.append(("a", "aborted"), producer=one)  # 0
    log.append(("b", "committed"), producer=two)  # 1
    log.append(("c", "plain"))  # 2
    log.roll()
    log.end_transaction(2, 0, commit=True)  # 3
    log.append(("a", "aborted too"), producer=one)  # 4
    log.end_transaction(1, 0, commit=False)  # 5
    log.append(("a", "committed"), producer=one._replace(base_sequence=2))  # 6
    log.end_transaction(1, 0, commit=True)  # 7
    log.roll()
    log.append(("d", "aborted late"), producer=two._replace(base_sequence=1))  # 8
    log.end_transaction(2, 0, commit=False)  # 9
    log.append(("e", "open"), producer=one._replace(base_sequence=3))  # 10
    log.append(("f", "plain"))  # 11
    return log


def test_read_committed_leaves_out_aborted_records(tmp_path: Path) -> None:
    """Aborted records, and records above the first open transaction; markers are never shown."""
    with reader_of(tmp_path, transactions()) as reader:
        assert offsets(reader.read(0)) == [0, 1, 2, 4, 6, 8, 10, 11]
        assert offsets(reader.read(0, isolation="read_committed")) == [1, 2, 6]
        assert reader.last_stable_offset == 10
        for begin in range(11):
            expected = [offset for offset in (1, 2, 6) if offset >= begin]
            assert offsets(reader.read(begin, isolation="read_committed")) == expected


def test_read_committed_needs_no_transaction_index_of_the_active_segment(tmp_path: Path) -> None:
    """A writer in another process may not have written it yet; its markers decide."""
    log = transactions()
    directory = log.write(write_log_dir(tmp_path, log))
    (directory / names.segment_file_name(log.base_offsets[-1], names.TXN_INDEX)).unlink()
    (directory / names.snapshot_file_name(log.next_offset)).unlink()
    with open_reader(tmp_path, *TOPIC) as reader:
        assert offsets(reader.read(8, isolation="read_committed")) == []
        assert offsets(reader.read(0, isolation="read_committed")) == [1, 2, 6]


def test_last_stable_offset_follows_the_high_watermark(tmp_path: Path) -> None:
    """A marker that a crash may lose decides nothing."""
    expected = {0: 0, 1: 0, 3: 0, 5: 0, 6: 6, 7: 6, 8: 8, 9: 8, 10: 10, 12: 10}
    for mark, stable in expected.items():
        log_dir = tmp_path / str(mark)
        with reader_of(log_dir, transactions(), high_watermarks={TOPIC: mark}) as reader:
            assert reader.last_stable_offset == stable


def test_last_stable_offset_is_not_below_a_log_start_within_an_open_transaction(tmp_path: Path) -> None:
    """R-407: to the writer, a reader that knew the log before retention, a new one, and Spark."""
    settings = {"retention.bytes": "1", "file.delete.delay.ms": "0", "cleanup.policy": "delete"}

    def stable_offsets(*logs: Log | LogReader) -> set[int]:
        found = LogSnapshots(FileSystem()).take(TOPIC, tmp_path / "logs" / str(TOPIC))
        with open_reader(tmp_path / "logs", *TOPIC) as new:
            offsets_found = {log.last_stable_offset for log in (*logs, new)}
        return {*offsets_found, found.last_stable_offset(transactions_reader("fail"))}

    with LogManager(tmp_path / "logs", create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic(TOPIC.topic, 1, settings)
        log = manager.log(TOPIC.topic)
        log.append([Record(b"a", b"1")] * 3)
        producer = log.producer("writer")
        producer.begin()
        for _ in range(2):
            producer.append([Record(b"b", b"2")] * 4)
            log.roll()
        log.append([Record(b"c", b"3")] * 2)
        log.flush()
        manager.upkeep.note_all()
        with open_reader(tmp_path / "logs", *TOPIC) as old:
            assert stable_offsets(log, old, log.reader) == {3}
            manager.upkeep.retain()
            manager.upkeep.note_all()
            assert (log.log_start_offset, stable_offsets(log, old, log.reader)) == (11, {11})


def test_offset_for_time_is_that_of_the_first_record_not_older(tmp_path: Path) -> None:
    """With a time index or without; later records may be older; None beyond the high watermark."""
    log = LogBuilder(TOPIC, index_interval_bytes=0)
    times = [10, 30, 20, 40, 40, 5, 60, 50]
    for number, time in enumerate(times):
        log.append(("k", "v"), timestamp_ms=time)
        if number in (2, 4):
            log.roll()
    with reader_of(tmp_path, log, high_watermarks={TOPIC: 7}) as reader:
        for wanted in range(1, 62):
            first = next((offset for offset, time in enumerate(times[:7]) if time >= wanted), None)
            assert reader.offset_for_time(wanted) == first


def test_end_offset_for_epoch_is_as_kafka_answers(tmp_path: Path) -> None:
    """The next epoch's start; the log end for the latest; the one below for one that had no records."""
    log = LogBuilder(TOPIC)
    for epoch in (1, 3, 4):
        log.leader_epoch = epoch
        log.append(("k", "v"), ("k", "w"))
    with reader_of(tmp_path, log) as reader:
        assert [reader.end_offset_for_epoch(epoch) for epoch in (0, 1, 2, 3, 4, 5)] == [
            EpochEnd(0, 0), EpochEnd(1, 2), EpochEnd(1, 2), EpochEnd(3, 4), EpochEnd(4, 6), EpochEnd(-1, -1),
        ]  # fmt: skip


def test_cut_below_the_read_offset_is_an_error(tmp_path: Path) -> None:
    """Also if the log has grown again by then, so that the offset itself is within it."""
    log = filled(3)
    path = log.write(write_log_dir(tmp_path, log)) / names.segment_file_name(0, names.LOG)
    with open_reader(tmp_path, *TOPIC) as reader:
        follower = reader.follow(0, until="end")
        assert offsets(follower.poll()) == list(range(6))
        data = path.read_bytes()
        size = len(data) // 3
        other = b"".join(
            data_batch([batch_builder.Record(b"o", b"t"), batch_builder.Record(b"h", b"e")], base) for base in (4, 6, 8)
        )
        os.truncate(path, 2 * size)
        with path.open("ab") as file:
            file.write(other)
        with pytest.raises(LogTruncatedError, match="cut below offset 6"):
            follower.poll()


def test_unknown_partition_is_refused(tmp_path: Path) -> None:
    """By name."""
    with pytest.raises(UnknownTopicError, match="prices-7"):
        open_reader(tmp_path, "prices", 7)


def test_reading_needs_no_linux(tmp_path: Path) -> None:
    """On a system without Linux's locks, even without the module for them."""
    directory = write_log_dir(tmp_path, filled())
    (directory / ".lock").touch()
    script = f"""
import sys
sys.modules["fcntl"] = None
from cleaner.log.reader import open_reader
with open_reader({str(directory)!r}, "prices") as reader:
    print(len(list(reader.read(0))), len(reader.latest().to_dict()))
"""
    root = Path(__file__).parents[3]
    said = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | {"PYTHONPATH": str(root)}, capture_output=True, text=True
    )
    assert (said.stdout, said.stderr) == ("24 12\n", "")


def test_follower_hands_out_columns_until_it_has_all(tmp_path: Path) -> None:
    """Each continues where the last one ended; None without new records, and from a closed follower."""
    reader = reader_of(tmp_path, filled())
    follower = reader.follow(7, until="end")
    seen: list[int] = []
    while (columns := follower.poll_columns()) is not None:
        seen += columns.offsets.tolist()
        assert follower.next_offset == columns.next_offset
    assert seen == offsets(reader.read(7, until="end"))
    assert follower.next_offset == reader.log_end_offset
    follower.close()
    assert follower.poll_columns(None) is None


class CountingFileSystem:
    """Passes everything on to the local disk, and counts."""

    def __init__(self) -> None:
        self._fs = FileSystem()
        self.calls = 0

    def __getattr__(self, name: str) -> object:
        self.calls += 1
        return getattr(self._fs, name)


def test_reader_through_a_wrapped_file_system_sees_what_the_writer_has_published(tmp_path: Path) -> None:
    """A wrapper around the local disk is the local disk: published watermarks and locks count."""
    with LogManager(tmp_path, {}, create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("t", 1, {})
        log = manager.log("t")
        log.append([Record(b"k", b"v")] * 5)
        log.flush()
        fs = CountingFileSystem()
        with open_reader(tmp_path, "t", fs=fs) as reader:  # type: ignore[arg-type]
            assert (reader.high_watermark, len(list(reader.read(0)))) == (5, 5)
        assert fs.calls
