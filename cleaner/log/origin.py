"""
Which process an object belongs to: the one that made it, not a fork of that.

A forked child has a copy of every object, but none of the threads that keep it up to date, and a copied lock may be
held by a thread that the child does not have. So each call checks here first. The check reads a flag that the fork
sets, not the process id, which would be a system call each time.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from cleaner.errors import ForkedError


class Origin:
    """
    The process that made an object; asked there or in a fork.

    Attributes:
        is_parents: this is a fork.

    Args:
        where: the object's name, for the error.
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
