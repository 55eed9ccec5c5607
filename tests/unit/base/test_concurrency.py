"""Threads and locks of the product are Python's own."""

from __future__ import annotations

import concurrent.futures
import queue
import threading

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
    assert set(vars(concurrency.Thread)) - set(vars(type("", (), {}))) <= {"start"}


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


def test_uncaught_exception_goes_to_the_hook_set_after_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program's crash reporter, set long after the library was imported, sees errors of its threads."""
    seen: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda failure: seen.append(failure.exc_type))
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        concurrency.report_uncaught()
    assert seen == [ZeroDivisionError]
