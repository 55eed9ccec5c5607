"""The swap: what it leaves, what it refuses, and what happens on a failing disk."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cleaner.errors import LogDirLockedError, LogDirOfflineError, NoSpaceError, UncleanableError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.leftovers import settle_leftovers
from cleaner.storage.swap.swap import (
    discard_cleaned,
    fsync_sources,
    remove_deleted,
    replace_by_several,
    replace_segments,
)
from tests.crash.swap_cases import CASES, Case, run
from tests.support.watched_fs import FailingFileSystem, Operation, WatchedFileSystem

MERGED = CASES[0]


def _contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def _after(case: Case) -> dict[str, bytes]:
    """The directory after a complete run: new segments, no snapshots of absorbed ones, everything else unchanged."""
    absorbed = {base for group in case.groups for base in group.bases[1:]}
    replaced = {base for group in case.groups for base in group.bases}
    kept = {
        name: data
        for name, data in case.before.items()
        if not name[:20].isdigit()
        or int(name[:20]) not in replaced
        or (name.endswith(".snapshot") and int(name[:20]) not in absorbed)
    }
    return kept | {name: data for group in case.groups for name, data in group.new.items()}


class _Recorder(WatchedFileSystem):
    """Lists every change by its name."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def after(self, operation: Operation) -> None:
        self.seen.append(str(operation).replace("0" * 18, "").replace("topic-0", "directory"))


def _write_cleaned(directory: Path, case: Case) -> None:
    for name, data in case.groups[0].new.items():
        (directory / (name + ".cleaned")).write_bytes(data)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_swap_completed_leaves_new_segments_only(tmp_path: Path, case: Case) -> None:
    """Old files, snapshots of absorbed segments and every temporary suffix are gone (R-601, D-11)."""
    case.write(tmp_path)
    run(FileSystem(), tmp_path, case)
    assert _contents(tmp_path) == _after(case)


def test_swap_steps_are_in_order_with_a_fence_after_each(tmp_path: Path) -> None:
    """S1 to S6 as in the module's table, logs before indexes, with five fences (R-601, D-10)."""
    case = CASES[1]
    directory = tmp_path / "topic-0"
    case.write(directory)
    _write_cleaned(directory, case)
    fs = _Recorder()
    replace_segments(fs, directory, new_base=0, old_bases=[20, 10, 0], still_held=lambda: fs.seen.append("lock?"))
    index_files = ["00.index", "00.timeindex", "00.txnindex", "10.index", "10.timeindex"]
    index_files += ["20.index", "20.timeindex", "20.txnindex"]
    assert fs.seen == [
        "lock?",
        *(f"rename 00.{kind}.cleaned -> 00.{kind}.swap" for kind in ("log", "index", "timeindex")),
        "fsync_dir directory",
        *(f"rename {base}.log -> {base}.log.deleted" for base in ("00", "10", "20")),
        "fsync_dir directory",
        *(f"rename {name} -> {name}.deleted" for name in index_files),
        "fsync_dir directory",
        "rename 00.log.swap -> 00.log",
        "fsync_dir directory",
        *(f"rename 00.{kind}.swap -> 00.{kind}" for kind in ("index", "timeindex")),
        "fsync_dir directory",
        *(f"rename {base}.snapshot -> {base}.snapshot.deleted" for base in ("10", "20")),
        *(f"remove 00.{kind}.deleted" for kind in ("log", "index", "timeindex", "txnindex")),
        *(f"remove 10.{kind}.deleted" for kind in ("log", "index", "timeindex", "snapshot")),
        *(f"remove 20.{kind}.deleted" for kind in ("log", "index", "timeindex", "txnindex", "snapshot")),
    ]


