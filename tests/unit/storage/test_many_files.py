"""Operations on many files at once: no file is left out, and no failure goes unnoticed."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from cleaner.errors import LogDirOfflineError, NoSpaceError
from cleaner.storage.fs import many_files
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.fs.held import HeldDirectories
from cleaner.storage.fs.many_files import SYNCFS_FROM, open_large, share_out, sync_at_once
from cleaner.storage.fs.space import require_room
from tests.support.no_threads import start_no_more_threads
from tests.support.watched_fs import Operation, WatchedFileSystem

EXT4, FUSE = 0xEF53, 0x65735546
NAMES = [f"{number:020d}.log" for number in range(2 * SYNCFS_FROM)]


class _Library:
    """Replaces the C library: a file system of some type whose syncfs succeeds or fails."""

    def __init__(self, file_system: int = EXT4, error: int = 0) -> None:
        self.synced = 0
        self._file_system = file_system
        self._error = error

    def fstatfs(self, _descriptor: int, answer: ctypes.Array[ctypes.c_char]) -> int:
        ctypes.c_ulong.from_buffer(answer).value = self._file_system
        return 0

    def syncfs(self, _descriptor: int) -> int:
        self.synced += 1
        ctypes.set_errno(self._error)
        return -1 if self._error else 0


class _Counting(FileSystem):
    """Counts the files opened to be fsynced."""

    def __init__(self) -> None:
        self.opened = 0

    def open(self, path: Path, *, write: bool = False) -> File:
        self.opened += 1
        return super().open(path, write=write)


class _Recorder(WatchedFileSystem):
    """Lists every change."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def after(self, operation: Operation) -> None:
        self.seen.append(str(operation))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> _Library:
    return _given(monkeypatch, _Library())


def _given(monkeypatch: pytest.MonkeyPatch, library: _Library) -> _Library:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_args, **_kwargs: library)
    return library


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).write_bytes(b"data")
    return tmp_path


def test_many_files_are_forced_by_one_sync(directory: Path, library: _Library) -> None:
    """From some number of files on, the file system is synced once and only the last file is opened (D-10)."""
    fs = _Counting()
    fs.fsync_all(directory, NAMES)
    assert (library.synced, fs.opened) == (1, 0)


def test_few_files_are_fsynced_one_by_one(directory: Path, library: _Library) -> None:
    """For few files, a sync of all other processes' writes costs too much; missing files are skipped."""
    fs = _Counting()
    fs.fsync_all(directory, [*NAMES[: SYNCFS_FROM - 2], "missing"])
    assert (library.synced, fs.opened) == (0, SYNCFS_FROM - 1)


def test_last_file_is_fsynced_after_the_sync(
    directory: Path, library: _Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk flushes its own cache even if the file system had nothing to write."""
    synced_before: list[tuple[int, str]] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        synced_before.append((library.synced, str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    FileSystem().fsync_all(directory, [*NAMES, "missing"])
    assert synced_before == [(1, str(directory.resolve() / NAMES[-1]))]


@pytest.mark.parametrize(("code", "error"), [(errno.EIO, LogDirOfflineError), (errno.ENOSPC, NoSpaceError)])
def test_failed_sync_is_final(
    directory: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception]
) -> None:
    """The error is raised and nothing is retried: the system reports it only once (C-2)."""
    library = _given(monkeypatch, _Library(error=code))
    fs = _Counting()
    with pytest.raises(error):
        fs.fsync_all(directory, NAMES)
    assert (library.synced, fs.opened) == (1, 0)


def test_other_file_systems_are_not_trusted_with_a_sync(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On FUSE, network and layered ones a sync may return before data is on disk: each file is fsynced."""
    library = _given(monkeypatch, _Library(FUSE))
    fs = _Counting()
    fs.fsync_all(directory, NAMES)
    assert (library.synced, fs.opened) == (0, len(NAMES))


@pytest.mark.parametrize(
    ("system", "release", "is_trusted"),
    [
        ("Linux", "5.7.19", False),
        ("Linux", "5.8.0-rc1", True),
        ("Linux", "6.12.3-amd64", True),
        ("Linux", "unknown", False),
        ("Darwin", "23.1.0", False),
    ],
)
def test_kernels_that_hide_failed_writes_are_not_trusted(
    directory: Path, library: _Library, monkeypatch: pytest.MonkeyPatch, system: str, release: str, is_trusted: bool
) -> None:
    """syncfs reports failed writes since Linux 5.8 only."""
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((system, "host", release, "", "")))
    assert sync_at_once(HeldDirectories().inside(directory), NAMES) is is_trusted
    assert library.synced == is_trusted


