"""Directories whose names a power cut does not take back."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cleaner.errors import LogDirOfflineError
from cleaner.storage.fs.new_dir import make_durable_dir
from tests.support.watched_fs import Operation, WatchedFileSystem


class _Disk(WatchedFileSystem):
    """A disk that notes what it forces, and fails to do so while it is told to."""

    def __init__(self) -> None:
        self.forced: list[str] = []
        self.fails = True

    def before(self, operation: Operation) -> None:
        if operation.kind == "fsync_dir":
            if self.fails:
                raise OSError(errno.EIO, "lost")
            self.forced.append(operation.path.name)

    def after(self, operation: Operation) -> None:
        """Note nothing."""


def test_name_that_could_not_be_forced_is_forced_by_the_next_attempt(tmp_path: Path) -> None:
    """The directory is there since the first attempt; nothing of it may be on the disk."""
    fs, place = _Disk(), tmp_path / "new"
    with pytest.raises(LogDirOfflineError):
        make_durable_dir(fs, place, 0o700)
    with pytest.raises(LogDirOfflineError):
        make_durable_dir(fs, place, 0o700)
    assert place.is_dir()
    fs.fails = False
    make_durable_dir(fs, place, 0o700)
    assert fs.forced == [tmp_path.name]


def test_directory_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    fs = _Disk()
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    make_durable_dir(fs, tmp_path / "there", 0o700)
    assert fs.forced == []
