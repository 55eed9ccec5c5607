"""A bucket with one object, and what must be true of reading it, whatever the service does; for each kind."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cleaner.base.remote_path import RemotePath, any_path
from cleaner.errors import CleanerError, LogChangedError, LogDirOfflineError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.remote import RemoteFiles
from cleaner.storage.fs.store import Limits, Store
from tests.support import s3_server as faults
from tests.support.manual_clock import ManualClock
from tests.support.object_servers import url_of
from tests.support.s3_server import KEY_ID, SECRET, S3Server, first

LIMITS = Limits(attempts=3, silence_seconds=0.5, least_ahead=1 << 10, most_ahead=8 << 10, kept_bytes=32 << 10)
DATA = bytes(range(251)) * 400
KEY = "kafka/topic-0/00000000000000000000.log"


class Rig:
    """A bucket with one object, and what reads it; the clock stands, and pauses cost nothing."""

    def __init__(self, kind: str, server: S3Server, store: Store, *, url: str | None = None) -> None:
        self.kind = kind
        self.server = server
        self.object = any_path(f"{url or url_of(kind, server)}/{KEY}")
        self.clock = ManualClock()
        self.files = RemoteFiles(LIMITS, self.clock, store)
        self.put(DATA)
        server.faults.clear()
        server.requests.clear()

    def put(self, data: bytes) -> None:
        """Replace the object."""
        self.server.put(KEY, data)

    def read(self) -> bytes:
        """Read the object in pieces of many sizes, as readers of logs do."""
        with self.files.open(self.object) as file:
            parts, position = [], 0
            for size in (12, 61, 4096, 100, 20_000, 1 << 20):
                parts.append(file.read(size, position))
                position += len(parts[-1])
        return b"".join(parts)


def check_faults_are_survived(rig: Rig) -> None:
    """Each fault strikes twice in a row, at the second request; the bytes are those of the object."""
    for fault in (faults.busy, faults.cut, faults.short, faults.without_range):
        if fault is faults.without_range and rig.kind == "webhdfs":
            continue  # which says no range
        rig.files = RemoteFiles(LIMITS, rig.clock, rig.files._given_store)
        strikes = first(2, fault)
        rig.server.faults[:] = [lambda answer, strikes=strikes: strikes(answer) if begun(rig) else None]  # type: ignore[misc]
        rig.server.requests.clear()
        assert rig.read() == DATA, fault.__name__
        wanted = [each for _, each in rig.server.reads()]
        assert len(wanted) - len(set(wanted)) == 2, f"{fault.__name__}: the same range again, twice: {wanted}"


def begun(rig: Rig) -> bool:
    """Tell whether a read was answered before this one."""
    return len(rig.server.reads()) > 1


def check_faults_that_stay_are_named(rig: Rig) -> None:
    """After the last attempt an error that names the object, what failed and how often; nothing of the request."""
    for fault, words, attempts in (
        (faults.busy, "SlowDown (HTTP 503)" if rig.kind == "s3" else "HTTP 503", 3),
        (faults.cut, "given up after 3 attempts", 3),
        (faults.short, "given up after 3 attempts", 3),
        (faults.silent, "no answer (ReadTimeoutError)", 3),
        (faults.denied, "AccessDenied (HTTP 403)" if rig.kind == "s3" else "HTTP 403", 1),
    ):
        rig.files = RemoteFiles(LIMITS, rig.clock, rig.files._given_store)
        rig.server.faults[:] = [first(9, fault)]
        rig.server.requests.clear()
        with pytest.raises(LogDirOfflineError) as caught:
            rig.read()
        text = f"{caught.value} {caught.value!r} {caught.value.__cause__} {caught.value.__context__}"
        assert str(caught.value).startswith(f"{rig.object}: "), text
        assert words in text, text
        assert SECRET not in text, text
        assert KEY_ID not in text, text
        assert len(rig.server.reads()) == attempts, fault.__name__


def check_replaced_object_is_not_mixed(rig: Rig) -> None:
    """Replaced after the first bytes: an error that says so; another try has the new object, all of it."""
    new = DATA[::-1]
    with rig.files.open(rig.object) as file:
        assert file.read(12, 0) == DATA[:12]
        rig.put(new)
        with pytest.raises(LogChangedError, match=r"was (replaced|removed|replaced or changed) since it was listed"):
            file.read(1 << 20, 12)
    assert rig.read() == new


def check_service_without_conditions(rig: Rig) -> None:
    """Likewise where the service does not know the condition and sends what is there."""
    if rig.kind == "webhdfs":
        return  # none does
    with rig.files.open(rig.object) as file:
        assert file.read(12, 0) == DATA[:12]
        rig.server.faults[:] = [lambda answer: other_tag(answer) if answer.is_read else None]
        with pytest.raises(LogChangedError, match=r"another (ETag|generation)"):
            file.read(1 << 20, 12)


def other_tag(answer: faults.Answer) -> None:
    """Answer as if the object were another of the same size."""
    answer.headers = [(n, '"other"' if n.lower() in ("etag", "x-goog-generation") else v) for n, v in answer.headers]
    answer.body = answer.body[::-1]


def check_kept_pieces_are_of_one_object(rig: Rig) -> None:
    """What was read ahead of an object is not taken for the one that replaces it."""
    assert rig.read() == DATA
    rig.put(DATA[::-1])
    rig.clock.move_on(6)
    with rig.files.open(rig.object) as file:  # the end first, which was read last
        assert file.read(1000, len(DATA) - 1000) == DATA[::-1][-1000:]
    assert rig.read() == DATA[::-1]


def check_listing_grows_old(rig: Rig) -> None:
    """A listing is used for seconds: then what was added and removed is seen."""
    added, name = rig.object.with_name("00000000000000000100.log"), rig.object.name
    assert isinstance(added, RemotePath)
    key = KEY.replace(name, added.name)
    assert rig.files.list_files(rig.object.parent) == [name]
    rig.server.put(key, b"1")
    try:
        rig.clock.move_on(4)
        before = len(rig.server.requests)
        assert rig.files.list_files(rig.object.parent) == [name]
        assert not rig.files.exists(added)
        assert len(rig.server.requests) == before
        rig.clock.move_on(2)
        assert rig.files.list_files(rig.object.parent) == [name, added.name]
        assert rig.files.stat(added).st_size == 1
    finally:
        rig.server.remove(key)


def check_reads_are_few(rig: Rig) -> None:
    """Small reads forward double what is asked for; nothing is asked for twice, and the kept pieces have a bound."""
    with rig.files.open(rig.object) as file:
        for position in range(0, len(DATA), 100):
            assert file.read(100, position) == DATA[position : position + 100]
            assert len(rig.server.reads()) < 40
    ranges = [each for _, each in rig.server.reads()]
    assert len(ranges) == len(set(ranges))
    assert len(ranges) <= 4 + len(DATA) // LIMITS.most_ahead + 1
    assert rig.files.received_bytes == len(DATA)
    assert rig.files._kept_bytes <= LIMITS.kept_bytes


def check_large_reads_are_kept(rig: Rig) -> None:
    """A reader of large batches comes back to the header of the last one: nothing is asked for twice."""
    size = 2 << 10  # more than is read ahead at first
    with rig.files.open(rig.object) as file:
        for position in range(0, len(DATA) - size, size):
            assert file.read(size, position) == DATA[position : position + size]
            assert file.read(61, position) == DATA[position : position + 61]
    ranges = [each for _, each in rig.server.reads()]
    assert len(ranges) == len(set(ranges))
    assert rig.files.received_bytes <= len(DATA)


def check_nothing_is_changed(rig: Rig) -> None:
    """Every call of the file system that changes something refuses the bucket before the disk is asked."""
    reading = {"open", "exists", "stat", "stat_followed", "list_dir", "list_files", "scan_dir", "list_dirs", "find"}
    reading |= {"read_bytes", "shredding", "accept", "is_in_place", "space", "free_bytes", "wait_until_freed"}
    for name in set(vars(FileSystem)) - reading:
        if not name.startswith("_") and callable(vars(FileSystem)[name]):
            arguments: list[Any] = [rig.object] * (2 if name in ("rename", "link") else 1)
            extra = {"create": {"like": None}}.get(name, {})
            more: dict[str, list[Any]] = {
                **{key: [[]] for key in ("rename_all", "remove_all", "fsync_all")},
                "make_dir": [0o755],
                "set_mode": [0o644],
                "set_mtime_ns": [1],
                "write_atomically": [b""],
            }
            with pytest.raises(CleanerError, match="a bucket is only read"):
                getattr(rig.files, name)(*arguments, *more.get(name, []), **extra)


def check_slow_answers_are_waited_for(rig: Rig) -> None:
    """Each part comes in time, the whole takes longer than the longest silence: asked for once, and all of it comes."""
    began = time.monotonic()
    rig.server.faults[:] = [first(1, faults.trickling)]
    with rig.files.open(rig.object) as file:
        assert file.read(12, 0) == DATA[:12]
    assert len(rig.server.reads()) == 1
    assert LIMITS.silence_seconds < time.monotonic() - began < 5


def check_pages_are_all_listed(rig: Rig) -> None:
    """Files and directories of several answers, each once."""
    keys = [f"many/{name}" for name in ("a", "b/1", "b/2", "c", "d/1", "e f+%", "\u00e9")]
    for key in keys:
        rig.server.put(key, b"12")
    many = rig.object.parents[2] / "many"
    try:
        assert rig.files.list_files(many) == sorted(["a", "c", "e f+%", "\u00e9"])
        assert rig.files.list_dirs(many) == ["b", "d"]
        with rig.files.open(many / "e f+%") as file:
            assert file.read(5, 0) == b"12"
        assert not rig.files.exists(many.with_name("man"))
    finally:
        for key in keys:
            rig.server.remove(key)


NOT_RAISED = pytest.fail.Exception  # a check has waited for an error that did not come

CHECKS = [value for name, value in sorted(globals().items()) if name.startswith("check_")]
