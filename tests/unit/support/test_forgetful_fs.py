"""Unit tests of the forgetful disk: it forgets what it may, and never what was fsynced."""

from __future__ import annotations

import inspect
import random
from pathlib import Path

import pytest

from cleaner.errors import LogDirOfflineError
from cleaner.storage.fs.file_system import File, FileSystem
from tests.support.forgetful_fs import ForgetfulFileSystem
from tests.support.power_cut import FORGOTTEN_MTIME_NS, SECTOR, DiskState
from tests.support.watched_fs import WatchedFile, WatchedFileSystem

# What needs no watching, as it changes nothing or goes through a method that is watched.
READS = {
    "accept",
    "exists",
    "find",
    "free_bytes",
    "hold",
    "is_in_place",
    "list_dir",
    "list_dirs",
    "list_files",
    "scan_dir",
    "read_bytes",
    "space",
    "stat",
    "stat_followed",
    "wait_until_freed",
    "write_atomically",
}
# Of the state directory and its socket: no crash of a log's own steps comes by this.
BESIDE_LOGS = {"set_mode", "shredding"}  # with it each removal is watched writes, and then the removal
FILE_READS = {
    "begin_writeback",
    "copy_from",  # each call of the system that it makes is watched
    "data_from",
    "close",
    "drop_cache",
    "expect_sequential_reads",
    "fileno",
    "is_cached",
    "map",  # of a table's index, which has a checksum
    "punch",  # of blocks that are zeros, durably: they read as zeros before and after
    "read",
    "read_into",
    "size",
    "stat",
    "write",  # likewise
}


def _names(state: DiskState) -> dict[str, bytes]:
    return {str(path): file.data for path, file in state.files}


def _all(fs: ForgetfulFileSystem, point: int | None = None) -> list[dict[str, bytes]]:
    length = len(fs.journal) if point is None else point
    return [_names(state) for state in fs.states_at(length, limit=4096, seed=1)]


def _write(fs: FileSystem, path: Path, data: bytes, *, sync: bool) -> None:
    with fs.create(path, like=path.parent) as file:
        file.write(data, 0)
        if sync:
            file.fsync()


def test_every_method_that_changes_something_is_watched() -> None:
    """A new primitive of `storage/fs/file_system.py` must be watched too, or its crashes are not tested."""

    def public(kind: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}

    assert public(FileSystem) - READS - BESIDE_LOGS == set(vars(WatchedFileSystem)) & public(FileSystem)
    assert public(File) - FILE_READS == set(vars(WatchedFile)) & public(File)


def test_file_unsynced_may_be_missing_torn_zeros_or_whole(tmp_path: Path) -> None:
    """Neither name nor content is promised before any fsync."""
    fs = ForgetfulFileSystem(tmp_path)
    _write(fs, tmp_path / "a", b"12345678", sync=False)
    seen = _all(fs)
    assert {} in seen
    assert {"a": b"12345678"} in seen
    for seed in range(60):
        seen += [_names(state) for state in fs.states_at(len(fs.journal), limit=4096, seed=seed)]
    assert {"a": b""} in seen
    assert {"a": b"1234"} in seen
    assert {"a": bytes(8)} in seen


def test_file_synced_without_its_directory_may_have_no_name(tmp_path: Path) -> None:
    """fsync of a file keeps its content, not its name."""
    fs = ForgetfulFileSystem(tmp_path)
    _write(fs, tmp_path / "a", b"data", sync=True)
    assert _all(fs) == [{"a": b"data"}, {}]


def test_file_and_directory_synced_stay(tmp_path: Path) -> None:
    """After both fsyncs there is but one state."""
    fs = ForgetfulFileSystem(tmp_path)
    _write(fs, tmp_path / "a", b"data", sync=True)
    fs.fsync_dir(tmp_path)
    assert _all(fs) == [{"a": b"data"}]


def test_directory_synced_without_its_file_keeps_the_name_only(tmp_path: Path) -> None:
    """fsync of a directory keeps names, not contents."""
    fs = ForgetfulFileSystem(tmp_path)
    _write(fs, tmp_path / "a", b"data", sync=False)
    fs.fsync_dir(tmp_path)
    seen = _all(fs)
    assert all("a" in state for state in seen)
    assert len(seen) > 1


def test_renames_unsynced_happen_in_any_order(tmp_path: Path) -> None:
    """A later rename may be kept and an earlier one forgotten; each file has its old or its new name."""
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode())
    fs = ForgetfulFileSystem(tmp_path)
    fs.rename(tmp_path / "a", tmp_path / "a2")
    fs.rename(tmp_path / "b", tmp_path / "b2")
    seen = _all(fs)
    assert len(seen) == 4
    assert {"a": b"a", "b2": b"b"} in seen
    assert {"a2": b"a", "b": b"b"} in seen


