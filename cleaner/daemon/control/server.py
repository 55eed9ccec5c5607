"""
The control socket's server: one thread for all clients.

No client can block the others. The server waits for all of them at once and never for one. The length of a line is
limited, and so are the times for a request, for its answer and between requests. The number of connections is limited,
and one user gets at most half of them. When all are taken, an idle one is closed.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from pathlib import Path

from cleaner.base import concurrency
from cleaner.base.clock import Clock
from cleaner.daemon.control.listening import ListeningSocket, peer_uid
from cleaner.daemon.control.verbs import MAX_REQUEST_BYTES, Reply, answer, refusal
from cleaner.daemon.steering import Steering
from cleaner.storage.fs.file_system import FileSystem

MAX_CONNECTIONS = 16
MAX_CONNECTIONS_OF_ONE_USER = 8

IDLE_SECONDS = 60
"""Between two requests of a connection, and before the first."""

REQUEST_SECONDS = 10
"""From the first byte of a request to its last."""

ANSWER_SECONDS = 30
"""From the first byte of an answer to its last."""

MAX_WAITING_BYTES = 16 << 20
"""Of unread answers: with more, requests are refused, or slow readers would take unlimited memory."""

_READ_BYTES = 16 << 10
_RETRY_SECONDS = 1  # when there is no descriptor for another connection
_LISTENER = object()
_WAKER = object()


class _Connection:
    """One client's connection. Either a request is coming in, or an answer is going out."""

    def __init__(self, connected: socket.socket, uid: int, now_ns: int) -> None:
        self.socket = connected
        self.uid = uid
        self.incoming = bytearray()
        self.outgoing = memoryview(b"")
        self.is_last = False
        self.since_ns = now_ns  # the deadline counts from here

    @property
    def has_line(self) -> bool:
        return b"\n" in self.incoming

    @property
    def is_idle(self) -> bool:
        """It only waits: nothing is lost if it is closed."""
        return not self.outgoing and not self.incoming

    @property
    def events(self) -> int:
        """What to wait for; with a complete line, room for the answer, so that no client has two turns in a row."""
        return selectors.EVENT_WRITE if self.outgoing or self.has_line else selectors.EVENT_READ

    @property
    def deadline_ns(self) -> int:
        seconds = ANSWER_SECONDS if self.outgoing else REQUEST_SECONDS if self.incoming else IDLE_SECONDS
        return self.since_ns + seconds * 1_000_000_000

    def receive(self, now_ns: int) -> bool:
        """Receive data; returns False at the end of the stream."""
        data = self.socket.recv(_READ_BYTES)
        if data and not self.incoming:
            self.since_ns = now_ns
        self.incoming += data
        return bool(data)

    def take_line(self) -> bytes:
        line, _, rest = bytes(self.incoming).partition(b"\n")
        self.incoming = bytearray(rest)
        return line

    def reply(self, reply: Reply, now_ns: int) -> None:
        self.outgoing, self.is_last, self.since_ns = memoryview(reply.line), reply.is_last, now_ns

    def send(self, now_ns: int) -> None:
        self.outgoing = self.outgoing[self.socket.send(self.outgoing) :]
        if not self.outgoing:
            self.since_ns = now_ns


