"""Running as the owner of the log dir."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.cli.work import take_identity
from cleaner.errors import ForeignDirectoryError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.ownership import OwnDirectories, Owner, can_own, closed_to, owner_of

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED FOR WANT OF ROOT: giving root up is not shown here")

PROGRAM = """
import json, os, sys, threading
from pathlib import Path
from cleaner.storage.fs.file_system import FileSystem
from cleaner.cli.work import take_identity
from cleaner.storage.fs.ownership import owner_of
path = Path(sys.argv[1])
owner = owner_of([path])
take_identity(path, stay_root=False, needs_kernels=False)
try:
    os.setresuid(0, 0, 0)
    back = True
except PermissionError:
    back = False
FileSystem().write_atomically(path.resolve() / "made", b"content")
others = []
thread = threading.Thread(target=lambda: others.append(os.geteuid()))
thread.start(); thread.join()
print(json.dumps([owner, back, os.getresuid(), os.getresgid(), sorted(os.getgroups()), others]))
"""


def run(path: Path) -> list[object]:
    """Become the owner in a separate process and report its ids."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE, check=True)
    result: list[object] = json.loads(done.stdout)
    return result


@pytest.fixture
def foreign_dir() -> Iterator[Path]:
    """A log dir of user 1001 and group 1002. Not below `tmp_path`, where pytest keeps other users out."""
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        path = Path(parent) / "log-dir"
        path.mkdir()
        path.chmod(0o755)
        os.chown(path, 1001, 1002)
        yield path


@pytest.mark.root
@NEEDS_ROOT
def test_identity_of_root_gives_root_up_for_good(foreign_dir: Path) -> None:
    """User and groups become the owner's in all threads, with no way back."""
    owner, back, uids, gids, groups, others = run(foreign_dir)
    assert owner == [1001, 1002]
    assert back is False
    assert (uids, gids, groups) == ([1001] * 3, [1002] * 3, [1002])
    assert others == [1001]


@pytest.mark.root
@NEEDS_ROOT
def test_identity_files_made_then_belong_to_the_owner(foreign_dir: Path) -> None:
    """Files created afterwards have the directory's owner, group and read and write bits."""
    run(foreign_dir)
    status = (foreign_dir / "made").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (1001, 1002, 0o644)


@pytest.mark.root
@NEEDS_ROOT
def test_identity_of_a_linked_log_dir_is_the_targets_owner(foreign_dir: Path) -> None:
    """A link to a log dir may be root's; the owner of the target counts."""
    link = foreign_dir.parent / "link"
    link.symlink_to(foreign_dir)
    assert run(link)[0] == [1001, 1002]
    assert (foreign_dir / "made").stat().st_uid == 1001


@pytest.mark.root
@NEEDS_ROOT
def test_identity_of_roots_own_directory_changes_nothing(tmp_path: Path) -> None:
    """Root's own log dir is cleaned as root."""
    os.chown(tmp_path, 0, 0)
    owner, _, uids, gids, _, _ = run(tmp_path)
    assert (owner, uids, gids) == (None, [0, 0, 0], [0, 0, 0])


def test_identity_without_root_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary user does not change, whoever owns the log dir: no call that would change it is made."""

    def refuse(*_: int) -> None:
        raise AssertionError("tried to change user")

    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    for name in ("setgroups", "setresgid", "setresuid"):
        monkeypatch.setattr(os, name, refuse)
    take_identity(tmp_path, stay_root=False)


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
    """Only root can give files to another user; a user can create its own files, in groups that it belongs to."""
    fields = list(FileSystem().stat(tmp_path))
    fields[4], fields[5] = uid, gid
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(os, "getegid", lambda: 1235)
    monkeypatch.setattr(os, "getgroups", lambda: [1235, 1300])
    assert can_own(os.stat_result(fields)) is expected
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert can_own(os.stat_result(fields)) is True


def test_owner_prints_as_user_and_group() -> None:
    """Messages show the numbers as `chown` accepts them."""
    assert str(Owner(1001, 1002)) == "1001:1002"


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of root's, as `/data` is, with directories of several owners."""
    with tempfile.TemporaryDirectory() as name:
        for directory, uid in (("own", 0), ("own2", 0), ("theirs", 1001), ("theirs2", 1001), ("others", 1003)):
            path = Path(name, directory)
            (path / "topic-0").mkdir(parents=True)
            for each in (path, path / "topic-0"):
                os.chown(each, uid, uid)
                each.chmod(0o755)
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.root
@NEEDS_ROOT
@pytest.mark.parametrize(
    ("directories", "expected"),
    [
        pytest.param(["own", "own2"], None, id="roots-own"),
        pytest.param(["theirs", "theirs2"], Owner(1001, 1001), id="one-owner"),
        pytest.param(["missing", "theirs"], Owner(1001, 1001), id="first-is-missing"),
        pytest.param(["theirs", "missing"], Owner(1001, 1001), id="last-is-missing"),
        pytest.param(["missing"], None, id="nothing-there-yet"),
        pytest.param(["theirs/kept/new"], Owner(1001, 1001), id="to-be-made-in-theirs"),
        pytest.param(["theirs/topic-0"], Owner(1001, 1001), id="partition"),
    ],
)
def test_owner_is_that_of_all_directories(place: Path, directories: list[str], expected: Owner | None) -> None:
    """Every existing one counts; if all are root's, the parent of a missing one decides."""
    assert owner_of([place / name for name in directories]) == expected


