"""The engine and the slow twin make the same files of the same log, round after round."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.logs import Case, cases
from tests.property.rounds import run_rounds
from tests.scratch import scratch_directory


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_engine_on_random_logs_leaves_the_twins_files(case: Case) -> None:
    """Three rounds: every file, time and counter as the twin has it; both give up in the same place or neither."""
    with scratch_directory() as directory:
        for number, outcome in enumerate(run_rounds(case, directory), 1):
            assert outcome.found == [], f"round {number}"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_engine_that_keeps_tombstones_leaves_the_twins_files(case: Case) -> None:
    """The same, where tombstones and markers get their horizons and stay when these have passed (D-13)."""
    with scratch_directory() as directory:
        for number, outcome in enumerate(run_rounds(case, directory, keep_tombstones=True), 1):
            assert outcome.found == [], f"round {number}"
            assert outcome.report is None or (outcome.report.removed.tombstones, outcome.report.removed.markers) == (
                0,
                0,
            )


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), st.integers(0, 100))
def test_engine_that_holds_tombstones_leaves_the_twins_files(case: Case, percent: int) -> None:
    """The same, where those from a safe offset on stay (D-17); how many, both say."""
    with scratch_directory() as directory:
        for number, outcome in enumerate(run_rounds(case, directory, held_percent=percent), 1):
            assert outcome.found == [], f"round {number}"
            if outcome.report is not None and outcome.report.rounds:
                stats, report = outcome.twin.stats, outcome.report
                assert (report.held_tombstones, report.held_markers) == (stats.held_tombstones, stats.held_markers)
