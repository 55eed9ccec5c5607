"""
Threads, and everything by which they wait for each other.

All other code takes them from here, by this module's name (`concurrency.Lock()`), so that the simulator
(`tests/simulation`) can put its own in their place and decide which thread runs next. Here they are Python's own, with
nothing around them.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from queue import SimpleQueue
from threading import (
    Condition,
    Event,
    ExceptHookArgs,
    Lock,
    RLock,
    Thread,
    Timer,
    current_thread,
    excepthook,
    get_ident,
    local,
    main_thread,
)

__all__ = [
    "FIRST_COMPLETED",
    "Condition",
    "Event",
    "ExceptHookArgs",
    "Future",
    "Lock",
    "RLock",
    "SimpleQueue",
    "Thread",
    "ThreadPoolExecutor",
    "Timer",
    "current_thread",
    "excepthook",
    "get_ident",
    "local",
    "main_thread",
    "wait",
]
