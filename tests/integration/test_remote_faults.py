"""
Buckets that fail: busy, slow and cut answers, objects that are replaced. Each check is also run with a planted defect.

A check that passes with its defect would not be worth having.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cleaner.base.remote_path import RemotePath, any_path
from cleaner.errors import CleanerError, LogChangedError, LogDirOfflineError
from cleaner.storage.fs import s3
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.remote import RemoteFiles
from cleaner.storage.fs.s3 import S3
from cleaner.storage.fs.store import Again, Limits, RemoteObject
from tests.support import s3_server as faults
from tests.support.manual_clock import ManualClock
from tests.support.s3_server import BUCKET, KEY_ID, SECRET, S3Server, environment, first, s3_server

LIMITS = Limits(attempts=3, silence_seconds=0.3, least_ahead=1 << 10, most_ahead=8 << 10, kept_bytes=32 << 10)
DATA = bytes(range(251)) * 400
OBJECT = any_path(f"s3://{BUCKET}/kafka/topic-0/00000000000000000000.log")


class Rig:
    """A bucket with one object, and what reads it; the clock stands, and pauses cost nothing."""

    def __init__(self, server: S3Server, store: S3) -> None:
        self.server = server
        self.clock = ManualClock()
        self.files = RemoteFiles(LIMITS, self.clock, store)
        self.put(DATA)
        server.faults.clear()
        server.requests.clear()

    def put(self, data: bytes) -> None:
        """Replace the object."""
        assert isinstance(OBJECT, RemotePath)
        self.server.put(OBJECT.key, data)

    def read(self) -> bytes:
        """Read the object in pieces of many sizes, as readers of logs do."""
        with self.files.open(OBJECT) as file:
            parts, position = [], 0
            for size in (12, 61, 4096, 100, 20_000, 1 << 20):
                parts.append(file.read(size, position))
                position += len(parts[-1])
        return b"".join(parts)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as started:
        started.make_bucket()
        yield started


@pytest.fixture(scope="module")
def store(server: S3Server) -> Iterator[S3]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(server).items():
            patch.setenv(name, value)
        yield S3(LIMITS)


@pytest.fixture
def rig(server: S3Server, store: S3) -> Iterator[Rig]:
    yield Rig(server, store)
    server.faults.clear()


# ---- the checks --------------------------------------------------------------------------------------------------


def check_faults_are_survived(rig: Rig) -> None:
    """Each fault strikes twice in a row, at the second request; the bytes are those of the object."""
    for fault in (faults.busy, faults.cut, faults.short, faults.without_range):
        rig.files = RemoteFiles(LIMITS, rig.clock, rig.files._store)
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
        (faults.busy, "SlowDown (HTTP 503)", 3),
        (faults.cut, "given up after 3 attempts", 3),
        (faults.short, "given up after 3 attempts", 3),
        (faults.silent, "no answer (ReadTimeoutError)", 3),
        (faults.denied, "AccessDenied (HTTP 403)", 1),
    ):
        rig.files = RemoteFiles(LIMITS, rig.clock, rig.files._store)
        rig.server.faults[:] = [first(9, fault)]
        rig.server.requests.clear()
        with pytest.raises(LogDirOfflineError) as caught:
            rig.read()
        text = f"{caught.value} {caught.value!r} {caught.value.__cause__} {caught.value.__context__}"
        assert str(caught.value).startswith(f"{OBJECT}: "), text
        assert words in text, text
        assert SECRET not in text, text
        assert KEY_ID not in text, text
        assert len(rig.server.reads()) == attempts, fault.__name__


def check_replaced_object_is_not_mixed(rig: Rig) -> None:
    """Replaced after the first bytes: an error that says so; another try has the new object, all of it."""
    new = DATA[::-1]
    with rig.files.open(OBJECT) as file:
        assert file.read(12, 0) == DATA[:12]
        rig.put(new)
        with pytest.raises(LogChangedError, match="was replaced since it was listed"):
            file.read(1 << 20, 12)
    assert rig.read() == new


def check_service_without_conditions(rig: Rig) -> None:
    """Likewise where the service does not know `If-Match` and sends what is there."""
    with rig.files.open(OBJECT) as file:
        assert file.read(12, 0) == DATA[:12]
        rig.server.faults[:] = [lambda answer: other_tag(answer) if answer.is_read else None]
        with pytest.raises(LogChangedError, match="another ETag"):
            file.read(1 << 20, 12)


def other_tag(answer: faults.Answer) -> None:
    """Answer as if the object were another of the same size."""
    answer.headers = [(n, '"other"' if n.lower() == "etag" else v) for n, v in answer.headers]
    answer.body = answer.body[::-1]


def check_kept_pieces_are_of_one_object(rig: Rig) -> None:
    """What was read ahead of an object is not taken for the one that replaces it."""
    assert rig.read() == DATA
    rig.put(DATA[::-1])
    rig.clock.move_on(6)
    assert rig.read() == DATA[::-1]


def check_listing_grows_old(rig: Rig) -> None:
    """A listing is used for seconds: then what was added and removed is seen."""
    added = OBJECT.with_name("00000000000000000100.log")
    assert isinstance(added, RemotePath)
    assert rig.files.list_files(OBJECT.parent) == [OBJECT.name]
    rig.server.put(added.key, b"1")
    try:
        rig.clock.move_on(4)
        before = len(rig.server.requests)
        assert rig.files.list_files(OBJECT.parent) == [OBJECT.name]
        assert not rig.files.exists(added)
        assert len(rig.server.requests) == before
        rig.clock.move_on(2)
        assert rig.files.list_files(OBJECT.parent) == [OBJECT.name, added.name]
        assert rig.files.stat(added).st_size == 1
    finally:
        rig.server.remove(added.key)


def check_reads_are_few(rig: Rig) -> None:
    """Small reads forward double what is asked for; nothing is asked for twice, and the kept pieces have a bound."""
    with rig.files.open(OBJECT) as file:
        for position in range(0, len(DATA), 100):
            assert file.read(100, position) == DATA[position : position + 100]
            assert len(rig.server.requests) < 40
    ranges = [each for _, each in rig.server.reads()]
    assert len(ranges) == len(set(ranges))
    assert len(ranges) <= 4 + len(DATA) // LIMITS.most_ahead + 1
    assert rig.files.received_bytes == len(DATA)
    assert rig.files._kept_bytes <= LIMITS.kept_bytes


def check_nothing_is_changed(rig: Rig) -> None:
    """Every call of the file system that changes something refuses the bucket before the disk is asked."""
    reading = {"open", "exists", "stat", "stat_followed", "list_dir", "list_files", "scan_dir", "list_dirs", "find"}
    reading |= {"read_bytes", "shredding", "accept", "is_in_place", "space", "free_bytes"}
    for name in set(vars(FileSystem)) - reading:
        if not name.startswith("_") and callable(vars(FileSystem)[name]):
            arguments: list[Any] = [OBJECT] * (2 if name in ("rename", "link") else 1)
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


CHECKS = [value for name, value in sorted(globals().items()) if name.startswith("check_")]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_bucket_that_fails(check: Callable[[Rig], None], rig: Rig) -> None:
    check(rig)


def test_credentials_are_in_no_log(server: S3Server, rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Not even where a program logs everything of every library."""
    with caplog.at_level(logging.DEBUG):
        server.faults[:] = [first(1, faults.busy)]
        assert rig.read() == DATA
    assert SECRET not in caplog.text
    assert KEY_ID not in caplog.text


