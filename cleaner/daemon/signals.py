"""
The daemon's signal handling: the main thread waits for signals, all other work is in other threads.

    SIGTERM, SIGINT    `stop`: at the next buffer, nothing half done. A second one of either: `stop-now`
    SIGHUP             `reload`
    SIGUSR1            `dump`: the daemon's state, and the stacks of all threads

A handler only notes the signal, so it never interrupts code that holds a lock.
"""

from __future__ import annotations

import contextlib
import faulthandler
import select
import signal
import socket
import sys
from types import FrameType, TracebackType
from typing import Literal, Self

from cleaner.base import concurrency

SignalRequest = Literal["stop", "stop-now", "reload", "dump"]

_REQUESTS: dict[signal.Signals, SignalRequest] = {
    signal.SIGTERM: "stop",
    signal.SIGINT: "stop",
    signal.SIGHUP: "reload",
    signal.SIGUSR1: "dump",
}


class Signals:
    """
    Handles the signals above during a `with` block, in the main thread.

    A third SIGTERM or SIGINT ends the process as without a handler, in case the main thread is stuck. If a signal means
    a crash (SIGSEGV, or SIGABRT, with which systemd's watchdog ends a process), the stacks of all threads are first
    written to standard error.
    """

    def __init__(self) -> None:
        self._requests: set[SignalRequest] = set()
        self._stops: list[signal.Signals] = []
        self._found: dict[signal.Signals, signal._HANDLER] = {}
        self._found_wakeup_fd = -1
        self._enabled_faulthandler = False
        # Python writes a byte to the writer whenever a signal comes, which ends the wait on the reader.
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def __enter__(self) -> Self:
        if concurrency.current_thread() is not concurrency.main_thread():
            raise RuntimeError("signals are taken by the main thread only")
        self._found_wakeup_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in _REQUESTS:
            self._found[number] = signal.signal(number, self._note)
        if not faulthandler.is_enabled() and _has_descriptor(sys.stderr):
            faulthandler.enable(sys.stderr, all_threads=True)
            self._enabled_faulthandler = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._found.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._found_wakeup_fd)
        if self._enabled_faulthandler:
            faulthandler.disable()
        self._reader.close()
        self._writer.close()

    @property
    def exit_code_at_once(self) -> int:
        """The exit code after `stop-now`: 128 plus the number of the last signal, as shells show it (143, 130)."""
        return 128 + (self._stops[-1] if self._stops else signal.SIGTERM)

    def wait(self, timeout: float | None = None) -> set[SignalRequest]:
        """
        Return the requests since the last call; empty if none came within `timeout` seconds (None: wait forever).

        May return early with an empty set. Both `stop` and `stop-now` may be in it.
        """
        if not self._requests:
            select.select([self._reader], [], [], timeout)
        # Emptied before the requests are taken: a signal in between costs an early return, not a lost request.
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                continue
        requests, self._requests = self._requests, set()
        return requests

    def _note(self, number: int, _frame: FrameType | None) -> None:
        came = signal.Signals(number)
        request = _REQUESTS[came]
        if request != "stop":
            self._requests.add(request)
            return
        self._stops.append(came)
        self._requests.add("stop" if len(self._stops) == 1 else "stop-now")
        if len(self._stops) > 1:
            for stop in (signal.SIGTERM, signal.SIGINT):
                signal.signal(stop, signal.SIG_DFL)


def _has_descriptor(stream: object) -> bool:
    """Tell whether a stream has a file descriptor, as faulthandler needs during a crash."""
    try:
        return stream.fileno() >= 0  # type: ignore[attr-defined, no-any-return]
    except (AttributeError, OSError, ValueError):
        return False
