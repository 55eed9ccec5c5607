"""Threads and locks of the product are Python's own."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import queue
import signal
import threading
from collections.abc import Iterator

import pytest

from cleaner.base import concurrency
from cleaner.errors import OutOfThreadsError
from tests.support.no_threads import start_no_more_threads


def test_names_of_the_door_are_the_standard_library_s_own_objects() -> None:
    """The door costs nothing: a lock made through it is a lock of `threading`, and so are all others."""
    for name in sorted(set(concurrency.__all__) - {"is_held", "report_uncaught", "Thread"}):
        own = next(getattr(home, name) for home in (threading, queue, concurrent.futures) if hasattr(home, name))
        assert getattr(concurrency, name) is own
    assert issubclass(concurrency.Thread, threading.Thread)
    assert set(vars(concurrency.Thread)) - set(vars(type("", (), {}))) <= {
        *("__init__", "start", "run", "is_alive", "join"),
    }


def test_thread_that_cannot_start_names_the_limit_and_one_that_ran_is_a_mistake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = concurrency.Thread(target=lambda: None)
    with monkeypatch.context() as patch:
        start_no_more_threads(patch)
        with pytest.raises(OutOfThreadsError, match="ulimit -u"):
            thread.start()
    thread.start()
    thread.join()
    with pytest.raises(RuntimeError, match="once") as again:
        thread.start()
    assert not isinstance(again.value, OutOfThreadsError)


def test_thread_whose_join_was_interrupted_is_alive_until_its_work_has_ended() -> None:
    """CPython 3.11 marks it as stopped; what it works in would be given back, and used by others, meanwhile."""
    may_end, has_ended = threading.Event(), threading.Event()

    def work() -> None:
        may_end.wait(60)
        has_ended.set()

    thread = concurrency.Thread(target=work)
    thread.start()
    with pytest.raises(KeyboardInterrupt), interrupted_after(0.05):
        thread.join()
    assert thread.is_alive()
    thread.join(0.01)
    assert not has_ended.is_set()
    threading.Timer(0.05, may_end.set).start()
    thread.join()
    assert has_ended.is_set()
    assert not thread.is_alive()


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Have this thread interrupted once, as by Ctrl-C."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_thread_of_the_parent_is_not_alive_in_a_fork() -> None:
    """It does not exist there, and nobody may wait for it."""
    may_end = threading.Event()
    thread = concurrency.Thread(target=may_end.wait, args=(60,))
    thread.start()
    if (child := os.fork()) == 0:
        thread.join()
        os._exit(int(thread.is_alive()))
    assert os.waitpid(child, 0)[1] == 0
    assert thread.is_alive()
    may_end.set()
    thread.join()


def test_uncaught_exception_goes_to_the_hook_set_after_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program's crash reporter, set long after the library was imported, sees errors of its threads."""
    seen: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda failure: seen.append(failure.exc_type))
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        concurrency.report_uncaught()
    assert seen == [ZeroDivisionError]
