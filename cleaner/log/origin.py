"""
Which process something belongs to: the one that made it, and no fork of that.

A forked child has a copy of everything, but no thread that would keep it up to date, and locks that a thread which is
not there may hold. So whatever is called there asks here first. A flag that the fork itself sets is asked instead of
the process's number: that would be a call of the system each time.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from cleaner.errors import ForkedError


class Origin:
    """
    The process that made something, asked in the same or in a fork of it.

    Attributes:
        is_parents: this is a fork.

    Args:
        where: what it is, for the error.
    """

    def __init__(self, where: Path | str) -> None:
        self._where = where
        self._pid = os.getpid()
        self.is_parents = False
        _all.add(self)

    def require_own(self) -> None:
        """
        Make sure that this process made it.

        Raises:
            ForkedError: it did not.
        """
        if self.is_parents:
            raise ForkedError(self._where, self._pid)


_all: weakref.WeakSet[Origin] = weakref.WeakSet()


def _leave_to_parent() -> None:
    for origin in tuple(_all):
        origin.is_parents = True


os.register_at_fork(after_in_child=_leave_to_parent)