class ControlServer:
    """
    Listens from its creation on, serves from `start` to `close`; use it in a `with` block for both.

    Args:
        fs: the file system.
        path: the socket's file; see `ListeningSocket`.
        steering: the daemon; called from the server's thread.
        clock: for time-outs.
        on_error: called with internal errors, from the server's thread; must not raise.
    Raises:
        ConfigError, StateDirLockedError, LogDirOfflineError, NoSpaceError: as `ListeningSocket`.
    """

    def __init__(
        self, fs: FileSystem, path: Path, steering: Steering, clock: Clock, on_error: Callable[[Exception], None]
    ) -> None:
        self._steering = steering
        self._clock = clock
        self._on_error = on_error
        self._listening = ListeningSocket(fs, path)
        self.path = self._listening.path
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._thread = concurrency.Thread(target=self._run, name="cleaner-control", daemon=True)
        self._is_closing = concurrency.Event()
        # Only the thread uses the fields below.
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_receiver, selectors.EVENT_READ, _WAKER)
        self._selector.register(self._listening.socket, selectors.EVENT_READ, _LISTENER)
        self._connections: list[_Connection] = []
        self._accept_again_ns: int | None = None

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def close(self) -> None:
        """Drop all connections, end the thread and remove the socket; a second call does nothing."""
        if self._is_closing.is_set():
            return
        self._is_closing.set()
        self._wake_sender.send(b"\0")
        if self._thread.ident is not None:
            self._thread.join()
        self._listening.close()
        self._selector.close()
        self._wake_sender.close()
        self._wake_receiver.close()

    def __enter__(self) -> ControlServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._is_closing.is_set():
            self.turn(self._patience())
        for connection in list(self._connections):
            self._drop(connection)

    def turn(self, seconds: float | None) -> None:
        """Wait at most this long (None: forever) for something to do, do it, and drop connections whose time is up."""
        for key, events in self._selector.select(seconds):
            if key.data is _LISTENER:
                self._accept()
            elif isinstance(key.data, _Connection) and key.data in self._connections:
                self._serve(key.data, events)
        now_ns = self._clock.monotonic_ns()
        for connection in [one for one in self._connections if one.deadline_ns <= now_ns]:
            self._drop(connection)
        if self._accept_again_ns is not None and self._accept_again_ns <= now_ns:
            self._accept_again_ns = None
            self._selector.register(self._listening.socket, selectors.EVENT_READ, _LISTENER)

    def _patience(self) -> float | None:
        """Return the seconds until the next deadline; None: there is none."""
        moments = [connection.deadline_ns for connection in self._connections]
        if self._accept_again_ns is not None:
            moments.append(self._accept_again_ns)
        return max(0.0, (min(moments) - self._clock.monotonic_ns()) / 1e9) if moments else None

    def _accept(self) -> None:
        try:
            connected, _ = self._listening.socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            # No descriptor left. The caller stays in the queue; without this pause the loop would spin.
            self._on_error(error)
            self._selector.unregister(self._listening.socket)
            self._accept_again_ns = self._clock.monotonic_ns() + _RETRY_SECONDS * 1_000_000_000
            return
        connected.setblocking(False)
        uid = peer_uid(connected)
        if not self._make_room(uid):
            with connected:
                _try_send(connected, refusal("busy", "too many are connected; try again").line)
            return
        connection = _Connection(connected, uid, self._clock.monotonic_ns())
        self._connections.append(connection)
        self._selector.register(connected, connection.events, connection)

    def _make_room(self, uid: int) -> bool:
        """Tell whether another client may connect; if needed, drop the connection that has been idle longest."""
        same_user = [one for one in self._connections if one.uid == uid]
        if len(same_user) >= MAX_CONNECTIONS_OF_ONE_USER:
            candidates = same_user
        elif len(self._connections) >= MAX_CONNECTIONS:
            candidates = self._connections
        else:
            return True
        idle = min((one for one in candidates if one.is_idle), key=lambda one: one.since_ns, default=None)
        if idle is not None:
            self._drop(idle)
        return idle is not None

    def _serve(self, connection: _Connection, events: int) -> None:
        try:
            is_open = self._advance(connection, events)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            is_open = False  # the client has gone
        except Exception as error:  # noqa: BLE001 - an internal error drops one client, not all of them
            self._on_error(error)
            is_open = False
        if is_open:
            self._selector.modify(connection.socket, connection.events, connection)
        else:
            self._drop(connection)

    def _advance(self, connection: _Connection, events: int) -> bool:
        """Take one step; returns whether the connection goes on."""
        now_ns = self._clock.monotonic_ns()
        if events & selectors.EVENT_READ and not connection.receive(now_ns):
            return False
        if not connection.outgoing:
            if connection.has_line:
                line = connection.take_line()
                connection.reply(self._answer(line, connection.uid), self._clock.monotonic_ns())
            elif len(connection.incoming) > MAX_REQUEST_BYTES:
                connection.reply(_too_long(), now_ns)
            else:
                return True
        connection.send(self._clock.monotonic_ns())
        return bool(connection.outgoing) or not connection.is_last

    def _answer(self, line: bytes, uid: int) -> Reply:
        if len(line) > MAX_REQUEST_BYTES:
            return _too_long()
        if sum(len(one.outgoing) for one in self._connections) > MAX_WAITING_BYTES:
            return refusal("busy", "other clients have not read their answers yet; try again")
        return answer(line, self._steering, uid, self._on_error)

    def _drop(self, connection: _Connection) -> None:
        self._connections.remove(connection)
        self._selector.unregister(connection.socket)
        connection.socket.close()


def _too_long() -> Reply:
    return refusal("bad_request", f"a request has at most {MAX_REQUEST_BYTES} bytes", is_last=True)


def _try_send(connected: socket.socket, line: bytes) -> None:
    try:
        connected.send(line)
    except OSError:
        return  # the client has gone, or only sees the connection end
