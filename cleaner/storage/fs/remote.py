"""
Log dirs in buckets (`s3://bucket/prefix`) and in HDFS, read through the calls of the disk; nothing is changed there.

What a disk gives and a bucket does not:
- An inode: an object is named by its ETag as the directory was listed. Every read says that it wants this one, and
  compares what it got; an object that was replaced since is a `LogChangedError`, so bytes of two are never mixed.
- Cheap small reads: each request has a price and takes tens of milliseconds. A reader that goes forward gets pieces
  that double up to `Limits.most_ahead`, and all open files together keep at most `Limits.kept_bytes` of them.
- Cheap listings: one request lists a directory with sizes and ETags, and is used for `Limits.listing_seconds`.
- Reads that work or fail: a request is repeated a few times with growing pauses if its answer may change.

`s3.py`, `gs.py`, `abfs.py`, `hdfs.py` and `webhdfs.py` make the requests themselves. `storage/tiered` answers them for
log dirs that are joined with the segments a broker has moved away.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import importlib
import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from cleaner.base import concurrency
from cleaner.base.clock import Clock, SystemClock
from cleaner.base.remote_path import RemotePath, is_remote, refuse_remote, tiered_place
from cleaner.errors import CleanerError, LogChangedError, LogDirOfflineError, UsageError
from cleaner.storage.fs.file_system import DirectoryEntry, FileState, FileSystem, Space
from cleaner.storage.fs.open_file import File
from cleaner.storage.fs.store import LIMITS, Again, Limits, Refused, RemoteObject, Replaced, Store, pause, wait_for

_Method = TypeVar("_Method", bound=Callable[..., Any])
_Result = TypeVar("_Result")

_PIECES_EACH = 4  # of one object: its beginning, its end, and two places to read on from
_CHANGES = "a command or call that changes it"


# By name, because a kind may be made of others, and then is in a room above this one.
_STORES = {
    "s3": "cleaner.storage.fs.s3:S3",
    "gs": "cleaner.storage.fs.gs:GoogleStorage",
    "abfs": "cleaner.storage.fs.abfs:AzureStorage",
    "abfss": "cleaner.storage.fs.abfs:AzureStorage",
    "hdfs": "cleaner.storage.fs.hdfs:Hdfs",
    "webhdfs": "cleaner.storage.fs.webhdfs:WebHdfs",
    "swebhdfs": "cleaner.storage.fs.webhdfs:WebHdfs",
    "tiered": "cleaner.storage.tiered.store:TieredStorage",
}


def _store_of(scheme: str, limits: Limits) -> Store:
    module, _, name = _STORES[scheme.partition("+")[0]].partition(":")
    return cast(Store, getattr(importlib.import_module(module), name)(limits))


def files_for(fs: FileSystem | None, *paths: object, limits: Limits | None = None) -> FileSystem:
    """Return the file system to read paths with: the caller's; or one that reads buckets, where a path is in one."""
    if fs is not None:
        return fs
    return RemoteFiles(limits) if any(map(is_remote, paths)) else FileSystem()


def _go_on() -> None:
    """Raise nothing."""


def _local_only(method: _Method) -> _Method:
    """Refuse a call that would change something if it names a path in a bucket."""

    @functools.wraps(method)
    def checked(self: RemoteFiles, *args: Any, **named: Any) -> Any:
        for each in (*args, *named.values()):
            refuse_remote(each, f"refused, because it comes from {_CHANGES}")
        return method(self, *args, **named)

    return cast(_Method, checked)


