"""The rules that a cleaned log is checked by: the cleaned range, and the times of the rounds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProofRules:
    """
    Facts about the rounds between the two logs.

    Attributes:
        first_dirty_offset: start of the first round's dirty section.
        end_offset: the log is clean up to here, exclusive; `first_dirty_offset` when no round was run.
        since_ms, now_ms: the rounds were between these times.
        is_now_exact: the last round was at `now_ms`: records that had to go by then must be gone. Otherwise they may
            be gone.
        is_one_round: there was one round, at `now_ms`.
        is_end_recorded: `end_offset` is from the cleaner checkpoint.
        delete_retention_ms: how long a tombstone or marker stays after the first cleaning that kept it.
        producer_expiration_ms: how long an idle producer counts as active.
        may_expire: whole segments may have been deleted from the log's start.
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
        """Whether anything was cleaned."""
        return self.end_offset > self.first_dirty_offset

    @property
    def lasted_retention(self) -> bool:
        """Whether a horizon that the first round set may have passed in the last round."""
        return not self.is_one_round and self.now_ms - self.since_ms >= self.delete_retention_ms

    def may_have_expired(self, mtime_ms: int) -> bool:
        """Tell whether some round may have removed a tombstone of magic 0 or 1 in a file with this mtime."""
        return not self.is_one_round and mtime_ms + self.delete_retention_ms <= self.now_ms

    @property
    def sets_horizons(self) -> bool:
        """Whether rounds set horizons at all: a horizon beyond 64 bits is not written (R-568)."""
        return _wrapped(self.since_ms + self.delete_retention_ms) >= 0

    def allows_new_horizon(self, horizon_ms: int) -> bool:
        """Tell whether a round may have set this horizon: its time plus the retention, in 64 bits."""
        latest = _wrapped(self.now_ms + self.delete_retention_ms)
        if not self.is_now_exact:
            return horizon_ms <= latest
        return _wrapped(self.since_ms + self.delete_retention_ms) <= horizon_ms <= latest


def _wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63
