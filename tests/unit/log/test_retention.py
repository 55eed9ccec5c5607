"""Retention by the writer: whole segments are removed, the active one too, and no crash makes a hole."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from cleaner.base.clock import Clock
from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.errors import CleanerError, LogDirOfflineError
from cleaner.log.partition_writer import PartitionWriter
from cleaner.log.record import Record
from cleaner.policy.retention import KeptLog, find_expired
from cleaner.storage.files.leader_epochs import read_leader_epochs
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loaded_log import list_segments
from cleaner.storage.log_dir import LogDir, OffsetKind
from tests.support.forgetful_fs import ForgetfulFileSystem
from tests.support.manual_clock import START_MS, ManualClock

PARTITION = TopicPartition("a", 0)
SECOND = 1000


def _open(
    root: Path, topic: TopicConfig, clock: Clock, fs: FileSystem | None = None, *, was_closed: bool = True
) -> PartitionWriter:
    (root / ".lock").touch()
    (root / str(PARTITION)).mkdir(exist_ok=True)
    return PartitionWriter.open(LogDir(fs or FileSystem(), root), PARTITION, topic, clock, was_closed=was_closed)


def _fill(writer: PartitionWriter, segments: int = 4) -> None:
    """Records at offsets 0, 1, 2 ... a second apart, three a segment; the last one is active."""
    for number in range(3 * segments):
        if number and number % 3 == 0:
            writer.roll()
        writer.append([Record(b"k", b"v" * 100, timestamp_ms=START_MS + number * SECOND)])


def _expire(writer: PartitionWriter, topic: TopicConfig, now_ms: int, *, is_trusted: bool = True) -> int:
    def choose(log: KeptLog) -> int:
        return find_expired(log, topic, now_ms, is_trusted=is_trusted, keeps_active=False).count

    return writer.expire(choose).segments


def _bases(root: Path) -> list[int]:
    return [segment.base_offset for segment in list_segments(FileSystem(), root / str(PARTITION))]


@pytest.mark.parametrize(
    ("after_seconds", "bases"),
    [(2, [0, 3, 6, 9]), (3, [3, 6, 9]), (8, [6, 9]), (9, [9]), (11, [9]), (12, [12]), (1000, [12])],
)
def test_segments_older_than_retention_ms_go_and_the_active_one_at_last(
    tmp_path: Path, after_seconds: int, bases: list[int]
) -> None:
    """R-912, strictly older; R-913: when all have expired an empty one takes their place."""
    topic = TopicConfig(retention_ms=500)
    writer = _open(tmp_path, topic, ManualClock())
    _fill(writer)
    _expire(writer, topic, START_MS + after_seconds * SECOND - 1 + (1 if after_seconds < 3 else 0))
    assert _bases(tmp_path) == bases
    assert (writer.log_start_offset, writer.log_end_offset) == (bases[0], 12)
    writer.close()


def test_segments_beyond_retention_bytes_go_but_never_below_it(tmp_path: Path) -> None:
    """R-911."""
    writer = _open(tmp_path, TopicConfig(retention_ms=-1), ManualClock())
    _fill(writer)
    sizes = [segment.size for segment in list_segments(FileSystem(), tmp_path / str(PARTITION))]
    topic = TopicConfig(retention_ms=-1, retention_bytes=sum(sizes[1:]) + 1)
    assert _expire(writer, topic, START_MS) == 0
    topic = TopicConfig(retention_ms=-1, retention_bytes=sum(sizes[1:]))
    assert _expire(writer, topic, START_MS) == 1
    topic = TopicConfig(retention_ms=-1, retention_bytes=0)
    assert _expire(writer, topic, START_MS) == 3
    assert _bases(tmp_path) == [12]
    writer.close()


@pytest.mark.parametrize(
    ("policy", "is_trusted"), [(frozenset({"compact"}), True), (frozenset(), True), (frozenset({"delete"}), False)]
)
def test_segments_that_must_stay_are_kept_at_any_age(tmp_path: Path, policy: frozenset[str], is_trusted: bool) -> None:
    """R-901; and a policy that only a default gives deletes nothing."""
    topic = TopicConfig(cleanup_policy=policy, retention_ms=1)
    writer = _open(tmp_path, topic, ManualClock())
    _fill(writer)
    assert _expire(writer, topic, START_MS + 10**9, is_trusted=is_trusted) == 0
    assert _bases(tmp_path) == [0, 3, 6, 9]
    writer.close()


def test_swap_of_a_dead_cleaner_brings_no_expired_segment_back(tmp_path: Path) -> None:
    """Its files have the name of a segment that goes: they are settled first."""
    topic = TopicConfig(retention_ms=500)
    writer = _open(tmp_path, topic, ManualClock())
    _fill(writer)
    directory = tmp_path / str(PARTITION)
    for path in list(directory.glob(f"{0:020d}.*")):
        path.with_name(f"{path.name}.swap").write_bytes(path.read_bytes())
    assert _expire(writer, topic, START_MS + 8 * SECOND) == 2
    assert list(directory.glob("*.swap")) == []
    writer.close()
    _open(tmp_path, topic, ManualClock()).close()
    assert _bases(tmp_path) == [6, 9]


def test_log_start_within_a_segment_does_not_go_back(tmp_path: Path) -> None:
    """R-118: what lies below it was deleted, and stays so when segments in front of it expire."""
    topic = TopicConfig(retention_ms=-1)
    writer = _open(tmp_path, topic, ManualClock())
    _fill(writer)
    writer.close()
    LogDir(FileSystem(), tmp_path).put(OffsetKind.LOG_START, PARTITION, 4)
    writer = _open(tmp_path, topic, ManualClock())
    assert _expire(writer, topic, START_MS) == 1
    assert (_bases(tmp_path), writer.log_start_offset) == ([3, 6, 9], 4)
    assert LogDir(FileSystem(), tmp_path).log_start_offsets == {PARTITION: 4}
    writer.close()


def test_idle_log_that_is_empty_is_left_alone(tmp_path: Path) -> None:
    """R-903: otherwise it would be rolled again and again."""
    topic = TopicConfig(retention_ms=1)
    writer = _open(tmp_path, topic, ManualClock())
    _fill(writer, 1)
    assert _expire(writer, topic, START_MS + 10**9) == 1
    assert _expire(writer, topic, START_MS + 10**9) == 0
    assert _bases(tmp_path) == [3]
    writer.close()


def test_log_continues_at_its_end_after_everything_expired(tmp_path: Path) -> None:
    """Also when it is opened again; the checkpoint has no line, as the log start is the first base offset (R-118)."""
    topic = TopicConfig(retention_ms=1)
    clock = ManualClock()
    writer = _open(tmp_path, topic, clock)
    _fill(writer, 2)
    _expire(writer, topic, START_MS + 10**9)
    assert writer.append([Record(b"k", b"v")]).base_offset == 6
    writer.close()
    assert LogDir(FileSystem(), tmp_path).log_start_offsets == {}
    LogDir(FileSystem(), tmp_path).write_marker()
    again = _open(tmp_path, topic, clock)
    assert (again.log_start_offset, again.log_end_offset) == (6, 7)
    again.close()


def test_files_that_went_wait_for_their_readers(tmp_path: Path) -> None:
    """R-610: under another name, snapshots too."""
    topic = TopicConfig(retention_ms=1)
    writer = _open(tmp_path, topic, ManualClock())
    _fill(writer)

    def choose(log: KeptLog) -> int:
        return len(log.segments) - 1

    gone = writer.expire(choose)
    found = {path.name for path in (tmp_path / str(PARTITION)).iterdir() if path.name.endswith(".deleted")}
    assert set(gone.files) == found
    assert gone.segments == 3
    assert {f"{base:020d}.log.deleted" for base in (0, 3, 6)} <= found
    assert f"{3:020d}.snapshot.deleted" in found
    writer.close()


def test_expiry_on_a_disk_that_forgets_leaves_the_log_as_before_or_after(tmp_path: Path) -> None:
    """After every crash the log begins at its old or its new start, and from there on nothing is missing."""
    topic = TopicConfig(retention_ms=500)
    root = tmp_path / "disk"
    root.mkdir()
    clock = ManualClock()
    writer = _open(root, topic, clock)
    _fill(writer)
    writer.close()
    fs = ForgetfulFileSystem(root)
    writer = _open(root, topic, clock, fs)
    at = len(fs.journal)
    _expire(writer, topic, START_MS + 10**9)
    starts = set()
    for point in [point for point in fs.crash_points() if point >= at]:
        for number, state in enumerate(fs.states_at(point, limit=20, seed=7)):
            crashed = tmp_path / "crashed" / f"{point}-{number}"
            state.write_to(crashed)
            again = _open(crashed, topic, clock, was_closed=False)
            assert again.log_end_offset == 12, state.note
            bases = [base for base in _bases(crashed) if base >= again.log_start_offset]
            assert again.log_start_offset in (0, 3, 6, 9, 12), state.note
            assert bases == [base for base in (0, 3, 6, 9, 12) if base >= again.log_start_offset][: len(bases)], (
                state.note
            )
            assert bases[-1] in (9, 12), state.note
            epochs = read_leader_epochs(FileSystem(), crashed / str(PARTITION) / "leader-epoch-checkpoint")
            assert all(entry.start_offset >= again.log_start_offset for entry in epochs)
            starts.add(again.log_start_offset)
            again.close()
    assert {0, 12} <= starts
    writer.close()


class _FailsOnce(FileSystem):
    """Index files cannot be renamed, once it is told to fail, a single time."""

    fails = False

    def rename_all(self, directory: Path, pairs: Sequence[tuple[str, str]]) -> None:
        if self.fails and any(name.endswith(".index") for name, _ in pairs):
            self.fails = False
            raise LogDirOfflineError(directory, OSError(errno.EIO, os.strerror(errno.EIO)))
        super().rename_all(directory, pairs)


def test_files_of_a_call_that_failed_are_named_by_the_next_one(tmp_path: Path) -> None:
    """Although nothing more expires: else they stayed until the log is opened again."""
    topic, fs = TopicConfig(retention_ms=1), _FailsOnce()
    writer = _open(tmp_path, topic, ManualClock(), fs)
    _fill(writer)

    def choose(log: KeptLog) -> int:
        return min(2, sum(segment.base_offset < 6 for segment in log.segments))

    fs.fails = True
    with pytest.raises(CleanerError):
        writer.expire(choose)
    assert not fs.fails
    left = {path.name for path in (tmp_path / str(PARTITION)).iterdir() if path.name.endswith(".deleted")}
    assert {f"{base:020d}.log.deleted" for base in (0, 3)} <= left
    assert set(writer.expire(choose).files) == left
    writer.close()
