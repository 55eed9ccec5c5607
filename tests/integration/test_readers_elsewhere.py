"""What a reader in another process learns, which shares only the directory with the writer, and when."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner import LogManager, Record, open_reader
from cleaner.errors import LogTruncatedError
from cleaner.log.stream import Isolation
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.segment.names import GENERATIONS, HIGH_WATERMARK_CHECKPOINT, PARTITION_METADATA, PUBLISHED
from tests.support.watched_fs import Operation, WatchedFileSystem

pytestmark = pytest.mark.kernels


def test_reader_elsewhere_has_a_record_as_soon_as_it_is_durable(tmp_path: Path) -> None:
    """Without a checkpoint write in between; committed records, transactions and a cut included."""
    with LogManager(tmp_path, create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("t")
        log = manager.log("t")
        with open_reader(tmp_path, "t") as reader:
            for number in range(5):
                log.append(Record(b"k", b"%d" % number)).durable.result()
                log.append(Record(b"k", b"not forced")).durable  # noqa: B018 - requested, and not waited for
                log.flush()
                for isolation in ("read_committed", "read_uncommitted"):
                    assert len(list(reader.read(0, isolation=isolation))) == 2 * number + 2
            log.append(Record(b"k", b"in memory alone"))
            assert (reader.high_watermark, reader.log_end_offset) == (10, 11)
            producer = log.producer("writer")
            with producer.transaction():
                producer.append(Record(b"k", b"committed"))
            log.flush()
            values = [record.value for record in reader.read(10, isolation="read_committed")]
            assert values == [b"in memory alone", b"committed"]
            assert reader.high_watermark == 13
            log.truncate_to(4)
            log.append([Record(b"k", b"after")] * 20)
            assert (reader.high_watermark, reader.log_end_offset) == (4, 24)
            manager.delete_topic("t")
            manager.create_topic("t")
            manager.log("t").append([Record(b"k", b"another topic")] * 30)
        with open_reader(tmp_path, "t") as reader:
            assert (reader.high_watermark, reader.log_end_offset) == (0, 30)


def test_reader_elsewhere_uses_the_checkpoint_when_the_writer_was_killed(tmp_path: Path) -> None:
    """The dead writer's published value no longer counts; the next writer publishes the recovered log's end."""
    code = (
        "import os, signal, sys; from cleaner import LogManager, Record\n"
        f"manager = LogManager({str(tmp_path)!r}, create=True, cleaner=False, tasks=False)\n"
        "manager.create_topic('t'); log = manager.log('t')\n"
        "log.append(Record(b'k', b'1')).durable.result(); manager.upkeep.note_high_watermarks()\n"
        "log.append(Record(b'k', b'2')).durable.result()\n"
        "print('there', flush=True); sys.stdin.readline(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    writer = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with writer:
        assert writer.stdout is not None
        assert writer.stdin is not None
        assert writer.stdout.readline() == "there\n"
        with open_reader(tmp_path, "t") as reader:
            assert reader.high_watermark == 2
            writer.stdin.write("\n")
            writer.stdin.flush()
            writer.wait()
            assert (reader.high_watermark, reader.log_end_offset) == (1, 2)
            with LogManager(tmp_path, cleaner=False, tasks=False):
                assert reader.high_watermark == 2
            assert reader.high_watermark == 2


@pytest.mark.parametrize("made", ["topic", "partition", "topic again"])
def test_reader_elsewhere_sees_nothing_unforced_of_a_new_log_whose_writer_was_killed(tmp_path: Path, made: str) -> None:
    """Before the first checkpoint, too: each new log has its line from the beginning."""
    manager = LogManager(tmp_path, create=True, cleaner=False, tasks=False)
    manager.create_topic("t")
    number = 0
    if made == "partition":
        manager.add_partitions("t", 2)
        number = 1
    elif made == "topic again":
        manager.log("t").append([Record(b"k", b"old")] * 9)
        manager.log("t").flush()
        manager.upkeep.note_all()
        manager.delete_topic("t")
        manager.create_topic("t")
    producer = manager.log("t", number).producer("writer")
    with producer.transaction():
        producer.append(Record(b"k", b"committed"))
    manager.log("t", number).append(Record(b"k", b"in memory alone"))
    manager.abandon()
    with open_reader(tmp_path, "t", number) as reader:
        assert (reader.high_watermark, reader.last_stable_offset, reader.log_end_offset) == (0, 0, 3)
        assert not list(reader.read(0, isolation="read_committed"))
        with LogManager(tmp_path, cleaner=False, tasks=False):
            assert reader.last_stable_offset == 3


class _Replacing(FileSystem):
    """Calls a function once, when a log dir is listed."""

    def __init__(self) -> None:
        super().__init__()
        self.replace: Callable[[], None] | None = None

    def list_dirs(self, path: Path) -> list[str]:
        """List it afterwards."""
        replace, self.replace = self.replace, None
        if replace is not None:
            replace()
        return super().list_dirs(path)


def test_checkpoint_of_a_replaced_topic_has_the_line_of_the_new_one(tmp_path: Path) -> None:
    """A topic deleted and created again while lines are computed does not get the old one's high watermark."""
    fs = _Replacing()
    with LogManager(tmp_path, create=True, cleaner=False, tasks=False, fs=fs) as manager:
        manager.create_topic("t")
        manager.log("t").append([Record(b"k", b"old")] * 9)
        manager.log("t").flush()

        def replace() -> None:
            manager.delete_topic("t")
            manager.create_topic("t")

        fs.replace = replace
        manager.upkeep.note_high_watermarks()
        assert fs.replace is None
        assert (tmp_path / HIGH_WATERMARK_CHECKPOINT).read_text() == "0\n1\nt 0 0\n"


