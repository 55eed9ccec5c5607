"""
From keys met in drawn cells to how likely each record met is to stay.

The two sections of a log ask different questions. A key's last record in the dirty section stays. One of the clean
section stays if its key does not come again in the dirty one; what share of the clean section that is follows from how
often its keys were met there, those that were not met among them.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import numpy as np

from cleaner.cleaning.estimate.key_sample import KeySample
from cleaner.cleaning.estimate.unseen_keys import Counts, Floats, Multiplicities


@dataclass(frozen=True)
class Drawn:
    """
    Which cells were drawn.

    Attributes:
        places: of each, in log order: 0 the log's begin and 1 its end.
        clean: so many of them, the first ones, are of the clean section.
        clean_cells, dirty_cells: how many cells the sections have.
        dirty_place: where the dirty section begins.
    """

    places: Floats
    clean: int
    clean_cells: int
    dirty_cells: int
    dirty_place: float

    @property
    def clean_share(self) -> float:
        """Which part of the clean section's cells was drawn; 1 without any."""
        return self.clean / self.clean_cells if self.clean_cells else 1.0

    @property
    def dirty_share(self) -> float:
        """The same of the dirty section."""
        return (len(self.places) - self.clean) / self.dirty_cells if self.dirty_cells else 1.0


@dataclass(frozen=True)
class Survival:
    """
    What stays.

    Attributes:
        stays: for each record that was kept in the sample the chance that it stays.
        dirty: the keys of the dirty section.
        records: how many records stay in all; like the keys in `dirty`, of those whose keys the sample keeps.
    """

    stays: Floats
    dirty: Multiplicities
    records: float


def survival(sample: KeySample, drawn: Drawn) -> Survival:
    """Judge the records of all drawn cells."""
    return _judge(sample, drawn, np.arange(len(drawn.places), dtype=np.int64))


def likely_error(sample: KeySample, drawn: Drawn, found: Survival, chance: random.Random) -> float:
    """Return how far `found.records` may be off, as a part of it: by chance, and as half of the cells would have it."""
    by_chance = 2 / math.sqrt(max(1.0, found.records))
    clean, dirty = np.arange(drawn.clean), np.arange(drawn.clean, len(drawn.places))
    if min(drawn.clean_share, drawn.dirty_share) >= 1:
        return by_chance if sample.part < 1 else 0.0
    # A section that was read whole is known.
    kept = [
        sorted(chance.sample(cells.tolist(), max(1, len(cells) // 2))) if share < 1 and len(cells) else cells.tolist()
        for cells, share in ((clean, drawn.clean_share), (dirty, drawn.dirty_share))
    ]
    half = _judge(sample, drawn, np.array([*kept[0], *kept[1]], np.int64))
    return by_chance + abs(half.records - found.records) / max(1.0, found.records)


def _judge(sample: KeySample, drawn: Drawn, cells: Counts) -> Survival:
    clean, dirty = cells[cells < drawn.clean], cells[cells >= drawn.clean]
    rows = sample.first_rows()
    stays = np.zeros(int(rows[-1]))
    met = sample.met(dirty)
    keys = Multiplicities.fit(met.cells, max(1, len(dirty)), max(1, drawn.dirty_cells))
    of_cell = np.searchsorted(rows, met.last_record, side="right") - 1
    places = (drawn.places[of_cell] - drawn.dirty_place) / max(1e-9, 1 - drawn.dirty_place)
    stays[met.last_record] = keys.chance_of_last(met.cells, np.clip(places, 0, 1))
    records = keys.total
    if len(clean):
        digests, row = sample.records_of(clean)
        again = met.times(digests)
        part, unmet_chance = Multiplicities.part_unmet(again, max(1, len(dirty)), max(1, drawn.dirty_cells))
        stays[row] = np.where(again == 0, unmet_chance, 0.0)
        records += part * len(digests) * drawn.clean_cells / len(clean)
    return Survival(stays, keys, records)
