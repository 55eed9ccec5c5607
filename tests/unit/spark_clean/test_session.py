"""The settings of our Spark sessions, and those left to Spark."""

from __future__ import annotations

import sys

import pytest

from cleaner.spark.clean.session import spark_settings


def test_default_spark_settings_stay_on_this_machine() -> None:
    """Only the loopback interface is used, no page is served, and every connection needs the secret."""
    found = spark_settings({})

    assert found["spark.master"] == "local[*]"
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"
    assert found["spark.ui.enabled"] == "false"
    assert found["spark.authenticate"] == "true"
    assert found["spark.pyspark.python"] == sys.executable


@pytest.mark.parametrize("key", ["spark.ui.enabled", "spark.driver.memory", "spark.driver.host", "spark.kubernetes.x"])
def test_spark_settings_given_win(key: str) -> None:
    """Every key passes through as it is."""
    assert spark_settings({key: "theirs"})[key] == "theirs"


@pytest.mark.parametrize(
    ("master", "stays", "makes_secrets"),
    [
        ("local[2]", True, True),
        ("local[2,4]", True, True),
        ("spark://127.0.0.1:7077", True, False),
        ("spark://localhost:7077", True, False),
        ("spark://cluster.example:7077", False, False),
        ("yarn", False, True),
        ("k8s://https://cluster.example:6443", False, True),
    ],
)
def test_spark_settings_of_a_cluster_leave_its_network_to_it(master: str, stays: bool, makes_secrets: bool) -> None:
    """Executors elsewhere must reach the driver; a standalone cluster's secret is not ours to make."""
    found = spark_settings({"spark.master": master})

    assert ("spark.driver.host" in found) == stays
    assert ("spark.authenticate" in found) == makes_secrets
