"""
Services that are broken, or hostile: whatever they answer, a request ends, with an error that names what was asked for,
within the memory that an honest answer takes, and nothing that a service may have of its clients is shown or passed on.
"""

from __future__ import annotations

import gzip
import json
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cleaner.base.remote_path import RemotePath, any_path
from cleaner.cli.main import main
from cleaner.errors import CleanerError, CleaningAborted, LogDirOfflineError
from cleaner.storage.fs import abfs, remote, s3
from cleaner.storage.fs import store as bounds
from cleaner.storage.fs.remote import RemoteFiles
from cleaner.storage.fs.store import Limits, RemoteObject
from tests.cleaner_run import wait_until
from tests.integration.log_dirs import keyed_log
from tests.integration.test_signals import Started
from tests.support.log_builder import write_log_dir
from tests.support.object_servers import KINDS, environment_of, object_server, url_of
from tests.support.s3_server import KEY_ID, SECRET, Answer, S3Server

Capture = pytest.CaptureFixture[str]
LIMITS = Limits(attempts=2, pause_seconds=0.01, silence_seconds=2.0)
LOG = "kafka/topic-0/00000000000000000000.log"
_LAST = "2024-01-01T00:00:00.000Z"


@pytest.fixture(scope="module", params=KINDS)
def bucket(request: pytest.FixtureRequest) -> Iterator[tuple[str, S3Server]]:
    with object_server(request.param) as server, pytest.MonkeyPatch.context() as patch:
        server.make_bucket()
        for name, value in environment_of(request.param, server).items():
            patch.setenv(name, value)
        yield request.param, server


@pytest.fixture
def files(bucket: tuple[str, S3Server], tmp_path: Path) -> Iterator[RemoteFiles]:
    bucket[1].upload(write_log_dir(tmp_path / "logs", keyed_log()), "kafka")
    yield RemoteFiles(LIMITS)
    bucket[1].faults.clear()


def _path(bucket: tuple[str, S3Server], key: str = "kafka") -> RemotePath:
    found = any_path(f"{url_of(*bucket)}/{key}")
    assert isinstance(found, RemotePath)
    return found


def page(kind: str, names: list[Any], token: str = "", *, size: Any = 1, tag: Any = '"1"', time: Any = None) -> bytes:
    """Return a page of a listing of `kafka/`; a name with a slash at its end is a directory's."""
    if kind == "gs":
        items = [{"name": f"kafka/{each}", "size": size, "generation": tag, "updated": time or _LAST} for each in names]
        for each in items:
            each["generation"] = "1" if tag == '"1"' else tag
        return json.dumps({"items": items, "nextPageToken": token}).encode()
    if kind == "webhdfs":
        rows = [
            {"pathSuffix": each, "type": "FILE", "length": size, "fileId": 1, "modificationTime": time or 1}
            for each in names
        ]
        return json.dumps({"FileStatuses": {"FileStatus": rows}}).encode()
    if kind == "s3":
        row = "<Contents><Key>kafka/{}</Key><Size>{}</Size><ETag>{}</ETag><LastModified>{}</LastModified></Contents>"
        found = "".join(row.format(each, size, tag, time or _LAST) for each in names)
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>" if token else ""
        return f"<ListBucketResult>{found}{more}</ListBucketResult>".encode()
    about = f"<Last-Modified>{time or 'Mon, 01 Jan 2024 00:00:00 GMT'}</Last-Modified><Etag>{tag}</Etag>"
    about += f"<Content-Length>{size}</Content-Length>"
    found = "".join(f"<Blob><Name>kafka/{each}</Name><Properties>{about}</Properties></Blob>" for each in names)
    return f"<R><Blobs>{found}</Blobs><NextMarker>{token}</NextMarker></R>".encode()


def answering(body: bytes | Callable[[], bytes], *, of_reads: bool = False) -> Callable[[Answer], None]:
    """Return a fault: every answer, of listings only, is this one."""

    def strike(answer: Answer) -> None:
        if answer.is_read is of_reads:
            answer.status = 200
            answer.body = body if isinstance(body, bytes) else body()
            answer.headers = []

    return strike


def refused(files: RemoteFiles, path: RemotePath) -> str:
    """Return the words of the one error that a listing ends with."""
    with pytest.raises(LogDirOfflineError) as caught:
        files.list_dir(path)
    text = f"{caught.value} {caught.value.__cause__} {caught.value.__context__}"
    assert str(caught.value).startswith(f"{path}: ")
    assert SECRET not in text
    assert KEY_ID not in text.replace(str(path), "")
    return str(caught.value)


