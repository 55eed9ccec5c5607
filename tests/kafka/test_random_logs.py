"""Random logs, cleaned by Kafka and by us, with new seeds; `make random-logs` is the long form."""

from __future__ import annotations

import os
import time

import pytest

from tests.kafka.random_logs import run
from tests.kafka.rig import Rig

pytestmark = pytest.mark.kafka


def fresh_seed() -> int:
    """Return `$RANDOM_LOGS_SEED`, or a seed of this second."""
    return int(os.environ.get("RANDOM_LOGS_SEED") or time.time())


@pytest.mark.parametrize(
    ("count", "codecs", "legacy_share"),
    [
        pytest.param(30, "none", 0.0, id="uncompressed"),
        pytest.param(40, "none,gzip,snappy,lz4,zstd", 0.15, id="all-codecs-and-legacy"),
    ],
)
def test_random_log_is_left_as_kafkas_cleaner_leaves_it(
    kafka: Rig, count: int, codecs: str, legacy_share: float
) -> None:
    """Every round leaves Kafka's bytes, or where data is compressed again Kafka's batches and records."""
    seed = fresh_seed()
    print(f"RANDOM_LOGS_SEED={seed}")
    outcomes, differences = run(kafka, count, seed, codecs, legacy_share)
    assert differences == [], f"RANDOM_LOGS_SEED={seed}: {outcomes}"
    assert outcomes.total() >= count
