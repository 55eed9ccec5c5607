"""
The HTTP server: a few threads, two seconds for a request, read-only, and no way to use it up.

One thread accepts; each connection has a thread of its own, of which there are `MOST_CONNECTIONS` at a time. When all
are taken and another connection comes, one gives way: the oldest of those that have their answer, then of those that
have not sent their request yet, then of all.
So hundreds of connections that never say anything (or never listen) cost a handful of threads for two seconds, and a
scrape that comes in their midst is served at once.

A connection is one request and its answer. TLS shakes hands in the connection's own thread, within the same time.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Self

from cleaner.clock import Clock
from cleaner.config_forms import LISTEN_KEY
from cleaner.errors import CleanerError
from cleaner.status.message import (
    METHODS,
    MOST_HEAD_BYTES,
    BadRequestError,
    Request,
    Response,
    format_response,
    parse_request,
)
from cleaner.status.web_config import WebConfigFile

MOST_CONNECTIONS = 8
"""Prometheus and a browser's six; with all other threads of the daemon they stay below 20."""

REQUEST_NS = 2_000_000_000
"""For a request to arrive, and again for its answer to be taken."""

# Open to those who only ask whether the process lives: an orchestrator's probes carry no password.
OPEN_PATHS = ("/livez", "/readyz")

LINGER_NS = 300_000_000
"""For the other end to close after its answer."""

# Stages of a connection, in the order in which they give way to a new one.
_ANSWERED, _SILENT, _ASKED = range(3)

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
        self._is_closing = False
        self._slots = threading.Semaphore(MOST_CONNECTIONS)
        self._lock = threading.Lock()  # guards _connections
        self._connections: list[_Connection] = []  # oldest first
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

    def close(self) -> None:
        """Stop listening, drop every connection and wait for the threads."""
        self._is_closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread; closing alone does not
        self._listener.close()
        if self._thread.ident is not None:
            self._thread.join()
        with self._lock:
            left = list(self._connections)
        for connection in left:
            connection.drop()
        for connection in left:
            connection.thread.join()

    def _accept_all(self) -> None:
        while not self._is_closing:
            try:
                accepted, _ = self._listener.accept()
            except OSError as error:
                if not self._is_closing:  # out of descriptors: they come back
                    self._warn(f"cannot accept an HTTP connection: {error.strerror}")
                    self._clock.sleep(0.2)
                continue
            self._make_room()
            self._slots.acquire()
            connection = _Connection(accepted, self._serve, self._clock)
            with self._lock:
                self._connections.append(connection)
            try:
                connection.thread.start()
            except RuntimeError as error:  # no thread is to be had
                self._warn(f"cannot serve an HTTP connection: {error}")
                self._forget(connection)

    def _make_room(self) -> None:
        with self._lock:
            if len(self._connections) < MOST_CONNECTIONS:
                return
            min(self._connections, key=lambda connection: connection.stage).drop()  # the oldest of its stage

    def _forget(self, connection: _Connection) -> None:
        connection.close()
        with self._lock:
            self._connections.remove(connection)
        self._slots.release()

    def _serve(self, connection: _Connection) -> None:
        try:
            # Whoever is at the other end may leave, be silent or speak nonsense at any moment: that ends a
            # connection and is nothing to tell anybody.
            with contextlib.suppress(OSError, ssl.SSLError):
                config = self._web_config.current() if self._web_config else None
                connection.begin(config.tls if config else None)
                head = connection.read_head()
                if head:
                    is_head = head.startswith(b"HEAD ")
                    response = self._respond(head, config.is_allowed if config else None)
                    connection.send(format_response(response, is_head=is_head, now_ms=self._clock.now_ms()))
        finally:
            self._forget(connection)

    def _respond(self, head: bytes, is_allowed: Callable[[str], bool] | None) -> Response:
        try:
            request = parse_request(head)
        except BadRequestError as error:
            return Response.words(HTTPStatus.BAD_REQUEST, str(error))
        if request.method not in METHODS:
            return Response.words(HTTPStatus.METHOD_NOT_ALLOWED, "this server only shows", Allow=", ".join(METHODS))
        if self.address.is_loopback and not request.is_host_on_loopback:
            return Response.words(HTTPStatus.FORBIDDEN, "not a name of this machine's loopback")
        is_open = request.path in OPEN_PATHS
        if is_allowed and not is_open and not is_allowed(request.headers.get("authorization", "")):
            challenge = 'Basic realm="cleaner", charset="UTF-8"'
            return Response.words(HTTPStatus.UNAUTHORIZED, WWW_Authenticate=challenge)
        try:
            return self._answer(request)
        except Exception as error:  # noqa: BLE001 - a mistake in one answer must not end the server
            self._failed(error)
            return Response.words(HTTPStatus.INTERNAL_SERVER_ERROR)


class _Connection:
    """One connection: its socket, its thread, and how long it may take."""

    def __init__(self, accepted: socket.socket, serve: Callable[[_Connection], None], clock: Clock) -> None:
        self._socket = accepted
        self._clock = clock
        self._deadline_ns = clock.monotonic_ns() + REQUEST_NS
        self.stage = _SILENT
        self.thread = threading.Thread(target=serve, args=(self,), name="cleaner-http-connection", daemon=True)

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
        self.stage = _ASKED
        return head

    def send(self, data: bytes) -> None:
        """Send all, then wait a moment for the other end: closing on what it sent unread would cut the answer off."""
        self._deadline_ns = self._clock.monotonic_ns() + REQUEST_NS
        self._set_timeout()
        self._socket.sendall(data)
        self.stage = _ANSWERED
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
