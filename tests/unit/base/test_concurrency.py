"""Threads and locks of the product are Python's own."""

from __future__ import annotations

import concurrent.futures
import queue
import threading

from cleaner.base import concurrency


def test_names_of_the_door_are_the_standard_library_s_own_objects() -> None:
    """The door costs nothing: a lock made through it is a lock of `threading`, and so are all others."""
    for name in concurrency.__all__:
        own = next(getattr(home, name) for home in (threading, queue, concurrent.futures) if hasattr(home, name))
        assert getattr(concurrency, name) is own