class _ReplacingAtCall(FileSystem):
    """Calls a function before the n-th file is opened that is not opened under the partition's lock."""

    def __init__(self, number: int, replace: Callable[[], None]) -> None:
        super().__init__()
        self.left, self.replace = number, replace

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open it afterwards."""
        if path.name != PARTITION_METADATA and path.name != GENERATIONS:
            self.left -= 1
            if self.left == 0:
                self.replace()
        return super().open(path, write=write)


@pytest.mark.parametrize("publishes", [True, False])
@pytest.mark.parametrize("asked", ["records", "time", "end"])
def test_reader_elsewhere_takes_all_it_says_from_one_log(tmp_path: Path, asked: str, publishes: bool) -> None:
    """At whichever file the topic is deleted and made again, one log's end is no limit in the other."""
    number = 0
    while True:
        number += 1
        log_dir = tmp_path / str(number)
        with LogManager(log_dir, create=True, cleaner=False, tasks=False) as manager:
            _make_topic_again(manager, [Record(b"k", b"old", timestamp_ms=5)] * 40)
            fs = _ReplacingAtCall(
                number, lambda: _make_topic_again(manager, [Record(b"k", b"new", timestamp_ms=5)] * 3)
            )
            if not publishes:
                (log_dir / PUBLISHED).unlink()
            with open_reader(log_dir, "t", fs=fs) as reader, contextlib.suppress(LogTruncatedError):
                if asked == "records":
                    found = [record.value for record in reader.read(0, isolation="read_committed")]
                    assert found in ([b"old"] * 40, [b"new"] * 3)
                elif asked == "time":
                    assert reader.offset_for_time(6, isolation="read_committed") is None
                else:
                    ends = [reader.high_watermark, reader.last_stable_offset]
                    assert ends in ([41, 40], [41, 3], [4, 3])
            if fs.left > 0:
                break
    assert number > 3


def _make_topic_again(manager: LogManager, records: list[Record]) -> None:
    """Give the topic these records, an open transaction, and a record that is not forced to disk."""
    if "t" in manager.topics():
        manager.delete_topic("t")
    manager.create_topic("t", settings={"preallocate": "true"})  # room is no batch of the other log
    log = manager.log("t")
    log.append(records)
    producer = log.producer("writer")
    producer.begin()
    producer.append(Record(b"k", b"undecided", timestamp_ms=7))
    log.flush()
    manager.upkeep.note_all()
    log.append(Record(b"k", b"in memory alone", timestamp_ms=8))


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("has_id", [True, False])
@pytest.mark.parametrize("has_read", [True, False])
def test_follower_elsewhere_does_not_go_on_in_another_log_of_the_same_name(
    tmp_path: Path, isolation: Isolation, has_id: bool, has_read: bool
) -> None:
    """A topic deleted and created again is recognised at offsets that both have, by its id or else its directory."""
    with LogManager(tmp_path, create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("t")
        manager.log("t").append([Record(b"k", b"old")] * 10)
        manager.log("t").flush()
        if not has_id:
            (tmp_path / "t-0" / PARTITION_METADATA).unlink()
        with open_reader(tmp_path, "t") as reader:
            with reader.follow(0 if has_read else 10, isolation=isolation) as follower:
                assert len(follower.poll()) == (10 if has_read else 0)
                manager.delete_topic("t")
                manager.create_topic("t")
                if not has_id:
                    (tmp_path / "t-0" / PARTITION_METADATA).unlink()
                manager.log("t").append([Record(b"k", b"new")] * 15)
                manager.log("t").flush()
                for _ in range(2):
                    with pytest.raises(
                        LogTruncatedError, match="created again: not the log that was read up to offset"
                    ):
                        follower.poll()
            with reader.follow(0, isolation=isolation) as follower:
                assert {record.value for record in follower.poll()} == {b"new"}


def test_follower_elsewhere_goes_on_in_a_log_that_gets_its_id(tmp_path: Path) -> None:
    """A directory that had none, and a segment that follows: the same log all the same."""
    with LogManager(tmp_path, create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("t")
        metadata = tmp_path / "t-0" / PARTITION_METADATA
        topic_id = metadata.read_bytes()
        metadata.unlink()
        with open_reader(tmp_path, "t") as reader, reader.follow(0) as follower:
            for number in range(3):
                manager.log("t").append(Record(b"k", b"%d" % number))
                manager.log("t").roll()
                manager.log("t").flush()
                assert [record.value for record in follower.poll()] == [b"%d" % number]
                metadata.write_bytes(topic_id)


class Journal(WatchedFileSystem):
    """Keeps a list of operations and their files."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    def after(self, operation: Operation) -> None:
        """Note it."""
        self.done.append(str(operation))


def test_high_watermark_is_published_behind_the_fsync_and_before_the_cut(tmp_path: Path) -> None:
    """So a reader in another process never sees records that a power cut could still lose."""
    fs, log_name, published = Journal(), "00000000000000000000.log", f"write {PUBLISHED}"
    with LogManager(tmp_path, create=True, cleaner=False, tasks=False, fs=fs) as manager:
        manager.create_topic("t")
        log = manager.log("t")
        fs.done.clear()
        log.append([Record(b"k", b"v")] * 4)
        assert published not in fs.done
        log.flush()
        assert fs.done.index(f"fsync {log_name}") < fs.done.index(published)
        manager.upkeep.note_all()
        fs.done.clear()
        log.truncate_to(0)
        lines = next(number for number, done in enumerate(fs.done) if HIGH_WATERMARK_CHECKPOINT in done)
        cut = next(number for number, done in enumerate(fs.done) if done.startswith(f"truncate {log_name}"))
        assert fs.done.index(published) < lines < cut