def test_rename_over_another_file_leaves_one_or_the_other(tmp_path: Path) -> None:
    """A rename that replaces is atomic."""
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "new").write_bytes(b"new")
    fs = ForgetfulFileSystem(tmp_path)
    fs.rename(tmp_path / "new", tmp_path / "old")
    assert _all(fs) == [{"old": b"new"}, {"old": b"old", "new": b"new"}]


def test_file_renamed_twice_has_one_name(tmp_path: Path) -> None:
    """When the first of two renames is forgotten the file still has one name."""
    (tmp_path / "a").write_bytes(b"a")
    fs = ForgetfulFileSystem(tmp_path)
    fs.rename(tmp_path / "a", tmp_path / "b")
    fs.rename(tmp_path / "b", tmp_path / "c")
    seen = _all(fs)
    assert sorted(name for state in seen for name in state) == ["a", "b", "c"]
    assert len(seen) == 3


def test_removal_unsynced_may_be_undone(tmp_path: Path) -> None:
    """A removed file may come back until the directory is fsynced."""
    (tmp_path / "a").write_bytes(b"a")
    fs = ForgetfulFileSystem(tmp_path)
    fs.remove(tmp_path / "a")
    assert _all(fs) == [{}, {"a": b"a"}]
    fs.fsync_dir(tmp_path)
    assert _all(fs) == [{}]


def test_time_set_after_the_fsync_may_be_forgotten(tmp_path: Path) -> None:
    """An mtime is part of the file: set behind its fsync, it is not durable."""
    fs = ForgetfulFileSystem(tmp_path)
    with fs.create(tmp_path / "a", like=tmp_path) as file:
        file.write(b"a", 0)
        fs.set_mtime_ns(tmp_path / "a", 5_000)
        file.fsync()
    fs.set_mtime_ns(tmp_path / "a", 7_000)
    fs.fsync_dir(tmp_path)
    times = {file.mtime_ns for state in fs.states_at(len(fs.journal), limit=100, seed=1) for _, file in state.files}
    assert times == {5_000, 7_000}
    assert FORGOTTEN_MTIME_NS not in times


def test_overwrite_unsynced_keeps_what_was_synced_elsewhere_in_the_file(tmp_path: Path) -> None:
    """A later write may be forgotten or torn; bytes outside of it stay as synced."""
    (tmp_path / "a").write_bytes(b"abcdefgh")
    fs = ForgetfulFileSystem(tmp_path)
    with fs.open(tmp_path / "a", write=True) as file:
        file.write(b"XY", 2)
        file.truncate(6)
    for state in _all(fs):
        assert state["a"][:2] == b"ab"
        assert state["a"][4:6] == b"ef"


def test_files_found_unsynced_may_be_lost(tmp_path: Path) -> None:
    """Files copied in by others and never fsynced are as doubtful as our own."""
    (tmp_path / "topic-0").mkdir()
    (tmp_path / "topic-0" / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    fs = ForgetfulFileSystem(tmp_path, unsynced=lambda path: path.name == "a")
    assert {"b": b"b"} in _all(fs)
    with fs.open(tmp_path / "topic-0" / "a") as file:
        file.fsync()
    fs.fsync_dir(tmp_path / "topic-0")
    assert _all(fs) == [{"b": b"b", "topic-0/a": b"a"}]


def test_sync_skipped_is_no_sync(tmp_path: Path) -> None:
    """The n-th fsync can be left out, to see whether anyone notices."""
    fs = ForgetfulFileSystem(tmp_path, skip_sync=1)
    _write(fs, tmp_path / "a", b"data", sync=True)
    fs.fsync_dir(tmp_path)
    assert [str(sync) for sync in fs.syncs] == ["fsync a", f"fsync_dir {tmp_path.name}"]
    assert {} in _all(fs)


def test_states_of_many_changes_are_sampled_by_seed(tmp_path: Path) -> None:
    """Too many combinations are sampled: the same for one seed, others for another, never more than asked."""
    fs = ForgetfulFileSystem(tmp_path)
    for number in range(30):
        _write(fs, tmp_path / f"{number}", b"x", sync=True)
    point = len(fs.journal)
    first = list(fs.states_at(point, limit=200, seed=1))
    assert first == list(fs.states_at(point, limit=200, seed=1))
    assert first != list(fs.states_at(point, limit=200, seed=2))
    assert len(first) == len(set(first)) == 200


def test_state_written_out_has_contents_and_times(tmp_path: Path) -> None:
    """A state can be laid out as a directory for recovery."""
    (tmp_path / "disk" / "topic-0").mkdir(parents=True)
    (tmp_path / "disk" / "topic-0" / "a").write_bytes(b"a")
    fs = ForgetfulFileSystem(tmp_path / "disk")
    fs.set_mtime_ns(tmp_path / "disk" / "topic-0" / "a", 123_000_000_000)
    state = next(fs.states_at(len(fs.journal), limit=1, seed=1))
    state.write_to(tmp_path / "copy")
    copied = tmp_path / "copy" / "topic-0" / "a"
    assert copied.read_bytes() == b"a"
    assert copied.stat().st_mtime_ns == 123_000_000_000


def test_rename_between_directories_is_not_modelled(tmp_path: Path) -> None:
    """Better an error than a wrong model."""
    with pytest.raises(ValueError, match="between directories"):
        ForgetfulFileSystem(tmp_path).rename(tmp_path / "a", tmp_path / "d" / "a")


def test_directory_unsynced_may_have_no_name(tmp_path: Path) -> None:
    """A new directory, and all that is in it, is durable with an fsync of the one above."""
    fs = ForgetfulFileSystem(tmp_path)
    fs.make_dir(tmp_path / "t-0", 0o700)
    _write(fs, tmp_path / "t-0" / "a", b"data", sync=True)
    fs.fsync_dir(tmp_path / "t-0")
    assert _all(fs) == [{"t-0/a": b"data"}, {}]
    fs.fsync_dir(tmp_path)
    assert _all(fs) == [{"t-0/a": b"data"}]


def test_directory_renamed_unsynced_may_have_its_old_name(tmp_path: Path) -> None:
    """What is in it goes with it, whatever was written since."""
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "a").write_bytes(b"a")
    fs = ForgetfulFileSystem(tmp_path)
    fs.rename(tmp_path / "t-0", tmp_path / "t-0-delete")
    _write(fs, tmp_path / "t-0-delete" / "b", b"b", sync=True)
    fs.fsync_dir(tmp_path / "t-0-delete")
    assert _all(fs) == [{"t-0-delete/a": b"a", "t-0-delete/b": b"b"}, {"t-0/a": b"a", "t-0/b": b"b"}]
    fs.fsync_dir(tmp_path)
    assert _all(fs) == [{"t-0-delete/a": b"a", "t-0-delete/b": b"b"}]


