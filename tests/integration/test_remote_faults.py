"""
Buckets of each kind that fail: busy, slow and cut answers, objects that are replaced. Each check is also run with
planted defects, and each defect has to show as the failure that it says.

A check that passes with its defect would not be worth having.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cleaner.base.remote_path import RemotePath, any_path
from cleaner.errors import CleanerError, LogChangedError, LogDirOfflineError
from cleaner.storage.fs import http, s3
from cleaner.storage.fs.abfs import AzureStorage
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.gs import GoogleStorage
from cleaner.storage.fs.remote import RemoteFiles, _store_of
from cleaner.storage.fs.s3 import S3
from cleaner.storage.fs.store import Again, Limits, RemoteObject, Store
from cleaner.storage.fs.webhdfs import WebHdfs
from tests.support import s3_server as faults
from tests.support.manual_clock import ManualClock
from tests.support.object_servers import KINDS, environment_of, object_server, url_of
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


@pytest.fixture(scope="module", params=KINDS)
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, S3Server, Store]]:
    """A kind, its server and its store; the parameter may be one of them only."""
    kind = request.param
    with object_server(kind) as server, pytest.MonkeyPatch.context() as patch:
        server.make_bucket()
        for name, value in environment_of(kind, server).items():
            patch.setenv(name, value)
        yield kind, server, _store_of(any_path(url_of(kind, server)).scheme, LIMITS)  # type: ignore[attr-defined]


@pytest.fixture
def rig(served: tuple[str, S3Server, Store]) -> Iterator[Rig]:
    yield Rig(*served)
    served[1].faults.clear()


# ---- the checks --------------------------------------------------------------------------------------------------


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
    reading |= {"read_bytes", "shredding", "accept", "is_in_place", "space", "free_bytes"}
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


_NOT_RAISED = pytest.fail.Exception  # a check has waited for an error that did not come

CHECKS = [value for name, value in sorted(globals().items()) if name.startswith("check_")]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_bucket_that_fails(check: Callable[[Rig], None], rig: Rig) -> None:
    check(rig)


def test_credentials_are_in_no_log(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Not even where a program logs everything of every library."""
    with caplog.at_level(logging.DEBUG):
        rig.server.faults[:] = [first(1, faults.busy)]
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

        def popitem(self, last: bool = True) -> Any:
            return super().popitem()

    real = RemoteFiles._begin

    def begin(self: RemoteFiles, store: Any = None) -> None:
        real(self, store)
        self._pieces = ByPath()  # type: ignore[assignment]

    patch.setattr(RemoteFiles, "_begin", begin)


def _removal_goes_to_the_disk(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RemoteFiles, "remove", FileSystem.remove)


def _refusals_are_repeated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(s3, "Refused", Again)


def _generation_not_compared(patch: pytest.MonkeyPatch) -> None:
    real = http.Http.get

    def get(self: Any, url: str, query: Any, headers: Any, *, is_read: bool = False) -> Any:
        if "generation" in query:
            query = {"alt": "media", "generation": "1"}
        return real(self, url, query, headers, is_read=is_read)

    patch.setattr(http.Http, "get", get)


def _status_not_asked_for_again(patch: pytest.MonkeyPatch) -> None:
    real = WebHdfs._ask
    seen: dict[Any, Any] = {}

    def ask(self: WebHdfs, path: RemotePath, operation: str) -> Any:
        return (
            real(self, path, operation)
            if operation == "LISTSTATUS"
            else seen.setdefault(path, real(self, path, operation))
        )

    patch.setattr(WebHdfs, "_ask", ask)


def _condition_of_azure_left_out(patch: pytest.MonkeyPatch) -> None:
    def read(self: AzureStorage, path: RemotePath, about: RemoteObject, start: int, size: int) -> bytes:
        headers = {"Range": f"bytes={start}-{start + size - 1}", "If-Match": f'"{about.etag}"'}
        return bytes(self._get(path, f"/{path.key}", {}, headers, is_read=True).data)

    patch.setattr(AzureStorage, "read", read)


