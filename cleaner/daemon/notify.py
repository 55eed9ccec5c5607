"""
Messages to the service manager: systemd's `sd_notify`, a datagram of `NAME=value` lines.

Without `NOTIFY_SOCKET` nothing is sent. A message that cannot be delivered is dropped; cleaning goes on.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping

from cleaner.base.clock import Clock

# systemd always reads its socket; the daemon waits no longer than this for a manager that does not.
_SEND_TIMEOUT_SECONDS = 2.0

# A datagram holds more, but a longer status line is of no use to a reader.
_MAX_STATUS_CHARACTERS = 400


class Notifier:
    """
    Sends messages to the service manager, from any thread.

    Every call returns whether the message was sent, and never raises OSError. One socket is kept for all messages, so
    that a process without free descriptors can still report that it is alive.

    Args:
        address: `NOTIFY_SOCKET`: a path, or a name in the abstract namespace after `@`; None or empty: send nothing.
        clock: gives the time at which a reload begins.
    """

    def __init__(self, address: str | None, clock: Clock) -> None:
        self._clock = clock
        self._address = _socket_address(address)
        self._socket: socket.socket | None = None
        if self._address is not None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.settimeout(_SEND_TIMEOUT_SECONDS)

    @classmethod
    def from_environment(cls, clock: Clock, environment: Mapping[str, str] = os.environ) -> Notifier:
        """Return a notifier for the service manager of this process, if there is one."""
        return cls(environment.get("NOTIFY_SOCKET"), clock)

    @property
    def is_enabled(self) -> bool:
        """Whether there is a service manager to notify."""
        return self._socket is not None

    def ready(self, status: str | None = None) -> bool:
        """Say that the start, or a reload, is over."""
        return self._send("READY=1", *_status_lines(status))

    def reloading(self) -> bool:
        """Say that the settings are being read again; `ready` ends the reload, whatever its result."""
        usec = self._clock.monotonic_ns() // 1000
        return self._send("RELOADING=1", f"MONOTONIC_USEC={usec}")

    def status(self, text: str) -> bool:
        """Set the line that `systemctl status` shows."""
        return self._send(*_status_lines(text))

    def stopping(self, status: str) -> bool:
        """Say that the daemon is stopping."""
        return self._send("STOPPING=1", *_status_lines(status))

    def extend_timeout(self, seconds: float) -> bool:
        """Ask for this many more seconds from now to start, reload or stop; to be repeated before they have passed."""
        return self._send(f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}")

    def watchdog(self) -> bool:
        """Say that work goes on. To be called through `Watchdog`."""
        return self._send("WATCHDOG=1")

    def close(self) -> None:
        """Send nothing more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, *lines: str) -> bool:
        sender = self._socket
        if sender is None or self._address is None:
            return False
        try:
            sender.sendto("\n".join(lines).encode(), self._address)
        except OSError:  # the manager has gone or does not listen: nothing here depends on it
            return False
        return True


class Watchdog:
    """
    Tells the service manager that work goes on, and only while it does.

    This guards against a scheduler that still turns while workers hang: without progress nothing is sent, and systemd
    ends and restarts the process. The thread that calls `tick` must not be a watched one.

    Args:
        notifier: what to send through.
        is_progressing: whether the scheduler turns and every busy worker has moved within its time.
        environment: `WATCHDOG_USEC`, after how much silence the manager acts, and `WATCHDOG_PID`, the process it
            watches.
    """

    def __init__(
        self,
        notifier: Notifier,
        is_progressing: Callable[[], bool],
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._notifier = notifier
        self._is_progressing = is_progressing
        self._timeout_seconds = _watchdog_seconds(environment) if notifier.is_enabled else None

    @property
    def interval_seconds(self) -> float | None:
        """How often to call `tick`: half of the time allowed, as systemd advises. None: no watchdog."""
        return None if self._timeout_seconds is None else self._timeout_seconds / 2

    def tick(self) -> bool:
        """Send a sign of life if there is progress; returns whether there is (True without a watchdog)."""
        if self._timeout_seconds is None:
            return True
        if not self._is_progressing():
            return False
        self._notifier.watchdog()
        return True


def _socket_address(address: str | None) -> str | None:
    """Return the address as `sendto` takes it; None for none, or for an unsupported kind (`vsock:`)."""
    if not address or address[0] not in "/@":
        return None
    return "\0" + address[1:] if address[0] == "@" else address


def _status_lines(text: str | None) -> tuple[str, ...]:
    """Return the status as one line: a line break in it would be read as another message."""
    if text is None:
        return ()
    line = "".join(char if char.isprintable() else "?" for char in text)
    return (f"STATUS={line[:_MAX_STATUS_CHARACTERS]}",)


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    """Return how long the manager waits for a sign of life of this process; None if it does not watch it."""
    usec = environment.get("WATCHDOG_USEC", "")
    pid = environment.get("WATCHDOG_PID", "")
    if not usec.isdecimal() or int(usec) == 0:
        return None
    if pid and pid != str(os.getpid()):
        return None
    return int(usec) / 1e6
