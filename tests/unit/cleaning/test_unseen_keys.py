"""Keys that are in no sample are counted, too: uniform, skewed, mostly unique, in bursts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from cleaner.cleaning.estimate.unseen_keys import Occurrences

RECORDS, CELLS = 200_000, 2000
Keys = npt.NDArray[np.int64]


def zipf(exponent: float, keys: int, draw: np.random.Generator) -> Keys:
    weights = 1 / np.arange(1, keys + 1) ** exponent
    return draw.choice(keys, RECORDS, p=weights / weights.sum())


SHAPES: dict[str, Callable[[np.random.Generator], Keys]] = {
    "uniform-ten-each": lambda draw: draw.integers(0, RECORDS // 10, RECORDS),
    "uniform-one-each": lambda draw: draw.integers(0, RECORDS, RECORDS),
    "zipf-1.0": lambda draw: zipf(1.0, RECORDS, draw),
    "zipf-1.2": lambda draw: zipf(1.2, RECORDS, draw),
    "mostly-unique": lambda draw: np.where(
        draw.random(RECORDS) < 0.95, np.arange(RECORDS), draw.integers(0, 1000, RECORDS)
    ),
    "clean-and-dirty": lambda draw: np.concatenate(
        [np.arange(RECORDS * 8 // 10), draw.integers(0, RECORDS * 8 // 10, RECORDS * 2 // 10)]
    ),
    "bursts": lambda _: np.repeat(np.arange(RECORDS // 50), 50),
}


def drawn_cells_of(keys: Keys, drawn: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return for each sampled key the number of drawn cells that contain it."""
    cell = np.arange(RECORDS) * CELLS // RECORDS
    seen = np.isin(cell, drawn)
    pairs = np.unique(np.stack([keys[seen], cell[seen]]), axis=1)
    return np.unique(pairs[0], return_counts=True)[1].astype(np.int64)


@pytest.mark.parametrize("shape", SHAPES)
def test_keys_are_estimated_from_a_tenth_of_the_cells(shape: str) -> None:
    """Within a tenth of the true number, however skewed: a sample may contain only an eighth of them."""
    draw = np.random.default_rng(7)
    keys = SHAPES[shape](draw)
    drawn = draw.choice(CELLS, CELLS // 10, replace=False)
    found = Occurrences.estimate(drawn_cells_of(keys, drawn), len(drawn) / CELLS)
    assert found.total == pytest.approx(len(np.unique(keys)), rel=0.1)


@pytest.mark.parametrize("shape", SHAPES)
def test_all_cells_give_the_exact_number(shape: str) -> None:
    """Nothing is estimated if everything was read."""
    keys = SHAPES[shape](np.random.default_rng(7))
    found = Occurrences.estimate(drawn_cells_of(keys, np.arange(CELLS)), 1.0)
    assert found.total == len(np.unique(keys))
    assert found.chances_of_last(np.array([1, 99]), np.array([0.0, 1.0])).tolist() == [1, 1]


def test_part_of_the_log_with_so_many_keys_is_found() -> None:
    """It ends where a map of that many keys would be full."""
    keys = SHAPES["zipf-1.0"](np.random.default_rng(7))
    found = Occurrences.estimate(drawn_cells_of(keys, np.arange(CELLS)), 1.0)
    part = found.part_with(10_000)
    assert len(np.unique(keys[: int(part * RECORDS)])) == pytest.approx(10_000, rel=0.05)
    assert found.part_with(RECORDS) == 1


def test_chances_of_being_last_rise_with_the_place_and_add_up() -> None:
    """As many as there are keys whose last cell was drawn."""
    draw = np.random.default_rng(7)
    met = drawn_cells_of(SHAPES["uniform-ten-each"](draw), draw.choice(CELLS, CELLS // 10, replace=False))
    found = Occurrences.estimate(met, 0.1)
    places = draw.random(len(met))
    chances = found.chances_of_last(met, places)
    assert chances.sum() == pytest.approx(found.total / 10, rel=0.05)
    assert chances[places > 0.9].mean() > 4 * chances[places < 0.1].mean()
