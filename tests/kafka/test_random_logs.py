"""Random logs, cleaned by Kafka and by us, with the seeds of this commit; `make random-logs` is the long form."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.kafka.random_logs import run
from tests.kafka.rig import Rig

pytestmark = pytest.mark.kafka


def fresh_seed() -> int:
    """
    Return `$RANDOM_LOGS_SEED`, or a seed by the files of the commit: each has another one, and every run of it the
    same. Outside of a repository it is a seed of this second.
    """
    given = os.environ.get("RANDOM_LOGS_SEED")
    if given:
        return int(given)
    command = ["git", "-c", "safe.directory=*", "rev-parse", "HEAD^{tree}"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return int(time.time())
    return int(done.stdout[:7], 16)


@pytest.mark.parametrize(
    ("count", "codecs", "legacy_share"),
    [
        pytest.param(15, "none", 0.0, id="uncompressed"),
        pytest.param(25, "none,gzip,snappy,lz4,zstd", 0.15, id="all-codecs-and-legacy"),
    ],
)
def test_random_log_is_left_as_kafkas_cleaner_leaves_it(
    each_kafka: Rig, count: int, codecs: str, legacy_share: float
) -> None:
    """Every round leaves Kafka's bytes, or where data is compressed again Kafka's batches and records."""
    seed = fresh_seed()
    print(f"RANDOM_LOGS_SEED={seed}")
    outcomes, differences = run(each_kafka, count, seed, codecs, legacy_share)
    assert differences == [], f"RANDOM_LOGS_SEED={seed}: {outcomes}"
    assert outcomes.total() >= count
