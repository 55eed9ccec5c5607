"""What the endpoint knows after an error of the disk, or for want of file descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from pathlib import Path

import pytest

from cleaner.base.clock import SystemClock
from cleaner.base.model import TopicPartition
from cleaner.errors import LogDirOfflineError, OutOfDescriptorsError
from cleaner.serve.catalog import Catalog
from cleaner.serve.codes import Code
from cleaner.serve.offsets import Committed, GroupOffsets
from cleaner.serve.partition import FileRecords
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.segment.names import PARTITION_METADATA
from tests.crash.interrupts import FaultyFileSystem
from tests.support.coordinator_records import offset_commit
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.manual_clock import ManualClock
from tests.support.served import running
from tests.support.wire_client import WireClient


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
            offsets = GroupOffsets(fs, catalog)
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
        offsets = GroupOffsets(fs, catalog)
        for _ in range(2):
            assert [offsets.load(group) for group in ("mine", "other", "unheard of")] == [True, False, False]
        assert offsets.of("mine") == {("prices", 0): Committed(4711, -1, "")}
        assert len(said) == 1
        fs.is_failing = False
        assert offsets.load("unheard of")
        assert offsets.of("other") == {("prices", 0): Committed(12, -1, "")}


class _Failing(FileSystem):
    """A disk of which nothing of one kind can be read any more, once it is told to fail."""

    is_failing = False

    def open(self, path: Path, *, write: bool = False) -> File:
        if self.is_failing and path.suffix == ".log":
            raise LogDirOfflineError(path, OSError(errno.EIO, os.strerror(errno.EIO)))
        return super().open(path, write=write)


def test_operator_is_told_once_what_clients_are_told(tmp_path: Path) -> None:
    """For each partition and reason; each time is counted."""
    write_log_dir(tmp_path, *(_one_record(number) for number in range(2)))
    fs, said = _Failing(), list[str]()
    with running(tmp_path, fs=fs, warn=said.append) as served, WireClient(served.address[1]) as client:
        fs.is_failing = True
        for number in (0, 0, 1):
            assert client.fetch("prices", 0, partition=number).error_code == Code.KAFKA_STORAGE_ERROR
        counts = served.numbers()
    assert [line.split(":")[:2] for line in said] == [
        [f"prices-{number}", " a client is told KAFKA_STORAGE_ERROR"] for number in range(2)
    ]
    assert all(os.strerror(errno.EIO) in line for line in said)
    assert counts["errors", "KAFKA_STORAGE_ERROR"] == 3


@pytest.mark.parametrize("sends", ["the file", "its end"])
def test_operator_is_told_of_answers_that_a_disk_cuts_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sends: str
) -> None:
    """The client sees nothing but the end of its connection."""
    write_log_dir(tmp_path, _one_record(0, 20_000 if sends == "the file" else 10))
    bad = OSError(errno.EIO, os.strerror(errno.EIO))

    def fails(*_args: object) -> int:
        raise bad

    def cannot_read(records: FileRecords, _position: int, _size: int) -> bytes:
        raise LogDirOfflineError(records.extent.segment.file.path, bad)

    monkeypatch.setattr(os, "sendfile", fails)
    monkeypatch.setattr(FileRecords, "read", cannot_read)
    said: list[str] = []
    with running(tmp_path, warn=said.append) as served:
        for _ in range(2):
            with WireClient(served.address[1]) as client, pytest.raises(EOFError):
                client.fetch("prices", 0)
        counts = served.numbers()
    assert len(said) == 1 and "an answer was cut off: " in said[0] and bad.strerror in said[0]
    assert counts["errors", "KAFKA_STORAGE_ERROR"] == 2
    assert counts.get(("internal errors", ""), 0) == 0


def test_records_are_read_where_the_system_cannot_send_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not tell a file that cannot be sent from a client that has gone: neither is a mistake of the program."""
    write_log_dir(tmp_path, _one_record(0, 20_000))

    def fails(*_args: object) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "sendfile", fails)
    with running(tmp_path) as served, WireClient(served.address[1]) as client:
        assert len(bytes(client.fetch("prices", 0).records)) > 20_000
        assert served.numbers().get(("internal errors", ""), 0) == 0


def _one_record(partition: int, size: int = 1) -> LogBuilder:
    log = LogBuilder(TopicPartition("prices", partition))
    log.append(("key", "x" * size))
    return log


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


def test_event_loop_for_which_no_descriptor_is_left_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_loop() -> asyncio.AbstractEventLoop:
        raise _no_descriptor()

    write_log_dir(tmp_path, _one_record(0))
    monkeypatch.setattr(asyncio, "new_event_loop", no_loop)
    monkeypatch.setattr(asyncio.events, "new_event_loop", no_loop)
    with pytest.raises(OSError, match="open files"), running(tmp_path):
        pytest.fail("nothing is served")
