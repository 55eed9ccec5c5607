"""Deleted files and directories are removed when their delay has passed."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.errors import LogDirOfflineError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.remove.removals import Removals
from tests.support.manual_clock import ManualClock


def test_files_and_directories_go_after_their_delays(tmp_path: Path) -> None:
    """Each at its own time (R-610), and nothing else in the directory."""
    clock = ManualClock()
    removals = Removals(FileSystem(), clock)
    kept, gone = tmp_path / "a-0", tmp_path / "b-0.0123456789abcdef0123456789abcdef-delete"
    for directory in (kept, gone):
        directory.mkdir()
        (directory / "x.deleted").touch()
        (directory / "y").touch()
    assert removals.due_ns is None
    removals.add_directory(gone, 2000)
    removals.add_files(kept, ("x.deleted", "never-there"), 1000)
    assert removals.due_ns == 1_000_000_000
    removals.remove_due()
    assert (kept / "x.deleted").exists()
    clock.move_on(1)
    removals.remove_due()
    assert [path.name for path in kept.iterdir()] == ["y"]
    assert removals.due_ns == 2_000_000_000
    clock.move_on(1)
    removals.remove_due()
    assert not gone.exists()
    assert removals.due_ns is None


def test_directory_that_is_already_removed_is_no_error(tmp_path: Path) -> None:
    """A topic may be deleted while segments of it wait."""
    removals = Removals(FileSystem(), ManualClock())
    removals.add_files(tmp_path / "a-0", ("x.deleted",), 0)
    removals.add_directory(tmp_path / "b-0", 0)
    removals.remove_due()
    assert removals.due_ns is None


def test_directory_with_a_directory_in_it_is_left(tmp_path: Path) -> None:
    """The cleaner did not create it."""
    removals = Removals(FileSystem(), ManualClock())
    directory = tmp_path / "a-0.0123456789abcdef0123456789abcdef-delete"
    (directory / "mine").mkdir(parents=True)
    (directory / "0.log").touch()
    removals.add_directory(directory, 0)
    removals.remove_due()
    assert [path.name for path in directory.iterdir()] == ["mine"]


def test_removal_that_fails_is_made_a_minute_later(tmp_path: Path) -> None:
    """The others are made, and the error is raised; the files do not have to wait for the next start."""
    clock, fs = ManualClock(), FileSystem()
    removals = Removals(fs, clock)
    blocked, gone = tmp_path / "a-0", tmp_path / "b-0"
    for directory in (blocked, gone):
        directory.mkdir()
        removals.add_files(directory, ("x.deleted",), 0)
    (blocked / "x.deleted").mkdir()  # no file: it cannot be removed
    (gone / "x.deleted").touch()
    with pytest.raises(LogDirOfflineError, match=r"x\.deleted"):
        removals.remove_due()
    assert not (gone / "x.deleted").exists()
    assert removals.due_ns == 60_000_000_000
    (blocked / "x.deleted").rmdir()
    (blocked / "x.deleted").touch()
    clock.move_on(60)
    removals.remove_due()
    assert not (blocked / "x.deleted").exists()
    assert removals.due_ns is None
