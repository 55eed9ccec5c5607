"""Golden archives, and one Spark session for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cleaner.spark.clean.available import why_not_available
from cleaner.spark.clean.session import make_spark
from cleaner.spark.clean.spark_jobs import SessionJobs
from tests.golden.fixtures import unpacked

__all__ = ["unpacked"]

LOCAL = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR"}


@pytest.fixture(scope="session")
def needs_spark() -> None:
    """Skip if Spark is not installed."""
    if reason := why_not_available():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def local_spark(needs_spark: None) -> Iterator[SessionJobs]:
    """Give the jobs of a session in this process, with two tasks at a time."""
    spark = make_spark("tests", LOCAL)
    yield SessionJobs(spark)
    spark.stop()
