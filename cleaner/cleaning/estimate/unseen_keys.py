"""
How many distinct keys a log has, from some of its parts.

The log is cut into cells, and some of them, drawn at random, are looked at. A key that occurs in `m` cells is met in
`i` of the drawn ones with the probability of `i` successes in `m` trials; this holds however its records are spread and
however many lie in one cell. From how many keys were met once, twice, and so on, the most likely number of keys for
each `m` follows (nonparametric maximum likelihood, found by expectation-maximization), and with it the number of those
that were not met at all.

No estimator can be right for all logs: two of them may differ in keys that hardly any sample meets. So the same is done
with half of the cells too. Where both agree more cells would hardly change it; their difference is the error stated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_MOST_MET = 40  # keys met more often are as good as certain to be known
_GRID = 80
_STEPS = 600
_BINS = 64

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Multiplicities:
    """
    In how many cells keys occur.

    Attributes:
        share: the part of all cells that was drawn.
        occurs: numbers of cells, ascending.
        keys: for each how many keys occur in so many, estimated.
        hot_keys: keys met so often that they are simply counted.
    """

    share: float
    occurs: Floats
    keys: Floats
    hot_keys: int

    @staticmethod
    def fit(met: Counts, drawn: int, cells: int) -> Multiplicities:
        """
        Estimate from a sample.

        Args:
            met: for each key that was met, in how many of the drawn cells.
            drawn, cells: how many were drawn, of how many.
        """
        share = drawn / cells
        hot_keys = int((met > _MOST_MET).sum())
        seen = np.bincount(met[met <= _MOST_MET], minlength=_MOST_MET + 1)[1:].astype(np.float64)
        if share >= 1 or not seen.sum():
            occurs = np.arange(1.0, _MOST_MET + 1)
            return Multiplicities(1.0 if share >= 1 else share, occurs, seen, hot_keys)
        occurs = _grid(share, cells)
        chances = _binomial(np.arange(_MOST_MET + 1.0)[:, None], occurs[None, :], share)
        is_met = 1 - chances[0]
        weights = _most_likely(chances[1:] / is_met, seen)
        return Multiplicities(share, occurs, seen.sum() * weights / is_met, hot_keys)

    @staticmethod
    def part_unmet(met: Counts, drawn: int, cells: int) -> tuple[float, float]:
        """
        Estimate which part of some given keys occurs in no cell at all.

        Args:
            met: for each of the keys in how many of the drawn cells; 0 for many.
            drawn, cells: how many were drawn, of how many.
        Returns:
            That part, and the chance that a key that was not met is one of them.
        """
        share = drawn / cells
        seen = np.bincount(np.minimum(met, _MOST_MET), minlength=_MOST_MET + 1).astype(np.float64)
        if share >= 1 or not seen.sum():
            return float(seen[0] / max(1.0, seen.sum())), 1.0
        occurs = np.concatenate([[0.0], _grid(share, cells)])
        chances = _binomial(np.arange(_MOST_MET + 1.0)[:, None], occurs[None, :], share)
        weights = _most_likely(chances, seen)
        return float(weights[0]), float(weights[0] / max(1e-300, (chances[0] * weights).sum()))

    @property
    def total(self) -> float:
        """All keys, met or not."""
        return float(self.keys.sum()) + self.hot_keys

    def within(self, part: float) -> float:
        """Return how many keys occur in a part of the cells: the first ones, were keys spread evenly."""
        return float((self.keys * (1 - (1 - part) ** self.occurs)).sum()) + self.hot_keys

    def part_with(self, keys: float) -> float:
        """Return the largest part of the cells with at most so many keys."""
        if self.total <= keys:
            return 1.0
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self.within(middle) <= keys else (low, middle)
        return low

    def chance_of_last(self, met: Counts, place: Floats) -> Floats:
        """
        Return the chances that the last occurrence met of a key is the last there is.

        Args:
            met: for each key, in how many drawn cells it was met.
            place: where the last of these lies, 0 the log's begin and 1 its end.
        """
        if self.share >= 1:
            return np.ones(len(met))
        # Given how often it was met, in how many cells it occurs; then all that was not drawn has to lie before.
        rows = np.arange(1.0, _MOST_MET + 1)[:, None]
        posterior = self.keys * _binomial(rows, self.occurs[None, :], self.share)
        posterior /= np.maximum(posterior.sum(axis=1, keepdims=True), 1e-300)
        unmet = np.maximum(self.occurs[None, :] - rows, 0)
        bins = np.minimum((place * _BINS).astype(np.int64), _BINS - 1)
        centres = (np.arange(_BINS) + 0.5) / _BINS
        table = np.stack([(posterior * centre**unmet).sum(axis=1) for centre in centres], axis=1)
        chances: Floats = table[np.minimum(met, _MOST_MET) - 1, bins]
        wanted = self.share * self.total
        for _ in range(5):  # on the whole as many as there are keys whose last cell was drawn
            chances = np.minimum(1.0, chances * (wanted / max(chances.sum(), 1e-300)))
        return chances


def _grid(share: float, cells: int) -> Floats:
    """Return numbers of cells that keys may occur in, close together where they matter."""
    most = min(cells, math.ceil(4 * _MOST_MET / share))
    return np.unique(np.round(np.geomspace(1, most, _GRID)))


def _most_likely(chances: Floats, seen: Floats) -> Floats:
    """Return the weights of the columns that make it most likely to see each row so often."""
    part = seen / seen.sum()
    weights = np.full(chances.shape[1], 1 / chances.shape[1])
    for _ in range(_STEPS):
        weights *= chances.T @ (part / np.maximum(chances @ weights, 1e-300))
        weights /= weights.sum()
    return weights


def _binomial(successes: Floats, trials: Floats, chance: float) -> Floats:
    """Return probabilities; none where there are more successes than trials."""
    successes, trials = np.broadcast_arrays(successes, trials)
    found = np.zeros(successes.shape)
    possible = successes <= trials
    i, m = successes[possible], trials[possible]
    ways = _log_factorial(m) - _log_factorial(i) - _log_factorial(m - i)
    found[possible] = np.exp(ways + i * math.log(chance) + (m - i) * math.log1p(-chance))
    return found


def _log_factorial(numbers: Floats) -> Floats:
    return np.array([math.lgamma(number + 1) for number in numbers.tolist()])