def _first_page_is_all(patch: pytest.MonkeyPatch) -> None:
    real = GoogleStorage.list

    def listed(self: GoogleStorage, path: RemotePath) -> Any:
        found = real(self, path)
        return dict(list(found.items())[:2])

    patch.setattr(GoogleStorage, "list", listed)


def _whole_answers_have_to_be_quick(patch: pytest.MonkeyPatch) -> None:
    real = http.Http.get

    def get(self: Any, *args: Any, **named: Any) -> Any:
        began = time.monotonic()
        answer = real(self, *args, **named)
        if time.monotonic() - began > LIMITS.silence_seconds:
            raise Again("no answer (slow)")
        return answer

    patch.setattr(http.Http, "get", get)


def _what_was_all_wanted_is_not_kept(patch: pytest.MonkeyPatch) -> None:
    real = RemoteFiles._keep

    def keep(self: RemoteFiles, key: Any, start: int, data: bytes) -> None:
        if len(data) == LIMITS.least_ahead or len(data) % 2048:
            real(self, key, start, data)

    patch.setattr(RemoteFiles, "_keep", keep)


def _never_ahead(patch: pytest.MonkeyPatch) -> None:
    real = RemoteFiles.read_range
    patch.setattr(
        RemoteFiles, "read_range", lambda self, path, about, start, size, _: real(self, path, about, start, size, 0)
    )


# Each with its kind, the check that finds it, and the failure it shows as.
DEFECTS: list[tuple[Callable[[pytest.MonkeyPatch], None], str, Callable[[Rig], None], type[BaseException], str]] = [
    (_etag_not_compared, "s3", check_replaced_object_is_not_mixed, _NOT_RAISED, "LogChangedError"),
    (_etag_of_the_answer_not_compared, "s3", check_service_without_conditions, _NOT_RAISED, "LogChangedError"),
    (_short_answer_is_the_end, "s3", check_faults_are_survived, AssertionError, "short"),
    (_repeated_behind_the_failed_range, "s3", check_faults_are_survived, AssertionError, "busy"),
    (_listing_kept_for_ever, "s3", check_listing_grows_old, AssertionError, ""),
    (_listing_survives_a_replacement, "s3", check_replaced_object_is_not_mixed, LogChangedError, "was replaced"),
    (_text_of_the_service_is_shown, "s3", check_faults_that_stay_are_named, AssertionError, SECRET),
    (_pieces_without_etag, "s3", check_kept_pieces_are_of_one_object, AssertionError, ""),
    (_removal_goes_to_the_disk, "s3", check_nothing_is_changed, _NOT_RAISED, "CleanerError"),
    (_refusals_are_repeated, "s3", check_faults_that_stay_are_named, AssertionError, "denied"),
    (_what_was_all_wanted_is_not_kept, "s3", check_large_reads_are_kept, AssertionError, ""),
    (_never_ahead, "s3", check_reads_are_few, AssertionError, ""),
    (_generation_not_compared, "gs", check_replaced_object_is_not_mixed, LogChangedError, "was removed"),
    (_status_not_asked_for_again, "webhdfs", check_replaced_object_is_not_mixed, _NOT_RAISED, "LogChangedError"),
    (_condition_of_azure_left_out, "abfs", check_service_without_conditions, _NOT_RAISED, "LogChangedError"),
    (_first_page_is_all, "gs", check_pages_are_all_listed, AssertionError, ""),
    (_whole_answers_have_to_be_quick, "webhdfs", check_slow_answers_are_waited_for, AssertionError, ""),
]


@pytest.mark.parametrize(
    ("served", "plant", "check", "kind", "words"),
    [(kind, plant, *expected) for plant, kind, *expected in DEFECTS],
    ids=[f"{plant.__name__}" for plant, *_ in DEFECTS],
    indirect=["served"],
)
def test_planted_defect_is_found(
    served: tuple[str, S3Server, Store],
    plant: Callable[[pytest.MonkeyPatch], None],
    check: Callable[[Rig], None],
    kind: type[BaseException],
    words: str,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        rig = Rig(*served)
        with pytest.raises(kind) as caught:
            check(rig)
    served[1].faults.clear()
    assert type(caught.value) is kind, caught.value
    assert words in str(caught.value)
