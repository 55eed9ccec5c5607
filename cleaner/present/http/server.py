"""
The HTTP server: a few threads, two seconds for a request, read-only, and no way to use it up.

One thread accepts; each connection has a thread of its own, of which there are `MOST_CONNECTIONS` at a time. When all
are taken and another connection comes, one gives way: the oldest of those that have their answer, then of those that
have not sent their request yet, then of those that do not take their answer.
So hundreds of connections that never say anything (or never listen) cost a handful of threads for two seconds, and a
scrape that comes in their midst is served at once.

A password that is not known to be right takes long to compare, so that its request leaves its thread and waits in a
line (`waiting_line.py`), for the one thread that compares. Users whose password is known wait for nobody, and probes
are not asked.

A connection is one request and its answer. TLS shakes hands in the connection's own thread, within the same time.
"""

from __future__ import annotations

import contextlib
import ipaddress
import select
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import NamedTuple, Self

from cleaner.base.clock import Clock
from cleaner.config.forms import LISTEN_KEY
from cleaner.errors import CleanerError
from cleaner.present.http.message import (
    METHODS,
    MOST_HEAD_BYTES,
    BadRequestError,
    Request,
    Response,
    format_response,
    parse_request,
)
from cleaner.present.http.passwords import Passwords
from cleaner.present.http.waiting_line import WaitingLine, origin_of
from cleaner.present.http.web_config import WebConfigFile

MOST_CONNECTIONS = 8
"""Prometheus and a browser's six; with all other threads of the daemon they stay below 20."""

REQUEST_NS = 2_000_000_000
"""For a request to arrive, and again for its answer to be taken."""

# Open to those who only ask whether the process lives: an orchestrator's probes carry no password.
OPEN_PATHS = ("/livez", "/readyz")

LINGER_NS = 300_000_000
"""For the other end to close after its answer."""

FAILURE_NS = 100_000_000
"""From the beginning of a comparison that fails to that of the next one; and never more than half of the time."""

# Stages of a connection, in the order in which they give way to a new one; one that works on an answer never does.
_ANSWERED, _SILENT, _SENDING, _ASKED = range(4)

_CLOSE_NS = 500_000_000
_LOOK_SECONDS = 0.05  # how often somebody who waits for a thread looks for one who should give way

_BACKLOG = 256


class ListenError(CleanerError):
    """The address cannot be listened on: taken by another process, or not of this machine."""

    exit_code = 69