class RemoteFiles(FileSystem):
    """
    Reads buckets, and everything else as the local disk. Safe to share between threads.

    Args:
        limits: of requests; None: `LIMITS`.
        clock: for pauses and the age of listings.
        store: answers the requests; None: by the paths. For tests.

    Attributes:
        limits: of requests.
        check_done: called while an answer is waited for, by any thread; what it raises ends the wait.
        requests, received_bytes: how many requests were made, repeats included, and what came of reads.
    """

    def __init__(self, limits: Limits | None = None, clock: Clock | None = None, store: Store | None = None) -> None:
        self.requests = 0
        self.received_bytes = 0
        self.limits = limits or LIMITS
        self.check_done: Callable[[], None] = _go_on
        self._clock = clock or SystemClock()
        self._begin(store)

    def _begin(self, store: Store | None = None) -> None:
        self._given_store = store
        self._stores: dict[str, Store] = {}  # by scheme
        self._listings: dict[RemotePath, tuple[int, dict[str, RemoteObject]]] = {}
        self._pieces: OrderedDict[tuple[RemotePath, str], list[tuple[int, bytes]]] = OrderedDict()
        self._kept_bytes = 0
        self._guard = concurrency.RLock()
        self._making = concurrency.Lock()

    def __getstate__(self) -> dict[str, object]:
        """Return the state for a copy in another process: its own connections, listings and pieces."""
        own = ("check_done", "_given_store", "_stores", "_listings", "_pieces", "_kept_bytes", "_guard", "_making")
        return {name: value for name, value in super().__getstate__().items() if name not in own}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Take over such a state."""
        vars(self).update(state)
        self.check_done = _go_on
        self._begin()

    # ---- directories -----------------------------------------------------------------------------------------------

    def listing(self, path: RemotePath) -> dict[str, RemoteObject]:
        """Return what a directory holds, as listed a moment ago, by name; empty if there is no such directory."""
        if not path.bucket:
            raise UsageError(f"{path}: names no bucket")
        with self._guard:
            found = self._fresh(path)
        if found is None:
            found = self._ask(path, lambda store: store.list(path))
            with self._guard:
                self._listings.pop(path, None)
                self._listings[path] = (self._clock.monotonic_ns(), found)
                # The oldest come first. A log dir may have more directories than there is memory for their listings.
                while self._fresh(oldest := next(iter(self._listings))) is None and oldest != path:
                    del self._listings[oldest]
        return found

    def _fresh(self, path: RemotePath) -> dict[str, RemoteObject] | None:
        listed_ns, found = self._listings.get(path, (0, None))
        if found is not None and self._clock.monotonic_ns() - listed_ns <= self.limits.listing_seconds * 1e9:
            return found
        return None

    def _listing_of_directory(self, path: Path) -> dict[str, RemoteObject]:
        found = self.listing(cast(RemotePath, path))
        if not found:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return found

    def _object(self, path: Path) -> RemoteObject:
        """Return a file or directory. Raises FileNotFoundError."""
        path = cast(RemotePath, path)
        parent = path.parent
        with self._guard:
            own, above = self._fresh(path), self._fresh(parent) if path.key else None
        if own:
            return RemoteObject(0, "", 0)
        if above is None:
            # First as a directory: a caller may be allowed to list what is below a path, and not what is beside it.
            if self.listing(path) or not path.key:
                return RemoteObject(0, "", 0)
            above = self.listing(parent)
        if path.name not in above:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return above[path.name]

    def list_dir(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(self._listing_of_directory(path)) if is_remote(path) else super().list_dir(path)

    def list_files(self, path: Path) -> list[str]:
        """Return the names that are not directories."""
        if not is_remote(path):
            return super().list_files(path)
        return sorted(name for name, each in self._listing_of_directory(path).items() if not each.is_directory)

    def list_dirs(self, path: Path) -> list[str]:
        """Return the names that are directories."""
        if not is_remote(path):
            return super().list_dirs(path)
        return sorted(name for name, each in self._listing_of_directory(path).items() if each.is_directory)

    def scan_dir(self, directory: Path, suffixes: tuple[str, ...]) -> list[DirectoryEntry]:
        """List the files with one of these suffixes."""
        if not is_remote(directory):
            return super().scan_dir(directory, suffixes)
        found = self._listing_of_directory(directory).items()
        wanted = [(name, each) for name, each in found if name.endswith(suffixes) and not each.is_directory]
        return [DirectoryEntry(name, FileState.of(_status(directory / name, each))) for name, each in wanted]

    def find(self, directory: Path, names: Sequence[str]) -> list[str]:
        """Return the names that exist in a directory."""
        if not is_remote(directory):
            return super().find(directory, names)
        found = self.listing(cast(RemotePath, directory))
        return [name for name in names if name in found]

    def exists(self, path: Path) -> bool:
        """Tell whether something has this name."""
        if not is_remote(path):
            return super().exists(path)
        try:
            self._object(path)
        except FileNotFoundError:
            return False
        return True

    def stat(self, path: Path) -> os.stat_result:
        """Return the status; a number made of the ETag is the inode. Raises FileNotFoundError."""
        path = self._on_disk(path)
        return _status(path, self._object(path)) if is_remote(path) else super().stat(path)

    def stat_followed(self, path: Path) -> os.stat_result:
        """Return the status; a bucket has no links."""
        return self.stat(path) if is_remote(path) else super().stat_followed(path)

    def space(self, path: Path) -> Space:
        """Return that nothing can be written."""
        return Space(0, 0, True) if is_remote(path) else super().space(path)

    def _on_disk(self, path: Path) -> Path:
        """Return the file of a joined log dir that is in the broker's own; else the path."""
        place = tiered_place(path)
        local = None if place is None else place.local_file
        return path if local is None or not super().exists(local) else local

    # ---- files -----------------------------------------------------------------------------------------------------

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open a file; of a bucket as it was listed, without a request."""
        path = path if write else self._on_disk(path)
        if not is_remote(path):
            return super().open(path, write=write)
        if write:
            refuse_remote(path, f"refused, because it comes from {_CHANGES}")
        found = self._object(path)
        if found.is_directory:
            raise LogDirOfflineError(path, OSError(errno.EISDIR, os.strerror(errno.EISDIR)))
        return RemoteFile(self, cast(RemotePath, path), found)

    def read_range(self, path: RemotePath, about: RemoteObject, start: int, size: int, ahead: int) -> tuple[bytes, int]:
        """
        Return bytes from a position that is below the object's end, and where in them that position is.

        Args:
            path, about: the object.
            start, size: what is wanted; fewer may be returned.
            ahead: what a request asks for at least.
        Raises:
            LogChangedError: it is not the object that was listed.
            LogDirOfflineError: no answer, after all attempts.
        """
        with self._guard:
            for first, piece in self._pieces.get((path, about.etag), ()):
                if first <= start < first + len(piece):
                    self._pieces.move_to_end((path, about.etag))
                    return piece, start - first
        count = min(max(size, ahead), self.limits.most_ahead, about.size - start)
        data = self._ask(path, lambda store: store.read(path, about, start, count))
        with self._guard:
            self.received_bytes += len(data)
            # Also what was all wanted: readers of large batches come back to the header of the last one.
            self._keep((path, about.etag), start, data)
        return data, 0

    def _keep(self, key: tuple[RemotePath, str], start: int, data: bytes) -> None:
        pieces = self._pieces.setdefault(key, [])
        self._pieces.move_to_end(key)
        pieces.append((start, data))
        self._kept_bytes += len(data)
        while len(pieces) > _PIECES_EACH:
            self._kept_bytes -= len(pieces.pop(0)[1])
        while self._kept_bytes > self.limits.kept_bytes:
            _, dropped = self._pieces.popitem(last=False)
            self._kept_bytes -= sum(len(piece) for _, piece in dropped)

    def _ask(self, path: RemotePath, request: Callable[[Store], _Result]) -> _Result:
        """Make a request until it is answered, or for the last time."""
        words = ""
        for attempt in range(self.limits.attempts):
            if attempt:
                pause(self.limits.pause_seconds * 2 ** (attempt - 1), self._clock.sleep, self.check_done)
            with self._guard:
                self.requests += 1
            try:
                return wait_for(
                    lambda: request(self._store_of(path)), self.limits.silence_seconds, lambda: self.check_done()
                )
            except (CleanerError, FileNotFoundError, MemoryError):
                raise
            except Again as failure:
                words = str(failure)
            except Refused as failure:
                words = str(failure)
                break
            except Replaced as failure:
                words = f"{failure}; try again when nothing is copied there any more"
                with self._guard:
                    self._listings.clear()  # the next look finds what is there now
                raise LogChangedError(f"{path}: {words}") from None
            except Exception as failure:  # noqa: BLE001 - whatever a library or a parser makes of a hostile answer
                words = f"its answer cannot be read ({type(failure).__name__})"
        else:
            words = f"{words}; given up after {self.limits.attempts} attempts"
        # Outside of the handler, so that the service's own error, which knows the request, hangs on nothing.
        raise LogDirOfflineError(path, OSError(errno.EIO, words))

    def _store_of(self, path: RemotePath) -> Store:
        if self._given_store is not None:
            return self._given_store
        with self._making:  # which may ask for credentials, and that may take long
            if path.scheme not in self._stores:
                self._stores[path.scheme] = _store_of(path.scheme, self.limits)
            return self._stores[path.scheme]

    # ---- what changes files ----------------------------------------------------------------------------------------

    hold = _local_only(FileSystem.hold)
    create = _local_only(FileSystem.create)
    rename = _local_only(FileSystem.rename)
    remove = _local_only(FileSystem.remove)
    link = _local_only(FileSystem.link)
    rename_all = _local_only(FileSystem.rename_all)
    remove_all = _local_only(FileSystem.remove_all)
    fsync_all = _local_only(FileSystem.fsync_all)
    fsync_dir = _local_only(FileSystem.fsync_dir)
    make_dir = _local_only(FileSystem.make_dir)
    remove_dir = _local_only(FileSystem.remove_dir)
    set_mode = _local_only(FileSystem.set_mode)
    set_mtime_ns = _local_only(FileSystem.set_mtime_ns)
    write_atomically = _local_only(FileSystem.write_atomically)


class RemoteFile(File):
    """An open object: its bytes are those that were listed, or a read fails."""

    def __init__(self, files: RemoteFiles, path: RemotePath, about: RemoteObject) -> None:
        self.path: RemotePath = path
        self._files = files
        self._about = about
        self._ahead = files.limits.least_ahead
        self._first = self._next = -1  # of what came last
        self._descriptor = 0  # none; below 0 when closed

    def stat(self) -> os.stat_result:
        """Return the status as it was listed."""
        return _status(self.path, self._about)

    def fileno(self) -> NoReturn:
        """Raise OSError: there is no descriptor, so the system itself can copy nothing from it."""
        raise OSError(errno.EOPNOTSUPP, "an object in a bucket has no descriptor", str(self.path))

    def _read_some(self, buffer: memoryview, position: int) -> int:
        if position >= self._about.size or not len(buffer):
            return 0
        # Reading on within, or behind, what came last: more at once. Elsewhere: begin anew.
        limits = self._files.limits
        reads_on = self._first < position <= self._next
        ahead = min(2 * self._ahead, limits.most_ahead) if reads_on else limits.least_ahead
        data, at = self._files.read_range(self.path, self._about, position, len(buffer), ahead)
        if at == 0:
            self._ahead = ahead
        count = min(len(buffer), len(data) - at)
        buffer[:count] = data[at : at + count]
        self._first, self._next = position - at, position - at + len(data)
        return count

    def is_cached(self, position: int) -> bool:
        """Return that it makes no difference."""
        return True

    def data_from(self, position: int) -> int:
        """Return the position: objects have no holes."""
        return position

    def expect_sequential_reads(self) -> None:
        """Do nothing: reading on shows it."""

    def drop_cache(self, position: int, size: int) -> None:
        """Do nothing: pieces are dropped when others come."""

    def write(self, data: bytes | bytearray | memoryview, position: int) -> NoReturn:
        """Refuse."""
        refuse_remote(self.path, f"refused, because it comes from {_CHANGES}")
        raise AssertionError

    def close(self) -> None:
        """Close it; a second call does nothing."""
        self._descriptor = -1


def _status(path: Path, about: RemoteObject) -> os.stat_result:
    digest = hashlib.blake2b(f"{path}\n{about.etag}".encode(errors="surrogateescape"), digest_size=8).digest()
    inode = int.from_bytes(digest, "big") >> 1
    mode = stat.S_IFDIR | 0o555 if about.is_directory else stat.S_IFREG | 0o444
    seconds = about.mtime_ns // 1_000_000_000
    times_ns = dict.fromkeys(("st_atime_ns", "st_mtime_ns", "st_ctime_ns"), about.mtime_ns)
    return os.stat_result((mode, inode, 0, 1, 0, 0, about.size, seconds, seconds, seconds), times_ns)
