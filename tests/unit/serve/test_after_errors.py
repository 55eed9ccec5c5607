"""What the endpoint knows after an error of the disk, or for want of file descriptors."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from cleaner.base.clock import SystemClock
from cleaner.base.model import TopicPartition
from cleaner.errors import LogDirOfflineError, OutOfDescriptorsError
from cleaner.serve.catalog import Catalog
from cleaner.serve.offsets import Committed, GroupOffsets
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.segment.names import PARTITION_METADATA
from tests.crash.interrupts import FaultyFileSystem
from tests.support.coordinator_records import offset_commit
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.manual_clock import ManualClock


def _no_descriptor() -> OSError:
    return OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_committed_offsets_are_asked_for_again(tmp_path: Path) -> None:
    """Each call of the file system fails once: no group is told that it has committed nothing."""
    groups = LogBuilder(TopicPartition("__consumer_offsets", 0))
    groups.append(offset_commit("old", "prices", 0, 4711))
    write_log_dir(tmp_path, LogBuilder(TopicPartition("prices", 0)), groups)
    fs = FaultyFileSystem()
    fs.what = _no_descriptor
    failures = 0
    for number in range(1, 1000):
        said: list[str] = []
        with contextlib.closing(Catalog(fs, [tmp_path], SystemClock(), said.append)) as catalog:
            offsets = GroupOffsets(fs, catalog, said.append)
            fs.calls, fs.fail_at = 0, number
            is_loaded = offsets.load()
            was_reached, fs.fail_at = fs.calls >= number, None
            assert is_loaded is not bool(said)
            failures += not is_loaded
            assert offsets.load()
            assert offsets.of("old") == {("prices", 0): Committed(4711, -1, "")}
        if not was_reached:
            break
    assert failures > 10


class _BadSector(FileSystem):
    """One partition cannot be read."""

    is_failing = True

    def open(self, path: Path, *, write: bool = False) -> File:
        if self.is_failing and path.suffix == ".log" and path.parent.name == "__consumer_offsets-1":
            raise LogDirOfflineError(path, OSError(errno.EIO, os.strerror(errno.EIO)))
        return super().open(path, write=write)


def test_one_partition_that_cannot_be_read_holds_up_its_own_groups(tmp_path: Path) -> None:
    """And those of which nobody knows that they are not in it; what was read is not read again."""
    partitions = [LogBuilder(TopicPartition("__consumer_offsets", number)) for number in range(2)]
    partitions[0].append(offset_commit("mine", "prices", 0, 4711))
    partitions[1].append(offset_commit("other", "prices", 0, 12))
    write_log_dir(tmp_path, LogBuilder(TopicPartition("prices", 0)), *partitions)
    fs, said = _BadSector(), list[str]()
    with contextlib.closing(Catalog(fs, [tmp_path], SystemClock(), said.append)) as catalog:
        offsets = GroupOffsets(fs, catalog, said.append)
        for _ in range(2):
            assert [offsets.load(group) for group in ("mine", "other", "unheard of")] == [True, False, False]
        assert offsets.of("mine") == {("prices", 0): Committed(4711, -1, "")}
        assert len(said) == 1
        fs.is_failing = False
        assert offsets.load("unheard of")
        assert offsets.of("other") == {("prices", 0): Committed(12, -1, "")}


class _NoIds(FileSystem):
    """No topic's id can be read for a while."""

    is_failing = True

    def open(self, path: Path, *, write: bool = False) -> File:
        if self.is_failing and path.name == PARTITION_METADATA:
            raise OutOfDescriptorsError(path, _no_descriptor())
        return super().open(path, write=write)


def test_a_made_up_topic_id_is_not_kept(tmp_path: Path) -> None:
    """The next look finds the topic's own."""
    write_log_dir(tmp_path, LogBuilder(TopicPartition("prices", 0)))
    with contextlib.closing(Catalog(FileSystem(), [tmp_path], SystemClock(), print)) as catalog:
        own = catalog.topics["prices"].topic_id
    clock, fs, said = ManualClock(), _NoIds(), list[str]()
    with contextlib.closing(Catalog(fs, [tmp_path], clock, said.append)) as catalog:
        assert len(said) == 1 and catalog.topics["prices"].topic_id != own
        fs.is_failing = False
        clock.move_on(2)
        catalog.refresh()
        assert catalog.topics["prices"].topic_id == own
        assert list(catalog.by_id) == [own]
