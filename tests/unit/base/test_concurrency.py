"""Threads and locks of the product are Python's own."""

from __future__ import annotations

import concurrent.futures
import queue
import threading

import pytest

from cleaner.base import concurrency


def test_names_of_the_door_are_the_standard_library_s_own_objects() -> None:
    """The door costs nothing: a lock made through it is a lock of `threading`, and so are all others."""
    for name in sorted(set(concurrency.__all__) - {"is_held", "report_uncaught"}):
        own = next(getattr(home, name) for home in (threading, queue, concurrent.futures) if hasattr(home, name))
        assert getattr(concurrency, name) is own


def test_uncaught_exception_goes_to_the_hook_set_after_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program's crash reporter, set long after the library was imported, sees errors of its threads."""
    seen: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda failure: seen.append(failure.exc_type))
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        concurrency.report_uncaught()
    assert seen == [ZeroDivisionError]
