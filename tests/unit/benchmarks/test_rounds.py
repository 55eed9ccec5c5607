"""What is made of the runs on one input."""

from __future__ import annotations

import pytest

from benchmarks.cleaners import Round, RoundFailed
from benchmarks.guard import best_ratio, guarded
from benchmarks.inputs import INPUTS, W1, W2
from benchmarks.rounds import COPY, KAFKA, ONE_THREAD, OURS, Measured, tables
from benchmarks.tables import Bounds


def run_of(seconds: float, written: int = 10) -> Round:
    """A run that took so long."""
    return Round(seconds, seconds / 2, seconds / 3, 40, written)


def measured(kafka: list[float], ours: list[float]) -> Measured:
    """Runs on W1."""
    found = Measured(W1, 500_000_000)
    for seconds in kafka:
        found.add(KAFKA, run_of(seconds))
    for seconds in ours:
        found.add(OURS, run_of(seconds))
    return found


def test_ratio_is_that_of_the_medians() -> None:
    """One slow run of either changes nothing."""
    assert measured([5.0, 6.0, 90.0], [0.1, 0.5, 40.0]).ratio(KAFKA, OURS) == 12.0


def test_best_ratio_takes_the_least_of_both() -> None:
    """The guard compares the runs that were disturbed least."""
    assert best_ratio(measured([8.0, 6.0], [9.0, 2.0])) == 3.0


def test_guarded_asks_a_third_and_aims_at_nothing() -> None:
    """Only what is below a third of "must" fails, or slower than Kafka."""
    assert (guarded(Bounds(6, 12)), guarded(Bounds(2.8))) == (Bounds(2), Bounds(1))


def test_add_run_that_kept_other_records_fails() -> None:
    """A cleaner that keeps other records than Kafka has done other work; its time means nothing."""
    found = measured([5.0], [])
    with pytest.raises(RoundFailed, match="W1: ours"):
        found.add(OURS, run_of(0.5, written=11))


def test_tables_hold_each_input_to_its_bounds() -> None:
    """W1 stands in all three tables: all threads, one thread, plain copying."""
    found = measured([6.0], [0.4])
    found.add(ONE_THREAD, run_of(1.5))
    found.copies.append(0.2)
    rows = [line for line in tables([found]).splitlines() if line.startswith("| W1")]
    assert [[cell.strip() for cell in row.split("|")[4:-1]] for row in rows] == [
        ["0.40", "15.00 x", "10 x", "14 x", "aim met"],
        ["1.50", "4.00 x", "7.5 x", "9 x", "MISSED"],
        ["0.20", "2.00 x", "0.75 x", "0.55 x", "MISSED"],
    ]
    assert found.seconds(COPY) == [0.2]


def test_inputs_that_are_scaled_are_called_so() -> None:
    """A small log is not taken for the whole one."""
    assert [W2.title, W2.scaled(0.2).title, INPUTS[2].scaled(0.4).title] == ["W2", "W2 x 0.2", "W1, lz4 x 0.1"]
