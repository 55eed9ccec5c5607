"""A writer on a disk that forgets: flushed records survive a power cut at any step; the marker is never too early."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from cleaner.errors import NoSpaceError
from cleaner.log.manager import LogManager
from cleaner.log.partition_writer import PartitionWriter
from cleaner.log.record import ProducerStamp, Record
from cleaner.storage.log_dir import OffsetKind
from cleaner.storage.segment import names
from tests.support.batch_reader import batch_info, split_batches, without_room
from tests.support.forgetful_fs import ForgetfulFileSystem
from tests.support.power_cut import DiskState
from tests.support.watched_fs import Operation
from tests.unit.log.writing import PARTITION, Writing, pair, writing

SEED = 20_26
STATES_PER_POINT = 4
TOPICS = ("first", "second")
SETTINGS = {"internal.segment.bytes": "400", "index.interval.bytes": "100"}


class Promise(NamedTuple):
    """What holds from a moment on: the batches that are on disk, and the epoch that has begun."""

    journal_length: int
    batches: list[bytes]
    epoch: int


def _batches(place: Writing, below: int) -> list[bytes]:
    logs = [without_room(data) for name, data in place.files().items() if name.endswith(".log")]
    found = [batch for log in logs for batch in split_batches(log)]
    return [batch for batch in found if batch_info(batch).last_offset < below]


def _write(place: Writing, fs: ForgetfulFileSystem, settings: dict[str, str]) -> list[Promise]:
    """Append, flush, roll, cut, end transactions, close; returns the promises made on the way."""
    promises: list[Promise] = []

    def promise(writer: PartitionWriter) -> None:
        promises.append(Promise(len(fs.journal), _batches(place, writer.flushed_offset), writer.leader_epoch))

    writer = place.open(settings)
    for number in range(8):
        writer.append([pair(f"k{number}", "v" * 50)] * 2, producer=ProducerStamp(5, 0, 2 * number))
        if number in (1, 6):
            writer.flush_to_disk()
        promise(writer)
    writer.append([pair("t", "x")], producer=ProducerStamp(6, 0, 0, True))
    writer.end_transaction(6, 0, commit=False)
    writer.roll()
    promise(writer)
    # From the first step of a cut on, only the records that it leaves are promised.
    promises.append(Promise(len(fs.journal), _batches(place, 10), writer.leader_epoch))
    writer.truncate_to(10)
    promise(writer)
    writer.append([pair("after", "the cut")] * 3)
    writer.flush_to_disk()
    promise(writer)
    place.log_dir.put(OffsetKind.HIGH_WATERMARK, PARTITION, writer.flushed_offset)
    place.log_dir.put(OffsetKind.RECOVERY_POINT, PARTITION, writer.flushed_offset)
    writer.close()
    promise(writer)
    return promises


def _states(fs: ForgetfulFileSystem) -> Iterator[tuple[int, DiskState]]:
    for point in fs.crash_points():
        for state in fs.states_at(point, limit=STATES_PER_POINT, seed=SEED):
            yield point, state


def _is_kept(state: DiskState, promise: Promise, scratch: Path) -> bool:
    """Open the log after a power cut; tell whether the promise holds, and whether the log can be written to."""
    state.write_to(scratch)
    with writing(scratch) as place:
        writer = place.open(SETTINGS)
        end, epoch = writer.log_end_offset, writer.leader_epoch
        result = writer.append([pair("goes", "on")])
        writer.close()
        reopened = place.open(SETTINGS, was_closed=True)
        is_sound = reopened.log_end_offset == end + 1 == result.last_offset + 1
        reopened.close()
        found = _batches(place, end)
    return is_sound and epoch > promise.epoch and found[: len(promise.batches)] == promise.batches


def _run(root: Path, skip_sync: int | None = None, **settings: str) -> tuple[ForgetfulFileSystem, list[Promise]]:
    (root / str(PARTITION)).mkdir(parents=True)
    fs = ForgetfulFileSystem(root, skip_sync=skip_sync)
    with writing(root, fs) as place:
        return fs, _write(place, fs, {**SETTINGS, **settings})


def _broken(fs: ForgetfulFileSystem, promises: list[Promise], scratch: Path) -> Iterator[str]:
    """Yield the states in which a promise is broken; each that is kept counts as empty."""
    for number, (point, state) in enumerate(_states(fs)):
        made = [promise for promise in promises if promise.journal_length <= point]
        is_kept = _is_kept(state, (made or [Promise(0, [], -1)])[-1], scratch / str(number))
        yield "" if is_kept else f"seed {SEED}, {state.note}"


@pytest.mark.parametrize("preallocate", ["false", "true"])
def test_flushed_records_survive_a_power_cut_at_any_step(tmp_path: Path, preallocate: str) -> None:
    """Appending, flushing, rolling, cutting, closing: in every state the disk may be left in."""
    outcomes = list(_broken(*_run(tmp_path / "watched", preallocate=preallocate), tmp_path / "crashed"))
    assert "".join(outcomes) == ""
    assert len(outcomes) > 100


def test_flush_without_its_fsync_is_noticed(tmp_path: Path) -> None:
    """The test above notices it: without the first flush's fsync some state loses promised records."""
    fs, _ = _run(tmp_path / "whole")
    number = next(number for number, site in enumerate(fs.sync_sites) if "_force" in site)
    outcomes = _broken(*_run(tmp_path / "watched", skip_sync=number), tmp_path / "crashed")
    assert any(outcomes)


