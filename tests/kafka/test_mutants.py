"""Mutated logs, cleaned by Kafka and by us, with new seeds; `make mutants` is the long form."""

from __future__ import annotations

import pytest

from tests.kafka.mutants import BOTH_REFUSED, SAME, run, why
from tests.kafka.rig import Rig
from tests.kafka.test_random_logs import fresh_seed

pytestmark = pytest.mark.kafka


def test_mutant_is_left_as_by_kafka_or_differs_for_a_known_reason(kafka: Rig) -> None:
    """The same files, or both refuse, or a reason of the list."""
    seed = 1000 * fresh_seed()
    print(f"first seed {seed}")
    outcomes = list(run(kafka, range(seed, seed + 60)))
    assert [each for each in outcomes if each[2].kind not in (SAME, BOTH_REFUSED) and not why(each[2])] == []
    assert sum(outcome.kind == SAME for _, _, outcome in outcomes) > 10
