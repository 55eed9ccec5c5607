"""Signals reach the work, and what the work raises reaches the caller."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from cleaner.cli.stop import StopFlag, run_interruptibly
from cleaner.errors import CleaningAborted, UsageError


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_makes_check_done_raise(number: signal.Signals) -> None:
    """The work, in its own thread, sees the flag that the main thread's handler sets."""
    before = signal.getsignal(number)

    def work(flag: StopFlag) -> None:
        assert threading.current_thread() is not threading.main_thread()
        flag.check_done()
        os.kill(os.getpid(), number)
        while True:
            flag.check_done()

    with pytest.raises(CleaningAborted, match=f"stopped by {number.name}"):
        run_interruptibly(work)
    assert signal.getsignal(number) is before


def test_result_of_the_work_is_returned() -> None:
    """And its thread has ended."""
    assert run_interruptibly(lambda _flag: 42) == 42
    assert [t for t in threading.enumerate() if t.name == "cleaner-command"] == []


def test_error_of_the_work_is_raised() -> None:
    """As if it had run in the main thread."""

    def work(_flag: StopFlag) -> None:
        raise UsageError("no")

    with pytest.raises(UsageError, match="no"):
        run_interruptibly(work)
