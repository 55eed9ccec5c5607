"""
The HTTP server: read-only, two seconds for a request and two for its answer, with all resources limited.

One thread runs an event loop, in which a connection costs no thread: hundreds that never send (or never read) delay no
other client. There are `MAX_CONNECTIONS` at a time; when another one comes, one is closed: the oldest of those that
have their answer, then of those that have not sent their request, then of those that do not read their answer. At most
`MAX_THREADS` threads besides the loop make answers.

A password that is not known to be right takes long to compare, so its request waits in a line
(`base/password_line.py`). Users whose password is known do not wait, and probes need no password.

A connection carries one request and its answer. The TLS handshake counts as part of the request's time.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from types import TracebackType
from typing import Self

from cleaner.base import concurrency
from cleaner.base.clock import Clock
from cleaner.base.listening import Address, listen
from cleaner.base.password_line import PasswordLine
from cleaner.config.forms import LISTEN_KEY
from cleaner.present.http.message import (
    HEAD_END,
    MAX_HEAD_BYTES,
    METHODS,
    BadRequestError,
    Request,
    Response,
    format_head,
    parse_request,
)
from cleaner.present.http.passwords import Passwords
from cleaner.present.http.patience import patience
from cleaner.present.http.web_config import WebConfigFile

MAX_CONNECTIONS = 64
"""Each takes a descriptor and some kilobytes; those whose password is being compared are not counted."""

MAX_WAITING = 64
"""Requests whose password has to be compared."""

MAX_THREADS = 8
"""Threads that make answers: for Prometheus and a browser's six connections; the daemon's threads stay below 20."""

REQUEST_SECONDS = 2.0
"""For a request to arrive, and again for its answer to be read."""

# Open without a password: an orchestrator's probes carry none.
OPEN_PATHS = ("/livez", "/readyz")

LINGER_SECONDS = 0.3
"""For the client to close after its answer."""

# Stages of a connection, in the order in which they are closed for a new one; one that waits for an answer never is.
_ANSWERED, _SILENT, _SENDING, _ASKED = range(4)

_LOOK_SECONDS = 0.05  # how often a new connection looks for one to close
_PIECE_BYTES = 256 << 10  # of an answer
_BACKLOG = 256


class HttpServer:
    """
    Serves the answers of `answer`, from `start` to `close`; or as a context manager.

    Args:
        address: to listen at; bound when the server is made.
        answer: called in any of a few threads; must not write anywhere.
        web_config: TLS and users; None: neither.
        warn: called with warnings for the operator, one line each.
        failed: called with an internal error of `answer`; the client only learns that there was one.
        clock: for the `Date` header.
        option: with the address behind it, for messages.
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
        option: str = f"{LISTEN_KEY}=",
    ) -> None:
        self._answer, self._web_config, self._warn, self._failed = answer, web_config, warn, failed
        self._clock = clock
        self._listener, self.address = listen(address, _BACKLOG, option)
        self._closing = concurrency.Event()
        self._thread = concurrency.Thread(
            target=lambda: asyncio.run(self._accept_all()), name="cleaner-http", daemon=True
        )
        # Only the event loop uses the fields below.
        self._stages: dict[asyncio.Task[None], int] = {}  # of the connections served, oldest first
        self._line = PasswordLine(MAX_WAITING)
        is_guarded = web_config is not None and web_config.current().has_users
        if not address.is_loopback and not is_guarded:
            warn(
                f"{option}{address} is open to other machines without a password: "
                "anyone can read the names and sizes of all topics; see cleaner.http.web.config.file"
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
        """Stop listening, drop every connection and wait for the threads; a costly comparison is not waited for."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the event loop
        if self._thread.ident is not None:
            self._thread.join()
        self._listener.close()

    async def _accept_all(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(concurrency.ThreadPoolExecutor(MAX_THREADS, "cleaner-http-answer"))
        while not self._closing.is_set():
            try:
                accepted, peer = await loop.sock_accept(self._listener)
            except OSError as error:
                if not self._closing.is_set():  # out of descriptors: they come back
                    self._warn(f"cannot accept an HTTP connection: {error.strerror}")
                    await asyncio.sleep(0.2)
                continue
            await self._make_room()
            task = asyncio.create_task(self._serve(accepted, peer[0]))
            self._stages[task] = _SILENT
            task.add_done_callback(lambda ended: self._stages.pop(ended, None))
            await asyncio.sleep(0)  # data from other connections is read before the next one is accepted

    async def _make_room(self) -> None:
        while len(self._stages) >= MAX_CONNECTIONS:
            first = min(self._stages, key=self._stages.__getitem__)  # the oldest of its stage
            if self._stages[first] < _ASKED:
                first.cancel()
                del self._stages[first]
            else:
                await asyncio.sleep(_LOOK_SECONDS)

    def _enter(self, stage: int) -> None:
        """Note the stage of the current task's connection."""
        self._stages[_this_task()] = stage

    async def _serve(self, accepted: socket.socket, host: str) -> None:
        connection = _Connection()
        try:
            # The client may leave, be silent or send nonsense at any moment: that ends a connection and is not
            # reported. Time-outs and failures of TLS are OSErrors.
            with contextlib.suppress(OSError):
                config = self._web_config.current() if self._web_config else None
                async with patience(REQUEST_SECONDS):
                    await connection.begin(accepted, config.tls if config else None)
                    head = await connection.read_head()
                if head:
                    self._enter(_ASKED)
                    response = await self._respond(head, config.passwords if config else None, host, connection)
                    answer_head = format_head(response, self._clock.now_ms())
                    self._enter(_SENDING)
                    async with patience(REQUEST_SECONDS):
                        await connection.send(answer_head, b"" if head.startswith(b"HEAD ") else response.body)
                    self._enter(_ANSWERED)
                    async with asyncio.timeout(LINGER_SECONDS):
                        await connection.linger()
        except Exception as error:  # noqa: BLE001 - an internal error of one connection must not end the server
            self._failed(error)
        finally:
            connection.close()

    async def _respond(self, head: bytes, passwords: Passwords | None, host: str, connection: _Connection) -> Response:
        try:
            request = parse_request(head)
        except BadRequestError as error:
            return Response.words(HTTPStatus.BAD_REQUEST, str(error))
        if request.method not in METHODS:
            return Response.words(HTTPStatus.METHOD_NOT_ALLOWED, "this server is read-only", Allow=", ".join(METHODS))
        if self.address.is_loopback and not request.is_host_on_loopback:
            return Response.words(HTTPStatus.FORBIDDEN, "not a name of this machine's loopback")
        if passwords is not None and request.path not in OPEN_PATHS:
            authorization = request.headers.get("authorization", "")
            is_right = passwords.known(authorization)
            if is_right is None:
                is_right = await self._wait_in_line(host, authorization, connection)
            if is_right is None:
                reason = "too many passwords are being compared; try again"
                return Response.words(HTTPStatus.TOO_MANY_REQUESTS, reason, Retry_After="5")
            if not is_right:
                realm = 'Basic realm="cleaner", charset="UTF-8"'
                return Response.words(HTTPStatus.UNAUTHORIZED, WWW_Authenticate=realm)
        try:
            return await asyncio.to_thread(self._answer, request)
        except Exception as error:  # noqa: BLE001 - an internal error in one answer must not end the server
            self._failed(error)
            return Response.words(HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _wait_in_line(self, host: str, authorization: str, connection: _Connection) -> bool | None:
        """Tell whether a password is right, once it was compared; None: the line is full."""

        def turn() -> Callable[[], bool]:
            assert self._web_config is not None  # noqa: S101 - without it no password is asked for
            # The current file: it may have changed while the request waited.
            return partial(self._web_config.current().passwords.is_allowed, authorization)

        self._stages.pop(_this_task(), None)  # guessers take no connection from known users
        try:
            is_right = await self._line.is_right(host, turn, connection.has_left)
        except Exception as error:  # noqa: BLE001 - an internal error of one comparison must not keep all others out
            self._failed(error)
            is_right = False
        await self._make_room()
        self._enter(_ASKED)
        return is_right


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - each connection is a task
    return task


class _Connection:
    """The streams of one connection."""

    def __init__(self) -> None:
        self._reader = asyncio.StreamReader(MAX_HEAD_BYTES)
        self._writer: asyncio.StreamWriter | None = None  # until it has begun

    async def begin(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Take over a socket; with `tls`, do the handshake."""
        loop, protocol = asyncio.get_running_loop(), asyncio.StreamReaderProtocol(self._reader)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=tls)
        transport.set_write_buffer_limits(1)  # drained means taken by the system, or by TLS
        self._writer = asyncio.StreamWriter(transport, protocol, self._reader, loop)

    async def read_head(self) -> bytes:
        """Return the head of the request; empty if the client leaves. Too long a head is cut, and so invalid."""
        try:
            return await self._reader.readuntil(HEAD_END)
        except asyncio.LimitOverrunError:
            return await self._reader.read(MAX_HEAD_BYTES)
        except asyncio.IncompleteReadError:
            return b""

    def has_left(self) -> bool:
        """Tell whether the client has closed the connection, as far as that is known."""
        return self._reader.at_eof() or self._reader.exception() is not None

    async def send(self, head: bytes, body: bytes) -> None:
        """Send everything and mark the end; a piece at a time, so that unsent data is not copied."""
        assert self._writer is not None  # noqa: S101 - it has begun
        self._writer.write(head)
        whole = memoryview(body)
        for begin in range(0, len(body), _PIECE_BYTES):
            # With TLS a client that resets does not fail `drain`, and asyncio logs every further write.
            if self._writer.transport.is_closing():
                return
            self._writer.write(whole[begin : begin + _PIECE_BYTES])
            await self._writer.drain()
            await asyncio.sleep(0)  # others get their turn, too: `drain` does not wait while the system takes all
        if self._writer.can_write_eof():
            self._writer.write_eof()
        else:  # TLS closes in both directions
            self._writer.close()
            await self._writer.wait_closed()

    async def linger(self) -> None:
        """Wait for the client to close: closing with unread data from it would cut the answer off."""
        while await self._reader.read(MAX_HEAD_BYTES):
            pass

    def close(self) -> None:
        """Release the descriptor."""
        if self._writer is not None:
            self._writer.transport.abort()
