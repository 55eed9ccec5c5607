"""One process has a lock, and a second one learns which."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cleaner.errors import LogDirOfflineError, StateDirLockedError
from cleaner.state.lock_file import LockFile
from cleaner.storage.fs.file_system import FileSystem
from tests.forked import killed_beside_its_fork

HOLD = """
import sys
from pathlib import Path
from cleaner.state.lock_file import LockFile
from cleaner.storage.fs.file_system import FileSystem
lock = LockFile(FileSystem(), Path(sys.argv[1]), "it")
print("held", flush=True)
sys.stdin.read()
"""


def lock(directory: Path) -> LockFile:
    return LockFile(FileSystem(), directory / "lock", "the barn")


def test_second_holder_gets_the_name_of_the_first(tmp_path: Path) -> None:
    """Within one process too: the lock belongs to the open file, not to the process."""
    with lock(tmp_path), pytest.raises(StateDirLockedError, match=rf"^the barn is in use by process {os.getpid()} on "):
        lock(tmp_path)


def test_lock_is_free_after_release_and_the_file_stays(tmp_path: Path) -> None:
    """Two releases are as good as one."""
    first = lock(tmp_path)
    first.release()
    first.release()
    lock(tmp_path).release()
    assert (tmp_path / "lock").exists()


def test_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    """The kernel gives it back, whatever the file says."""
    arguments = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StateDirLockedError, match=f"process {holder.pid} on "):
            lock(tmp_path)
        holder.kill()
        holder.wait()
        lock(tmp_path).release()


@pytest.mark.parametrize("content", [b"", b"\x1b[2Jprocess 1 on a\n", b"process 1 on a\x1b[2J\n", b"\xff" * 500])
def test_file_with_nonsense_names_no_process(tmp_path: Path, content: bytes) -> None:
    """What is in it reaches a terminal only when it is what a holder writes."""
    with lock(tmp_path):
        (tmp_path / "lock").write_bytes(content)
        with pytest.raises(StateDirLockedError, match=r"^the barn is in use by another process$"):
            lock(tmp_path)


def test_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    """Otherwise the user who placed it could have any file overwritten."""
    (tmp_path / "precious").write_text("keep")
    (tmp_path / "lock").symlink_to("precious")
    with pytest.raises(LogDirOfflineError):
        lock(tmp_path)
    assert (tmp_path / "precious").read_text() == "keep"


def test_lock_of_a_killed_process_is_free_though_its_fork_lives(tmp_path: Path) -> None:
    """A lock ends with the process that took it."""
    with killed_beside_its_fork(lambda: lock(tmp_path)):
        lock(tmp_path).release()
