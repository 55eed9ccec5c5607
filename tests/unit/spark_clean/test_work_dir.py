"""The directory of bulk jobs belongs to our user, and is in no log dir."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cleaner.errors import ConfigError, LogDirOfflineError
from cleaner.spark.clean.manifest import JobFiles
from cleaner.spark.clean.work_dir import ready_work_dir
from cleaner.storage.fs.file_system import FileSystem


def test_work_dir_is_made_with_its_parent(tmp_path: Path) -> None:
    """So that the default below `cleaner.state.dir` works at once; a second call finds it."""
    (tmp_path / "logs").mkdir()
    wanted = tmp_path / "state" / "bulk"
    for _ in range(2):
        assert ready_work_dir(FileSystem(), wanted, tmp_path / "logs") == wanted
    assert wanted.stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("where", ["logs", "logs/a-0/work", "file", "open"])
def test_work_dir_that_cannot_be_trusted_is_refused(tmp_path: Path, where: str) -> None:
    """In the log dir, not a directory, or writable by others: its files decide which records stay."""
    (tmp_path / "logs" / "a-0").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(ConfigError, match=r"cleaner\.bulk\.work\.dir"):
        ready_work_dir(FileSystem(), tmp_path / where, tmp_path / "logs")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_work_dir_of_root_below_another_users_directory_is_refused(tmp_path: Path) -> None:
    """They could put another in its place; nothing is made there."""
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 4711, 4711)
    with pytest.raises(ConfigError, match="belongs to user 4711"):
        ready_work_dir(FileSystem(), tmp_path / "theirs" / "state" / "bulk", tmp_path / "logs")
    assert list((tmp_path / "theirs").iterdir()) == []


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_work_dir_of_another_user_is_refused_to_root(tmp_path: Path) -> None:
    """What lies in it decides which records stay, and its owner could put links there."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 4711, 4711)
    with pytest.raises(ConfigError, match="belongs to user 4711"):
        ready_work_dir(FileSystem(), theirs, tmp_path / "logs")


def test_job_directory_that_is_a_link_is_not_emptied(tmp_path: Path) -> None:
    """The name of a job's directory can be predicted: another user may have created a link there."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").touch()
    job = JobFiles(FileSystem(), tmp_path, tmp_path / "logs" / "a-0")
    job.path.symlink_to(victim)
    with pytest.raises(LogDirOfflineError):
        job.begin()
    assert (victim / "precious").exists()