def test_swap_keeping_deleted_files_leaves_them_to_remove_deleted(tmp_path: Path) -> None:
    """Readers may still have the old files open; they are removed when the caller says so."""
    MERGED.write(tmp_path)
    _write_cleaned(tmp_path, MERGED)
    group = MERGED.groups[0]
    replace_segments(
        FileSystem(), tmp_path, new_base=0, old_bases=group.bases, still_held=lambda: None, keep_deleted=True
    )
    for base in group.bases:
        kept = tmp_path / f"{base:020d}.log.deleted"
        assert kept.read_bytes() == MERGED.before[f"{base:020d}.log"]
    assert (tmp_path / f"{10:020d}.snapshot.deleted").exists()
    remove_deleted(FileSystem(), tmp_path, group.bases)
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".deleted"]


def test_swap_with_lock_lost_renames_nothing(tmp_path: Path) -> None:
    """Once another process holds the log dir, no name is changed; its loader removes the `.cleaned` files."""
    MERGED.write(tmp_path)
    _write_cleaned(tmp_path, MERGED)
    before = _contents(tmp_path)

    def lost() -> None:
        raise LogDirLockedError("taken over")

    with pytest.raises(LogDirLockedError):
        replace_segments(FileSystem(), tmp_path, new_base=0, old_bases=[0, 10, 20], still_held=lost)
    assert _contents(tmp_path) == before


def test_swap_of_a_vanished_segment_is_refused_before_the_first_rename(tmp_path: Path) -> None:
    """A missing old `.log` means that another process works on the directory (R-602)."""
    MERGED.write(tmp_path)
    _write_cleaned(tmp_path, MERGED)
    (tmp_path / f"{10:020d}.log").unlink()
    before = _contents(tmp_path)
    with pytest.raises(LogDirOfflineError, match=r"10\.log"):
        replace_segments(FileSystem(), tmp_path, new_base=0, old_bases=[0, 10, 20], still_held=lambda: None)
    assert _contents(tmp_path) == before


@pytest.mark.parametrize("suffix", [".log", ".txnindex", ".snapshot"])
def test_swap_with_a_directory_in_the_way_is_refused_before_the_first_rename(tmp_path: Path, suffix: str) -> None:
    """It would stop in the middle, and so would each later load that completes it."""
    MERGED.write(tmp_path)
    _write_cleaned(tmp_path, MERGED)
    before = _contents(tmp_path)
    in_the_way = tmp_path / f"{10:020d}{suffix}.deleted"
    in_the_way.mkdir()
    with pytest.raises(UncleanableError, match=r"10\.\w+\.deleted: a directory"):
        replace_segments(FileSystem(), tmp_path, new_base=0, old_bases=[0, 10, 20], still_held=lambda: None)
    in_the_way.rmdir()
    assert _contents(tmp_path) == before


def test_split_with_a_directory_in_the_way_is_refused_before_the_first_rename(tmp_path: Path) -> None:
    """The same for the segments that take the place of one that is too large."""
    MERGED.write(tmp_path)
    _write_cleaned(tmp_path, MERGED)
    before = _contents(tmp_path)
    in_the_way = tmp_path / f"{0:020d}.log.deleted"
    in_the_way.mkdir()
    with pytest.raises(UncleanableError, match=r"log\.deleted: a directory"):
        replace_by_several(FileSystem(), tmp_path, 0, [0])
    in_the_way.rmdir()
    assert _contents(tmp_path) == before


def test_swap_of_a_group_beginning_elsewhere_is_refused(tmp_path: Path) -> None:
    """The new segment's base offset is that of the first old one (R-601)."""
    with pytest.raises(ValueError, match="does not begin"):
        replace_segments(FileSystem(), tmp_path, new_base=10, old_bases=[0, 10], still_held=lambda: None)


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize(("code", "error"), [(errno.EIO, LogDirOfflineError), (errno.ENOSPC, NoSpaceError)])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_swap_with_any_call_failing_leaves_old_or_new(
    tmp_path: Path, case: Case, code: int, error: type[Exception], lasting: bool
) -> None:
    """Whichever call fails, the error is reported and a loader finds every group old or new (C-1, C-2)."""
    total = FailingFileSystem(None, code)
    case.write(tmp_path / "whole")
    run(total, tmp_path / "whole", case)
    for number in range(total.calls):
        directory = tmp_path / str(number)
        case.write(directory)
        fs = FailingFileSystem(number, code, lasting=lasting)
        with pytest.raises(error):
            run(fs, directory, case)
        case.verdicts(_contents(directory))


