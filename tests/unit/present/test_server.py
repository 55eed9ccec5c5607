"""The HTTP server: what it answers, what it refuses, and that it cannot be used up."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus

import pytest

from cleaner.base.clock import SystemClock
from cleaner.base.listening import Address
from cleaner.errors import ListenError
from cleaner.present.http.message import SECURITY_HEADERS, Request, Response, format_head
from cleaner.present.http.routes import Routes
from cleaner.present.http.server import MAX_CONNECTIONS, MAX_THREADS, HttpServer
from tests.support.snapshots import snapshot


class Told:
    """What the server reported to the operator."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.failures: list[Exception] = []


@contextlib.contextmanager
def serving(answer: Callable[[Request], Response], told: Told | None = None) -> Iterator[HttpServer]:
    """Serve on a free port of the loopback."""
    told = told or Told()
    server = HttpServer(
        Address("127.0.0.1", 0), answer, warn=told.warnings.append, failed=told.failures.append, clock=SystemClock()
    )
    with server:
        yield server
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("cleaner-http")] == []


def hello(request: Request) -> Response:
    """Answer with what was asked."""
    return Response(f"{request.method} {request.path} {sorted(request.query.items())}".encode())


def ask(server: HttpServer, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.address.port, timeout=30)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def raw(server: HttpServer, data: bytes) -> bytes:
    """Send bytes unchanged and return everything that comes back."""
    with socket.create_connection(("127.0.0.1", server.address.port), timeout=30) as connection:
        connection.sendall(data)
        received = b""
        with contextlib.suppress(ConnectionError):
            while chunk := connection.recv(65536):
                received += chunk
        return received


def test_get_is_answered_with_every_security_header() -> None:
    """Nothing may be sniffed, framed, stored or loaded from an answer."""
    with serving(hello) as server:
        status, headers, body = ask(server, "GET", "/a%20b?x=1&y=&x=2")
    assert (status, body) == (200, b"GET /a b [('x', '2'), ('y', '')]")
    assert {name: headers[name] for name in SECURITY_HEADERS} == dict(SECURITY_HEADERS)
    assert headers["Server"] == "cleaner"


def test_head_is_answered_without_a_body_and_with_its_length() -> None:
    """HEAD is GET without the body."""
    with serving(hello) as server:
        answer = raw(server, b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"\r\n\r\n")
    assert b"Content-Length: 9\r\n" in answer


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get"])
def test_method_that_could_change_something_is_refused(method: str) -> None:
    """No password is asked for, whatever is sent."""
    with serving(lambda _: pytest.fail("asked")) as server:
        status, headers, _ = ask(server, method, "/", Content_Length="0")
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET  / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nA: a\0b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nA: a\rb\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nA : b\r\n\r\n",
        b"GET x HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n: empty\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nA: 1\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\nHost: localhost\r\n\r\n",
        b"GET http://[::1/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"a" * 20_000 + b"\r\n\r\n",
    ],
    ids=[
        "nonsense", "0.9", "http2", "two blanks", "2.0", "no host", "two hosts", "nul", "carriage return",
        "blank before colon", "no slash", "no name", "folded", "bare line end", "bad host", "tls", "long target",
        "long header",
    ],
)  # fmt: skip
def test_bytes_that_are_no_request_are_refused(request_bytes: bytes) -> None:
    """One line says so; no password is asked for, and the server goes on."""
    with serving(lambda _: pytest.fail("asked")) as server:
        assert raw(server, request_bytes)[:12] in (b"HTTP/1.1 400", b"")
        assert ask(server, "POST", "/")[0] == 405


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9404", "[::1]:80", "LOCALHOST:1", "x.localhost", ""])
def test_host_on_the_loopback_is_served(host: str) -> None:
    """These names cannot be another's."""
    with serving(hello) as server:
        assert ask(server, "GET", "/", Host=host)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1"])
def test_host_from_elsewhere_is_refused_on_the_loopback(host: str) -> None:
    """A page that leads its own name to 127.0.0.1 reads nothing (DNS rebinding)."""
    with serving(hello) as server:
        assert ask(server, "GET", "/", Host=host)[0] == 403


def test_mistake_in_an_answer_is_reported_inside_only() -> None:
    """The client learns that it happened, the operator what; the next request is served."""
    told = Told()

    def fail(request: Request) -> Response:
        raise RuntimeError(f"secret {request.path}")

    with serving(fail, told) as server:
        status, _, body = ask(server, "GET", "/x")
        assert ask(server, "GET", "/y")[0] == 500
    assert (status, body) == (500, b"Internal Server Error\n")
    assert [str(error) for error in told.failures] == ["secret /x", "secret /y"]


def test_header_with_a_line_end_is_never_sent() -> None:
    """A value that could begin a header of its own is a mistake, not an answer."""
    with pytest.raises(ValueError, match="control character"):
        format_head(Response(b"", headers={"X": "a\r\nSet-Cookie: b"}))


