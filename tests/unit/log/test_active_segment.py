"""The active segment, and an exception in the middle of an fsync."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from cleaner.base.model import AbortedTxn
from cleaner.errors import FailedFsyncError, LogDirOfflineError, LogTruncatedError
from cleaner.log.partition_writer import PartitionWriter
from cleaner.log.reader import LogReader
from cleaner.log.record import ProducerStamp, Record
from cleaner.read.snapshot import LogSnapshots
from tests.crash.interrupts import Interrupt, Interrupter
from tests.support.batch_reader import without_room
from tests.support.watched_fs import FailingFileSystem
from tests.unit.log.writing import PARTITION, Writing, pair, writing

_ROOM = {"preallocate": "true", "internal.segment.bytes": "8000", "index.interval.bytes": "100"}
_MIB = 1 << 20


@pytest.mark.parametrize("step", ["flush", "roll"])
def test_fsync_interrupted_anywhere_is_done_again_or_has_failed(step: str, tmp_path: Path) -> None:
    """At every point where an exception may be raised: the next flush works, or closes the log; none is refused."""
    point = 0
    while True:
        point += 1
        with writing(tmp_path / str(point)) as place:
            writer = place.open()
            writer.append([pair("a", "b")])
            segment = writer._log.active
            call = segment.fsync_log if step == "flush" else segment.fsync_all
            try:
                with Interrupter(point):
                    call()
            except Interrupt:
                try:
                    assert writer.flush_to_disk() == 1
                    writer.roll()
                except FailedFsyncError:
                    assert step == "roll"  # the exception replaced an error of the system
                assert segment.is_retired
                assert all(file._handle.closed for file in segment._files)
            else:
                assert point > 5
                return
            finally:
                writer.abandon()


def _fill(writer: PartitionWriter, count: int = 5) -> None:
    for number in range(count):
        writer.append([pair(f"k{number}", "v" * 100)])
        writer.flush_to_disk()


def _log_bytes(place: Writing) -> list[bytes]:
    return [data for name, data in place.files().items() if name.endswith(".log")]


def test_room_is_behind_the_batches_only_while_the_segment_is_active(tmp_path: Path) -> None:
    """The same bytes as without `preallocate` once a segment is complete or closed; never more than `segment.bytes`."""
    left: dict[str, dict[str, bytes]] = {}
    for preallocate in ("true", "false"):
        with writing(tmp_path / preallocate) as place:
            writer = place.open({**_ROOM, "preallocate": preallocate})
            _fill(writer)
            (active,) = _log_bytes(place)
            assert len(active) == (8000 if preallocate == "true" else len(without_room(active)))
            writer.roll()
            _fill(writer, 2)
            closed, active = _log_bytes(place)
            assert closed == without_room(closed)
            assert (len(active) == 8000) == (preallocate == "true")
            writer.close()
            left[preallocate] = place.files()
    assert left["true"] == left["false"]


def test_room_is_a_mebibyte_and_none_for_large_appends(tmp_path: Path) -> None:
    """A large append takes as long with room, and its zeros would be written for nothing."""
    with writing(tmp_path / "log-dir") as place:
        writer = place.open({"preallocate": "true"})
        writer.append([Record(b"k", bytes(100_000))])
        (log,) = _log_bytes(place)
        assert len(log) < 101_000
        writer.append([pair("k", "v")])
        (grown,) = _log_bytes(place)
        assert len(grown) == len(without_room(grown)) + _MIB
        writer.abandon()


def test_room_that_a_kill_left_is_cut_off_by_the_recovery(tmp_path: Path) -> None:
    """Nothing acknowledged goes, and the log goes on behind its last batch."""
    with writing(tmp_path / "log-dir") as place:
        writer = place.open(_ROOM)
        _fill(writer)
        before = without_room(_log_bytes(place)[0])
        writer.abandon()
        again = place.open(_ROOM)
        assert again.log_end_offset == 5
        assert _log_bytes(place) == [before]
        again.close()


def test_append_needs_no_space_for_room(tmp_path: Path) -> None:
    """On a disk that has space for the record alone, it is appended without room, and takes no more space."""
    fs = FailingFileSystem(None, errno.ENOSPC, kinds=frozenset(("write",)))
    with writing(tmp_path / "log-dir", fs) as place:
        writer = place.open(_ROOM)
        fs.calls, fs._fail_at = 0, 0
        assert writer.append([pair("k", "v")]).last_offset == 0
        assert fs.failed is not None
        assert fs.failed.data.endswith(bytes(100))
        (log,) = _log_bytes(place)
        assert log == without_room(log)
        writer.close()
        assert _log_bytes(place) == [without_room(_log_bytes(place)[0])]


def test_failed_append_is_taken_out_of_the_room(tmp_path: Path) -> None:
    """A batch that was written in part is gone, durably, and the next one takes its place."""
    fs = FailingFileSystem(None, errno.EIO, kinds=frozenset(("write",)))
    with writing(tmp_path / "log-dir", fs) as place:
        writer = place.open(_ROOM)
        _fill(writer, 2)
        whole = without_room(_log_bytes(place)[0])
        fs.calls, fs._fail_at = 0, 0
        with pytest.raises(LogDirOfflineError):
            writer.append([pair("lost", "x" * 50)], producer=ProducerStamp(5, 0, 0, True))
        assert _log_bytes(place) == [whole]
        assert writer.append([pair("k", "v")]).base_offset == 2
        assert writer.flush_to_disk() == writer.last_stable_offset == 3  # nor has its transaction begun
        writer.close()


def test_age_of_a_segment_is_not_that_of_a_batch_that_was_undone(tmp_path: Path) -> None:
    """An old record whose append has failed does not make every later one begin a segment (R-920)."""
    fs = FailingFileSystem(None, errno.EIO, kinds=frozenset(("write",)))
    with writing(tmp_path / "log-dir", fs) as place:
        writer = place.open({"segment.ms": "100", "cleanup.policy": "compact"})
        fs.calls, fs._fail_at = 0, 0
        with pytest.raises(LogDirOfflineError):
            writer.append([Record(b"lost", b"v", timestamp_ms=1)])
        for _ in range(3):
            writer.append([pair("k", "v")])
        assert writer._log.active.base_offset == 0
        writer.close()


def test_abort_that_was_undone_leaves_no_entry_of_its_transaction(tmp_path: Path) -> None:
    """The producer commits instead: by the entry readers would leave out what it has committed."""
    with writing(tmp_path / "log-dir") as place:
        writer = place.open()
        writer.append([pair("k", "v")], producer=ProducerStamp(5, 0, 0, True))
        segment = writer._log.active
        add_aborted = segment.add_aborted

        def interrupted(txns: Sequence[AbortedTxn]) -> None:
            add_aborted(txns)
            raise KeyboardInterrupt

        segment.add_aborted = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            writer.end_transaction(5, 0, commit=False)
        writer.append([pair("l", "v")])
        writer.flush_to_disk()
        assert writer.last_stable_offset == 0
        assert writer.end_transaction(5, 0, commit=True) == 2
        writer.flush_to_disk()
        assert writer.last_stable_offset == 3
        writer.close()
        assert place.files()["00000000000000000000.txnindex"] == b""


def test_readers_elsewhere_take_room_for_the_end_and_its_loss_for_no_cut(tmp_path: Path) -> None:
    """A snapshot ends at the last batch; a state goes on over a roll, and not over a cut."""
    with writing(tmp_path / "log-dir") as place:
        writer = place.open(_ROOM)
        _fill(writer)
        log = LogSnapshots(place.fs).take(PARTITION, place.directory)
        assert (log.end_offset, log.end_position) == (5, len(without_room(_log_bytes(place)[0])))
        with LogReader(place.fs, place.log_dir.path, PARTITION) as reader:
            assert reader.log_end_offset == 5
            state, cut = reader.latest(), reader.latest()
            writer.roll()
            assert len(state.to_dict()) == 5
            writer.truncate_to(2)
            with pytest.raises(LogTruncatedError):
                cut.to_dict()
            state.close()
            cut.close()
        writer.close()


@pytest.mark.parametrize("room", [0, 1, 11, 12, 13, 60, 61, 62])
def test_state_goes_on_over_the_loss_of_any_room(room: int, tmp_path: Path) -> None:
    """However little is left of it when the segment is complete; a snapshot ends in front of it."""
    with writing(tmp_path / "log-dir") as place:
        writer = place.open(_ROOM)
        writer.append([pair("k", "v" * 1000)])
        size = len(without_room(_log_bytes(place)[0])) - 1000
        writer.append([pair("l", "v" * (8000 - 2 * size - 1000 - room))])
        (log,) = _log_bytes(place)
        assert len(log) == len(without_room(log)) + room
        assert LogSnapshots(place.fs).take(PARTITION, place.directory).end_offset == 2
        with LogReader(place.fs, place.log_dir.path, PARTITION) as reader, reader.latest() as state:
            writer.roll()
            assert len(state.to_dict()) == 2
        writer.close()


def test_batch_that_is_being_written_into_the_room_is_torn_and_not_damage(tmp_path: Path) -> None:
    """Whatever of it is there yet, a log that is not loaded ends before it."""
    with writing(tmp_path / "log-dir") as place:
        writer = place.open(_ROOM)
        _fill(writer)
        end = len(without_room(_log_bytes(place)[0]))
        writer.append([pair("k", "w" * 50)])
        whole = without_room(_log_bytes(place)[0])
        path = next(place.directory.glob("*.log"))
        for there in range(end, len(whole.rstrip(b"\0"))):  # the last byte is a zero anyway
            path.write_bytes(whole[:there] + bytes(8000 - there))
            log = LogSnapshots(place.fs).take(PARTITION, place.directory)
            assert (log.end_position, log.end_offset) == (end, 5), there
        writer.abandon()
