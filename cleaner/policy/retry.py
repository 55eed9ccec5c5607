"""
Decides when a log that failed is tried again.

A failure that may be temporary (an I/O error, no room) is retried after a delay that doubles with each further failure,
up to a limit; one success resets it. The delay depends only on the count, without randomness, so the time shown to an
operator is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleaner.config.values import CleanerConfig

# After this many doublings of a millisecond every limit is reached (2^63 ms); it keeps the numbers small.
MAX_DOUBLINGS = 63


@dataclass(frozen=True)
class RetryDelays:
    """
    How delays grow.

    Attributes:
        first_ms: the delay after the first failure, at least 1; usually `log.cleaner.backoff.ms`.
        limit_ms: the longest delay; not below the first.
    """

    first_ms: int = 15_000
    limit_ms: int = 3_600_000

    def __post_init__(self) -> None:
        if not 1 <= self.first_ms <= self.limit_ms:
            raise ValueError(f"delays of {self.first_ms} to {self.limit_ms} ms")

    @staticmethod
    def of(config: CleanerConfig) -> RetryDelays:
        """Return those of the settings: from one backoff on."""
        return RetryDelays(max(1, config.backoff_ms), max(1, config.retry_max_ms))

    def after(self, failures: int) -> int:
        """
        Return the delay (ms) after this many failures in a row.

        Raises:
            ValueError: there was no failure.
        """
        if failures < 1:
            raise ValueError(f"{failures} failures")
        return min(self.limit_ms, self.first_ms << min(failures - 1, MAX_DOUBLINGS))


@dataclass(frozen=True)
class Retry:
    """
    The state of a log that failed.

    Attributes:
        failures: how many in a row.
        failed_at_ms: time of the last one.
        not_before_ms: earliest time of the next try.
        cause: the error's message, for the operator.
    """

    failures: int
    failed_at_ms: int
    not_before_ms: int
    cause: str

    def remaining_ms(self, now_ms: int) -> int:
        """
        Return how long to wait still; 0: it may be tried.

        If the wall clock is set back to before the failure, the wait ends: otherwise it could last as long as the clock
        was wrong.
        """
        return max(0, self.not_before_ms - now_ms) if now_ms >= self.failed_at_ms else 0


def after_failure(previous: Retry | None, now_ms: int, cause: str, delays: RetryDelays) -> Retry:
    """
    Return the state after a failure.

    Args:
        previous: the state before; None after a success, or without an earlier failure.
        now_ms: the time of this failure.
        cause: its message.
        delays: how delays grow.
    """
    failures = 1 if previous is None else previous.failures + 1
    return Retry(failures, now_ms, now_ms + delays.after(failures), cause)
