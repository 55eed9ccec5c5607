"""
The server: connections, their limits, and the way from a frame to its answer.

One thread runs an event loop; what may wait for a disk runs in a few others. A connection has one request at a time, as
a broker's. Whatever a client sends, it can end its own connection only, and it takes memory only within these limits:

    connections           `Limits.connections`; one more is closed at once
    a request             `Limits.frame_bytes`, and of all connections together `Limits.request_bytes`
    a request's bytes     must arrive within `Limits.frame_seconds`
    an answer             must be taken within `Limits.answer_seconds`, or go on being taken
    silence               `Limits.idle_seconds`; before it has logged in, and for a TLS handshake, `frame_seconds`
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from cleaner.base.password_line import PasswordLine
from cleaner.errors import CleanerError, LogChangedError, describe, disk_error, is_disk_failure
from cleaner.format.fields import Piece
from cleaner.serve.api import Api, Parts, offered_versions
from cleaner.serve.catalog import Catalog
from cleaner.serve.codes import Code, code_of
from cleaner.serve.describe import refusal
from cleaner.serve.login import BEFORE_LOGIN, Access, Call, Login
from cleaner.serve.partition import FileRecords
from cleaner.serve.reading import ReadRecords, Room
from cleaner.serve.wire import API_VERSIONS, BadFrameError, RequestHeader, Values, answer_pieces, read_body, read_header

_LENGTH_BYTES = 4
_SMALLEST_FRAME = 10
# Smaller requests wait for no room: large ones, which may wait long for their answers, cannot hold them up.
_SMALL_FRAME = 16 << 10
_SEND_BYTES = 4 << 20  # of a file at a time: as long as these are taken, the client is alive
_PAUSE_SECONDS = 0.02  # until it is looked for room again
_END_BYTES = 4 << 10  # of a file, held back until it is known that its log was not cut meanwhile
_COPIED_BYTES = 256 << 10  # the same with TLS, beside a writer or from a bucket: they pass through the process


@dataclass(frozen=True)
class Limits:
    """What clients may use: bytes, seconds, and numbers of connections."""

    connections: int = 2000
    frame_bytes: int = 2 << 20
    request_bytes: int = 64 << 20
    frame_seconds: float = 30.0
    answer_seconds: float = 60.0
    idle_seconds: float = 600.0


class Server:
    """
    Serves a catalog to Kafka's clients.

    Args:
        catalog: the topics; it tells the operator of errors.
        parts: what answers from them.
        limits: of clients.
        advertised: host and port under which clients reach this server; None: the address of their connection.
        access: returns who may connect; called for each connection.

    Attributes:
        connections: those that are open.
        counts: what it has done so far, by kind and name; may be read by any thread. Kinds are connections, requests
            by API, those of them refused because they would write, errors in answers by code, internal errors, failed
            logins, and bytes sent, of which some are records.
    """

    def __init__(
        self,
        catalog: Catalog,
        parts: Parts,
        *,
        limits: Limits,
        advertised: tuple[str, int] | None,
        access: Callable[[], Access],
    ) -> None:
        self._parts = parts
        self._limits = limits
        self._advertised = advertised
        self._access = access
        self._say = catalog.say
        self._request_room = Room(limits.request_bytes)
        self._line = PasswordLine(limits.connections)  # each that waits is a connection: it is never full
        self.connections: set[asyncio.Task[None]] = set()
        self.counts: Counter[tuple[str, str]] = Counter()

    async def run(self, listener: socket.socket, stopped: asyncio.Event) -> None:
        """Serve until the event is set; open connections are then closed."""
        tasks = [asyncio.create_task(self._parts.coordinator.expire()), asyncio.create_task(self._accept_all(listener))]
        await stopped.wait()
        tasks += self.connections
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept_all(self, listener: socket.socket) -> None:
        while True:
            try:
                accepted, peer = await asyncio.get_running_loop().sock_accept(listener)
            except OSError as error:  # out of descriptors: they come back
                self._say(f"cannot accept a connection: {error.strerror}")
                await asyncio.sleep(0.2)
                continue
            if len(self.connections) >= self._limits.connections:
                self.counts["connections", "turned away"] += 1
                accepted.close()
                continue
            self.counts["connections", "accepted"] += 1
            task = asyncio.create_task(self._serve_one(accepted, peer[0]))
            self.connections.add(task)
            task.add_done_callback(self.connections.discard)

    async def _serve_one(self, accepted: socket.socket, host: str) -> None:
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        protocol, transport = asyncio.StreamReaderProtocol(reader), None
        try:
            access = self._access()
            patience = self._limits.frame_seconds if access.tls else None
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=access.tls, ssl_handshake_timeout=patience
            )
            writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            await self._serve(reader, writer, Login(access.passwords, self._line, host))
        except (BadFrameError, OSError, EOFError, asyncio.CancelledError):
            pass  # the client's doing, or the end: this connection is over; time-outs and failures of TLS are OSErrors
        except Exception as error:  # noqa: BLE001 - no request may end the server
            self.counts["internal errors", ""] += 1
            self._say(f"a request failed: {describe(error)}")
        finally:
            if transport is None:
                accepted.close()
            else:
                transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, login: Login) -> None:
        where = self._advertised or cast("tuple[str, int]", writer.get_extra_info("sockname")[:2])
        limits = self._limits
        while not login.has_failed:
            silence = limits.idle_seconds if login.is_done else limits.frame_seconds
            async with asyncio.timeout(silence):
                length = await reader.readexactly(_LENGTH_BYTES)
            size = int.from_bytes(length, "big", signed=True)
            if not _SMALLEST_FRAME <= size <= (limits.frame_bytes if login.is_done else _SMALL_FRAME):
                raise BadFrameError(f"a request of {size} bytes")
            with contextlib.ExitStack() as opened:
                async with self._room(size if size > _SMALL_FRAME else 0):
                    async with asyncio.timeout(limits.frame_seconds):
                        frame = await reader.readexactly(size)
                    header, api, request = self._parse(frame)
                    del frame
                    if not login.is_done and api.name not in BEFORE_LOGIN:
                        raise BadFrameError(f"{api.name} before a login")
                    self.counts["requests", api.name] += 1
                    call = Call(header, where, lambda: reader.at_eof() or writer.is_closing(), login, opened)
                    pieces = await self._answer(api, request, call)
                self.counts["failed logins", ""] += login.has_failed
                await self._send(writer, pieces)

    @contextlib.asynccontextmanager
    async def _room(self, size: int) -> AsyncIterator[None]:
        """Wait for room for a request, and free it behind the block."""
        while not self._request_room.take(size):
            await asyncio.sleep(_PAUSE_SECONDS)
        try:
            yield
        finally:
            self._request_room.free(size)

    def _parse(self, frame: bytes) -> tuple[RequestHeader, Api, Values | None]:
        """Return a request; None for one of a version that is not offered, which only ApiVersions may be."""
        try:
            header, rest = read_header(frame)
            api = self._parts.apis.get(header.api_key)
            if api is None:
                raise BadFrameError(f"API key {header.api_key}")
            if api.versions[0] <= header.version <= api.versions[1]:
                return header, api, read_body(api.request, header, rest)
        except (ValueError, RecursionError) as error:
            raise BadFrameError(str(error)) from error
        if header.api_key != API_VERSIONS:
            raise BadFrameError(f"{api.request.name} version {header.version}")
        return header, api, None

    async def _answer(self, api: Api, request: Values | None, call: Call) -> list[Piece]:
        header = call.header
        if request is None:
            # KIP-511: a newer client asks again in a version that it is told here, in the oldest form of the answer.
            values = {**offered_versions(self._parts.apis), "errorCode": Code.UNSUPPORTED_VERSION}
            return answer_pieces(api.response, replace(header, version=0), values)
        if isinstance(api.answer, Code):
            self.counts["refused", api.name] += 1
            if request.get("acks") == 0:
                return []  # nobody waits for an answer
            values = refusal(api.response.fields, request, api.answer, api.request.fields)
        else:
            answer = api.answer(self._parts, request, call)
            values = await answer if inspect.isawaitable(answer) else answer
            self.counts.update(("errors", name) for name in _errors_in(values))
        return answer_pieces(api.response, header, values)

    async def _send(self, writer: asyncio.StreamWriter, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, bytes):
                await self._write(writer, piece)
                self.counts["bytes", "other"] += len(piece)
            else:
                await self._send_records(writer, cast("FileRecords | ReadRecords", piece))
                self.counts["bytes", "records"] += piece.size

    async def _write(self, writer: asyncio.StreamWriter, data: bytes | memoryview) -> None:
        async with asyncio.timeout(self._limits.answer_seconds):
            writer.write(data)
            await writer.drain()

    async def _send_records(self, writer: asyncio.StreamWriter, records: FileRecords | ReadRecords) -> None:
        """Send records; without their last bytes, which come after a look at the log, a client has no answer."""
        is_tls = writer.get_extra_info("sslcontext") is not None
        is_copied = is_tls or isinstance(records, ReadRecords) or records.must_be_copied
        end_bytes = min(_END_BYTES, records.size)
        done, end = 0, records.size - end_bytes
        try:
            while done < end:
                sent = None if is_copied else await self._send_file(writer, cast("FileRecords", records), done, end)
                if sent is None:
                    is_copied, data = True, await asyncio.to_thread(records.read, done, min(_COPIED_BYTES, end - done))
                    sent = len(data)
                    await self._write(writer, data)
                if not sent:
                    raise ConnectionError("the file was cut while it was sent")
                done += sent
            data = await asyncio.to_thread(records.read_end, end_bytes)
        except CleanerError as error:
            if not isinstance(error, LogChangedError):  # all that a client sees is the end of its connection
                self.counts["errors", code_of(error).name] += 1
                self._say(f"an answer was cut off: {error}")
            raise ConnectionError(str(error)) from error
        if len(data) != end_bytes:
            raise ConnectionError("the file was cut while it was sent")
        await self._write(writer, data)

    async def _send_file(self, writer: asyncio.StreamWriter, records: FileRecords, done: int, end: int) -> int | None:
        """Have the system send a piece; None: it does not tell failures of file and client apart, reading it does."""
        file: Any = records.extent.segment.file
        position, size = records.extent.position + done, min(_SEND_BYTES, end - done)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._limits.answer_seconds):
                return await loop.sendfile(writer.transport, file, position, size, fallback=False)
        except RuntimeError:
            return None
        except OSError as error:
            raise (disk_error(file.path, error) if is_disk_failure(error) else error) from None


def _errors_in(values: Values) -> Iterator[str]:
    """Yield the names of the error codes in an answer."""
    if values.get("errorCode"):
        yield Code(values["errorCode"]).name
    for each in values.values():
        if isinstance(each, list):
            for row in each:
                yield from _errors_in(row) if isinstance(row, dict) else ()
