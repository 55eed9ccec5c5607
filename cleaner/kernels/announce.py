"""
Telling the operator that kernels are about to be compiled, which takes a while, once.

It is apart from the kernels because who wants to be told must not load numba for it: a command may find that there is
nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Listener = Callable[[Path | None], None]


class _Announcer:
    """Holds who is to be told; forgets them with the first call."""

    def __init__(self) -> None:
        self._listener: Listener | None = None

    def listen(self, listener: Listener | None) -> None:
        self._listener = listener

    def announce(self, kept_in: Path | None) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener(kept_in)


_ANNOUNCER = _Announcer()


def before_compiling(listener: Listener | None) -> None:
    """
    Have `listener` called before the first kernel is compiled; not at all if all of them are in the cache.

    Args:
        listener: gets the directory the machine code will be kept in, or None where there is none. None: nobody.
    """
    _ANNOUNCER.listen(listener)


def announce_compiling(kept_in: Path | None) -> None:
    """Call the listener, if there is one that was not called yet."""
    _ANNOUNCER.announce(kept_in)