def test_swap_failing_before_it_is_decided_takes_everything_back(tmp_path: Path) -> None:
    """Up to the fence of S2 a failure leaves the old segments and no temporary file (R-595)."""
    for number in range(5):  # four renames and the fence
        directory = tmp_path / str(number)
        MERGED.write(directory)
        _write_cleaned(directory, MERGED)
        fs = FailingFileSystem(number, errno.EIO)
        with pytest.raises(LogDirOfflineError):
            replace_segments(fs, directory, new_base=0, old_bases=[0, 10, 20], still_held=lambda: None)
        assert fs.failed is not None
        assert fs.failed.kind == ("fsync_dir" if number == 4 else "rename")
        assert _contents(directory) == MERGED.before


def test_swap_that_cannot_be_undone_keeps_a_cleaned_file(tmp_path: Path) -> None:
    """If the disk stays gone, a `.cleaned` file is left that makes every loader drop the `.swap` files (R-630)."""
    for number in range(1, 4):
        directory = tmp_path / str(number)
        MERGED.write(directory)
        _write_cleaned(directory, MERGED)
        fs = FailingFileSystem(number, errno.EIO, lasting=True)
        with pytest.raises(LogDirOfflineError) as caught:
            replace_segments(fs, directory, new_base=0, old_bases=[0, 10, 20], still_held=lambda: None)
        assert "undoing the swap failed, too" in caught.value.__notes__[0]
        assert [path for path in directory.iterdir() if path.suffix == ".cleaned"]
        assert MERGED.verdicts(_contents(directory)) == ["old", "old"]


def test_fsync_of_sources_takes_every_file_and_the_names(tmp_path: Path) -> None:
    """Log, indexes and snapshot of each segment, then the directory, before the first swap (D-10)."""
    MERGED.write(tmp_path)
    fs = _Recorder()
    fsync_sources(fs, tmp_path, [0, 10])
    assert fs.seen == [
        *(f"fsync 00.{kind}" for kind in ("log", "index", "timeindex", "txnindex")),
        *(f"fsync 10.{kind}" for kind in ("log", "index", "timeindex", "snapshot")),
        f"fsync_dir {tmp_path.name}",
    ]


def test_fsync_of_sources_failing_stops_before_any_swap(tmp_path: Path) -> None:
    """An fsync error is final: nothing is written or renamed after it (C-2)."""
    MERGED.write(tmp_path)
    fs = FailingFileSystem(3, errno.EIO)
    with pytest.raises(LogDirOfflineError):
        run(fs, tmp_path, MERGED)
    assert _contents(tmp_path) == MERGED.before


def test_discard_removes_cleaned_files_of_that_base_only(tmp_path: Path) -> None:
    """Leftovers of one base are removed before it is written again (R-590); others are left alone."""
    MERGED.write(tmp_path)
    _write_cleaned(tmp_path, MERGED)
    other = tmp_path / f"{30:020d}.log.cleaned"
    other.write_bytes(b"")
    discard_cleaned(FileSystem(), tmp_path, 0)
    assert _contents(tmp_path) == {**MERGED.before, other.name: b""}


def test_deleted_files_wait_for_their_time_beside_a_writer(tmp_path: Path) -> None:
    """They may be the writer's, and readers may still open them by these names."""
    path = tmp_path / "00000000000000000000.log.deleted"
    path.touch()
    settle_leftovers(FileSystem(), tmp_path, deleted_before_ms=path.stat().st_ctime_ns // 1_000_000, index_bytes=80)
    assert path.exists()
    settle_leftovers(FileSystem(), tmp_path, deleted_before_ms=2**62, index_bytes=80)
    assert not path.exists()
