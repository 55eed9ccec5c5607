"""Disks that fail, fill up or lie: the error is reported, no file is left over, and every group is old or new."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

import cleaner
from cleaner.base.model import TopicPartition
from cleaner.errors import LogDirOfflineError, NoSpaceError
from cleaner.storage.segment.names import CLEANED, TEMPORARY_SUFFIXES
from tests.crash.loop_image import loop_image, small_disk
from tests.crash.rounds import NOW_MS, PARTITION, Expected, clean, contents, recover, write_round
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.watched_fs import FailingFileSystem, Operation, WatchedFileSystem

MIB = 1 << 20
SEGMENT_BYTES = MIB
SETTINGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "log.cleaner.dedupe.buffer.size": str(4 * MIB),
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    """The round without a fault."""
    return Expected.of(tmp_path_factory.mktemp("expected"))


def _calls_of_a_round(root: Path) -> int:
    counting = FailingFileSystem(None, errno.EIO)
    clean(write_round(root), counting)
    return counting.calls


def _assert_failures_survived(expected: Expected, tmp_path: Path, *, every: int, lasting: bool) -> None:
    """Fail each call of a round in turn (or every few), with either error, recover and judge."""
    for number in range(0, _calls_of_a_round(tmp_path / "whole"), every):
        for code, error in ((errno.EIO, LogDirOfflineError), (errno.ENOSPC, NoSpaceError)):
            log_dir = write_round(tmp_path / f"{number}-{code}")
            fs = FailingFileSystem(number, code, lasting=lasting)
            with pytest.raises(error):
                clean(log_dir, fs)
            step = f"call {number}, {fs.failed}, {errno.errorcode[code]}"
            if not lasting:
                # `.swap` and `.deleted` files stay once a swap is decided: the next load completes it.
                unfinished = [name for name in contents(log_dir / PARTITION) if name.endswith(CLEANED)]
                assert not unfinished, f"{step}: {unfinished} are left over"
            try:
                recover(log_dir)
                expected.judge(log_dir)
                clean(log_dir)
            except Exception as failure:
                raise AssertionError(f"after {step}") from failure


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
def test_round_with_a_failing_call_leaves_groups_old_or_new(expected: Expected, tmp_path: Path, lasting: bool) -> None:
    """C-2: any write, fsync, rename or removal may fail; the log recovers to old or new, and can be cleaned."""
    _assert_failures_survived(expected, tmp_path, every=8, lasting=lasting)


@pytest.mark.slow
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
def test_round_with_any_call_failing_long_form(expected: Expected, tmp_path: Path, lasting: bool) -> None:
    """The same, for every call."""
    _assert_failures_survived(expected, tmp_path, every=1, lasting=lasting)


class _Gauge(WatchedFileSystem):
    """Records the least free space."""

    def __init__(self, directory: Path) -> None:
        self.min_bytes = self.free_bytes(directory)
        self._directory = directory

    def after(self, operation: Operation) -> None:
        self.min_bytes = min(self.min_bytes, self.free_bytes(self._directory))


def _write_large(root: Path, segments: int) -> Path:
    """Write segments of 1 MiB in which one record in eight is superseded, so that cleaning frees little."""
    log = LogBuilder(segment_bytes=SEGMENT_BYTES)
    value = os.urandom(64 << 10).hex()[: 64 << 10]
    for number in range(16 * segments):
        log.append((f"key {number}" if number % 8 else "again", value))
    return write_log_dir(root, log, high_watermarks={TopicPartition("topic", 0): log.next_offset})


def _fill_up(disk: Path, free_bytes: int) -> None:
    about = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes(about.f_bavail * about.f_frsize - free_bytes))


@pytest.mark.root
def test_round_on_a_disk_3_percent_free_succeeds(tmp_path: Path) -> None:
    """Old files are removed as soon as their group is swapped, so a round needs room for one group's output (C-3)."""
    size_bytes = 64 * MIB
    with small_disk(tmp_path / "disk", size_bytes) as disk:
        log_dir = _write_large(disk / "log-dir", 40)
        free_bytes = size_bytes * 3 // 100
        _fill_up(disk, free_bytes)
        gauge = _Gauge(disk)
        report = cleaner.clean(log_dir, PARTITION, SETTINGS, now_ms=NOW_MS, fs=gauge)
        assert report.bytes_written > 30 * MIB
        assert report.removed.superseded > 70
        # One group's log, its indexes and the rounding to blocks.
        assert free_bytes - gauge.min_bytes <= SEGMENT_BYTES + 128 * 1024
        assert gauge.free_bytes(disk) > free_bytes


@pytest.mark.root
def test_round_without_room_for_a_group_changes_nothing(tmp_path: Path) -> None:
    """The free space is checked first: the error says how much is missing, and no byte is changed."""
    with small_disk(tmp_path / "disk", 16 * MIB) as disk:
        log_dir = _write_large(disk / "log-dir", 5)
        _fill_up(disk, 600 * 1024)
        before = contents(log_dir / PARTITION)
        with pytest.raises(NoSpaceError) as caught:
            cleaner.clean(log_dir, PARTITION, SETTINGS, now_ms=NOW_MS)
        assert 0 < caught.value.missing_bytes < 2 * MIB
        assert contents(log_dir / PARTITION) == before


@pytest.mark.root
def test_fsync_that_fails_on_a_lying_disk_loses_nothing(tmp_path: Path) -> None:
    """
    Every write succeeds, an fsync fails, and a second one would succeed although data is lost: C-2.

    An ext4 image is on a smaller disk, so ext4 believes in space that the disk does not have. The disk's real state
    shows after another mount: segments whose swap had finished are new, the others old.
    """
    with (
        small_disk(tmp_path / "disk", 24 * MIB) as disk,
        loop_image("ext4", disk, size_bytes=256 * MIB, has_journal=False) as image,
    ):
        log_dir = _write_large(image.mount() / "log-dir", 12)
        os.sync()
        before = contents(log_dir / PARTITION)
        shutil.copytree(log_dir, tmp_path / "good")
        cleaner.clean(tmp_path / "good", PARTITION, SETTINGS, now_ms=NOW_MS)
        after = contents(tmp_path / "good" / PARTITION)
        _fill_up(disk, 128 * 1024)
        with pytest.raises((LogDirOfflineError, NoSpaceError)) as caught:
            cleaner.clean(log_dir, PARTITION, SETTINGS, now_ms=NOW_MS)
        assert isinstance(caught.value, LogDirOfflineError | NoSpaceError)
        assert ".cleaned" in caught.value.path.name
        (disk / "filler").unlink()
        image.unmount()
        image.mount()
        found = contents(log_dir / PARTITION)
        logs = sorted(name for name in before if name.endswith(".log"))
        is_new = [found[name] == after[name] != before[name] for name in logs]
        assert all(new or found[name] == before[name] for new, name in zip(is_new, logs, strict=True))
        assert is_new == sorted(is_new, reverse=True), "swapped out of order"
        assert not is_new[-2], "the disk had room for everything"
        assert not [name for name in found if name.endswith(TEMPORARY_SUFFIXES)]
