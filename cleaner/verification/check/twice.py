"""
Finds keys that occur twice in the clean section of a log, for any number of keys.

It first collects digests: the 64-bit half under a secret key, as many as fit into memory. If there are too many, the
upper half of the current range of digests is left to a later pass over the log. A last pass looks up repeated digests,
with both halves, and finds their records. Nothing is written to disk.

A record in a transaction supersedes nothing if the first pass of its round took it as aborted. Kafka's first pass does
so if a round begins in the middle of a segment, after an ABORT marker of the same producer (R-510, R-511, R-533), and
the marker that shows it may be gone now. So a key that repeats in a transaction is a note, not damage.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from cleaner.format.chunks import TRANSACTIONAL_FLAG, control_batches
from cleaner.format.key_digests import FIRST, OFFSET_PLUS_1, Words
from cleaner.policy.survivor_rule import LATEST_OFFSET, SurvivorRule
from cleaner.storage.segment.aborted import AbortedRanges
from cleaner.storage.segment.indexes import Aborts
from cleaner.storage.segment.segment import Segment
from cleaner.verification.check.batches import CheckedChunk
from cleaner.verification.check.findings import Finding, FindingKind, OnFinding

DEFAULT_MEMORY_BYTES = 256 << 20
MAX_TWICE = 1 << 20
"""Repeated keys that are looked up; a section with more was never clean, and is reported so."""

_END = 1 << 64
_MIN_WORDS = 1024


class _Section:
    """
    Selects the records that count: with a key, between two offsets, no markers, not in an aborted transaction.

    Args:
        first_offset, end_offset: log start and `cleaner-offset-checkpoint`.
        aborts: from all transaction indexes.
    """

    def __init__(self, first_offset: int, end_offset: int, aborts: Aborts) -> None:
        self.first_offset = first_offset
        self._end_offset = end_offset
        self._aborted = AbortedRanges(aborts)

    def of(self, checked: CheckedChunk) -> Words:
        """Return rows of the two words of a digest, offset + 1 and the row of the record's batch."""
        digests: Words = checked.digests[checked.digests[:, OFFSET_PLUS_1] <= np.uint64(self._end_offset)]
        rows = checked.chunk.batches
        if not len(digests):
            return digests
        # Good batches ascend; batches out of order are reported elsewhere, and their records do not count.
        good = np.flatnonzero(checked.good)
        if not len(good):
            return digests[:0]
        offsets = (digests[:, OFFSET_PLUS_1] - np.uint64(1)).astype(np.int64)
        place = np.searchsorted(rows["base_offset"][good], offsets, side="right") - 1
        at = good[np.maximum(place, 0)]
        counts = ~control_batches(rows) & (self._aborted.hidden(rows) == 0)
        kept = (place >= 0) & (offsets <= rows["last_offset"][at]) & counts[at]
        digests = digests[kept].copy()
        digests[:, 3] = at[kept].astype(np.uint64)
        return digests


class KeySieve(_Section):
    """
    Finds repeated digests, within the range of digests that fits into memory.

    Args:
        low: the lowest digest of this pass; earlier passes covered lower ones.
        memory_bytes: for digests.

    Attributes:
        limit: digests from here on are left to another pass; 2**64 if there are none.
    """

    def __init__(self, first_offset: int, end_offset: int, aborts: Aborts, low: int, memory_bytes: int) -> None:
        super().__init__(first_offset, end_offset, aborts)
        self.limit = _END
        self._low = low
        # Half is for the digests; finding the repeated ones makes a copy.
        self._words: Words = np.empty(max(_MIN_WORDS, memory_bytes // 16), np.uint64)
        self._count = 0
        self._twice: Words = np.empty(0, np.uint64)

    def add(self, segment: Segment, checked: CheckedChunk) -> None:
        """Add a checked chunk."""
        hashes = self._wanted(self.of(checked)[:, FIRST])
        while len(hashes):
            room = len(self._words) - self._count
            taken = hashes[:room]
            self._words[self._count : self._count + len(taken)] = taken
            self._count += len(taken)
            hashes = hashes[room:]
            if self._count == len(self._words):
                self._drop_repeats()
                if self._count > len(self._words) // 2:
                    self._count //= 2
                    self.limit = int(self._words[self._count])
                hashes = self._wanted(hashes)

    def _wanted(self, hashes: Words) -> Words:
        if self._low:
            hashes = hashes[hashes >= np.uint64(self._low)]
        return hashes if self.limit == _END else hashes[hashes < np.uint64(self.limit)]

    def _drop_repeats(self) -> None:
        """Sort the digests and keep each once; collect the repeated ones."""
        words = self._words[: self._count]
        words.sort()
        again = np.zeros(len(words), bool)
        again[1:] = words[1:] == words[:-1]
        if again.any():
            self._twice = np.unique(np.concatenate((self._twice, words[again])))
            kept = words[~again]
            self._count = len(kept)
            self._words[: self._count] = kept

    def twice(self) -> Words:
        """Return the repeated digests below `limit`, ascending."""
        self._drop_repeats()
        return self._wanted(self._twice)


class _KeyedRecord(NamedTuple):
    """A record with one of the keys, in the batch at a position of a `.log`."""

    path: Path
    position: int
    offset: int
    is_transactional: bool


class TwiceFinder(_Section):
    """
    Finds the records whose digests are repeated.

    Args:
        twice: the digests' first halves, ascending.
        on_finding: called with every record that another record of its key in the section supersedes.
        rule: which of two records of a key is retained.
    """

    def __init__(
        self,
        first_offset: int,
        end_offset: int,
        aborts: Aborts,
        twice: Words,
        on_finding: OnFinding,
        rule: SurvivorRule = LATEST_OFFSET,
    ) -> None:
        super().__init__(first_offset, end_offset, aborts)
        self._twice = twice
        self._on_finding = on_finding
        self._rule = rule
        self._seen: dict[tuple[int, int], _KeyedRecord] = {}

    def add(self, segment: Segment, checked: CheckedChunk) -> None:
        """Add a checked chunk."""
        digests = self.of(checked)
        slots = np.minimum(np.searchsorted(self._twice, digests[:, FIRST]), len(self._twice) - 1)
        for hash_word, other, after, row in digests[self._twice[slots] == digests[:, FIRST]].tolist():
            batch = checked.chunk.batches[row]
            is_transactional = bool(batch["attributes"] & TRANSACTIONAL_FLAG)
            stays = _KeyedRecord(segment.log_path, int(batch["position"]), after - 1, is_transactional)
            goes = self._seen.get((hash_word, other))
            if goes is not None and self._rule.supersedes(goes.offset, stays.offset):
                stays, goes = goes, stays
            self._seen[hash_word, other] = stays
            if goes is not None and goes.offset != stays.offset:
                reason = f"its key comes again at offset {stays.offset}, which is in the clean section too"
                if stays.is_transactional:
                    reason += ": in a transaction, which a round that began in mid-segment may have taken for aborted"
                is_damage = not stays.is_transactional
                finding = Finding(
                    FindingKind.KEY_TWICE, goes.path, reason, goes.position, goes.offset, is_damage=is_damage
                )
                self._on_finding(finding)
