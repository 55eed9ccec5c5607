"""Which Kafka's rules apply, and which rules those are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cleaner
from cleaner.config.process_settings import KAFKA_VERSION_NAMES
from cleaner.errors import ConfigError
from cleaner.policy.kafka_version import KAFKA_VERSIONS, choose_version

OLD, NEW = KAFKA_VERSIONS


def test_setting_names_are_those_of_the_table() -> None:
    """Each version of the table can be chosen, and no other; the rows ascend."""
    assert [each.name for each in KAFKA_VERSIONS] == list(KAFKA_VERSION_NAMES)
    levels = [(each.first_level, each.last_level) for each in KAFKA_VERSIONS]
    assert levels == sorted(levels)
    assert all(each.release.startswith(f"{each.name}.") for each in KAFKA_VERSIONS)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (None, "4.3"),
        (-1, "4.3"),
        (7, "4.3"),
        (30, "4.3"),
        (31, "4.3"),
        (32, "4.4"),
        (33, "4.4"),
        (34, "4.4"),
        (99, "4.4"),
    ],
)
def test_auto_goes_by_the_metadata_level(level: int | None, expected: str) -> None:
    """Levels 32 and 33 are those that 4.4 alone can finalize; without a level the rules are those of 4.3."""
    found = choose_version("auto", "default", level)
    assert found.version.name == expected
    assert "auto" in found.origin
    assert level is None or str(level) in found.origin


def test_auto_says_that_an_upgraded_broker_may_look_old() -> None:
    """The level is raised by hand after an upgrade, so an old level does not rule out a new broker."""
    assert "4.4" in choose_version("auto", "default", 30).origin


def test_auto_warns_of_a_level_that_no_row_knows() -> None:
    """A level above the newest row's gets the newest rules, and a warning; a known one gets none."""
    warning = choose_version("auto", "default", 34).warning
    assert "34" in warning
    assert NEW.differs in warning
    assert choose_version("auto", "default", 33).warning == ""


def test_a_named_version_wins_over_the_metadata() -> None:
    """What the operator says counts, with its source."""
    found = choose_version("4.3", "--set", 33)
    assert (found.version, found.origin, found.warning) == (OLD, "--set", "")


def test_an_unknown_version_is_refused_by_name() -> None:
    """The error lists what can be chosen."""
    with pytest.raises(ConfigError, match=r"auto, 4\.3, 4\.4"):
        choose_version("4.5", "--set", None)


@pytest.mark.parametrize(("high_watermark", "stays"), [(100, True), (101, False), (500, False)])
def test_range_end_stays_empty_in_4_4_only_at_the_high_watermark(high_watermark: int, stays: bool) -> None:
    """R-541 (b): 4.3 keeps the batch that ends the range wherever the watermark is, 4.4 only where both are one."""
    assert OLD.kept_end_offset(100, high_watermark) == 100
    assert (NEW.kept_end_offset(100, high_watermark) == 100) is stays


def test_no_other_code_asks_for_a_release_by_name() -> None:
    """A rule that depends on the release is a column of the table: nothing else compares a version's name."""
    package = Path(cleaner.__file__).parent
    naming = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"""["']4\.[34](\.[01])?["']""", path.read_text())
    }
    assert naming == {"policy/kafka_version.py", "config/process_settings.py"}