@dataclass(frozen=True)
class Address:
    """Where to listen; an IPv6 address is without brackets, port 0 is any that is free."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Tell whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _Stranger(NamedTuple):
    """A request whose password has to be compared."""

    connection: _Connection
    request: Request


class HttpServer:
    """
    Serves what `answer` says, from `start` to `close`; as a context manager within it.

    Args:
        address: where; bound when the server is made.
        answer: called in any of a few threads; must not write anywhere.
        web_config: TLS and users; None: neither.
        warn: told what the operator should know, one line each.
        failed: told of a mistake in `answer`, which the client only learns happened.
        clock: for time-outs and the `Date` header.
    Raises:
        ListenError: the address is taken or not ours.
    """

    def __init__(
        self,
        address: Address,
        answer: Callable[[Request], Response],
        *,
        web_config: WebConfigFile | None = None,
        warn: Callable[[str], None],
        failed: Callable[[Exception], None],
        clock: Clock,
    ) -> None:
        self._answer, self._web_config, self._warn, self._failed = answer, web_config, warn, failed
        self._clock = clock
        self._listener = _listen(address)
        self.address = Address(address.host, self._listener.getsockname()[1])
        self._slots = threading.Semaphore(MOST_CONNECTIONS)
        self._lock = threading.Lock()  # guards _working
        self._working: dict[threading.Thread, _Connection] = {}  # what each thread works for, oldest first
        self._line: WaitingLine[_Stranger] = WaitingLine()
        self._closing = threading.Event()
        self._comparing = threading.Thread(target=self._compare_all, name="cleaner-passwords", daemon=True)
        self._thread = threading.Thread(target=self._accept_all, name="cleaner-http", daemon=True)
        is_guarded = web_config is not None and web_config.current().has_users
        if not address.is_loopback and not is_guarded:
            warn(
                f"{LISTEN_KEY}={address} is open to other machines without a password: "
                "whoever reaches it reads names and sizes of all topics; see cleaner.http.web.config.file"
            )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()
        if self._web_config is not None:
            self._comparing.start()

    def close(self) -> None:
        """Stop listening, drop every connection and wait for the threads."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread; closing alone does not
        self._listener.close()
        for stranger in self._line.close():
            stranger.connection.close()
        end_ns = self._clock.monotonic_ns() + _CLOSE_NS
        while True:  # a comparison may end meanwhile, and give its connection a thread
            is_late = self._clock.monotonic_ns() > end_ns  # one of a costly hash is not waited for: nothing follows it
            waited = (self._thread,) if is_late else (self._thread, self._comparing)
            threads = [thread for thread in waited if thread.is_alive()]
            with self._lock:
                left = dict(self._working)
            if not threads and not left:
                return
            for thread, connection in left.items():
                connection.drop()
                threads.append(thread)
            for thread in threads:
                thread.join(_LOOK_SECONDS)

    def _accept_all(self) -> None:
        while not self._closing.is_set():
            try:
                accepted, peer = self._listener.accept()
            except OSError as error:
                if not self._closing.is_set():  # out of descriptors: they come back
                    self._warn(f"cannot accept an HTTP connection: {error.strerror}")
                    self._clock.sleep(0.2)
                continue
            self._begin(_Connection(accepted, origin_of(peer[0]), self._clock), self._serve)

    def _begin(self, connection: _Connection, work: Callable[[_Connection], None]) -> None:
        """Give a connection a thread, as soon as there is one, for something that ends with `_end`."""
        while not self._slots.acquire(blocking=False):
            self._make_room()
            if self._slots.acquire(timeout=_LOOK_SECONDS):
                break
        thread = threading.Thread(target=work, args=(connection,), name="cleaner-http-connection", daemon=True)
        with self._lock:
            try:
                thread.start()
                self._working[thread] = connection
                return
            except RuntimeError as error:  # no thread is to be had
                reason = str(error)
        self._warn(f"cannot serve an HTTP connection: {reason}")
        self._slots.release()
        connection.close()

    def _make_room(self) -> None:
        with self._lock:
            served = list(self._working.values())
            if len(served) < MOST_CONNECTIONS or any(connection.is_dropped for connection in served):
                return
            first = min(served, key=lambda connection: connection.rank)  # the oldest of its stage
            if first.rank < _ASKED:
                first.drop()

    def _end(self) -> None:
        """Let another connection have this thread's place."""
        with self._lock:
            del self._working[threading.current_thread()]
        self._slots.release()

    def _serve(self, connection: _Connection) -> None:
        stranger = None
        try:
            # Whoever is at the other end may leave, be silent or speak nonsense at any moment: that ends a
            # connection and is nothing to tell anybody.
            with contextlib.suppress(OSError, ssl.SSLError):
                config = self._web_config.current() if self._web_config else None
                connection.begin(config.tls if config else None)
                head = connection.read_head()
                if head:
                    response = self._respond(head, config.passwords if config else None)
                    if isinstance(response, Request):
                        stranger = _Stranger(connection, response)
                    else:
                        self._send(connection, response, is_head=head.startswith(b"HEAD "))
        finally:
            # A stranger has no thread from here on: guessers take none from those who are known.
            loser = self._line.join(connection.origin, stranger) if stranger else None
            if loser is not None:
                self._send_away(loser)
            if stranger is None:
                connection.close()
            self._end()

    def _send_away(self, loser: _Stranger) -> None:
        connection, request = loser
        with self._lock:
            self._working[threading.current_thread()] = connection
        reason = "too many passwords are being compared; try again"
        response = Response.words(HTTPStatus.TOO_MANY_REQUESTS, reason, Retry_After="5")
        with contextlib.suppress(OSError, ssl.SSLError):
            self._send(connection, response, is_head=request.method == "HEAD")
        connection.close()

    def _respond(self, head: bytes, passwords: Passwords | None) -> Response | Request:
        """Return the answer; the request itself if its password has to be compared first."""
        try:
            request = parse_request(head)
        except BadRequestError as error:
            return Response.words(HTTPStatus.BAD_REQUEST, str(error))
        if request.method not in METHODS:
            return Response.words(HTTPStatus.METHOD_NOT_ALLOWED, "this server only shows", Allow=", ".join(METHODS))
        if self.address.is_loopback and not request.is_host_on_loopback:
            return Response.words(HTTPStatus.FORBIDDEN, "not a name of this machine's loopback")
        if passwords is not None and request.path not in OPEN_PATHS:
            known = passwords.known(request.headers.get("authorization", ""))
            if known is None:
                return request
            if not known:
                return _unauthorized()
        return self._answer_to(request)

    def _answer_to(self, request: Request) -> Response:
        try:
            return self._answer(request)
        except Exception as error:  # noqa: BLE001 - a mistake in one answer must not end the server
            self._failed(error)
            return Response.words(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _send(self, connection: _Connection, response: Response, *, is_head: bool) -> None:
        connection.send(format_response(response, is_head=is_head, now_ms=self._clock.now_ms()))

    def _compare_all(self) -> None:
        """Compare one password after the other; failures have a pace, so that guesses cannot take the machine."""
        while (stranger := self._line.take()) is not None:
            connection, request = stranger
            if connection.has_left():
                connection.close()
                continue
            began_ns = self._clock.monotonic_ns()
            is_right = self._is_right(request)
            if self._closing.is_set():
                connection.close()
                return

            def finish(connection: _Connection, request: Request = request, is_right: bool = is_right) -> None:
                try:
                    with contextlib.suppress(OSError, ssl.SSLError):
                        response = self._answer_to(request) if is_right else _unauthorized()
                        self._send(connection, response, is_head=request.method == "HEAD")
                finally:
                    connection.close()
                    self._end()

            self._begin(connection, finish)
            if not is_right:
                took_ns = self._clock.monotonic_ns() - began_ns
                self._closing.wait(max(FAILURE_NS - took_ns, took_ns) / 1_000_000_000)

    def _is_right(self, request: Request) -> bool:
        assert self._web_config is not None  # noqa: S101 - otherwise nobody is asked
        try:
            # What is in force now: the file may have changed while the request waited.
            return self._web_config.current().passwords.is_allowed(request.headers.get("authorization", ""))
        except Exception as error:  # noqa: BLE001 - nor must a mistake here keep all others out
            self._failed(error)
            return False


def _unauthorized() -> Response:
    return Response.words(HTTPStatus.UNAUTHORIZED, WWW_Authenticate='Basic realm="cleaner", charset="UTF-8"')


class _Connection:
    """
    One connection: its socket, and how long it may take.

    Attributes:
        origin: where the other end is, as the waiting line counts.
        is_dropped: it has to give way, and will.
    """

    def __init__(self, accepted: socket.socket, origin: bytes, clock: Clock) -> None:
        self._socket = accepted
        self._clock = clock
        self._deadline_ns = clock.monotonic_ns() + REQUEST_NS
        self._stage = _SILENT
        self.origin = origin
        self.is_dropped = False

    @property
    def rank(self) -> int:
        """The stage; who has sent something that was not read yet is not silent, whatever the thread has come to."""
        return _ASKED if self._stage == _SILENT and self._has_unread() else self._stage

    def _has_unread(self) -> bool:
        descriptor = self._socket.fileno()
        if descriptor < 0:  # in the middle of becoming one with TLS
            return True
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(0))

    def has_left(self) -> bool:
        """Tell whether the other end has closed the connection, as far as that is known."""
        try:
            self._socket.settimeout(0)
            # That of SSLSocket takes no flags; of TLS there is always something to read at the end.
            return socket.socket.recv(self._socket, 1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def begin(self, tls: ssl.SSLContext | None) -> None:
        """Shake hands where that is asked for."""
        self._set_timeout()
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_side=True, do_handshake_on_connect=False)
            self._set_timeout()
            self._socket.do_handshake()

    def read_head(self) -> bytes:
        """Return the head of the request; nothing when the other end leaves. Too long a head comes cut, and is bad."""
        head = b""
        while b"\r\n\r\n" not in head and len(head) < MOST_HEAD_BYTES:
            self._set_timeout()
            received = self._socket.recv(MOST_HEAD_BYTES - len(head))
            if not received:
                return b""
            head += received
        self._stage = _ASKED
        return head

    def send(self, data: bytes) -> None:
        """Send all, then wait a moment for the other end: closing on what it sent unread would cut the answer off."""
        self._stage = _SENDING
        self._deadline_ns = self._clock.monotonic_ns() + REQUEST_NS
        self._set_timeout()
        self._socket.sendall(data)
        self._stage = _ANSWERED
        self._deadline_ns = self._clock.monotonic_ns() + LINGER_NS
        self._set_timeout()
        if isinstance(self._socket, ssl.SSLSocket):
            self._socket = self._socket.unwrap()
        self._socket.shutdown(socket.SHUT_WR)
        while self._clock.monotonic_ns() < self._deadline_ns:
            self._set_timeout()
            if not self._socket.recv(4096):
                return

    def drop(self) -> None:
        """End it from another thread: whatever its own waits for fails at once."""
        self.is_dropped = True
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # that of SSLSocket is not for other threads

    def close(self) -> None:
        """Give the descriptor back."""
        self._socket.close()

    def _set_timeout(self) -> None:
        left_ns = self._deadline_ns - self._clock.monotonic_ns()
        if left_ns <= 0:
            raise TimeoutError
        self._socket.settimeout(left_ns / 1_000_000_000)


def _listen(address: Address) -> socket.socket:
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ListenError(f"{LISTEN_KEY}={address}: {error.strerror or error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(f"{LISTEN_KEY}={address}: {error.strerror or error}") from error
    return listener
