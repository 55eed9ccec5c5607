"""Signals become wishes of the main thread, and the process's own handlers come back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from cleaner.daemon.signals import Signals

WISHES = {"SIGTERM": {"stop"}, "SIGINT": {"stop"}, "SIGHUP": {"reload"}, "SIGUSR1": {"dump"}}


@pytest.mark.parametrize("name", WISHES)
def test_signal_becomes_a_wish_once(name: str) -> None:
    """It ends the wait, is reported once, and the previous handler is restored."""
    number = signal.Signals[name]
    before = signal.getsignal(number)
    with Signals() as signals:
        assert signals.wait(0) == set()
        os.kill(os.getpid(), number)
        assert signals.wait() == WISHES[name]
        assert signals.wait(0) == set()
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(("first", "second", "code"), [("SIGTERM", "SIGTERM", 143), ("SIGTERM", "SIGINT", 130)])
def test_second_stop_means_at_once(first: str, second: str, code: int) -> None:
    """Whichever of the two it is; the exit code is that of the last one."""
    with Signals() as signals:
        os.kill(os.getpid(), signal.Signals[first])
        assert signals.wait() == {"stop"}
        os.kill(os.getpid(), signal.Signals[second])
        assert signals.wait() == {"stop-now"}
        assert signals.exit_code_at_once == code
        # A third one would end the process.
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL


def test_signals_that_came_together_are_all_reported() -> None:
    """A burst costs none of them, and two stops in it are two."""
    with Signals() as signals:
        for name in ("SIGUSR1", "SIGHUP", "SIGTERM", "SIGHUP", "SIGTERM"):
            os.kill(os.getpid(), signal.Signals[name])
        assert signals.wait() == {"dump", "reload", "stop", "stop-now"}


def test_signal_from_another_thread_wakes_the_wait() -> None:
    """The wait has no timeout: only the signal can end it."""
    with Signals() as signals:
        thread = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGHUP))
        thread.start()
        assert signals.wait() == {"reload"}
        thread.join()


def test_signals_in_another_thread_are_refused() -> None:
    """Python runs handlers in the main thread only."""
    errors: list[RuntimeError] = []

    def work() -> None:
        try:
            with Signals():
                pass
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(errors) == 1


def test_abort_of_the_watchdog_leaves_the_stacks_of_all_threads() -> None:
    """What hung is in the journal: systemd ends a silent service with SIGABRT."""
    program = """
import os, signal, threading
from cleaner.daemon.signals import Signals
begun = threading.Event()
def hang_here(): begun.set(); threading.Event().wait()
with Signals():
    threading.Thread(target=hang_here, daemon=True).start()
    begun.wait()
    os.kill(os.getpid(), signal.SIGABRT)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGABRT
    assert "Fatal Python error: Aborted" in done.stderr
    assert "in hang_here" in done.stderr
