"""States that a stop in the middle of a swap can leave, settled by Kafka's loader and by ours."""

from __future__ import annotations

import random

import pytest

from tests.kafka.left_overs import BOTH_REFUSED, REFUSED, SAME, State, run, state_by_lot, states_without_an_index
from tests.kafka.rig import Rig
from tests.kafka.test_random_logs import fresh_seed

pytestmark = pytest.mark.kafka


def unlike(kafka: Rig, states: list[State]) -> list[str]:
    """Settle states; returns those that came out differently. What we refuse for a damaged index Kafka trusts."""
    outcomes = run(kafka, states)
    return [f"{state}: {found}" for state, found in outcomes if found.kind not in (SAME, BOTH_REFUSED, REFUSED)]


def test_new_segment_without_its_index_is_settled_as_by_kafka(kafka: Rig) -> None:
    """R-310, R-631: whatever transactions there are, no producer snapshot is lost with the index."""
    states = list(states_without_an_index())
    outcomes = list(run(kafka, states))
    assert [(state, found) for state, found in outcomes if found.kind != SAME] == []


def test_left_overs_by_lot_are_settled_as_by_kafka(kafka: Rig) -> None:
    """R-630 to R-642: every file is Kafka's, with a marker or without, and so is what is cleaned afterwards."""
    seed = fresh_seed()
    print(f"RANDOM_LOGS_SEED={seed}")
    lot = random.Random(seed)
    assert unlike(kafka, [state_by_lot(lot) for _ in range(60)]) == []
