"""A held directory stays the same one to the end, and no link below it is followed."""

from __future__ import annotations

import os
import pickle
import resource
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.errors import LogDirOfflineError, OutOfDescriptorsError
from cleaner.storage.fs.file_system import FileSystem

ROOT = pytest.mark.skipif(
    os.geteuid() != 0, reason="SKIPPED FOR WANT OF ROOT: rights that others lack are not shown here"
)


@pytest.fixture
def fs() -> FileSystem:
    return FileSystem()


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log dir with a partition, next to an unrelated directory."""
    for directory in ("logs/topic-0", "victim/topic-0"):
        (tmp_path / directory).mkdir(parents=True)
        for name in ("a", "b"):
            (tmp_path / directory / name).write_text(directory)
    return tmp_path / "logs"


def exchange(directory: Path, victim: Path) -> Path:
    """Replace a directory by a link; returns the directory's new path."""
    aside = directory.with_name("aside")
    directory.rename(aside)
    directory.symlink_to(victim)
    return aside


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


EVERYTHING: dict[str, Callable[[FileSystem, Path], object]] = {
    "open": lambda fs, at: fs.open(at / "a").close(),
    "open to write": lambda fs, at: fs.open(at / "a", write=True).close(),
    "create": lambda fs, at: fs.create(at / "new", like=None).close(),
    "create like a file": lambda fs, at: fs.create(at / "new", like=at / "a").close(),
    "create like the directory": lambda fs, at: fs.create(at / "new", like=at).close(),
    "stat": lambda fs, at: fs.stat(at / "a"),
    "list_dir": lambda fs, at: fs.list_dir(at),
    "list_files": lambda fs, at: fs.list_files(at),
    "list_dirs": lambda fs, at: fs.list_dirs(at),
    "scan_dir": lambda fs, at: fs.scan_dir(at, ("a",)),
    "read_bytes": lambda fs, at: fs.read_bytes(at / "a"),
    "rename": lambda fs, at: fs.rename(at / "a", at / "c"),
    "link": lambda fs, at: fs.link(at / "a", at / "c"),
    "remove": lambda fs, at: fs.remove(at / "a"),
    "rename_all": lambda fs, at: fs.rename_all(at, [("a", "c")]),
    "remove_all": lambda fs, at: fs.remove_all(at, ["a", "b"]),
    "remove_all by threads": lambda fs, at: fs.remove_all(at, ["a", "b"], 2),
    "fsync_all": lambda fs, at: fs.fsync_all(at, ["a"]),
    "fsync_all of many": lambda fs, at: fs.fsync_all(at, ["a"] * 100),
    "fsync_dir": lambda fs, at: fs.fsync_dir(at),
    "make_dir": lambda fs, at: fs.make_dir(at / "new", 0o700),
    "set_mode": lambda fs, at: fs.set_mode(at / "a", 0o600),
    "set_mtime_ns": lambda fs, at: fs.set_mtime_ns(at / "a", 1),
    "space": lambda fs, at: fs.space(at),
    "write_atomically": lambda fs, at: fs.write_atomically(at / "a", b"new"),
}


def look(directory: Path) -> dict[str, tuple[object, ...]]:
    """Return the status of a directory and of its entries."""
    found = {path: path.lstat() for path in (directory, *directory.iterdir())}
    return {path.name: (about.st_mode, about.st_mtime_ns, about.st_ino) for path, about in found.items()}


@pytest.mark.parametrize("what", EVERYTHING)
def test_link_below_a_held_directory_is_not_followed(fs: FileSystem, logs: Path, tmp_path: Path, what: str) -> None:
    """Every call fails, and nothing outside changes."""
    victim = tmp_path / "victim" / "topic-0"
    with fs.hold(logs):
        exchange(logs / "topic-0", victim)
        before = look(victim)
        with pytest.raises((LogDirOfflineError, NotADirectoryError)):
            EVERYTHING[what](fs, logs / "topic-0")
    assert look(victim) == before


@pytest.mark.parametrize("what", EVERYTHING)
def test_held_directory_is_worked_in_whatever_its_name_leads_to(
    fs: FileSystem, logs: Path, tmp_path: Path, what: str
) -> None:
    """Calls do the same there as without the exchange."""
    victim = tmp_path / "victim" / "topic-0"
    with fs.hold(logs), fs.hold(logs / "topic-0"):
        aside = exchange(logs / "topic-0", victim)
        before = look(victim)
        EVERYTHING[what](fs, logs / "topic-0")
        names = fs.list_dir(logs / "topic-0")
    assert look(victim) == before
    assert names == sorted(path.name for path in aside.iterdir())


