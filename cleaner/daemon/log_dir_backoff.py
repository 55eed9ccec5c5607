"""Log dirs that have failed or are locked, and when the next attempt may be made."""

from __future__ import annotations

from dataclasses import replace

from cleaner.policy.retry import Retry, RetryDelays, after_failure
from cleaner.policy.selection_context import DirCondition, LogDirFacts


class LogDirBackoff:
    """
    Which log dirs are left alone for some time, and why: a disk that failed, another process that holds the lock.

    A look reads only a little; a round tests the disk much harder. So a failure of a round overrides what the last look
    saw, until it is time to try again. Not guarded: the manager's lock is held.
    """

    def __init__(self) -> None:
        self._failed: dict[str, Retry] = {}
        self._locked: dict[str, Retry] = {}

    def fail(self, log_dir: str, now_ms: int, cause: str, delays: RetryDelays) -> None:
        """Note that the disk failed; the more often in a row, the later it is tried again."""
        before = self._failed.get(log_dir)
        if before is not None and before.remaining_ms(now_ms):
            return  # another worker of the same log dir ran into the same failure
        self._failed[log_dir] = after_failure(before, now_ms, cause, delays)

    def lock(self, log_dir: str, now_ms: int, delay_ms: int, detail: str) -> None:
        """Note that another process has the log dir."""
        self._locked[log_dir] = Retry(1, now_ms, now_ms + delay_ms, detail)

    def clear(self, log_dir: str) -> None:
        """Note that a round ended well there."""
        self._failed.pop(log_dir, None)
        self._locked.pop(log_dir, None)

    def over(self, log_dir: str, seen: LogDirFacts, now_ms: int) -> LogDirFacts:
        """Return the look's facts; if they say online, a round's failure that still counts replaces them."""
        if seen.condition is not DirCondition.ONLINE:
            return seen
        failed = self._failed.get(log_dir)
        if failed is not None and failed.remaining_ms(now_ms):
            again = failed.remaining_ms(now_ms)
            detail = f"{failed.cause}; tried again in {again // 1000} s"
            return replace(seen, condition=DirCondition.OFFLINE, detail=detail)
        locked = self._locked.get(log_dir)
        if locked is not None and locked.remaining_ms(now_ms):
            condition, until_ms = DirCondition.LOCKED, locked.not_before_ms
            return replace(seen, condition=condition, detail=locked.cause, not_before_ms=until_ms)
        return seen
