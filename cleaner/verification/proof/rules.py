"""The rules that a cleaned log is checked by: the cleaned range, and the times of the rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cleaner.format.chunks import Mask
from cleaner.format.layout import Layout
from cleaner.format.record_numbers import RecordNumbers


@dataclass(frozen=True)
class ProofVersion:
    """
    A Kafka version that may have cleaned the log: its name, and what it does with an empty batch at the range's end.

    It keeps it wherever the high watermark is (`always_keeps_range_end`, R-541 b), or only if the watermark is there
    (R-548).
    """

    name: str
    always_keeps_range_end: bool


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
        high_watermark: it was at least this in every round; None: not known.
        versions: the Kafka versions that may have run them, at least one.
        recompressed: batches may have been packed in another way, and joined (`clean --recompress`).
        expires_after_ms: the age at which records became tombstones; None: they did not.
        may_be_quiet: rounds without anything dirty may have removed what only waited for its time (D-16, D-19).
        numbers: of the records of a key the one with the greatest number stays, of equals the last; None: the last.
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
    high_watermark: int | None
    versions: tuple[ProofVersion, ...]
    recompressed: bool = False
    expires_after_ms: int | None = None
    numbers: RecordNumbers | None = None
    may_be_quiet: bool = False

    def may_be_nulled(self, layout: Layout) -> Mask:
        """Tell which records may have become tombstones for their age: with key and value, in the cleaned range."""
        if self.expires_after_ms is None or not self.has_rounds:
            return np.zeros(len(layout), np.bool_)
        is_old = (layout.timestamps_ms >= 0) & (layout.timestamps_ms <= self.now_ms - self.expires_after_ms)
        found: Mask = is_old & (layout.key_sizes >= 0) & (layout.value_sizes >= 0) & (layout.offsets < self.end_offset)
        return found

    def may_be_gone(self, layout: Layout) -> Mask:
        """Tell which records may have become tombstones for their age, and then have been removed as such."""
        if self.is_one_round or self.expires_after_ms is None:
            return np.zeros(len(layout), np.bool_)
        nulled_ms = np.maximum(np.minimum(layout.timestamps_ms, self.now_ms) + self.expires_after_ms, self.since_ms)
        gone: Mask = self.may_be_nulled(layout) & (nulled_ms <= self.now_ms - self.delete_retention_ms)
        return gone

    def has_to_keep_range_end(self, version: ProofVersion, *, is_log_end: bool) -> bool:
        """
        Tell whether the batch that ends the cleanable range must be there, if only as a header (R-541 b, R-548).

        Args:
            version: whose rule.
            is_log_end: the log ends there, and so the high watermark was there. Otherwise it may have been behind.
        """
        return version.always_keeps_range_end or is_log_end

    def may_keep_range_end_empty(self, version: ProofVersion, range_end: int) -> bool:
        """Tell whether a batch without records may end the recopied segments, whatever its producer."""
        return version.always_keeps_range_end or self.high_watermark is None or self.high_watermark <= range_end

    @property
    def has_rounds(self) -> bool:
        """Whether anything was, or may have been, cleaned."""
        return self.end_offset > self.first_dirty_offset or self.may_be_quiet

    @property
    def lasted_retention(self) -> bool:
        """Whether a horizon that the first round set may have passed in the last round."""
        return not self.is_one_round and self.now_ms - self.since_ms >= self.delete_retention_ms

    def may_have_expired(self, mtime_ms: int) -> bool:
        """Tell whether some round may have removed a tombstone of magic 0 or 1 in a file with this mtime."""
        return not self.is_one_round and mtime_ms + self.delete_retention_ms <= self.now_ms

    @property
    def writes_horizons(self) -> bool:
        """Whether there are rounds that write horizons: one beyond 64 bits is not written (R-568)."""
        return self.has_rounds and _wrapped(self.since_ms + self.delete_retention_ms) >= 0

    @property
    def sets_horizons(self) -> bool:
        """Whether they set all: rounds without anything dirty only do so in segments in which something was due."""
        return self.writes_horizons and not self.may_be_quiet

    def allows_new_horizon(self, horizon_ms: int) -> bool:
        """Tell whether a round may have set this horizon: its time plus the retention, in 64 bits."""
        latest = _wrapped(self.now_ms + self.delete_retention_ms)
        if not self.is_now_exact:
            return horizon_ms <= latest
        return _wrapped(self.since_ms + self.delete_retention_ms) <= horizon_ms <= latest


def _wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63
