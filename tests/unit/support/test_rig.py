"""How Kafka's jars are fetched for the tests."""

from __future__ import annotations

import pytest

from tests.kafka.rig import maven_error


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("[ERROR] no such plugin\n[ERROR] \n[ERROR] Re-run Maven with -e\n\x1b[0m\x1b[0m\n", "no such plugin"),
        ("\x1b[1m[ERROR]\x1b[m no network\n[ERROR] advice\n", "no network"),
        ("killed\n", "killed"),
        ("", ""),
    ],
    ids=["advice", "colours", "other", "silent"],
)
def test_error_of_maven_is_its_first_line(output: str, said: str) -> None:
    """The last 600 characters began in the middle of a word, and were mostly advice."""
    assert maven_error(output) == said
