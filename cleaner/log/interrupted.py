"""
Interrupts, and calls of a signal handler in the middle of another call.

Closing is refused where the handler has interrupted a call that changes a log or manager.

A close waits for other threads, and these may wait for a lock that the interrupted call has. There are too many of
those to ask each, so the stack is looked at, which is quick enough for calls as rare as these.
"""

from __future__ import annotations

import codecs
import importlib
import sys
from functools import lru_cache
from pathlib import Path
from types import FrameType

from cleaner.base import concurrency
from cleaner.errors import LogWriteError

_OURS = f"{__name__.partition('.')[0]}."
_LOGS = f"{_OURS}log."
# They have locks of readers only, and their log may be any.
_READERS = tuple(_LOGS + each for each in ("columns", "follow", "latest", "reach", "reader", "stream", "table"))
_BETWEEN = "contextlib"  # calls our functions for our functions
_REST = ("cleaner.read.view", "wait")  # of a follower that waits for records, which a close ends: it has no lock
_MAY_CLOSE = ("add_done_callback", "_call_done_callback")  # a callback of a future that is done already


@lru_cache(maxsize=1)
def load_all() -> None:
    """
    Load all that is otherwise loaded at its first use, modules and kernels: a third of a second in a process.

    Other threads may wait for a lock that an interrupted import has, and closing waits for them.
    """
    concurrency.undisturbed(_load)


def _load() -> None:
    from cleaner.cleaning.round.warm_up import warm_up

    importlib.import_module("cleaner.log.table")  # readers elsewhere than on Linux go without
    _ = concurrency.ThreadPoolExecutor
    codecs.lookup("utf-16-be")  # of Java's hash of a name
    warm_up()


def in_the_middle(where: Path | str) -> LogWriteError:
    """Return the error of a call that a signal handler makes in the middle of another one."""
    return LogWriteError(where, "called by a signal handler, in the middle of another call")


def require_unheld(lock: concurrency.RLock, where: Path | str) -> None:
    """Raise LogWriteError if this thread has a lock, as a signal handler may that runs in the middle of a call."""
    if concurrency.is_held(lock):
        raise in_the_middle(where)


def require_uninterrupted(where: Path | str) -> None:
    """
    Make sure that no call that changes a log or manager waits for the present one to end.

    Raises:
        LogWriteError: called by a signal handler, or by a function of the caller's, in the middle of another call.
    """
    if concurrency.current_thread() is not concurrency.main_thread():
        return  # signal handlers run in the main thread only
    frame: FrameType | None = sys._getframe()
    is_others = False
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if not module.startswith(_OURS):
            is_others = is_others or module != _BETWEEN
        elif is_others and (module, frame.f_code.co_name) == _REST:
            return
        elif not is_others or not module.startswith(_LOGS) or module.startswith(_READERS):
            pass
        elif frame.f_code.co_name not in _MAY_CLOSE:
            raise in_the_middle(where)
        frame = frame.f_back