@pytest.mark.parametrize("name", ["a", "missing"])
def test_names_are_found_in_the_held_directory(fs: FileSystem, logs: Path, tmp_path: Path, name: str) -> None:
    """Also by calls that report a missing name without an error."""
    (tmp_path / "victim" / "topic-0" / "missing").touch()
    with fs.hold(logs), fs.hold(logs / "topic-0"):
        exchange(logs / "topic-0", tmp_path / "victim" / "topic-0")
        assert fs.exists(logs / "topic-0" / name) is (name == "a")
        assert fs.find(logs / "topic-0", ["a", "missing"]) == ["a"]
    assert fs.exists(logs / "topic-0" / name)
    with fs.hold(logs):
        assert not fs.exists(logs / "topic-0" / name)
        assert fs.find(logs / "topic-0", ["a", "missing"]) == []


def test_hold_follows_no_link_on_the_way(fs: FileSystem, logs: Path, tmp_path: Path) -> None:
    """Neither in its last name nor above: a link there was made after the caller resolved the path."""
    exchange(logs, tmp_path / "victim")
    for path in (logs, logs / "topic-0"):
        with pytest.raises(LogDirOfflineError):
            fs.hold(path)
    with fs.hold(logs / "topic-0", follow_above=True):
        assert fs.read_bytes(logs / "topic-0" / "a") == b"victim/topic-0"


def test_held_path_with_dots_is_refused(fs: FileSystem, logs: Path) -> None:
    """A name made from external text stays below the held directory."""
    with fs.hold(logs), pytest.raises(LogDirOfflineError, match=r"contains `\.\.`"):
        fs.stat(logs / "topic-0" / ".." / ".." / "victim")


def test_error_below_a_held_directory_names_the_path(fs: FileSystem, logs: Path) -> None:
    """The operator gets the same message as without a held directory."""
    with fs.hold(logs):
        with pytest.raises(FileNotFoundError) as missing:
            fs.open(logs / "topic-0" / "c")
        with pytest.raises(FileNotFoundError) as gone:
            fs.stat(logs / "topic-1" / "a")
    assert missing.value.filename == str(logs / "topic-0" / "c")
    assert gone.value.filename == str(logs / "topic-1")


def test_hold_of_another_directory_by_the_same_name_is_refused(fs: FileSystem, logs: Path, tmp_path: Path) -> None:
    """Two callers would think that they work in one directory; after the first releases it, it may be held."""
    first = fs.hold(logs / "topic-0")
    (logs / "topic-0").rename(tmp_path / "aside")
    (logs / "topic-0").mkdir()
    with pytest.raises(LogDirOfflineError, match="another directory, which had this name before"):
        fs.hold(logs / "topic-0")
    first.release()
    with fs.hold(logs / "topic-0"):
        assert fs.list_dir(logs / "topic-0") == []


def test_held_directory_that_we_rename_is_held_by_its_new_name(fs: FileSystem, logs: Path) -> None:
    """As when a topic is deleted: a new directory with its old name is another one."""
    with fs.hold(logs), fs.hold(logs / "topic-0"):
        fs.rename(logs / "topic-0", logs / "topic-0.x-delete")
        fs.make_dir(logs / "topic-0", 0o700)
        assert fs.list_dir(logs / "topic-0") == []
        assert fs.list_dir(logs / "topic-0.x-delete") == ["a", "b"]


def test_descriptors_are_closed_with_the_last_holder_and_user(fs: FileSystem, logs: Path) -> None:
    """Several may hold one directory; a second release, or one during use, does no harm."""
    before = open_descriptors()
    first, second = fs.hold(logs), fs.hold(logs)
    with fs.hold(logs / "topic-0"):
        assert open_descriptors() == before + 2
    first.release()
    first.release()
    assert open_descriptors() == before + 1
    with fs._held.inside(logs) as at:
        second.release()
        assert at.descriptor is not None
        assert stat.S_ISDIR(os.fstat(at.descriptor).st_mode)
    assert open_descriptors() == before
    with pytest.raises(LogDirOfflineError):
        fs.hold(logs / "missing")
    assert open_descriptors() == before


