"""Waits for another process by polling, with a time limit, through the clock."""

from __future__ import annotations

from collections.abc import Callable

from cleaner.base.clock import Clock

# What is waited for here takes some fsyncs: a millisecond at best, a few hundred at worst.
_FIRST_PAUSE_SECONDS = 0.000_5
_LONGEST_PAUSE_SECONDS = 0.02


def go_on() -> None:
    """Continue: there is no request to stop."""


def wait_until(
    condition: Callable[[], bool], clock: Clock, patience_ms: int, check_done: Callable[[], None] = go_on
) -> bool:
    """
    Wait until a condition holds; False if it did not within `patience_ms`.

    Args:
        condition: checked at once, and then after each pause; pauses grow from half a millisecond to twenty.
        clock: to sleep by.
        check_done: called before each pause; raises to stop.
    """
    until_ns = clock.monotonic_ns() + patience_ms * 1_000_000
    pause_seconds = _FIRST_PAUSE_SECONDS
    while not condition():
        if clock.monotonic_ns() >= until_ns:
            return False
        check_done()
        clock.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
    return True
