"""Which logs count as the same: what a handover copied is known again, whatever inode and times its copy has."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.handover import is_same_log
from tests.support.log_builder import LogBuilder

FS = FileSystem()


def written(tmp_path: Path) -> tuple[Path, Path]:
    """A log of two segments, and its copy."""
    log = LogBuilder()
    log.append(("k", "v"))
    log.roll()
    log.append(("k", "w"))
    source = log.write(tmp_path)
    return source, Path(shutil.copytree(source, tmp_path / "copy"))


def test_copy_is_the_same_log(tmp_path: Path) -> None:
    """Its files have the sizes and modification times of the source's; inodes and times of change are their own."""
    assert is_same_log(FS, *written(tmp_path))


@pytest.mark.parametrize("change", ["longer", "later", "more", "fewer"])
def test_log_that_differs_in_a_segment_is_another(tmp_path: Path, change: str) -> None:
    """By name, size or modification time."""
    source, copy = written(tmp_path)
    segment = max(copy.glob("*.log"))
    about = segment.stat()
    if change == "longer":
        with segment.open("ab") as file:
            file.write(b"x")
        os.utime(segment, ns=(about.st_atime_ns, about.st_mtime_ns))
    elif change == "later":
        os.utime(segment, ns=(about.st_atime_ns, about.st_mtime_ns + 1))
    elif change == "more":
        (copy / f"{9:020d}.log").touch()
    else:
        segment.unlink()
    assert not is_same_log(FS, source, copy)
