"""
Estimates the number of all keys, including keys that no drawn cell contains.

A key that occurs in `m` cells occurs in `i` of the drawn ones with a binomial probability, however its records are
spread. The numbers of keys that occur in one drawn cell, in two, and so on give the most likely number of keys for each
`m`: nonparametric maximum likelihood of a mixture, found by expectation-maximization (Norris and Pollock,
"Non-parametric MLE for Poisson species abundance models", 1998). docs/plan.md compares it with the estimators of Chao,
Haas and Charikar.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_MAX_DRAWN = 40  # for keys in more drawn cells, that number divided by the share is accurate
_TIMES = np.arange(1, _MAX_DRAWN + 1)[:, None]
_GRID = 80
_STEPS = 600
_PLACES = 64
_SCALINGS = 5

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Occurrences:
    """
    The numbers of cells in which keys occur.

    Attributes:
        share: the part of all cells that was drawn.
        cells: numbers of cells.
        keys: for each, how many keys occur in that many cells.
    """

    share: float
    cells: Counts
    keys: Floats

    @staticmethod
    def estimate(drawn_in: Counts, share: float) -> Occurrences:
        """
        Estimate from a sample; exact if all cells were drawn.

        Args:
            drawn_in: for each sampled key, the number of drawn cells that contain it.
            share: the part of all cells that was drawn.
        """
        if share >= 1 or not len(drawn_in):
            times, keys = np.unique(drawn_in, return_counts=True)
            return Occurrences(1.0, times, keys.astype(np.float64))
        is_hot = drawn_in > _MAX_DRAWN
        seen = np.bincount(drawn_in[~is_hot], minlength=_MAX_DRAWN + 1)[1:]
        occurs = np.unique(np.geomspace(1, 4 * _MAX_DRAWN / share, _GRID).round().astype(np.int64))
        is_drawn = 1 - (1 - share) ** occurs
        chances = _binomial(occurs, share) / is_drawn + 1e-300
        weights = np.ones(len(occurs))
        for _ in range(_STEPS if seen.any() else 0):
            weights *= seen / (chances @ weights) @ chances
        keys, hot_keys = seen.sum() * weights / max(1e-300, weights.sum()) / is_drawn, int(is_hot.sum())
        hot_cells = round(drawn_in[is_hot].sum() / share / max(1, hot_keys))
        return Occurrences(share, np.append(occurs, max(1, hot_cells)), np.append(keys, hot_keys))

    def chances_of_last(self, drawn_in: Counts, place: Floats) -> Floats:
        """
        Return for each key the chance that its last sampled occurrence is its last in the log.

        Args:
            drawn_in: for each key, the number of drawn cells that contain it.
            place: the place of the last of these, from 0 (the log's start) to 1 (its end).
        """
        if self.share >= 1:
            return np.ones(len(drawn_in))
        # The number of cells that contain the key, given `drawn_in`; all its cells that were not drawn must be earlier.
        likely = self.keys * _binomial(self.cells, self.share)
        likely /= np.maximum(likely.sum(axis=1, keepdims=True), 1e-300)
        not_drawn = np.maximum(self.cells - _TIMES, 0)
        places = (np.arange(_PLACES) + 0.5) / _PLACES
        table = np.stack([(likely * each**not_drawn).sum(axis=1) for each in places])
        chances: Floats = table[
            np.minimum((place * _PLACES).astype(np.int64), _PLACES - 1), np.minimum(drawn_in, _MAX_DRAWN) - 1
        ]
        for _ in range(_SCALINGS):  # scale the sum to the number of keys whose last cell was drawn
            chances = np.minimum(1, chances * (self.share * self.total / max(1e-300, chances.sum())))
        return chances

    @property
    def total(self) -> float:
        """The number of all keys, sampled or not."""
        return float(self.keys.sum())

    def part_with(self, keys: float) -> float:
        """Return the largest part of the cells with at most `keys` keys, if keys were spread evenly."""
        parts = np.geomspace(1e-6, 1, 500)
        within = (self.keys * (1 - (1 - parts[:, None]) ** self.cells)).sum(axis=1)
        return float(np.interp(keys, within, parts))


def _binomial(occurs: Counts, share: float) -> Floats:
    """Return the chance that a key in `occurs` cells (row) is in `_TIMES` drawn ones (column)."""
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, occurs.max() + 1)))])
    not_drawn = occurs - _TIMES
    ways = (
        log_factorials[occurs] - log_factorials[np.minimum(_TIMES, occurs)] - log_factorials[np.maximum(not_drawn, 0)]
    )
    chances: Floats = np.exp(ways + _TIMES * np.log(share) + not_drawn * np.log1p(-share)) * (not_drawn >= 0)
    return chances
