"""
Announces once that kernels are about to be compiled, which takes some time.

A command tells its operator. A library issues a Python warning; a program can call `cleaner.warm()` at a better time.

This module has no kernels, so that registering a listener does not load numba: a command may have nothing to do.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

Listener = Callable[[Path | None], None]

ABOUT_SECONDS = 30  # for all of them, on one core of a small machine with nothing else running


def _warn(kept_in: Path | None) -> None:
    """Warn the program that uses the library."""
    if kept_in is not None:
        often = "once on this machine; cleaner.warm(), or the command `cleaner warm`, does it beforehand"
    else:
        often = (
            "at every start, because there is no directory to keep them in: let NUMBA_CACHE_DIR name a directory that "
            "only this user, or root, can write to, and call cleaner.warm(), or `cleaner warm`, once"
        )
    # No stack level would name the caller's line: numba is in between.
    warnings.warn(f"compiling kernels, up to {ABOUT_SECONDS} seconds, {often}", RuntimeWarning, stacklevel=2)


class _Announcer:
    """Calls its listener once."""

    def __init__(self) -> None:
        self._listener: Listener | None = _warn

    def listen(self, listener: Listener | None) -> None:
        self._listener = listener

    def announce(self, kept_in: Path | None) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener(kept_in)


_ANNOUNCER = _Announcer()


def before_compiling(listener: Listener | None) -> None:
    """
    Call `listener` before the first kernel is compiled; never if all kernels are in the cache.

    Args:
        listener: gets the directory in which the machine code will be kept, or None without one. None: no listener.
    """
    _ANNOUNCER.listen(listener)


def announce_compiling(kept_in: Path | None) -> None:
    """Call the listener, if there is one and it was not called before."""
    _ANNOUNCER.announce(kept_in)
