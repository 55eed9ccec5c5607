"""Sizes: one notation for everything that reads or writes them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import cleaner
from cleaner.base.sizes import counted, human_bytes, human_rate, parse_size, slow_rate
from cleaner.config.forms import parse_log_dir_rates
from cleaner.config.table import BROKER_SETTINGS, TOPIC_SETTINGS
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.errors import ConfigError
from cleaner.spark.source.options import read_options

_MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0), ("17", 17), ("17 B", 17), ("10k", 10 << 10), ("3M", 3 * _MIB), ("2g", 2 << 30), ("1T", 1 << 40),
        ("128 MiB", 128 * _MIB), ("128MB", 128 * _MIB), (" 1.5G ", 3 << 29), ("0.1K", 102), ("1P", 1 << 50),
    ],
)  # fmt: skip
def test_size_is_read_with_and_without_a_unit(text: str, count: int) -> None:
    """Powers of 1024, either case, as typed and as shown."""
    assert parse_size(text) == count


@pytest.mark.parametrize(
    "text", ["", "k", "-1", "1.5", "1.5B", "1x", "1KK", "1e3", "٣", "1 \nK", "9223372036854775808"]
)
def test_text_that_is_no_size_is_refused_with_an_example(text: str) -> None:
    """Also digits of other scripts, fractions of a byte, and more than any file has."""
    with pytest.raises(ValueError, match=r"128M|at most"):
        parse_size(text)


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (_MIB - 1, "1.0 MiB"), (1_288_490_189, "1.2 GiB"),
        (5 << 50, "5.0 PiB"), (1 << 70, "1024.0 EiB"), (-2048, "-2.0 KiB"), (None, "unknown"), (999.6, "1000 B"),
    ],
)  # fmt: skip
def test_size_is_written_in_powers_of_1024(count: float | None, words: str) -> None:
    """One decimal, and never 1024 of a unit that has a larger one."""
    assert human_bytes(count) == words


@pytest.mark.parametrize("count", [0, 17, 1 << 10, 50 * _MIB, 3 << 30, 7 << 40])
def test_size_that_is_shown_can_be_typed(count: int) -> None:
    """What the reader takes is what the writer writes."""
    assert parse_size(human_bytes(count)) == count


def test_rate_below_a_mebibyte_draws_a_warning() -> None:
    """The warning says what the value means; usual rates, and no rate, draw none."""
    assert "249 days" in slow_rate(50) and "50M means" in slow_rate(50)
    assert "B/s is below" in slow_rate(_MIB - 1)
    assert [slow_rate(rate) for rate in (_MIB, 1e300, None)] == ["", "", ""]
    assert (human_rate(50 * _MIB), human_rate(None)) == ("50.0 MiB/s", "unlimited")


def test_every_setting_in_bytes_takes_a_size() -> None:
    """For all settings by name: one that is added later must be among them."""
    settings = BROKER_SETTINGS | TOPIC_SETTINGS
    named = {key for key in settings if re.search(r"bytes|\.size$|memory$", key)}
    assert named == {key for key, setting in settings.items() if setting.in_bytes}
    for key in named:
        if settings[key].kind != "list":
            assert float(str(settings[key].parse("64M"))) == 64 * _MIB, key
            with pytest.raises(ConfigError, match="128M"):
                settings[key].parse("64X")
    assert parse_log_dir_rates(("/data=1.5G", "/other=1e6")) == (("/data", 1.5 * (1 << 30)), ("/other", 1e6))


def test_setting_not_in_bytes_takes_no_size() -> None:
    """A time of 1K would be an error."""
    with pytest.raises(ConfigError, match="whole number"):
        TOPIC_SETTINGS["retention.ms"].parse("1K")


def test_settings_with_a_slow_rate_draw_a_warning() -> None:
    """For all workers and for single log dirs; an invalid rate draws an error instead."""
    slow = {
        "log.cleaner.io.max.bytes.per.second": "50",
        "cleaner.log.dir.io.max.bytes.per.second": "/data=5K,/other=5M",
    }
    warnings = CleanerConfig.from_mapping(slow).warnings
    assert ["50 B/s" in warnings[0], "/data=5120: 5.0 KiB/s" in warnings[1], len(warnings)] == [True, True, 2]
    assert CleanerConfig.from_mapping({"log.cleaner.io.max.bytes.per.second": "50M"}).warnings == ()


def test_spark_options_and_topics_use_the_same_notation() -> None:
    """Two parsers would be two notations."""
    assert read_options({"path": "/data", "maxPartitionBytes": "1.5 GiB"}).task_bytes == 3 << 29
    assert TopicConfig.from_mapping({"segment.bytes": "512 MiB", "retention.bytes": "-1"}).segment_bytes == 512 * _MIB


def test_units_are_written_in_one_place() -> None:
    """No other source has a string with a unit of bytes: code that formats sizes itself would differ."""
    root = Path(cleaner.__file__).parent
    found = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in sorted(root.rglob("*.py"))
        if path.name != "sizes.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"\s?([kKMGTPE]i?B)(/s)?", node.value)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("number", "form", "text"),
    [(0, "d", "0 logs"), (1, "d", "1 log"), (2000, "d", "2000 logs"), (2000, ",", "2,000 logs")],
)
def test_counted_has_no_s_for_one(number: int, form: str, text: str) -> None:
    """`check` of one partition said `1 partitions, 1 segments`."""
    assert counted(number, "log", form) == text
