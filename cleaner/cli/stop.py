"""
Signals and threads of a command.

    SIGTERM, SIGINT    the work is asked to stop, in order: at its next buffer, its temporary files removed
    a second one       at once, as if no handler had been there
    no end in time     likewise: what the work waits for (a disk, a compiler, a pipe nobody reads) may never come

A compiled kernel that runs in the main thread holds back Python's signal handlers until it returns. So the work runs in
a thread of its own; the main thread waits, takes the signals, and raises a flag that the work looks at before each
buffer. What only looks, and all that comes before the work, takes no signals: they end it at once.

Ending at once is what a crash is: every log is the old or the new one (`docs/crash-safety.md`).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from cleaner.errors import CleaningAborted

Result = TypeVar("Result")

_POLL_SECONDS = 0.2  # only a safety net: `Event.wait` returns as soon as the work ends or a signal comes
_PATIENCE_SECONDS = 0.7  # with what else it takes, less than the second in which a command is to end


_is_one_command = False  # of this process: no other work goes on in it


def leave_signals_alone() -> None:
    """
    Let SIGINT end this process as SIGTERM does, with nothing said, until something takes it.

    For a process that is one command: signals may end it from now on. One that was started with SIGINT ignored goes on
    ignoring it.
    """
    global _is_one_command
    _is_one_command = True
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def keyboard_interrupts() -> Iterator[None]:
    """Have SIGINT raise KeyboardInterrupt in the main thread, for a wait that a person at a terminal may end."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class StopFlag:
    """Raised once, by a signal; asked by the work through `check_done`."""

    def __init__(self) -> None:
        self._signal_name: str | None = None
        self.is_closing = False

    def set(self, signal_name: str) -> None:
        """Ask the work to stop."""
        self._signal_name = signal_name

    @property
    def is_set(self) -> bool:
        """Whether a stop was asked for."""
        return self._signal_name is not None

    @contextmanager
    def closing(self) -> Iterator[None]:
        """
        Say that what was opened is being closed in order: it may take its time, but for a second signal.

        For a writer, without whose close the next one has to recover the logs.
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

    Returns or raises what `work` does. The handlers found are put back. In a process that is one command, work that
    does not end in time, or a second signal, ends the process.
    """
    flag = StopFlag()
    finished = threading.Event()
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
            # It goes on behind the work, whose last words may go into a pipe that nobody reads.
            signal.signal(signal.SIGALRM, lambda *_: None if flag.is_closing else _end_at_once(number))
            signal.setitimer(signal.ITIMER_REAL, _PATIENCE_SECONDS, _POLL_SECONDS)
        flag.set(signal.Signals(number).name)

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        thread = threading.Thread(target=run, name="cleaner-command")
        thread.start()
        while not finished.wait(_POLL_SECONDS):
            continue
        thread.join()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if errors:
        raise errors[0]
    return results[0]


def _end_at_once(number: int) -> None:
    """End this process as if it had no handler for a signal: nothing is flushed, no thread is waited for."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
