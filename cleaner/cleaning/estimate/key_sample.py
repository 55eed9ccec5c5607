"""
The keys in drawn cells of a log, and the chance of each of their records to stay.

The two sections of a log differ. In the dirty section, the last record of a key stays. In the clean section, a record
stays if its key does not occur in the dirty section. Where a survivor rule compares numbers, all is dirty, and the last
record is the one with the greatest number; its place is that of its number among all. Neither is known unless all cells
were drawn: the number of records that stay is estimated (`unseen_keys.py`), and the sampled candidates get chances that
add up to it.

If there are very many keys, only those with a digest below a threshold are kept, with all their records: a random part
of the keys, so that memory is bounded (Wegman's adaptive sampling; Flajolet, 1990).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cleaner.cleaning.estimate.unseen_keys import Counts, Floats, Occurrences
from cleaner.format.key_digests import Words, new_secret

GROUPS = 10  # the jackknife leaves out a tenth of the cells at a time
_MAX_RECORDS = 1 << 22
_ALL = 2**64 - 1


class KeySample:
    """
    Keys of drawn cells and, once they are judged, chances of records.

    Args:
        is_dirty: for each cell, in log order, whether it is in the dirty section.
        place: for each cell its place in that section, from 0 (start) to 1 (end).
        sizes: for each cell its bytes.
        section_bytes: total bytes of the clean and of the dirty section.

    Attributes:
        groups: for each cell the number of its group, drawn at random.
        secret: what keys are digested under.
        shares: the drawn parts of the clean and of the dirty section.
        dirty: the kept keys of the dirty section.
        staying: how many records of the clean and of the dirty section, with kept keys, stay.
        without: the same, one row for each group, estimated without the group's cells.
        chance_doubt: of the clean and of the dirty section, the part of the records about which chance decides: if few
            keys were met twice, leaving out groups does not show that it might have been others.
    """

    dirty: Occurrences
    staying: Floats
    without: Floats
    chance_doubt: Floats

    def __init__(self, is_dirty: npt.NDArray[np.bool_], place: Floats, sizes: Counts, section_bytes: Counts) -> None:
        self.groups = np.random.default_rng(0).permutation(len(sizes)) % GROUPS
        self.secret: Words = new_secret()
        self._is_dirty, self._place, self._sizes, self._section_bytes = is_dirty, place, sizes, section_bytes
        self.shares = self._shares(-1)
        self._threshold = np.uint64(_ALL)
        nothing = np.zeros(0, np.uint64)
        self._parts: list[tuple[int, Words, Words, Words]] = [(0, nothing, nothing, nothing)]
        self._kept = 0

    @property
    def part(self) -> float:
        """The part of all keys that the sample keeps."""
        return (float(self._threshold) + 1) / 2**64

    def add(self, cell: int, digests: Words, offsets: Words, numbers: Words) -> None:
        """Add records of a cell, in order: digests of their keys, offsets plus 1, and numbers, if they are compared."""
        self._keep(cell, digests, offsets, numbers)
        while self._kept > _MAX_RECORDS:
            self._threshold >>= np.uint64(1)
            parts, self._parts, self._kept = self._parts, [], 0
            for part in parts:
                self._keep(*part)

    def _keep(self, cell: int, digests: Words, offsets: Words, numbers: Words) -> None:
        is_kept = digests <= self._threshold
        self._parts.append(
            (cell, digests[is_kept], offsets[is_kept], numbers[is_kept] if len(numbers) else numbers.copy())
        )
        self._kept += int(is_kept.sum())

    def judge(self) -> None:
        """Estimate what stays, after all cells were added."""
        cells, digests, offsets, found_numbers = zip(*self._parts, strict=True)
        numbers = np.concatenate(found_numbers)
        cell, offset = np.repeat(cells, list(map(len, offsets))), np.concatenate(offsets)
        # Add one digest that no record has, so that a lookup always finds one.
        self._digests, row = np.unique(np.append(np.concatenate(digests), np.uint64(_ALL)), return_inverse=True)
        row, is_dirty = row[:-1], self._is_dirty[cell]
        last_offset, last_place = np.zeros(len(self._digests), np.uint64), np.zeros(len(self._digests))
        # A key's last record wins: they come in log order, or are put in that of their numbers.
        by, place = np.flatnonzero(is_dirty), self._place[cell]
        if len(numbers):
            by = by[np.lexsort((offset[by], numbers[by]))]
            place[by] = np.arange(len(by)) / max(1, len(by))
        last_offset[row[by]], last_place[row[by]] = offset[by], place[by]
        # A key of the dirty section counts once for each cell, however often it occurs there.
        # Sorted here: `np.unique` hashes, which takes several times as long for millions of different numbers.
        pairs = np.sort(row[is_dirty] * len(self._sizes) + cell[is_dirty])
        drawn, drawn_in = np.divmod(pairs[np.diff(pairs, prepend=-1) != 0], len(self._sizes))
        clean, clean_in = row[~is_dirty], cell[~is_dirty]

        def estimate(without: int) -> tuple[Floats, Occurrences, Counts]:
            clean_share, dirty_share = self._shares(without)
            times = np.bincount(drawn[self.groups[drawn_in] != without], minlength=len(self._digests))
            dirty = Occurrences.estimate(times[times > 0], dirty_share)
            sampled_times = times[clean[self.groups[clean_in] != without]]
            superseded = Occurrences.estimate(sampled_times[sampled_times > 0], dirty_share).total
            staying = max(0.0, len(sampled_times) - superseded) / max(1e-9, clean_share)
            return np.array([staying, dirty.total]), dirty, times

        self.staying, self.dirty, times = estimate(-1)
        is_exact = bool((self.shares >= 1).all())
        self.without = np.array([self.staying if is_exact else estimate(group)[0] for group in range(GROUPS)])
        # Each pair that was met stands for as many as could have been met, by both of them being drawn.
        met, records = np.array([(times[clean] > 0).sum(), (times > 1).sum()]), np.bincount(is_dirty, minlength=2)
        could_meet = np.maximum(1, records * self.shares[1])
        self.chance_doubt = np.minimum(1, np.sqrt(met + 1) / could_meet) * np.sqrt(np.maximum(0, 1 - self.shares[1]))
        here = self.staying * self.shares
        is_drawn = times > 0
        chance = np.zeros(len(times))
        chance[is_drawn] = self.dirty.chances_of_last(times[is_drawn], last_place[is_drawn])
        self._last_offset, self._chance = last_offset, chance
        self._clean_chance = min(1.0, here[0] / max(1, (times[clean] == 0).sum()))
        self._usual = np.minimum(1, here / np.maximum(1, np.bincount(is_dirty, minlength=2)))

    def chances(self, digests: Words, offsets: Words, is_dirty: bool) -> Floats:
        """Return for each of some records of one section the chance to stay; arguments as for `add`."""
        row = np.minimum(np.searchsorted(self._digests, digests), len(self._digests) - 1)
        last = np.where(self._digests[row] == digests, self._last_offset[row], 0)
        known = np.where(last == offsets, self._chance[row], 0) if is_dirty else self._clean_chance * (last == 0)
        chances: Floats = np.where(digests <= self._threshold, known, self._usual[int(is_dirty)])
        return chances

    def _shares(self, without: int) -> Floats:
        drawn = np.bincount(self._is_dirty, self._sizes * (self.groups != without), minlength=2)
        shares: Floats = np.where(self._section_bytes > 0, drawn / np.maximum(1, self._section_bytes), 1)
        return shares
