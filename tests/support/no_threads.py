"""A system that starts no more threads, as in a container that has used up its own."""

from __future__ import annotations

import threading

import pytest


def start_no_more_threads(patch: pytest.MonkeyPatch) -> None:
    """Have every start of a thread fail as Python's does then, until the patch is undone."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    patch.setattr(threading.Thread, "start", refuse)
