"""
Signals and threads of a command.

A compiled kernel that runs in the main thread holds back Python's signal handlers until it returns. So the work runs in
a thread of its own; the main thread waits, takes SIGINT and SIGTERM, and raises a flag that the work looks at before
each buffer.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from cleaner.errors import CleaningAborted

Result = TypeVar("Result")

_POLL_SECONDS = 0.5  # only a safety net: `Event.wait` returns as soon as the work ends or a signal comes


class StopFlag:
    """Raised once, by a signal; asked by the work through `check_done`."""

    def __init__(self) -> None:
        self._signal_name: str | None = None

    def set(self, signal_name: str) -> None:
        """Ask the work to stop."""
        self._signal_name = signal_name

    @property
    def is_set(self) -> bool:
        """Whether a stop was asked for."""
        return self._signal_name is not None

    def check_done(self) -> None:
        """Raise CleaningAborted if a stop was asked for."""
        if self._signal_name is not None:
            raise CleaningAborted(f"stopped by {self._signal_name}")


def run_interruptibly(work: Callable[[StopFlag], Result]) -> Result:
    """
    Run `work` in a thread; SIGINT and SIGTERM set its flag. Call from the main thread.

    Returns or raises what `work` does. The handlers found are put back.
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