def test_link_among_many_files_is_refused(directory: Path, library: _Library) -> None:
    """The sync covers only regular files of the file system; opening another one reports what is wrong."""
    (directory / NAMES[7]).unlink()
    (directory / NAMES[7]).symlink_to(NAMES[8])
    with pytest.raises(LogDirOfflineError, match=NAMES[7]):
        FileSystem().fsync_all(directory, NAMES)
    assert library.synced == 0


def test_watched_disk_fsyncs_file_by_file(directory: Path, library: _Library) -> None:
    """Crash tests leave out each fsync in turn, whatever their number."""
    fs = _Recorder()
    fs.fsync_all(directory, NAMES)
    assert fs.seen == [f"fsync {name}" for name in NAMES]
    assert library.synced == 0


@pytest.mark.parametrize("fs", [FileSystem(), WatchedFileSystem()], ids=["real", "watched"])
@pytest.mark.parametrize("threads", [1, 3])
def test_files_removed_on_any_number_of_threads_are_gone(directory: Path, fs: FileSystem, threads: int) -> None:
    """All named files are removed, missing ones are no error, others stay."""
    fs.remove_all(directory, [*NAMES[1:], "missing"], threads)
    assert fs.list_files(directory) == NAMES[:1]


class _Gate:
    """Takes the place of closing removed files: holds each thread up until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.came = threading.Semaphore(0)
        real = many_files._close_all

        def close_all(removed: list[io.FileIO]) -> None:
            self.came.release()
            assert self.open.wait(10)
            real(removed)

        monkeypatch.setattr(many_files, "_close_all", close_all)


def _held_names(directory: Path) -> list[str]:
    """Return the removed segments of a directory of which this process still has a descriptor."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(each.readlink())
    ending = ".log (deleted)"
    return sorted(
        each.name.removesuffix(" (deleted)")
        for each in found
        if each.parent == directory.resolve() and each.name.endswith(ending)
    )


def _grow(directory: Path, *names: str) -> None:
    for name in names:
        os.truncate(directory / name, FileSystem.freed_behind_bytes)


