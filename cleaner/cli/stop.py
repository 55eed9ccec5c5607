"""
Signals and threads of a command.

    SIGTERM, SIGINT    the work stops in order: at its next buffer, its temporary files removed
    a second one       at once, as without a handler
    no end in time     likewise: the work may wait forever (for a disk, a compiler, a pipe that no process reads)

A compiled kernel that runs in the main thread holds back Python's signal handlers until it returns. So the work runs in
its own thread; the main thread waits, handles the signals, and sets a flag that the work checks before each buffer.
Commands that only read, and everything before the work, handle no signals: these end the process at once.

Ending at once is like a crash: every log is the old or the new one (`docs/crash-safety.md`).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from cleaner.base import concurrency
from cleaner.errors import CleaningAborted

Result = TypeVar("Result")

_POLL_SECONDS = 0.2  # only a safety net: `Event.wait` returns as soon as the work ends or a signal comes
_PATIENCE_SECONDS = 0.7  # with the rest, less than the second in which a command must end


_is_one_command = False  # the process runs one command and no other work


def leave_signals_alone() -> None:
    """
    Let SIGINT end this process silently, as SIGTERM does, until a handler is set.

    For a process that runs one command: signals may end it from now on. If it was started with SIGINT ignored, it still
    ignores it.
    """
    global _is_one_command
    _is_one_command = True
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def keyboard_interrupts() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt in the main thread, for a wait that a user may end."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class StopFlag:
    """Set once, by a signal; the work checks it with `check_done`."""

    def __init__(self) -> None:
        self._signal_name: str | None = None
        self.is_closing = False

    def set(self, signal_name: str) -> None:
        """Ask the work to stop."""
        self._signal_name = signal_name

    @property
    def is_set(self) -> bool:
        """Tell whether a stop was asked for."""
        return self._signal_name is not None

    @contextmanager
    def closing(self) -> Iterator[None]:
        """
        Mark that open logs are being closed in order: this has no time limit, but a second signal ends it.

        For a writer: without its close the next one has to recover the logs.
        """
        self.is_closing = True
        try:
            yield
        finally:
            self.is_closing = False

    def check_done(self) -> None:
        """Raise CleaningAborted if a stop was asked for."""
        if self._signal_name is not None:
            raise CleaningAborted(f"stopped by {self._signal_name}")


def run_interruptibly(work: Callable[[StopFlag], Result]) -> Result:
    """
    Run `work` in a thread; SIGINT and SIGTERM set its flag. Call from the main thread.

    Returns or raises what `work` does. The previous handlers are restored. In a process that runs one command, a second
    signal, or work that does not end in time, ends the process.
    """
    flag = StopFlag()
    finished = concurrency.Event()
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work(flag))
        except BaseException as error:  # noqa: BLE001 - handed to the main thread, which raises it
            errors.append(error)
        finally:
            finished.set()

    def handle(number: int, _frame: FrameType | None) -> None:
        if _is_one_command:
            if flag.is_set:
                _end_at_once(number)
            # The timer stays set after the work, whose last output may go into a pipe that no process reads.
            signal.signal(signal.SIGALRM, lambda *_: None if flag.is_closing else _end_at_once(number))
            signal.setitimer(signal.ITIMER_REAL, _PATIENCE_SECONDS, _POLL_SECONDS)
        flag.set(signal.Signals(number).name)

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        thread = concurrency.Thread(target=run, name="cleaner-command")
        thread.start()
        while not finished.wait(_POLL_SECONDS):
            continue
        thread.join()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if errors:
        raise errors.pop()  # its traceback leads to this frame, which is to know nothing of it
    return results[0]


def _end_at_once(number: int) -> None:
    """End this process as if it had no handler for a signal: without flushing or waiting for threads."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