def test_half_open_connections_neither_pile_up_nor_stop_a_scrape() -> None:
    """With 200 connections that say nothing, or half a request, threads stay few and a scrape is served."""
    told = Told()
    routes = Routes(snapshot, clock=SystemClock())
    with serving(routes, told) as server, contextlib.ExitStack() as stack:
        before = threading.active_count()
        most = 0
        for number in range(200):
            connection = socket.create_connection(("127.0.0.1", server.address.port), timeout=30)
            stack.enter_context(connection)
            if number % 2:
                with contextlib.suppress(ConnectionError):  # it has given way already
                    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: loc")
            most = max(most, threading.active_count())
        began = time.monotonic()
        status, _, body = ask(server, "GET", "/metrics")
        assert (status, b"cleaner_ready 1.0" in body) == (200, True)
        # A thread a connection and time-outs alone would let it wait for 25 s.
        assert time.monotonic() - began < 2.0
        assert most - before <= MAX_THREADS
        assert most <= 20
    assert told.failures == [] and told.warnings == []


def test_unread_answers_do_not_stop_a_scrape() -> None:
    """However many ask and do not listen, the oldest gives way."""
    large = Response(b"x" * (16 << 20))
    with (
        serving(lambda request: large if request.path == "/" else hello(request)) as server,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(MAX_CONNECTIONS + 8):
            connection = socket.create_connection(("127.0.0.1", server.address.port), timeout=30)
            stack.enter_context(connection)
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        began = time.monotonic()
        assert ask(server, "GET", "/metrics")[0] == 200
        assert time.monotonic() - began < 2.0


def test_silent_connection_is_dropped_after_its_time() -> None:
    """Without any other connection, too, a client that says nothing is not waited for; a dribble does not help it."""
    with (
        serving(hello) as server,
        socket.create_connection(("127.0.0.1", server.address.port), timeout=30) as connection,
    ):
        began = time.monotonic()
        received = None
        with contextlib.suppress(ConnectionError):
            while received is None:
                connection.sendall(b"G")
                connection.settimeout(0.2)
                with contextlib.suppress(TimeoutError):
                    received = connection.recv(100)
        assert received in (b"", None)
        assert 1.5 < time.monotonic() - began < 10


class _Standstill(SystemClock):
    """A clock that stops the event loop when it asks for the time, once."""

    def __init__(self, seconds: float) -> None:
        self.has_begun = threading.Event()
        self._seconds = seconds

    def now_ms(self) -> int:
        """Return the time, late."""
        if not self.has_begun.is_set():
            self.has_begun.set()
            threading.Event().wait(self._seconds)
        return super().now_ms()


def test_request_that_came_during_a_standstill_of_the_server_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was stopped, or got no processor, does not take its own time for the client's."""
    monkeypatch.setattr("cleaner.present.http.server.REQUEST_SECONDS", 0.4)
    clock = _Standstill(1.0)
    server = HttpServer(
        Address("127.0.0.1", 0), hello, warn=pytest.fail, failed=lambda _: pytest.fail("an error"), clock=clock
    )
    with server, socket.create_connection(("127.0.0.1", server.address.port), timeout=30) as waiting:
        other = threading.Thread(target=lambda: ask(server, "GET", "/other"))
        other.start()
        assert clock.has_begun.wait(30)
        waiting.sendall(b"GET /late HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert waiting.recv(65536).startswith(b"HTTP/1.1 200 OK")
        other.join()


def test_close_drops_connections_and_frees_the_port() -> None:
    """Closing does not wait for clients, and the address may be bound again at once."""
    with serving(hello) as server:
        waiting = socket.create_connection(("127.0.0.1", server.address.port), timeout=30)
        port = server.address.port
    with contextlib.closing(waiting), contextlib.suppress(ConnectionError):
        assert waiting.recv(1) == b""
    again = HttpServer(Address("127.0.0.1", port), hello, warn=print, failed=print, clock=SystemClock())
    again.close()


def test_address_in_use_is_an_error_of_its_own() -> None:
    """Exit code 69, and the address is named."""
    with serving(hello) as server, pytest.raises(ListenError, match=f"127.0.0.1:{server.address.port}") as raised:
        HttpServer(server.address, hello, warn=print, failed=print, clock=SystemClock())
    assert raised.value.exit_code == 69


def test_listening_beyond_the_loopback_without_users_is_warned_of() -> None:
    """Opening it to the network draws one warning about what that shows."""
    told = Told()
    server = HttpServer(
        Address("0.0.0.0", 0),  # noqa: S104 - that is what is warned of
        hello, warn=told.warnings.append, failed=told.failures.append, clock=SystemClock(),
    )  # fmt: skip
    server.close()
    assert len(told.warnings) == 1 and "cleaner.http.web.config.file" in told.warnings[0]


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],  # noqa: S104
)
def test_address_knows_whether_only_this_machine_reaches_it(host: str, is_loopback: bool) -> None:
    """What is not surely loopback counts as open."""
    assert Address(host, 9404).is_loopback is is_loopback


def test_words_of_a_status_are_its_own_where_none_are_given() -> None:
    """A line, so that a terminal shows it well."""
    assert Response.words(HTTPStatus.NOT_FOUND).body == b"Not Found\n"