def test_blocks_of_large_files_are_freed_behind_the_caller(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All names are gone at once; a large file's blocks, here a sparse one's, when its descriptor is closed."""
    gate, fs = _Gate(monkeypatch), FileSystem()
    _grow(directory, *NAMES[3:5])
    fs.remove_all(directory, [*NAMES[:10], "missing"])
    assert fs.list_files(directory) == NAMES[10:]
    assert _held_names(directory) == NAMES[3:5]
    waiting = threading.Thread(target=fs.wait_until_freed)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    gate.open.set()
    waiting.join()
    assert _held_names(directory) == []


def test_no_more_than_two_removals_wait_to_be_freed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the disk frees more slowly than rounds remove, they wait for it."""
    gate, fs = _Gate(monkeypatch), FileSystem()
    _grow(directory, *NAMES[:3])
    for name in NAMES[:2]:
        fs.remove_all(directory, [name])
    third = threading.Thread(target=fs.remove_all, args=(directory, [NAMES[2]]))
    third.start()
    third.join(0.05)
    assert third.is_alive()
    gate.open.set()
    third.join()
    fs.wait_until_freed()
    assert _held_names(directory) == []


def test_without_threads_or_descriptors_a_removal_frees_at_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lacking either costs time, not the removal."""
    fs = FileSystem()
    _grow(directory, *NAMES[:2])
    with monkeypatch.context() as patch:
        start_no_more_threads(patch)
        fs.remove_all(directory, NAMES[:1])
    with monkeypatch.context() as patch:
        patch.setattr(many_files, "_TO_HOLD", -1)  # which no system accepts
        fs.remove_all(directory, NAMES[1:2])
    fs.wait_until_freed()
    assert (fs.list_files(directory), _held_names(directory)) == (NAMES[2:], [])


def test_files_among_many_and_links_are_not_held(directory: Path) -> None:
    """A descriptor each would be too many, and a link is removed, not what it leads to."""
    _grow(directory, NAMES[0])
    (directory / "link").symlink_to(NAMES[0])
    at = HeldDirectories().inside(directory)
    held = open_large(at, [*NAMES[:40], "missing", "link"], FileSystem.freed_behind_bytes)
    assert [os.fstat(each.fileno()).st_ino for each in held] == [(directory / NAMES[0]).stat().st_ino]
    held[0].close()
    assert open_large(at, ["missing"] * 512 + NAMES[:1], 1) == []
    _grow(directory, *NAMES[:70])
    held = open_large(at, NAMES[:70], 1)
    assert len(held) == 64
    for each in held:
        each.close()


def test_room_that_is_being_freed_counts(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that would be refused for want of room waits first for what the one before has removed."""
    gate, fs = _Gate(monkeypatch), FileSystem()
    monkeypatch.setattr(fs, "free_bytes", lambda _path: (1 << 30) * gate.open.is_set())
    _grow(directory, NAMES[0])
    fs.remove_all(directory, NAMES[:1])
    assert gate.came.acquire(timeout=10)
    opener = threading.Timer(0.05, gate.open.set)
    opener.start()
    require_room(fs, directory, 1 << 20)
    opener.join()


@pytest.mark.parametrize("threads", [1, 3])
def test_removal_that_fails_is_reported(directory: Path, threads: int) -> None:
    """A directory of that name cannot be unlinked: the error names it."""
    (directory / "directory").mkdir()
    with pytest.raises(LogDirOfflineError, match="directory"):
        FileSystem().remove_all(directory, [*NAMES, "directory"], threads)


@pytest.mark.parametrize("fs", [FileSystem(), WatchedFileSystem()], ids=["real", "watched"])
def test_renames_pass_over_missing_files(directory: Path, fs: FileSystem) -> None:
    """Index files may be missing (R-602)."""
    fs.rename_all(directory, [(NAMES[0], "a"), ("missing", "b"), (NAMES[1], "c")])
    assert fs.find(directory, ["a", "b", "c", *NAMES[:2]]) == ["a", "c"]


def test_rename_that_fails_is_reported(directory: Path) -> None:
    """A file cannot take a directory's name: the error names the file, and later ones keep their names."""
    (directory / "directory").mkdir()
    with pytest.raises(LogDirOfflineError, match=NAMES[0]):
        FileSystem().rename_all(directory, [(NAMES[0], "directory"), (NAMES[1], "c")])
    assert (directory / NAMES[1]).exists()


def test_list_files_leaves_out_directories(tmp_path: Path) -> None:
    """Links are listed, even to a directory or dangling, so that opening one reports what it is (R-642)."""
    (tmp_path / "b").mkdir()
    (tmp_path / "c").write_bytes(b"")
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "d").symlink_to("nowhere")
    assert FileSystem().list_files(tmp_path) == ["a", "c", "d"]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_shares_cover_every_name_once(threads: int) -> None:
    """Each name is processed once, by at most the given number of threads, and all have ended."""
    lock, done, workers = threading.Lock(), [], set()

    def work(share: Sequence[str]) -> None:
        with lock:
            done.extend(share)
            workers.add(threading.current_thread())

    share_out(work, NAMES, threads)
    assert sorted(done) == NAMES
    assert len(workers) <= threads
    assert not [each for each in workers - {threading.current_thread()} if each.is_alive()]


def test_share_that_fails_does_not_stop_the_others() -> None:
    """The error is raised once all have ended."""
    lock, done = threading.Lock(), []

    def work(share: Sequence[str]) -> None:
        if NAMES[0] in share:
            raise LogDirOfflineError(Path(NAMES[0]), OSError(errno.EIO, "no"))
        with lock:
            done.extend(share)

    with pytest.raises(LogDirOfflineError):
        share_out(work, NAMES, 2)
    assert done == NAMES[1::2]


def test_without_available_threads_the_caller_does_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process at its limit of threads is only slower."""

    start_no_more_threads(monkeypatch)
    done: list[str] = []
    share_out(done.extend, NAMES, 3)
    assert sorted(done) == NAMES
