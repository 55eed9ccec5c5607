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
from cleaner.errors import LogChangedError
from cleaner.storage.fs import http, s3
from cleaner.storage.fs.abfs import AzureStorage
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.gs import GoogleStorage
from cleaner.storage.fs.remote import RemoteFiles, _store_of
from cleaner.storage.fs.s3 import S3
from cleaner.storage.fs.store import Again, RemoteObject, Store
from cleaner.storage.fs.webhdfs import WebHdfs
from tests.integration.bucket_checks import (
    CHECKS,
    DATA,
    LIMITS,
    NOT_RAISED,
    Rig,
    check_faults_are_survived,
    check_faults_that_stay_are_named,
    check_kept_pieces_are_of_one_object,
    check_large_reads_are_kept,
    check_listing_grows_old,
    check_nothing_is_changed,
    check_pages_are_all_listed,
    check_reads_are_few,
    check_replaced_object_is_not_mixed,
    check_service_without_conditions,
    check_slow_answers_are_waited_for,
)
from tests.support import s3_server as faults
from tests.support.object_servers import KINDS, environment_of, object_server, url_of
from tests.support.s3_server import KEY_ID, SECRET, S3Server, first


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
        return b"".join(answer["Body"].iter_chunks())

    patch.setattr(S3, "read", read)


def _etag_of_the_answer_not_compared(patch: pytest.MonkeyPatch) -> None:
    def read(self: S3, path: RemotePath, about: RemoteObject, start: int, size: int) -> bytes:
        wanted = f"bytes={start}-{start + size - 1}"
        answer = self._client.get_object(Bucket=path.bucket, Key=path.key, Range=wanted, IfMatch=about.etag)
        return b"".join(answer["Body"].iter_chunks())

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

    def get(self: Any, url: str, query: Any, *more: Any, **named: Any) -> Any:
        if "generation" in query:
            query = {"alt": "media", "generation": "1"}
        return real(self, url, query, *more, **named)

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
        return self._get(path, f"/{path.key}", {}, headers, is_read=True).body or b""

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
    (_etag_not_compared, "s3", check_replaced_object_is_not_mixed, NOT_RAISED, "LogChangedError"),
    (_etag_of_the_answer_not_compared, "s3", check_service_without_conditions, NOT_RAISED, "LogChangedError"),
    (_short_answer_is_the_end, "s3", check_faults_are_survived, AssertionError, "short"),
    (_repeated_behind_the_failed_range, "s3", check_faults_are_survived, AssertionError, "busy"),
    (_listing_kept_for_ever, "s3", check_listing_grows_old, AssertionError, ""),
    (_listing_survives_a_replacement, "s3", check_replaced_object_is_not_mixed, LogChangedError, "was replaced"),
    (_text_of_the_service_is_shown, "s3", check_faults_that_stay_are_named, AssertionError, SECRET),
    (_pieces_without_etag, "s3", check_kept_pieces_are_of_one_object, AssertionError, ""),
    (_removal_goes_to_the_disk, "s3", check_nothing_is_changed, NOT_RAISED, "CleanerError"),
    (_refusals_are_repeated, "s3", check_faults_that_stay_are_named, AssertionError, "denied"),
    (_what_was_all_wanted_is_not_kept, "s3", check_large_reads_are_kept, AssertionError, ""),
    (_never_ahead, "s3", check_reads_are_few, AssertionError, ""),
    (_generation_not_compared, "gs", check_replaced_object_is_not_mixed, LogChangedError, "was removed"),
    (_status_not_asked_for_again, "webhdfs", check_replaced_object_is_not_mixed, NOT_RAISED, "LogChangedError"),
    (_condition_of_azure_left_out, "abfs", check_service_without_conditions, NOT_RAISED, "LogChangedError"),
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