def test_threads_list_a_held_directory_at_the_same_time(fs: FileSystem, logs: Path) -> None:
    """The position of a listing belongs to an opening of the directory: each listing uses its own."""
    for number in range(300):
        (logs / "topic-0" / f"n{number}").touch()
    expected = sorted(path.name for path in (logs / "topic-0").iterdir())
    wrong: list[object] = []

    def list_again_and_again() -> None:
        for _ in range(20):
            found = fs.list_dir(logs / "topic-0")
            if found != expected:
                wrong.append(found)

    with fs.hold(logs / "topic-0"):
        threads = [threading.Thread(target=list_again_and_again) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_mode_of_what_a_link_leads_to_is_not_changed(fs: FileSystem, logs: Path) -> None:
    """Otherwise a link that replaced a new directory would open, or close, another one to everyone."""
    (logs / "link").symlink_to(logs / "topic-0")
    before = (logs / "topic-0").stat().st_mode
    with pytest.raises(LogDirOfflineError):
        fs.set_mode(logs / "link", 0o777)
    assert (logs / "topic-0").stat().st_mode == before


def test_new_file_does_not_inherit_set_id_bits(fs: FileSystem, logs: Path) -> None:
    """Otherwise a log with these bits would become a program that runs as root."""
    (logs / "topic-0" / "a").chmod(0o6755)
    fs.create(logs / "topic-0" / "new", like=logs / "topic-0" / "a").close()
    assert stat.S_IMODE((logs / "topic-0" / "new").stat().st_mode) == 0o755


def test_new_file_does_not_inherit_from_a_link(fs: FileSystem, logs: Path) -> None:
    """A link's own mode is 0777; the new file is removed."""
    (logs / "topic-0" / "link").symlink_to("a")
    with pytest.raises(LogDirOfflineError):
        fs.create(logs / "topic-0" / "new", like=logs / "topic-0" / "link")
    assert not (logs / "topic-0" / "new").exists()


@pytest.mark.root
@ROOT
@pytest.mark.parametrize("holds", [True, False], ids=["held", "by its path"])
@pytest.mark.parametrize("what", ["open to write", "set_mode", "set_mtime_ns"])
def test_root_does_not_change_a_users_file_through_a_hard_link(
    fs: FileSystem, logs: Path, what: str, holds: bool
) -> None:
    """The directory's owner made a hard link to a file that they may not write to."""
    victim = logs.parent / "victim" / "topic-0" / "b"
    (logs / "topic-0" / "a").unlink()
    (logs / "topic-0" / "a").hardlink_to(victim)
    for path in (logs, logs / "topic-0"):
        os.chown(path, 4711, 4711)
    before = victim.stat()
    held = fs.hold(logs) if holds else None
    try:
        with pytest.raises(LogDirOfflineError, match="hard link"):
            EVERYTHING[what](fs, logs / "topic-0")
    finally:
        if held is not None:
            held.release()
    assert victim.stat() == before


@pytest.mark.root
@ROOT
@pytest.mark.parametrize(("uid", "mode", "is_fine"), [(0, 0o755, True), (4711, 0o755, True), (0, 0o775, False)])
def test_root_changes_a_file_with_a_second_name_where_one_owner_alone_gives_names(
    fs: FileSystem, logs: Path, uid: int, mode: int, is_fine: bool
) -> None:
    """As after `clean --keep-old`: file and directory have one owner, and others cannot write."""
    (logs / "kept").hardlink_to(logs / "topic-0" / "a")
    for path in (logs / "topic-0", logs / "topic-0" / "a"):
        os.chown(path, uid, uid)
    (logs / "topic-0").chmod(mode)
    if is_fine:
        fs.open(logs / "topic-0" / "a", write=True).close()
    else:
        with pytest.raises(LogDirOfflineError, match="hard link"):
            fs.open(logs / "topic-0" / "a", write=True)


def test_status_of_a_held_directory_is_its_own(fs: FileSystem, logs: Path, tmp_path: Path) -> None:
    """New directories copy its mode, so it must be that of the directory in which they are created."""
    with fs.hold(logs):
        before = fs.stat(logs)
        exchange(logs, tmp_path / "victim")
        assert fs.stat(logs).st_ino == before.st_ino


def test_unreadable_file_is_not_a_missing_one(fs: FileSystem, logs: Path) -> None:
    """Without free descriptors nothing below a held directory can be looked up; that does not mean it is missing."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with fs.hold(logs):
        taken = os.dup(0)
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken + 1, before[1]))
        try:
            for ask in (lambda: fs.exists(logs / "topic-0" / "a"), lambda: fs.find(logs / "topic-0", ["a"])):
                with pytest.raises(OutOfDescriptorsError):
                    ask()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            os.close(taken)
        assert fs.exists(logs / "topic-0" / "a")


def test_file_system_that_holds_a_directory_is_pickled_without(fs: FileSystem, logs: Path) -> None:
    """Spark sends readers to other processes; held directories stay with this one."""
    with fs.hold(logs):
        copy = pickle.loads(pickle.dumps(fs))  # noqa: S301 - our own
    assert copy.list_dir(logs) == fs.list_dir(logs)
