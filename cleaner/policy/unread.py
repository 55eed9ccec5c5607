"""
Decides which segments of the clean section a round need not read: nothing in them can change.

A round that has read such a segment, and left it as it was, notes what the segment holds: its keys' digests
(`state/key_index.py`) and the facts below. In a later round the segment can change only if one of its keys was written
again, a horizon is due, or other settings apply. Whatever is unknown, or not exactly as noted, is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

NO_HORIZON = 2**63 - 1
"""The earliest horizon of a segment without one."""

LEAST_BYTES_A_KEY = 17
"""Segments with less a key get no index: it would be more than a quarter of them."""

MOST_ROUNDS_PAUSED = 64

_DAY_MS = 86_400_000
# An index pays where it saves reading at least a third of what is read although it has one.
_VAIN_BYTES_A_SAVED_BYTE = 3


class FileIdentity(NamedTuple):
    """A file as the system shows it; all zeros: there is none."""

    device: int = 0
    inode: int = 0
    size: int = 0
    mtime_ns: int = 0


class SegmentIdentity(NamedTuple):
    """
    What shows that a segment is the one that was read.

    Attributes:
        log, offset_index, time_index: its files; it has no transaction index.
        first_header, last_header: the headers of its first and last batch, with their checksums.
        last_position: of the last batch.
    """

    log: FileIdentity
    offset_index: FileIdentity
    time_index: FileIdentity
    first_header: bytes
    last_header: bytes
    last_position: int


class ReadSettings(NamedTuple):
    """
    Settings by which a segment that was read is refused, or its indexes are built.

    Attributes:
        record_limit_bytes, batch_limit_bytes: the largest record and batch that may be unpacked.
        interval_bytes, max_index_bytes: of its indexes.
    """

    record_limit_bytes: int
    batch_limit_bytes: int
    interval_bytes: int
    max_index_bytes: int


@dataclass(frozen=True)
class SegmentFacts:
    """
    What is known of a segment that was read in full and left as it was.

    Attributes:
        identity: of its files.
        key_id: of the digest key.
        read_ms: when it was read, wall clock.
        earliest_horizon_ms: the first horizon that was not due then.
        last_offset: of its last batch.
        keys: how many digests the index has.
        settings: by which it was read.
    """

    identity: SegmentIdentity
    key_id: bytes
    read_ms: int
    earliest_horizon_ms: int
    last_offset: int
    keys: int
    settings: ReadSettings


class WhyRead(Enum):
    """Why a segment is read although there is an index."""

    OTHER_KEY = "the index was made with another key"
    NEEDED_AT_END = "it reaches beyond the section that cannot change"
    HORIZON_DUE = "a delete horizon is due"
    FULL_READ_DUE = "it was not read for cleaner.full.read.days"
    OTHER_SETTINGS = "other settings apply"
    NOT_THE_SEGMENT = "the segment is not the one that was read"
    KEY_IN_COMMON = "one of its keys was written again"


@dataclass(frozen=True)
class RoundTerms:
    """
    What a round demands of all segments.

    Attributes:
        key_id: of the digest key.
        now_ms, removal_ms: the round's time; the time with which horizons are compared.
        full_read_days: a segment is read when its last full read is that long ago.
        settings: those in force.
        unchanging_end: batches up to here, exclusive, are in the clean section and not kept for their place.
    """

    key_id: bytes
    now_ms: int
    removal_ms: int
    full_read_days: int
    settings: ReadSettings
    unchanging_end: int


def why_read(facts: SegmentFacts, terms: RoundTerms) -> WhyRead | None:
    """Return why a segment must be read, from what is known without opening it; None: only if identity or keys do."""
    if facts.key_id != terms.key_id:
        return WhyRead.OTHER_KEY
    if facts.last_offset >= terms.unchanging_end:
        return WhyRead.NEEDED_AT_END
    if facts.earliest_horizon_ms <= terms.removal_ms:
        return WhyRead.HORIZON_DUE
    # A time of reading in the future is one by a clock that was wrong.
    if not 0 <= terms.now_ms - facts.read_ms < terms.full_read_days * _DAY_MS:
        return WhyRead.FULL_READ_DUE
    read, now = facts.settings, terms.settings
    same_indexes = (read.interval_bytes, read.max_index_bytes) == (now.interval_bytes, now.max_index_bytes)
    within = now.record_limit_bytes >= read.record_limit_bytes and now.batch_limit_bytes >= read.batch_limit_bytes
    return None if same_indexes and within else WhyRead.OTHER_SETTINGS


@dataclass(frozen=True)
class Worth:
    """
    Whether indexes have paid for a log.

    Attributes:
        pause: for so many rounds none is built.
        next_pause: how long the next pause will be.
    """

    pause: int = 0
    next_pause: int = 1

    def after(self, *, saved_bytes: int, vain_bytes: int) -> Worth:
        """
        Return the same after a round.

        Args:
            saved_bytes: of segments that an index has kept from being read.
            vain_bytes: of segments that have a valid index, and a key in common with the round.
        """
        if not saved_bytes and not vain_bytes:
            return replace(self, pause=max(0, self.pause - 1))
        if saved_bytes * _VAIN_BYTES_A_SAVED_BYTE >= vain_bytes:
            return Worth()
        return Worth(self.next_pause, min(2 * self.next_pause, MOST_ROUNDS_PAUSED))
