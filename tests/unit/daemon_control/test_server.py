"""One thread serves all who connect, and none of them can keep it from the others."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cleaner.daemon.control import server as server_module
from cleaner.daemon.control.client import Control
from cleaner.daemon.control.server import (
    ANSWER_SECONDS,
    IDLE_SECONDS,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_OF_ONE_USER,
    REQUEST_SECONDS,
    ControlServer,
)
from cleaner.daemon.control.verbs import MAX_REQUEST_BYTES
from cleaner.errors import SteeringError
from cleaner.storage.fs.file_system import FileSystem
from tests.support import sample_daemons
from tests.support.fake_steering import FakeSteering
from tests.support.manual_clock import ManualClock

JOBS = b'{"v": 1, "do": "jobs"}\n'
STATUS = b'{"v": 1, "do": "status"}\n'


def never(error: Exception) -> None:
    raise error


class Room:
    """A server driven by hand: nothing happens but in `settle`, and time stands still."""

    def __init__(self, directory: Path) -> None:
        directory.chmod(0o750)
        self.steering = FakeSteering(sample_daemons.with_problems())
        self.clock = ManualClock()
        self.errors: list[Exception] = []
        self.path = directory / "s"
        self.server = ControlServer(FileSystem(), self.path, self.steering, self.clock, self.errors.append)
        self._callers: list[socket.socket] = []

    def settle(self, turns: int = 20) -> None:
        """Let the server do all it can."""
        for _ in range(turns):
            self.server.turn(0)

    def connect(self) -> socket.socket:
        caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        caller.settimeout(0)
        caller.connect(str(self.path))
        self._callers.append(caller)
        self.settle(2)
        return caller

    def pass_seconds(self, seconds: float) -> None:
        self.clock.move_on(seconds)
        self.settle(2)

    def close(self) -> None:
        for caller in self._callers:
            caller.close()
        self.server.close()


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    made = Room(tmp_path)
    yield made
    made.close()


def heard(caller: socket.socket) -> bytes:
    """Return what a caller has received so far."""
    received = b""
    while True:
        try:
            data = caller.recv(1 << 20)
        except BlockingIOError:
            return received
        if not data:
            return received
        received += data


def answers(caller: socket.socket) -> list[dict[str, Any]]:
    return [json.loads(line) for line in heard(caller).splitlines()]


def is_over(caller: socket.socket) -> bool:
    """Tell whether the server has ended the connection, and all it said was heard."""
    try:
        return caller.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_caller_is_answered_and_may_ask_again(room: Room) -> None:
    """A line each; who asks is known from the kernel."""
    caller = room.connect()
    for _ in range(2):
        caller.send(b'{"v": 1, "do": "pause", "scope": "orders"}\n')
        room.settle()
        assert answers(caller) == [{"v": 1, "ok": True, "stopping": ["orders-1"]}]
    assert room.steering.calls == [("pause", "orders", os.getuid())] * 2


def test_request_may_come_in_pieces(room: Room) -> None:
    """A byte at a time, and the end of one with the beginning of the next."""
    caller = room.connect()
    for place in range(len(JOBS)):
        assert heard(caller) == b""
        caller.send(JOBS[place : place + 1])
        room.settle(2)
    assert len(answers(caller)) == 1
    caller.send(JOBS + JOBS[:5])
    room.settle()
    assert len(answers(caller)) == 1
    caller.send(JOBS[5:])
    room.settle()
    assert len(answers(caller)) == 1


def test_many_requests_at_once_are_answered_one_a_turn(room: Room) -> None:
    """Another client has an answer after the first of them."""
    greedy, modest = room.connect(), room.connect()
    greedy.send(JOBS * 100)
    modest.send(JOBS)
    room.settle(3)
    assert len(answers(modest)) == 1
    told = len(answers(greedy))
    assert told <= 3
    for _ in range(100):
        room.settle(1)
        told += len(answers(greedy))
    assert told == 100


def test_caller_who_stops_sending_is_answered_before_he_goes(room: Room) -> None:
    """`echo '{...}' | nc -U` closes its side at once."""
    caller = room.connect()
    caller.send(JOBS)
    caller.shutdown(socket.SHUT_WR)
    room.settle()
    assert len(answers(caller)) == 1
    assert is_over(caller)


def test_line_without_an_end_is_refused(room: Room) -> None:
    """Memory for a request is bounded; the connection is over."""
    caller = room.connect()
    for _ in range(MAX_REQUEST_BYTES // 8192 + 1):
        caller.send(b" " * 8192)
        room.settle(2)
    assert answers(caller)[0]["error"] == f"a request has at most {MAX_REQUEST_BYTES} bytes"
    assert is_over(caller)


def test_long_line_with_an_end_is_refused_too(room: Room) -> None:
    """Not only what is still growing."""
    caller = room.connect()
    caller.setblocking(True)
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    caller.send(b'{"v": 1, "do": "jobs"' + b" " * MAX_REQUEST_BYTES + b"}\n")
    caller.settimeout(0)
    room.settle()
    assert answers(caller)[0]["code"] == "bad_request"
    assert is_over(caller)


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [(b"", IDLE_SECONDS), (b'{"v": 1,', REQUEST_SECONDS)],
    ids=["says-nothing", "says-half-of-it"],
)
def test_caller_who_takes_too_long_is_dropped(room: Room, sent: bytes, seconds: int) -> None:
    """A byte more does not give him more time."""
    caller = room.connect()
    caller.send(sent)
    room.settle(2)
    room.pass_seconds(seconds - 1)
    assert not is_over(caller)
    if sent:
        caller.send(b" ")
        room.settle(2)
    room.pass_seconds(1)
    assert is_over(caller)


def test_client_that_does_not_read_is_dropped_and_blocks_no_other(room: Room) -> None:
    """An answer larger than the socket's buffers waits for that client only, and not forever."""
    room.steering.shown = sample_daemons.with_many_logs(2000)
    stuck, other = room.connect(), room.connect()
    stuck.send(STATUS)
    room.settle()
    other.send(JOBS)
    room.settle()
    assert len(answers(other)) == 1
    room.pass_seconds(ANSWER_SECONDS)
    heard(stuck)
    assert is_over(stuck)
    assert not is_over(other)


