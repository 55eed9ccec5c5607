"""
HDFS in its own language, by a client that answers as the library does; `test_real_stores.py` has a real name node.

What the library does was tried on Hadoop 3.4.1: most of its errors are RuntimeErrors with a name node's text in them, a
read beyond the end ends a thread of its own, and a name node that is silent is waited for without an end.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import NamedTuple

import hdfs_native
import pytest

from cleaner.base.remote_path import RemotePath, any_path
from cleaner.errors import LogChangedError, LogDirOfflineError, UsageError
from cleaner.storage.fs.hdfs import Hdfs
from cleaner.storage.fs.remote import RemoteFiles
from cleaner.storage.fs.store import Limits
from tests.support.manual_clock import ManualClock

LIMITS = Limits(attempts=2, silence_seconds=0.3, least_ahead=1 << 10, most_ahead=8 << 10)
FILE = "/kafka/topic-0/00000000000000000000.log"
DATA = bytes(range(251)) * 40
SECRET = "not-to-be-seen"  # noqa: S105


class PanicException(BaseException):
    """As of the library: no Exception."""


class _Status(NamedTuple):
    path: str
    length: int
    isdir: bool
    modification_time: int


class _Reader:
    def __init__(self, hdfs: _Cluster, data: bytes) -> None:
        self._hdfs, self._data = hdfs, data

    def __len__(self) -> int:
        return len(self._data)

    def read_range_stream(self, start: int, size: int) -> Iterator[bytes]:
        self._hdfs.ranges.append((start, size))
        if start + size > len(self._data):
            raise PanicException("Cannot read past end of the file")
        for at in range(start, start + size, 1000):
            self._hdfs.before_a_piece()
            yield self._data[at : min(at + 1000, start + size)]


class _Cluster:
    """
    A name node with files, and the client of it.

    Attributes:
        files: data and time of change, by path.
        ranges: that were read.
        before_a_piece: called before each piece of a file.
        opened: called when a file is opened.
    """

    def __init__(self) -> None:
        self.files = {FILE: (DATA, 7)}
        self.ranges: list[tuple[int, int]] = []
        self.before_a_piece: Callable[[], None] = lambda: None
        self.opened: Callable[[], None] = lambda: None

    def __call__(self, url: str, _config: dict[str, str]) -> _Cluster:
        assert url == "hdfs://name:8020"
        return self

    def _status(self, path: str) -> _Status:
        if path in self.files:
            data, time_ms = self.files[path]
            return _Status(path, len(data), False, time_ms)
        if any(name.startswith(f"{path}/") for name in self.files):
            return _Status(path, 0, True, 0)
        raise FileNotFoundError(f"File does not exist: {path} {SECRET}")

    def get_file_info(self, path: str) -> _Status:
        return self._status(path)

    def list_status(self, path: str) -> Iterator[_Status]:
        if path in self.files:
            yield self._status(path)
            return
        self._status(path)
        for name in sorted({f"{path}/{each[len(path) + 1 :].partition('/')[0]}" for each in self.files}):
            yield self._status(name)

    def read(self, path: str) -> _Reader:
        self.opened()
        self._status(path)
        return _Reader(self, self.files[path][0])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> _Cluster:
    made = _Cluster()
    monkeypatch.setattr(hdfs_native, "Client", made)
    return made


@pytest.fixture
def files(cluster: _Cluster) -> RemoteFiles:
    return RemoteFiles(LIMITS, ManualClock(), Hdfs(LIMITS))


def _path(text: str = FILE, node: str = "name:8020") -> RemotePath:
    found = any_path(f"hdfs://{node}{text}")
    assert isinstance(found, RemotePath)
    return found


def _read(files: RemoteFiles, size: int = 1 << 20) -> bytes:
    with files.open(_path()) as file:
        return file.read(size, 0)


def test_directories_and_ranges(cluster: _Cluster, files: RemoteFiles) -> None:
    directory = _path().parent
    assert files.list_dirs(_path("/kafka")) == ["topic-0"]
    assert files.list_files(directory) == [_path().name]
    assert files.stat(_path()).st_size == len(DATA)
    assert files.stat(_path()).st_mtime_ns == 7_000_000
    assert not files.exists(_path("/kafka/topic-1"))
    assert Hdfs(LIMITS).list(_path()) == {}
    with files.open(_path()) as file:
        assert file.read(100, 5000) == DATA[5000:5100]
        assert file.read(1 << 20, 5000) == DATA[5000:]
    assert sum(size for _, size in cluster.ranges) == len(DATA) - 5000


@pytest.mark.parametrize(
    "change", [(DATA[::-1], 8), (DATA, 8), (DATA[:-1], 7), None], ids=["replaced", "touched", "cut", "removed"]
)
@pytest.mark.parametrize("when", ["before", "meanwhile", "failing"])
def test_replaced_file_is_not_mixed(
    change: tuple[bytes, int] | None, when: str, cluster: _Cluster, files: RemoteFiles
) -> None:
    """Since the listing, or since it was opened; also if that is why the read failed."""

    def exchange() -> None:
        cluster.files[FILE] = change or (b"", 0)
        if change is None:
            del cluster.files[FILE]

    def then() -> None:
        exchange()
        if when == "failing":
            raise RuntimeError(f'DataTransferError("All DataNodes failed {SECRET}")')

    cluster.files["/kafka/topic-0/other"] = (b"", 0)
    with files.open(_path()) as file:
        if when == "before":
            exchange()
        else:
            cluster.before_a_piece = then
        with pytest.raises(LogChangedError, match=r"was (removed|replaced or changed) since it was listed"):
            file.read(1 << 20, 0)


@pytest.mark.parametrize(
    ("error", "words", "attempts"),
    [
        (
            RuntimeError(f'RPCError("org.apache.hadoop.security.AccessControlException", "{SECRET}")'),
            "answered AccessControlException",
            1,
        ),
        (RuntimeError(f'DataTransferError("All DataNodes failed {SECRET}")'), "answered DataTransferError", 2),
        (RuntimeError(SECRET), "answered RuntimeError; given up after 2 attempts", 2),
        (PermissionError(13, SECRET), "answered PermissionError", 1),
        (ValueError(SECRET), "answered ValueError", 2),
        (OSError(111, f"refused {SECRET}"), "no answer (ConnectionRefusedError)", 2),
        (PanicException(SECRET), "answered PanicException", 2),
    ],
)
def test_failures_are_named_without_the_text_of_the_service(
    error: BaseException, words: str, attempts: int, cluster: _Cluster, files: RemoteFiles
) -> None:
    opened: list[None] = []

    def fail() -> None:
        opened.append(None)
        raise error

    cluster.opened = fail
    with pytest.raises(LogDirOfflineError) as caught:
        _read(files)
    told = f"{caught.value} {caught.value!r} {caught.value.__cause__} {caught.value.__context__}"
    assert words in told
    assert SECRET not in told
    assert len(opened) == attempts


def test_silence_is_given_up_and_slowness_is_not(cluster: _Cluster, files: RemoteFiles) -> None:
    """Each piece may take as long as silence is borne."""
    cluster.before_a_piece = partial(time.sleep, 0.05)
    began = time.monotonic()
    assert _read(files) == DATA
    assert time.monotonic() - began > LIMITS.silence_seconds
    cluster.before_a_piece = partial(time.sleep, 60)
    with pytest.raises(LogDirOfflineError, match=r"no answer \(TimeoutError\)"):
        RemoteFiles(LIMITS, ManualClock(), Hdfs(LIMITS)).open(_path()).read(100, 0)


def test_library_itself_is_given_up_where_nothing_answers() -> None:
    """A name node that is silent, one that is not there, and a name of none."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for node, words in (
            (f"127.0.0.1:{silent.getsockname()[1]}", "TimeoutError"),
            ("127.0.0.1:1", "TimeoutError|ConnectionRefusedError|OSError"),
        ):
            with pytest.raises(LogDirOfflineError, match=rf"no answer \(({words})\)"):
                RemoteFiles(LIMITS, ManualClock()).list_dir(_path(node=node))
    with pytest.raises(LogDirOfflineError, match="answered InvalidArgument"):
        RemoteFiles(LIMITS, ManualClock()).list_dir(_path(node="without-a-port"))


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(UsageError, match=r"hdfs:// needs hdfs-native: pip install 'kafka-log-cleaner\[remote\]'"):
        RemoteFiles(LIMITS).list_dir(_path())


def _endless(path: str) -> Iterator[_Status]:
    for number in count():
        yield _Status(f"{path}/{number}", 1, False, 1)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (_endless, "it has more than 250000 names"),
        (lambda _: iter([_Status("/kafka/a/b", 1, False, 1)]), "it lists other names than were asked for"),
        (lambda _: iter([_Status("/kafka/a", -1, False, 1)]), "its listing cannot be read"),
        (lambda _: iter([7]), "answered AttributeError"),
    ],
    ids=["endless", "below", "size", "no row"],
)
def test_listing_that_is_none(
    rows: Callable[[str], Iterator[_Status]],
    words: str,
    cluster: _Cluster,
    files: RemoteFiles,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends with an error, as that of any other kind (`test_remote_hostile.py`)."""
    monkeypatch.setattr(cluster, "list_status", rows)
    with pytest.raises(LogDirOfflineError, match=words):
        files.list_files(_path("/kafka"))