class _Full(ForgetfulFileSystem):
    """
    A disk that may lack room.

    Attributes:
        refused: the kind of change and the end of the file's name for which there is none; None: there is.
    """

    refused: tuple[str, str] | None = None

    def before(self, operation: Operation) -> None:
        if self.refused is not None and operation.kind == self.refused[0] and operation.path.match(self.refused[1]):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _failed_append(root: Path, refused: tuple[str, str], **settings: str) -> _Full:
    """Append and flush records; then an append in a transaction fails for lack of room, and is undone."""
    (root / str(PARTITION)).mkdir(parents=True)
    fs = _Full(root)
    with writing(root, fs) as place:
        writer = place.open(SETTINGS | settings, batch_bytes=100)
        writer.append([pair("there", "v" * 50)] * 2)
        writer.flush_to_disk()
        fs.refused = refused
        with pytest.raises(NoSpaceError):
            writer.append([pair("failed", "v" * 200)] * 4, producer=ProducerStamp(5, 0, 0, True))
        fs.refused = None
        assert writer.log_end_offset == 2
    return fs


def test_append_that_failed_does_not_come_back_after_a_power_cut(tmp_path: Path) -> None:
    """Its offsets may have been given to other records, so the cut that undoes it is on disk when it is answered."""
    fs = _failed_append(tmp_path / "watched", ("write", "*.index"), **{"internal.segment.bytes": "10000"})
    for number, state in enumerate(fs.states_at(len(fs.journal), limit=100, seed=SEED)):
        state.write_to(tmp_path / str(number))
        with writing(tmp_path / str(number)) as place:
            assert place.open(SETTINGS).log_end_offset == 2, state.note


def test_roll_that_failed_leaves_no_snapshot_after_a_power_cut(tmp_path: Path) -> None:
    """A snapshot of the undone append would tell a later recovery of a transaction that nobody began."""
    fs = _failed_append(tmp_path / "watched", ("create", "*.log"))
    for state in fs.states_at(len(fs.journal), limit=100, seed=SEED):
        assert not [path for path, _ in state.files if path.name.endswith(".snapshot")], state.note


def _closed(root: Path, skip_sync: int | None = None) -> tuple[ForgetfulFileSystem, int]:
    """Open a log dir with zeros behind its indexes, append, abort and close; returns where the close begins."""
    settings = {**SETTINGS, "internal.segment.bytes": "2000", "num.recovery.threads.per.data.dir": "1"}
    settings["preallocate"] = "true"  # so that the `.log`, too, is cut
    with LogManager(root, settings, create=True, cleaner=False, tasks=False) as manager:
        for topic in TOPICS:
            manager.create_topic(topic)
            manager.log(topic).append([Record(b"k", b"v" * 50)] * 2)
    for path in root.glob(f"*/{0:020d}.*index"):
        path.write_bytes(path.read_bytes() + bytes(240))  # as after a stop of an older broker (D-02)
    fs = ForgetfulFileSystem(root, skip_sync=skip_sync)
    manager = LogManager(root, settings, cleaner=False, tasks=False, fs=fs)
    for number in range(6):
        for topic in TOPICS:
            manager.log(topic).append([Record(f"k{number}".encode(), b"v" * 50)] * 2)
    with contextlib.suppress(KeyError), manager.log(TOPICS[0]).producer("one").transaction() as transaction:
        transaction.append([Record(b"k", b"aborted")])
        raise KeyError
    begin = len(fs.journal)
    manager.close()
    return fs, begin


def _marked_too_early(fs: ForgetfulFileSystem, begin: int, root: Path) -> list[str]:
    """Return the states of a close that have a clean-shutdown marker and are not what the close leaves."""

    def logs(files: Iterable[tuple[Path, bytes]]) -> dict[Path, bytes]:
        return {path: data for path, data in files if path.name[:20].isdigit()}

    wanted = logs((path.relative_to(root), path.read_bytes()) for path in root.glob("*/*") if path.is_file())
    states = [state for point, state in _states(fs) if point >= begin]
    marked = [state for state in states if Path(names.CLEAN_SHUTDOWN) in dict(state.files)]
    return [state.note for state in marked if logs((path, file.data) for path, file in state.files) != wanted]


def test_marker_is_on_disk_only_beside_files_as_they_were_closed(tmp_path: Path) -> None:
    """R-310, R-660: indexes are cut and forced to disk, 0 bytes too, and their names; the marker is last."""
    assert _marked_too_early(*_closed(tmp_path / "closed"), tmp_path / "closed") == []
    assert (tmp_path / "closed" / names.CLEAN_SHUTDOWN).exists()
    for path in (tmp_path / "closed").glob("*/*index"):
        assert not path.read_bytes().endswith(bytes(24))
    for path in (tmp_path / "closed").glob("*/*.log"):
        assert without_room(path.read_bytes()) == path.read_bytes()


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_close_without_the_fsync_of_a_file_is_noticed(tmp_path: Path, suffix: str) -> None:
    """The test above notices it: some state has the marker, and not the file."""
    fs, _ = _closed(tmp_path / "whole")
    synced = [operation.path.name.removesuffix(".tmp") for operation in fs.syncs]
    number = max(at for at, name in enumerate(synced) if name.endswith(suffix))
    assert _marked_too_early(*_closed(tmp_path / "closed", skip_sync=number), tmp_path / "closed")