def test_unread_answers_are_bounded_in_total(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond that callers must try again."""
    monkeypatch.setattr(server_module, "MAX_WAITING_BYTES", 1 << 20)
    room.steering.shown = sample_daemons.with_many_logs(2000)
    stuck, other = room.connect(), room.connect()
    stuck.send(STATUS)
    room.settle()
    other.send(STATUS)
    room.settle()
    assert answers(other)[0]["code"] == "busy"


def test_large_answer_arrives_whole(room: Room) -> None:
    """Whatever the size of the socket's buffers."""
    room.steering.shown = sample_daemons.with_many_logs(2000)
    caller = room.connect()
    caller.send(STATUS)
    received = b""
    while not received.endswith(b"\n"):
        room.settle(1)
        received += heard(caller)
    assert len(json.loads(received)["snapshot"]["logs"]) == 2000


def test_connections_of_one_user_are_bounded_and_the_idlest_gives_way(room: Room) -> None:
    """Nobody can take all of them by doing nothing."""
    callers = []
    for _ in range(MAX_CONNECTIONS_OF_ONE_USER):
        callers.append(room.connect())
        room.clock.move_on(1)
    callers[0].send(b"{")  # at work: not idle
    room.settle()
    late = room.connect()
    late.send(JOBS)
    room.settle()
    assert len(answers(late)) == 1
    assert [is_over(caller) for caller in callers] == [False, True] + [False] * (MAX_CONNECTIONS_OF_ONE_USER - 2)


def test_user_whose_connections_are_all_busy_must_try_again(room: Room) -> None:
    """Another user still gets in, up to the bound of all."""
    for _ in range(MAX_CONNECTIONS_OF_ONE_USER):
        room.connect().send(b"{")
    room.settle()
    late = room.connect()
    assert answers(late)[0]["code"] == "busy"
    assert is_over(late)


def test_other_users_connect_while_one_takes_all_it_can(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until all connections are taken by users at work."""
    users = iter([1] * 20 + [2] * 20 + [3] * 20)
    monkeypatch.setattr(server_module, "peer_uid", lambda _socket: next(users))
    taken = [room.connect() for _ in range(20)]
    taken += [room.connect() for _ in range(20)]
    served = [caller for caller in taken if not is_over(caller)]
    assert len(served) == MAX_CONNECTIONS
    for caller in served:
        caller.send(b"{")
    room.settle()
    assert answers(room.connect())[0]["code"] == "busy"
    room.pass_seconds(REQUEST_SECONDS)
    late = room.connect()
    late.send(JOBS)
    room.settle()
    assert len(answers(late)) == 1


def test_no_descriptor_left_is_a_pause_and_not_a_spin(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is in the queue is served when there is one again."""

    class Full:
        def accept(self) -> None:
            raise OSError(errno.EMFILE, "too many open files")

        def __getattr__(self, name: str) -> Any:
            return getattr(listening, name)

    listening = room.server._listening.socket
    caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    caller.connect(str(room.path))
    monkeypatch.setattr(room.server._listening, "socket", Full())
    room.settle(5)
    assert len(room.errors) == 1
    monkeypatch.undo()
    caller.send(JOBS)
    caller.settimeout(0)
    room.pass_seconds(1)
    room.settle()
    assert len(answers(caller)) == 1
    caller.close()


def test_client_that_leaves_while_it_is_answered_is_forgotten(room: Room) -> None:
    """As is one who goes at once."""
    room.steering.shown = sample_daemons.with_many_logs(2000)
    for sent in (STATUS, b"", b"{"):
        caller = room.connect()
        caller.send(sent)
        room.server.turn(0)
        caller.close()
        room.settle()
    assert room.server._connections == []
    assert room.errors == []


def test_internal_error_affects_one_client(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is logged; the thread goes on."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    unlucky = room.connect()
    unlucky.send(JOBS)
    with monkeypatch.context() as patch:
        patch.setattr(server_module, "answer", broken)
        room.settle()
    assert is_over(unlucky)
    assert [type(error) for error in room.errors] == [ZeroDivisionError]
    other = room.connect()
    other.send(JOBS)
    room.settle()
    assert len(answers(other)) == 1


def serving(directory: Path, steering: FakeSteering, on_error: Callable[[Exception], None] = never) -> ControlServer:
    directory.chmod(0o750)
    return ControlServer(FileSystem(), directory / "s", steering, ManualClock(), on_error)


def test_server_runs_in_one_thread_until_it_is_closed(tmp_path: Path) -> None:
    """Two hundred callers who say nothing make no second one; the socket is gone at the end."""
    steering = FakeSteering(sample_daemons.at_work())
    threads = threading.active_count()
    with serving(tmp_path, steering) as server:
        crowd = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(200)]
        for one in crowd:
            one.setblocking(False)
            if one.connect_ex(str(server.path)) == errno.EAGAIN:  # the queue is full for a moment
                one.setblocking(True)
                one.connect(str(server.path))
        assert threading.active_count() == threads + 1
        assert Control(server.path).ask("jobs")["jobs"] == []
        for one in crowd:
            one.close()
    server.close()
    assert threading.active_count() == threads
    assert not (tmp_path / "s").exists()


def test_server_that_never_started_can_be_closed(tmp_path: Path) -> None:
    """A daemon that fails to start cleans up."""
    serving(tmp_path, FakeSteering(sample_daemons.at_work())).close()
    assert not (tmp_path / "s").exists()


def test_client_gets_the_reason_of_a_refusal(tmp_path: Path) -> None:
    """In the daemon's words."""
    with serving(tmp_path, FakeSteering(sample_daemons.at_work())) as server:
        with pytest.raises(SteeringError, match=r"^orders-0 is not in quarantine$"):
            Control(server.path).ask("release", partition="orders-0")
        assert stat.S_IMODE(server.path.stat().st_mode) == 0o660