# ---- planted defects ---------------------------------------------------------------------------------------------


def _etag_not_compared(patch: pytest.MonkeyPatch) -> None:
    def read(self: S3, path: RemotePath, about: RemoteObject, start: int, size: int) -> bytes:
        answer = self._client.get_object(Bucket=path.bucket, Key=path.key, Range=f"bytes={start}-{start + size - 1}")
        return bytes(answer["Body"].read())

    patch.setattr(S3, "read", read)


def _etag_of_the_answer_not_compared(patch: pytest.MonkeyPatch) -> None:
    def read(self: S3, path: RemotePath, about: RemoteObject, start: int, size: int) -> bytes:
        wanted = f"bytes={start}-{start + size - 1}"
        answer = self._client.get_object(Bucket=path.bucket, Key=path.key, Range=wanted, IfMatch=about.etag)
        return bytes(answer["Body"].read())

    patch.setattr(S3, "read", read)


def _short_answer_is_the_end(patch: pytest.MonkeyPatch) -> None:
    real = S3.read

    def read(self: S3, path: RemotePath, about: RemoteObject, start: int, size: int) -> bytes:
        try:
            return real(self, path, about, start, size)
        except Again as failure:
            if "bytes came instead of" not in str(failure):
                raise
            return b""

    patch.setattr(S3, "read", read)


