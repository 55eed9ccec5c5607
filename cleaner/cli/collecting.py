"""
When Python's cyclic collector is at work.

Loading libraries makes objects by the ten thousand, none of them garbage, and the collector would look through them
again and again. So it waits until there are more than loading makes, or until a command that stays says that it has
loaded what it needs; from then on it works as in any process, and passes over what was there.

What rounds and readers work in needs no collector: it is freed with the last reference. What is left to it are
small things, of libraries mostly.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

_USUAL = gc.get_threshold()
_MORE_THAN_LOADING_MAKES = 200_000


def hold_back_while_loading() -> None:
    """Let the collector wait."""
    gc.set_threshold(_MORE_THAN_LOADING_MAKES, *_USUAL[1:])
    gc.callbacks.append(_begin_after_first)


def begin_collecting() -> None:
    """Have it work from now on, if it was held back."""
    if _begin_after_first in gc.callbacks:
        gc.callbacks.remove(_begin_after_first)
        gc.freeze()
        gc.set_threshold(*_USUAL)


def _begin_after_first(phase: str, _: Mapping[str, Any]) -> None:
    if phase == "stop":
        begin_collecting()
