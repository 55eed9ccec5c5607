"""
When Python's cyclic garbage collector runs.

Loading libraries creates tens of thousands of objects, none of them garbage, and the collector would scan them again
and again. So it waits until there are more objects than loading creates, or until a long-running command says that it
has finished loading; from then on it works as in any process, and ignores the objects that existed before.

The memory of rounds and readers needs no collector: it is freed with the last reference. Only small objects are left to
it, mostly of libraries.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

_DEFAULT_THRESHOLD = gc.get_threshold()
_STARTUP_THRESHOLD = 200_000


def hold_back_while_loading() -> None:
    """Make the collector wait."""
    gc.set_threshold(_STARTUP_THRESHOLD, *_DEFAULT_THRESHOLD[1:])
    gc.callbacks.append(_begin_after_first)


def begin_collecting() -> None:
    """Let the collector work from now on, if it was held back."""
    if _begin_after_first in gc.callbacks:
        gc.callbacks.remove(_begin_after_first)
        gc.freeze()
        gc.set_threshold(*_DEFAULT_THRESHOLD)


def collect_seldom() -> None:
    """Let the collector work seldom while much is made that lasts, as by a first look at thousands of logs."""
    gc.set_threshold(_STARTUP_THRESHOLD, *_DEFAULT_THRESHOLD[1:])


def set_aside() -> None:
    """Let the collector ignore what there is now, and work as usual: 20 000 logs would take it 0.3 s each time."""
    gc.freeze()
    gc.set_threshold(*_DEFAULT_THRESHOLD)


def _begin_after_first(phase: str, _: Mapping[str, Any]) -> None:
    if phase == "stop":
        begin_collecting()
