"""The errors of a command when the daemon is not what it should be."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cleaner.daemon.control.client import Control
from cleaner.daemon.snapshot import JobView
from cleaner.errors import NoDaemonError, SteeringError

Behaviour = Callable[[socket.socket], None]


class Daemon:
    """Something that listens, and does with the first caller what a test says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listening.bind(str(path))
        self.listening.listen()
        self.thread: threading.Thread | None = None

    def will(self, behave: Behaviour) -> Control:
        def serve() -> None:
            connection, _ = self.listening.accept()
            with connection:
                behave(connection)

        self.thread = threading.Thread(target=serve)
        self.thread.start()
        return Control(self.path)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "s")
    yield made
    if made.thread is not None:
        made.thread.join()
    made.listening.close()


def saying(*lines: bytes) -> Behaviour:
    """Read the question, then say something and hang up."""

    def behave(connection: socket.socket) -> None:
        assert connection.recv(1 << 16).endswith(b"\n")
        for line in lines:
            connection.sendall(line)

    return behave


def test_answer_is_what_the_daemon_says(daemon: Daemon) -> None:
    """In one piece or several."""
    control = daemon.will(saying(b'{"v": 1, "o', b'k": true, "a": [1]}\n'))
    assert control.ask("jobs") == {"v": 1, "ok": True, "a": [1]}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((), "went away: the connection was closed"),
        ((b'{"v": 1, "ok": true',), "went away"),
        ((b"HTTP/1.1 400 Bad Request\r\n",), "is no cleaner"),
        ((b"[]\n",), "is no cleaner"),
        ((b'{"v": 2, "ok": true}\n',), "speaks version 2, not 1"),
        ((b'{"ok": true}\n',), "speaks version None"),
        ((b'{"v": 1, "ok": false, "code": "busy", "error": "full"}\n',), "is busy: full"),
    ],
)
def test_answer_that_is_none_counts_as_no_daemon(daemon: Daemon, lines: tuple[bytes, ...], words: str) -> None:
    """69: whatever was asked may have been done or not."""
    with pytest.raises(NoDaemonError, match=words) as caught:
        daemon.will(saying(*lines)).ask("jobs")
    assert caught.value.exit_code == 69


@pytest.mark.parametrize("ok", ["false", "1", "null", '"true"'])
def test_refusal_is_an_error_in_the_daemons_words(daemon: Daemon, ok: str) -> None:
    """Only `true` is yes."""
    line = b'{"v": 1, "ok": %s, "error": "no such log"}\n' % ok.encode()
    with pytest.raises(SteeringError, match=r"^no such log$") as caught:
        daemon.will(saying(line)).ask("jobs")
    assert caught.value.exit_code == 1


def test_answer_of_a_daemon_that_hangs_up_first_is_still_read(daemon: Daemon) -> None:
    """One that is too busy answers before it has read."""

    def behave(connection: socket.socket) -> None:
        connection.sendall(b'{"v": 1, "ok": false, "code": "busy", "error": "full"}\n')

    with pytest.raises(NoDaemonError, match="is busy: full"):
        daemon.will(behave).ask("jobs")


def test_silent_daemon_is_not_waited_for(daemon: Daemon) -> None:
    """The queue of a process that hangs takes callers, which are never accepted."""
    with pytest.raises(NoDaemonError, match=r"does not answer within 0\.05 s"):
        Control(daemon.path, timeout_seconds=0.05).ask("jobs")


def test_queue_that_stays_full_is_not_waited_for(daemon: Daemon) -> None:
    """As long as others are accepted, a caller waits with them; then it gets an error."""
    crowd = []
    for _ in range(200):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        one.setblocking(False)
        crowd.append(one)
        if one.connect_ex(str(daemon.path)) != 0:
            break
    with pytest.raises(NoDaemonError, match=r"does not answer within 0\.05 s"):
        Control(daemon.path, timeout_seconds=0.05).ask("jobs")
    for one in crowd:
        one.close()


@pytest.mark.parametrize("place", ["gone/s", "s/x", "file", "x" * 200, "a\0b"])
def test_place_where_no_daemon_can_be(daemon: Daemon, tmp_path: Path, place: str) -> None:
    """69, with the path."""
    (tmp_path / "file").write_text("")
    with pytest.raises(NoDaemonError, match=r"no daemon (is running|can be reached) at "):
        Control(tmp_path / place).ask("jobs")


def test_value_of_another_release_is_named(daemon: Daemon) -> None:
    """What a command cannot show it does not show."""
    answer = daemon.will(saying(b'{"v": 1, "ok": true, "job": {"id": 1}}\n')).ask("now")
    with pytest.raises(NoDaemonError, match="of another release: job: partition is missing"):
        Control(daemon.path).value(JobView, answer, "job")
