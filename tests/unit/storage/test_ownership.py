"""Running as the owner of the log dir."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.storage.fs import FileSystem
from cleaner.storage.ownership import Owner, become_owner, can_own

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED FOR WANT OF ROOT: giving root up is not shown here")

PROGRAM = """
import json, os, sys, threading
from pathlib import Path
from cleaner.storage.fs import FileSystem
from cleaner.storage.ownership import become_owner
path = Path(sys.argv[1])
owner = become_owner(path)
again = become_owner(path)
try:
    os.setresuid(0, 0, 0)
    back = True
except PermissionError:
    back = False
FileSystem().write_atomically(path.resolve() / "made", b"content")
others = []
thread = threading.Thread(target=lambda: others.append(os.geteuid()))
thread.start(); thread.join()
print(json.dumps([owner, again, back, os.getresuid(), os.getresgid(), sorted(os.getgroups()), others]))
"""


def run(path: Path) -> list[object]:
    """Become the owner in a process of its own and report what it then is."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE, check=True)
    result: list[object] = json.loads(done.stdout)
    return result


@pytest.fixture
def foreign_dir() -> Iterator[Path]:
    """A log dir of user 1001 and group 1002. Not below `tmp_path`: pytest keeps other users out of there."""
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        path = Path(parent) / "log-dir"
        path.mkdir()
        path.chmod(0o755)
        os.chown(path, 1001, 1002)
        yield path


@pytest.mark.root
@NEEDS_ROOT
def test_become_owner_as_root_gives_root_up_for_good(foreign_dir: Path) -> None:
    """User and groups become the owner's in all threads, without a way back; a second call does nothing."""
    owner, again, back, uids, gids, groups, others = run(foreign_dir)
    assert owner == [1001, 1002]
    assert (again, back) == (None, False)
    assert (uids, gids, groups) == ([1001] * 3, [1002] * 3, [1002])
    assert others == [1001]


@pytest.mark.root
@NEEDS_ROOT
def test_become_owner_files_made_then_belong_to_the_owner(foreign_dir: Path) -> None:
    """What is created afterwards has the directory's owner, group and read and write bits."""
    run(foreign_dir)
    status = (foreign_dir / "made").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (1001, 1002, 0o644)


@pytest.mark.root
@NEEDS_ROOT
def test_become_owner_of_a_linked_log_dir_is_the_targets_owner(foreign_dir: Path) -> None:
    """A link to a log dir may be root's; what counts is whose directory it leads to."""
    link = foreign_dir.parent / "link"
    link.symlink_to(foreign_dir)
    assert run(link)[0] == [1001, 1002]
    assert (foreign_dir / "made").stat().st_uid == 1001


@pytest.mark.root
@NEEDS_ROOT
def test_become_owner_of_roots_own_directory_changes_nothing(tmp_path: Path) -> None:
    """Root's own log dir is cleaned as root."""
    os.chown(tmp_path, 0, 0)
    owner, _, _, uids, gids, _, _ = run(tmp_path)
    assert (owner, uids, gids) == (None, [0, 0, 0], [0, 0, 0])


def test_become_owner_without_root_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary user stays who he is, whoever owns the log dir: none of the calls that would change him is made."""

    def refuse(*_: int) -> None:
        raise AssertionError("tried to change user")

    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    for name in ("setgroups", "setresgid", "setresuid"):
        monkeypatch.setattr(os, name, refuse)
    assert become_owner(tmp_path) is None


@pytest.mark.parametrize(
    ("uid", "gid", "expected"),
    [
        pytest.param(1234, 1235, True, id="own-user-own-group"),
        pytest.param(1234, 1300, True, id="own-user-member-of-group"),
        pytest.param(1234, 1400, False, id="own-user-foreign-group"),
        pytest.param(1000, 1235, False, id="foreign-user"),
    ],
)
def test_can_own_as_user_is_own_user_and_groups_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, gid: int, expected: bool
) -> None:
    """Only root can hand files to somebody else; a user can create files for himself in groups he is in."""
    fields = list(FileSystem().stat(tmp_path))
    fields[4], fields[5] = uid, gid
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(os, "getegid", lambda: 1235)
    monkeypatch.setattr(os, "getgroups", lambda: [1235, 1300])
    assert can_own(os.stat_result(fields)) is expected
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert can_own(os.stat_result(fields)) is True


def test_owner_prints_as_user_and_group() -> None:
    """Messages show the numbers as `chown` takes them."""
    assert str(Owner(1001, 1002)) == "1001:1002"