def test_file_that_was_made_and_failed_to_be_made_like_another_was_there_and_goes(tmp_path: Path) -> None:
    """Between the two another process can find it, and remove it."""
    fs = ForgetfulFileSystem(tmp_path)
    with pytest.raises(LogDirOfflineError):
        fs.create(tmp_path / "a", like=tmp_path / "missing")
    assert [operation.kind for operation in fs.journal] == ["create", "remove"]
    fs.create(tmp_path / "b", like=None).close()
    fs.create(tmp_path / "c", like=tmp_path / "b").close()
    assert [operation.path.name for operation in fs.journal[2:]] == ["b", "c"]


def test_directory_removed_unsynced_may_come_back(tmp_path: Path) -> None:
    """Empty: the files in it were removed durably."""
    (tmp_path / "t-0").mkdir()
    fs = ForgetfulFileSystem(tmp_path)
    fs.remove_dir(tmp_path / "t-0")
    seen = {state.directories for state in fs.states_at(len(fs.journal), limit=10, seed=1)}
    assert seen == {(), (Path("t-0"),)}


def test_write_unsynced_is_torn_by_sectors(tmp_path: Path) -> None:
    """Each sector may be old, new or zeros, whatever the others are."""
    (tmp_path / "a").write_bytes(b"o" * 4 * SECTOR)
    fs = ForgetfulFileSystem(tmp_path)
    with fs.open(tmp_path / "a", write=True) as file:
        file.write(b"n" * 3 * SECTOR, SECTOR // 2)
    sectors = set()
    for seed in range(400):
        data = fs.power_cut().draw(random.Random(seed)).files[0][1].data
        assert (data[: SECTOR // 2], data[-SECTOR // 2 :]) == (b"o" * (SECTOR // 2), b"o" * (SECTOR // 2))
        assert all(len(set(data[at : at + SECTOR])) == 1 for at in (SECTOR, 2 * SECTOR))
        sectors.add((data[SECTOR : SECTOR + 1], data[2 * SECTOR : 2 * SECTOR + 1]))
    assert len(sectors) == 9


@pytest.mark.parametrize("seed", range(4))
def test_pages_lost_by_an_fsync_are_on_no_disk_whatever_is_synced_later(tmp_path: Path, seed: int) -> None:
    """The page cache shows them until it is dropped; what is written later reaches the disk."""
    fs = ForgetfulFileSystem(tmp_path)
    with fs.create(tmp_path / "a", like=tmp_path) as file:
        file.write(b"old", 0)
        file.fsync()
        fs.fsync_dir(tmp_path)
        file.write(b"lost", 3)
        fs.lose_pages(file.stat().st_ino, random.Random(seed))
        assert file.read(7, 0) == b"oldlost"
        file.write(b"new", 7)
        file.fsync()
        after = fs.power_cut().draw(random.Random(seed)).files[0][1].data
        assert after in (b"old\0\0\0\0new", b"oldlostnew")
        assert (fs.without_lost_pages(tmp_path / "a"), file.read(20, 0)) == (after, b"oldlostnew")
        fs.drop_cache(file.fileno())
        assert file.read(20, 0) == after