def test_pages_that_never_end(
    bucket: tuple[str, S3Server], files: RemoteFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same token again; other ones, with and without names; more names than a directory of logs has."""
    kind, server = bucket
    monkeypatch.setattr(bounds, "_MOST_PAGES", 30)
    monkeypatch.setattr(bounds, "_MOST_NAMES", 40)
    count = [0]

    def next_page(names: int) -> bytes:
        count[0] += 1
        return page(kind, [f"n{count[0]}-{each}" for each in range(names)], str(count[0]))

    if kind != "webhdfs":  # which has no pages
        for body, words in (
            (page(kind, ["a"], "7"), "its listing has no end"),
            (lambda: next_page(0), "its listing has no end"),
            (lambda: next_page(1), "its listing has no end"),
        ):
            server.faults[:] = [answering(body)]  # type: ignore[arg-type]
            server.requests.clear()
            assert words in refused(files, _path(bucket))
            assert len(server.requests) <= 31
    server.faults[:] = [answering(lambda: next_page(50))]
    assert "more than 40 names" in refused(files, _path(bucket))


def test_names_that_lead_elsewhere(bucket: tuple[str, S3Server], files: RemoteFiles) -> None:
    """Names that no disk has are not there; those of other directories are an error."""
    kind, server = bucket
    odd = [".", "..", "", "a\nb", "fine"] + (["\0", "a\0b", "\ud800", "\udc80"] if kind in ("gs", "webhdfs") else [])
    server.faults[:] = [answering(page(kind, odd))]
    assert files.list_files(_path(bucket)) == ["a\nb", "fine"]
    for name in ("/etc/passwd", "../../etc/passwd", "a/b", "topic-0/00000000000000000000.log"):
        server.faults[:] = [answering(page(kind, [name]))]
        assert "it lists other names than were asked for" in refused(RemoteFiles(LIMITS), _path(bucket))
    if kind != "webhdfs":
        server.faults[:] = [answering(page(kind, ["a"]).replace(b"kafka/", b"etc/"))]
        assert "it lists other names than were asked for" in refused(RemoteFiles(LIMITS), _path(bucket))


@pytest.mark.parametrize(
    "named",
    [
        {"size": -1},
        {"size": 10**30},
        {"size": "x"},
        {"size": "9" * 5000},
        {"tag": "a\r\nX-Injected: 1"},
        {"tag": "\u00e9"},
        {"tag": "x" * 5000},
        {"time": "never"},
    ],
    ids=str,
)
def test_numbers_that_are_none(bucket: tuple[str, S3Server], files: RemoteFiles, named: dict[str, Any]) -> None:
    kind, server = bucket
    if kind == "webhdfs" and "tag" in named:
        return  # it is made of numbers
    server.faults[:] = [answering(page(kind, ["a"], **named))]
    assert "its listing cannot be read" in (words := refused(files, _path(bucket))) or "its answer cannot be" in words


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0" * 100,
        b"[" * 200_000,
        b"<a>" * 200_000,
        b'{"items": 7, "prefixes": {"a": 1}, "FileStatuses": 7}',
        b'{"items": [7], "prefixes": [7], "FileStatuses": {"FileStatus": [7]}}',
        b'{"items": [{"name": 7, "size": 1e999, "generation": "1", "updated": "0001-01-01T00:00:00"}]}',
        b"[]",
        b"null",
        b"<x><Contents/><CommonPrefixes/><Blobs><Blob/><BlobPrefix/></Blobs></x>",
        gzip.compress(b"<x/>" * 100_000),
    ],
    ids=range(11),
)
def test_listings_that_are_none(bucket: tuple[str, S3Server], files: RemoteFiles, body: bytes) -> None:
    """One error, or nothing found: no other exception."""
    kind, server = bucket
    server.faults[:] = [answering(body)]
    try:
        assert files.list_files(_path(bucket)) == []
    except (LogDirOfflineError, FileNotFoundError) as error:
        assert kind in str(error)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_entities_are_not_expanded(bucket: tuple[str, S3Server], files: RemoteFiles, encoding: str) -> None:
    kind, server = bucket
    if kind in ("gs", "webhdfs"):
        return  # no XML
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {name} "{f"&{below};" * 10}">' for below, name in zip("abcdefg", "bcdefgh", strict=True)
    )
    text = page(kind, ["&h;"]).decode()
    server.faults[:] = [answering(f'<?xml version="1.0" encoding="{encoding}"?>{bomb}]>{text}'.encode(encoding))]
    assert "it declares entities" in refused(files, _path(bucket))


class Endless:
    """A server that answers everything with a body that never ends."""

    def __init__(self, head: bytes, status: int) -> None:
        outer = self
        self.sent = 0
        self.seen: list[tuple[str, dict[str, str]]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.seen.append((self.path, dict(self.headers.items())))
                self.wfile.write(b'HTTP/1.1 %d X\r\nLocation: /elsewhere\r\nETag: "1"\r\n\r\n' % status + head)
                piece = b" " * (1 << 20)
                try:
                    while outer.sent < 1 << 30:
                        self.wfile.write(piece)
                        outer.sent += len(piece)
                except OSError:
                    return

            def log_message(self, format: str, *args: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def endless(kind: str, head: bytes, status: int, patch: pytest.MonkeyPatch) -> Iterator[tuple[Endless, RemotePath]]:
    made = Endless(head, status)
    for name, value in environment_of(kind, made).items():  # type: ignore[arg-type]
        patch.setenv(name, value)
    try:
        path = any_path(f"{url_of(kind, made)}/kafka")  # type: ignore[arg-type]
        assert isinstance(path, RemotePath)
        yield made, path
    finally:
        made.server.shutdown()
        made.server.server_close()


@pytest.mark.parametrize("status", [200, 302, 403, 503])
@pytest.mark.parametrize("kind", KINDS)
def test_answer_of_a_gigabyte(kind: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read to its end, and takes no more memory than the largest answer that is read."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with endless(kind, b"<x>", status, monkeypatch) as (server, path):
        words = refused(RemoteFiles(LIMITS), path)
        assert server.sent < (4 * bounds.MOST_LISTING_BYTES)
    assert "32.0 MiB" in words or f"HTTP {status}" in words
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert grown < 5 * bounds.MOST_LISTING_BYTES


def test_ranges_that_are_others(bucket: tuple[str, S3Server], files: RemoteFiles) -> None:
    """Too much, too little, another place, another length of the object: an error, never other bytes."""
    kind, server = bucket
    data = files.read_bytes(path := _path(bucket, LOG))

    def replace_range(head: str) -> Callable[[Answer], None]:
        def strike(answer: Answer) -> None:
            if answer.is_read:
                answer.headers = [(n, head if n.lower() == "content-range" else v) for n, v in answer.headers]

        return strike

    def longer(answer: Answer) -> None:
        answer.body += b"more" if answer.is_read else b""

    def packed(answer: Answer) -> None:
        if answer.is_read:
            answer.body = gzip.compress(answer.body)
            answer.headers.append(("Content-Encoding", "gzip"))

    faults: list[Callable[[Answer], None]] = [longer, packed]
    if kind != "webhdfs":
        faults += [replace_range(f"bytes 1-{len(data)}/{len(data)}"), replace_range("bytes 0-9/10"), replace_range("x")]
    for fault in faults:
        server.faults[:] = [fault]
        with pytest.raises(LogDirOfflineError, match="given up after 2 attempts"):
            RemoteFiles(LIMITS).read_bytes(path)
    server.faults.clear()
    assert RemoteFiles(LIMITS).read_bytes(path) == data


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("there", ["{}", "file:///etc/passwd", "//", "http://[", "gopher://127.0.0.1/", ""])
def test_redirects_take_nothing_along(kind: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only HDFS sends its clients elsewhere. What says who asks stays with the first service."""
    seen: list[str] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(f"{self.path} {self.headers}")
            self.send_error(404)

        def log_message(self, format: str, *args: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as other, object_server(kind) as server:
        threading.Thread(target=other.serve_forever, args=(0.02,), daemon=True).start()
        for name, value in environment_of(kind, server).items():
            monkeypatch.setenv(name, value)

        def away(answer: Answer) -> None:
            answer.status, answer.body = 307, b""
            answer.headers = [("Location", there.replace("{}", f"http://localhost:{other.server_port}/"))]
            answer.headers.append(("x-amz-bucket-region", "elsewhere.example/"))

        server.faults[:] = [away]
        path = any_path(f"{url_of(kind, server)}/kafka/topic-0")
        files = RemoteFiles(LIMITS)
        with pytest.raises((LogDirOfflineError, FileNotFoundError)):
            files.list_dir(path)
        other.shutdown()
    assert len(seen) <= (1 if kind == "webhdfs" else 0)
    for secret in ("Authorization", SECRET, KEY_ID, "Cookie", "x-ms-"):
        assert secret.lower() not in "".join(seen).lower()


@pytest.mark.parametrize(
    "code", [KEY_ID, SECRET, "a" * 64, "RequestTimeTooSkewed", "InvalidAccessKeyId", "Bad\x1b[31m", "0f" * 32]
)
def test_codes_that_are_words_are_shown(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may be what the request had in it."""
    with object_server("s3") as server:
        for name, value in environment_of("s3", server).items():
            monkeypatch.setenv(name, value)

        def strike(answer: Answer) -> None:
            answer.status = 403
            answer.body = f"<Error><Code>{code}</Code><Message>{SECRET}</Message></Error>".encode()

        server.faults[:] = [strike]
        words = refused(RemoteFiles(LIMITS), _path(("s3", server)))
        assert (code in words) is (code in ("RequestTimeTooSkewed", "InvalidAccessKeyId"))


def test_directory_of_tens_of_thousands(bucket: tuple[str, S3Server], files: RemoteFiles) -> None:
    kind, server = bucket
    names = [f"{number:020d}.log" for number in range(30_000)]
    pages = [page(kind, names)]
    if kind != "webhdfs":
        pages = [page(kind, names[at : at + 1000], str(at) if at < 29_000 else "") for at in range(0, 30_000, 1000)]
    left = iter(pages)
    server.faults[:] = [answering(lambda: next(left))]
    began = time.monotonic()
    assert files.list_files(_path(bucket)) == names
    assert len(files.scan_dir(_path(bucket), (".log",))) == len(names)
    assert time.monotonic() - began < 20


def test_listings_are_not_kept_for_ever(bucket: tuple[str, S3Server], files: RemoteFiles) -> None:
    """A log dir may have more directories than there is memory for."""
    kept = RemoteFiles(Limits(listing_seconds=0.0))
    for number in range(20):
        assert not kept.find(_path(bucket, f"kafka/{number}"), ["a"])
        assert len(kept._listings) == 1


def test_wait_for_a_silent_service_can_be_ended(bucket: tuple[str, S3Server]) -> None:
    """By whoever waits, in one of two threads that do; also in the pause before a repeat."""
    _, server = bucket
    over = threading.Event()

    def check_done() -> None:
        if over.is_set():
            raise CleaningAborted("stopped")

    for fault in (
        lambda answer: setattr(answer, "silent_seconds", 5),
        lambda answer: setattr(answer, "status", 503),
    ):
        over.clear()
        files = RemoteFiles(Limits(pause_seconds=60.0))
        files.check_done = check_done
        server.faults[:] = [fault]
        errors: list[BaseException] = []

        def ask(files: RemoteFiles = files, errors: list[BaseException] = errors) -> None:
            try:
                files.list_dir(_path(bucket))
            except CleanerError as error:
                errors.append(error)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for each in threads:
            each.start()
        time.sleep(0.5)
        began = time.monotonic()
        over.set()
        for each in threads:
            each.join(30)
        assert time.monotonic() - began < 3
        assert [type(each) for each in errors] == [CleaningAborted] * 2
    server.faults.clear()


def test_service_that_is_no_service(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are no HTTP: one line and exit code 1, of each command that looks there first."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:
                    return
                with client:
                    client.recv(100)
                    client.sendall(b"\xff\x00 SSH-2.0\r\n\r\n" * 1000)

        threading.Thread(target=answer, daemon=True).start()
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setattr("cleaner.storage.fs.remote.LIMITS", LIMITS)
        url = f"webhdfs://127.0.0.1:{listening.getsockname()[1]}/kafka"
        for command in (["plan", url], ["check", url], ["gaps", url], ["verify", url, url, "--as-root"]):
            assert main(command) in (1, 2)
            out, err = capsys.readouterr()
            assert "no answer" in out + err
            assert "Traceback" not in out + err
        listening.shutdown(socket.SHUT_RDWR)


def test_silence_of_a_library_is_given_up() -> None:
    """Whatever it waits for: most ask for credentials first, and not all of them have time-outs for that."""

    class Silent:
        def list(self, _: RemotePath) -> dict[str, RemoteObject]:
            threading.Event().wait(60)
            return {}

        def read(self, _: RemotePath, _about: RemoteObject, _start: int, size: int) -> bytes:
            return bytes(size)

    began = time.monotonic()
    path = any_path("gs://backups/kafka")
    assert isinstance(path, RemotePath)
    limits = Limits(attempts=2, pause_seconds=0.01, silence_seconds=0.3)
    with pytest.raises(LogDirOfflineError, match=r"no answer \(TimeoutError\); given up after 2 attempts"):
        RemoteFiles(limits, store=Silent()).list_dir(path)
    assert time.monotonic() - began < 10


_COMPACT = ("--set", "topic:cleanup.policy=compact")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("plan", "{}"), -signal.SIGTERM),
        (("consume", "--log-dir", "{}", "--topic", "topic", "--from-beginning"), -signal.SIGTERM),
        (("check", "{}"), 1),
        (("verify", "{}", "{}", *_COMPACT, "--as-root"), 1),
        (("prove-erased", "{}", "--key-prefix", "k"), 1),
        (("export", "{}", "topic", "--to", "{tmp}/export"), 1),
        (("serve", "{}", "--compacted", *_COMPACT, "--listen", "127.0.0.1:0"), 1),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_command_that_waits_for_a_silent_service_ends_at_once(
    tmp_path: Path, words: tuple[str, ...], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SIGTERM, when it has begun its work; no temporary file is left, and the work is not ended as if by a crash."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with object_server("s3") as server:
        server.make_bucket()
        server.upload(write_log_dir(tmp_path / "logs", keyed_log()), "kafka")
        for name, value in environment_of("s3", server).items():
            monkeypatch.setenv(name, value)
        server.faults[:] = [lambda answer: setattr(answer, "silent_seconds", 60) if answer.is_read else None]
        url = url_of("s3", server) + "/kafka"
        given = [word.replace("{}", url).replace("{tmp}", str(tmp_path)) for word in words]
        with Started(*given, TMPDIR=str(scratch)) as command:
            wait_until(lambda: bool(server.reads()), "a read")
            assert command.end(signal.SIGTERM) == code
            assert command.process.stderr is not None
            assert command.process.stderr.read() == (b"cleaner: stopped by SIGTERM\n" if code == 1 else b"")
    assert list(scratch.iterdir()) == []
    assert not [path for path in tmp_path.rglob("export/*") if path.name != ".lock"]


# ---- planted defects ---------------------------------------------------------------------------------------------


def _any_name_is_taken(patch: pytest.MonkeyPatch) -> None:
    def add(self: bounds.Listed, name: str, about: RemoteObject) -> None:
        self.found[name[len(self._prefix) :]] = about

    patch.setattr(bounds.Listed, "_add", add)


def _every_page_is_followed(patch: pytest.MonkeyPatch) -> None:
    def next_page(self: bounds.Listed, _: str) -> None:
        self._tokens.add(str(len(self._tokens)))
        assert len(self._tokens) < 100, "no end"

    patch.setattr(bounds.Listed, "next_page", next_page)


def _entities_are_expanded(patch: pytest.MonkeyPatch) -> None:
    for each in (s3, abfs):
        patch.setattr(each, "require_plain_xml", bytes)


def _numbers_are_believed(patch: pytest.MonkeyPatch) -> None:
    def add(self: bounds.Listed, name: str, size: int, tag: str, mtime_ns: int) -> None:
        self._add(name, RemoteObject(size, tag, mtime_ns))

    patch.setattr(bounds.Listed, "add", add)


def _waits_to_the_end(patch: pytest.MonkeyPatch) -> None:
    real = bounds.wait_for
    patch.setattr(remote, "wait_for", lambda work, silence, _: real(work, silence, lambda: None))


def _pages(bucket: tuple[str, S3Server], files: RemoteFiles) -> None:
    with pytest.MonkeyPatch.context() as patch:
        test_pages_that_never_end(bucket, files, patch)


@pytest.mark.parametrize("bucket", ["s3", "abfs"], indirect=True)
@pytest.mark.parametrize(
    ("plant", "check"),
    [
        (_any_name_is_taken, test_names_that_lead_elsewhere),
        (_every_page_is_followed, _pages),
        (_entities_are_expanded, partial(test_entities_are_not_expanded, encoding="utf-8")),
        (_numbers_are_believed, partial(test_numbers_that_are_none, named={"size": -1})),
        (_waits_to_the_end, lambda bucket, files: test_wait_for_a_silent_service_can_be_ended(bucket)),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_planted_defect_is_found(
    bucket: tuple[str, S3Server],
    files: RemoteFiles,
    plant: Callable[[pytest.MonkeyPatch], None],
    check: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check above fails with it."""
    plant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(bucket, files)