def _repeated_behind_the_failed_range(patch: pytest.MonkeyPatch) -> None:
    real = S3.read
    failed: list[int] = []

    def read(self: S3, path: RemotePath, about: RemoteObject, start: int, size: int) -> bytes:
        begin = start + 1 if start in failed and start + size < about.size else start
        try:
            return real(self, path, about, begin, size)
        except Again:
            failed.append(start)
            raise

    patch.setattr(S3, "read", read)


def _listing_kept_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RemoteFiles, "_fresh", lambda self, path: self._listings.get(path, (0, None))[1])


def _listing_survives_a_replacement(patch: pytest.MonkeyPatch) -> None:
    real = RemoteFiles._begin

    class Stubborn(dict[Any, Any]):
        def clear(self) -> None:
            return

    def begin(self: RemoteFiles, store: Any = None) -> None:
        real(self, store)
        self._listings = Stubborn()

    patch.setattr(RemoteFiles, "_begin", begin)


def _text_of_the_service_is_shown(patch: pytest.MonkeyPatch) -> None:
    def answered(response: dict[str, Any], *, is_read: bool) -> Exception:
        return Again(f"{response['Error']['Code']} (HTTP 503): {response['Error']['Message']}")

    patch.setattr(s3, "_answered", answered)


def _pieces_without_etag(patch: pytest.MonkeyPatch) -> None:
    class ByPath(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            return super().get(key[0], default)

        def setdefault(self, key: Any, default: Any = None) -> Any:
            return super().setdefault(key[0], default)

        def move_to_end(self, key: Any) -> None:
            return

    real = RemoteFiles._begin

    def begin(self: RemoteFiles, store: Any = None) -> None:
        real(self, store)
        self._pieces = ByPath()  # type: ignore[assignment]

    patch.setattr(RemoteFiles, "_begin", begin)


def _removal_goes_to_the_disk(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RemoteFiles, "remove", FileSystem.remove)


def _refusals_are_repeated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(s3, "Refused", Again)


def _never_ahead(patch: pytest.MonkeyPatch) -> None:
    real = RemoteFiles.read_range
    patch.setattr(
        RemoteFiles, "read_range", lambda self, path, about, start, size, _: real(self, path, about, start, size, 0)
    )


DEFECTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[Rig], None]]] = [
    (_etag_not_compared, check_replaced_object_is_not_mixed),
    (_etag_of_the_answer_not_compared, check_service_without_conditions),
    (_short_answer_is_the_end, check_faults_are_survived),
    (_repeated_behind_the_failed_range, check_faults_are_survived),
    (_listing_kept_for_ever, check_listing_grows_old),
    (_listing_survives_a_replacement, check_replaced_object_is_not_mixed),
    (_text_of_the_service_is_shown, check_faults_that_stay_are_named),
    (_pieces_without_etag, check_kept_pieces_are_of_one_object),
    (_removal_goes_to_the_disk, check_nothing_is_changed),
    (_refusals_are_repeated, check_faults_that_stay_are_named),
    (_never_ahead, check_reads_are_few),
]


@pytest.mark.parametrize(("plant", "check"), DEFECTS, ids=lambda each: each.__name__)
def test_planted_defect_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], check: Callable[[Rig], None], server: S3Server, store: S3
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        rig = Rig(server, store)
        with pytest.raises((AssertionError, pytest.fail.Exception, CleanerError)):
            check(rig)
    server.faults.clear()
