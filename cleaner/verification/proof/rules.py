"""What a cleaned log is held against: the range that was cleaned, and the moments that horizons are judged by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProofRules:
    """
    What is known of the rounds between the two logs.

    Attributes:
        first_dirty_offset: where the first round's dirty section began.
        end_offset: up to where the log is clean, exclusive; `first_dirty_offset` when no round was run.
        since_ms, now_ms: the rounds lie between these moments.
        is_now_exact: the last round was at `now_ms`: what had to go by then must have gone. Otherwise it may have.
        is_one_round: there was one round, and it was then.
        is_end_recorded: `end_offset` is what the cleaner checkpoint says.
        delete_retention_ms: how long a tombstone or marker stays after the first cleaning that kept it.
        producer_expiration_ms: how long a producer that is silent counts as active.
        may_expire: whole segments may have gone from the log's beginning.
    """

    first_dirty_offset: int
    end_offset: int
    since_ms: int
    now_ms: int
    is_now_exact: bool
    is_one_round: bool
    is_end_recorded: bool
    delete_retention_ms: int
    producer_expiration_ms: int
    may_expire: bool

    @property
    def has_rounds(self) -> bool:
        """Whether anything was cleaned at all."""
        return self.end_offset > self.first_dirty_offset

    @property
    def lasted_retention(self) -> bool:
        """Whether a horizon that the first round has set may have passed in the last one."""
        return not self.is_one_round and self.now_ms - self.since_ms >= self.delete_retention_ms

    def is_long_ago(self, mtime_ms: int) -> bool:
        """Tell whether a tombstone of magic 0 or 1 may go that was written then, as some round may have judged."""
        return not self.is_one_round and mtime_ms + self.delete_retention_ms <= self.now_ms

    @property
    def sets_horizons(self) -> bool:
        """Whether rounds set horizons at all: one beyond what 64 bits hold is not written (R-568)."""
        return _wrapped(self.since_ms + self.delete_retention_ms) >= 0

    def allows_new_horizon(self, horizon_ms: int) -> bool:
        """Tell whether a round may have set this horizon: its moment and the retention, as 64 bits hold them."""
        latest = _wrapped(self.now_ms + self.delete_retention_ms)
        if not self.is_now_exact:
            return horizon_ms <= latest
        return _wrapped(self.since_ms + self.delete_retention_ms) <= horizon_ms <= latest


def _wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63