@pytest.mark.root
@NEEDS_ROOT
@pytest.mark.parametrize(
    "directories", [["own", "theirs"], ["theirs", "own"], ["theirs", "others"], ["own", "theirs/new"]], ids=str
)
def test_directories_of_several_owners_are_refused(place: Path, directories: list[str]) -> None:
    """Only root could work in both; the message says who owns each."""
    with pytest.raises(ForeignDirectoryError, match="directories of different owners") as refused:
        owner_of([place / name for name in directories])
    for name in directories:
        assert f"{place / name} to " in str(refused.value)
    assert "--as-root" in str(refused.value)


def _give(path: Path, uid: int = 0, mode: int = 0o755) -> Path:
    os.chown(path, uid, uid)
    path.chmod(mode)
    return path


@pytest.mark.root
@NEEDS_ROOT
@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777, 0o1777], ids=oct)
@pytest.mark.parametrize("where", [".", "own", "own/topic-0"])
def test_root_does_not_work_where_others_may_write(place: Path, where: str, mode: int) -> None:
    """They could exchange its files; a sticky directory, such as `/tmp`, is allowed only above."""
    open_one = _give(place / where, mode=mode)
    if where == "." and mode == 0o1777:
        assert owner_of([place / "own"]) is None
        return
    with pytest.raises(ForeignDirectoryError, match=f"others may write to {open_one}; chown it .* chmod go-w"):
        owner_of([place / "own"])
    with pytest.raises(ForeignDirectoryError) if where == "." else contextlib.nullcontext():
        owner_of([place / "missing"])


@pytest.mark.root
@NEEDS_ROOT
@pytest.mark.parametrize("where", [".", "own/topic-0"])
def test_root_does_not_work_below_or_above_another_users_directory(place: Path, where: str) -> None:
    """Another user's home directory, and another user's partition in root's log dir."""
    theirs = _give(place / where, uid=1001)
    with pytest.raises(ForeignDirectoryError, match=f"{theirs} belongs to user 1001"):
        owner_of([place / "own"])


@pytest.mark.root
@NEEDS_ROOT
def test_directory_that_appears_later_is_held_only_if_it_is_ours(place: Path) -> None:
    """Log dirs are mounted, and partitions created, while a daemon runs."""
    fs = OwnDirectories()
    with fs.hold(place / "own"), fs.hold(place / "own" / "topic-0"):
        pass
    with pytest.raises(ForeignDirectoryError, match=r"belongs to (user )?\w+, and this process has become root"):
        fs.hold(place / "theirs")
    _give(place / "own" / "topic-0", mode=0o777)
    with fs.hold(place / "own"), pytest.raises(ForeignDirectoryError, match="others may write"):
        fs.hold(place / "own" / "topic-0")


@pytest.mark.root
@NEEDS_ROOT
def test_root_refuses_to_be_led_by_another_users_link(tmp_path: Path) -> None:
    """Its target is root's, but the other user decides which target it is."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    ours.mkdir()
    (theirs / "logs").symlink_to(ours)
    os.chown(theirs, 4711, 4711)
    with pytest.raises(ForeignDirectoryError, match="root would work where others can replace files"):
        owner_of([theirs / "logs"])
    link = tmp_path / "link"
    link.symlink_to(ours)
    assert owner_of([link]) is None
    os.chown(link, 4711, 4711, follow_symlinks=False)
    with pytest.raises(ForeignDirectoryError, match="is a link of user 4711"):
        owner_of([link])


@pytest.mark.root
@NEEDS_ROOT
def test_root_refuses_a_missing_directory_where_others_could_put_theirs(tmp_path: Path) -> None:
    """A sticky directory keeps others from exchanging existing entries, but not from creating the missing one first."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o1777)
    missing = tmp_path / "open" / "missing"
    with pytest.raises(ForeignDirectoryError, match=rf"others may write to .*/open; make {missing} first") as refused:
        owner_of([missing])
    assert "chown" not in str(refused.value)  # it could be /tmp itself
    missing.mkdir()
    assert owner_of([missing]) is None
    (tmp_path / "open" / "there").mkdir(mode=0o755)
    assert owner_of([tmp_path / "open" / "there"]) is None


@pytest.mark.parametrize(
    ("mode", "uid", "is_closed"),
    [(0o700, 0, True), (0o710, 0, False), (0o711, 0, False), (0o700, 1001, False), (0o077, 1001, True)],
    ids=["others", "group", "everybody", "owner", "owner-shut-out"],
)
@pytest.mark.root
@NEEDS_ROOT
def test_closed_directory_on_the_way_is_named(place: Path, mode: int, uid: int, is_closed: bool) -> None:
    """Only the one class of rights that applies to the user counts, as in the system."""
    place.chmod(0o755)
    way = place / "way"
    (way / "program").mkdir(parents=True)
    (way / "program").chmod(0o755)
    os.chown(way, uid, 1002)
    way.chmod(mode)
    assert closed_to(way / "program", Owner(1001, 1002)) == (way if is_closed else None)
