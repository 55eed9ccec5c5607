"""Which logs of a daemon Spark cleans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.config.values import CleanerConfig
from cleaner.policy.cleanable import Cleanable
from cleaner.spark.clean.large_logs import LargeLogs

FOUND = Cleanable(0, 10, 600, 400, 0, False, "active segment")
CONFIG = CleanerConfig(bulk_min_bytes=1000)


@pytest.mark.parametrize(
    ("config", "missing", "is_spark", "words"),
    [
        pytest.param(CONFIG, "", True, "with Spark", id="as-large-as-it-must-be"),
        pytest.param(replace(CONFIG, bulk_min_bytes=1001), "", False, "", id="smaller"),
        pytest.param(
            replace(CONFIG, bulk_enable=False), "", False, "without Spark: cleaner.bulk.enable is false", id="disabled"
        ),
        pytest.param(CONFIG, "there is no java", False, "without Spark: there is no java", id="no-java"),
    ],
)
def test_choice_is_by_size_settings_and_installed_packages(
    config: CleanerConfig, missing: str, is_spark: bool, words: str
) -> None:
    """Clean and cleanable section together; for a log that is large enough the reason is given."""
    clean_round, note = LargeLogs(lambda: missing).choose(FOUND, config)
    assert (clean_round is not None, note) == (is_spark, words)
