"""What the service manager receives, over the test's own socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cleaner.daemon.notify import Notifier, Watchdog
from tests.support.manual_clock import ManualClock


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A service manager's socket, and what `NOTIFY_SOCKET` would be."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@cleaner-test-{os.getpid()}-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name[1:] if name[0] == "@" else name)
        receiver.setblocking(False)
        yield receiver, name


def _received(receiver: socket.socket) -> str:
    return receiver.recv(65536).decode()


MESSAGES: dict[str, tuple[Callable[[Notifier], bool], str]] = {
    "ready": (lambda to: to.ready("12 logs"), "READY=1\nSTATUS=12 logs"),
    "ready-alone": (lambda to: to.ready(), "READY=1"),
    "reloading": (lambda to: to.reloading(), "RELOADING=1\nMONOTONIC_USEC=1500000"),
    "status": (lambda to: to.status("cleaning prices-0"), "STATUS=cleaning prices-0"),
    "stopping": (lambda to: to.stopping("at a buffer"), "STOPPING=1\nSTATUS=at a buffer"),
    "watchdog": (lambda to: to.watchdog(), "WATCHDOG=1"),
    "extend": (lambda to: to.extend_timeout(2.5), "EXTEND_TIMEOUT_USEC=2500000"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_message_arrives_as_one_datagram(manager: tuple[socket.socket, str], name: str) -> None:
    """Each call is one message, at a path and in the abstract namespace alike; times are the monotonic clock's."""
    receiver, address = manager
    clock = ManualClock()
    clock.move_on(1.5)
    send, expected = MESSAGES[name]
    notifier = Notifier.from_environment(clock, {"NOTIFY_SOCKET": address})
    assert notifier.is_enabled
    assert send(notifier)
    assert _received(receiver) == expected
    notifier.close()
    assert not send(notifier)


def test_status_with_line_breaks_stays_one_assignment(manager: tuple[socket.socket, str]) -> None:
    """Nothing in a status can say READY=1 or hide in a terminal, and its length is bounded."""
    receiver, address = manager
    notifier = Notifier(address, ManualClock())
    notifier.status("a\nREADY=1\x1b[2J\u2028b" + "x" * 5000)
    message = _received(receiver)
    assert message.startswith("STATUS=a?READY=1?[2J?bxxx")
    assert len(message) == len("STATUS=") + 400
    notifier.close()


@pytest.mark.parametrize("address", [None, "", "vsock:2:1234", "relative/path"])
def test_notifier_without_a_usable_socket_sends_nothing(address: str | None) -> None:
    """Started by hand, or by a manager of another kind, every call is a no."""
    notifier = Notifier(address, ManualClock())
    assert not notifier.is_enabled
    assert [send(notifier) for send, _ in MESSAGES.values()] == [False] * len(MESSAGES)


def test_manager_that_has_gone_harms_nothing(tmp_path: Path) -> None:
    """Nobody listens, and later the socket is not even there: calls return False."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
    notifier = Notifier(str(path), ManualClock())
    assert not notifier.ready()
    path.unlink()
    assert not notifier.watchdog()
    notifier.close()


def test_watchdog_is_fed_by_progress_only(manager: tuple[socket.socket, str]) -> None:
    """While nothing moves no sign of life is sent, however often the watchdog is ticked."""
    receiver, address = manager
    progress = [True, False, False, True]
    watchdog = Watchdog(Notifier(address, ManualClock()), lambda: progress.pop(0), {"WATCHDOG_USEC": "60000000"})
    assert watchdog.interval_seconds == 30
    assert watchdog.tick()
    assert _received(receiver) == "WATCHDOG=1"
    assert not watchdog.tick()
    assert not watchdog.tick()
    with pytest.raises(BlockingIOError):
        _received(receiver)
    assert watchdog.tick()
    assert _received(receiver) == "WATCHDOG=1"


NOT_WATCHED = {
    "not asked for": {},
    "zero": {"WATCHDOG_USEC": "0"},
    "not a number": {"WATCHDOG_USEC": "often"},
    "another process": {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"},
}


@pytest.mark.parametrize("case", NOT_WATCHED)
def test_watchdog_that_is_not_enabled_is_silent(manager: tuple[socket.socket, str], case: str) -> None:
    """Then it has no interval, and does not even ask for progress."""
    receiver, address = manager
    watchdog = Watchdog(Notifier(address, ManualClock()), lambda: 1 / 0 > 0, NOT_WATCHED[case])
    assert watchdog.interval_seconds is None
    assert watchdog.tick()
    with pytest.raises(BlockingIOError):
        _received(receiver)


def test_watchdog_meant_for_this_process_ticks(manager: tuple[socket.socket, str]) -> None:
    """`WATCHDOG_PID` names this process, as systemd sets it."""
    receiver, address = manager
    environment = {"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())}
    watchdog = Watchdog(Notifier(address, ManualClock()), lambda: True, environment)
    assert watchdog.interval_seconds == 1
    watchdog.tick()
    assert _received(receiver) == "WATCHDOG=1"
