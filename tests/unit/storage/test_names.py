"""Names of directories and files, both ways: R-102 to R-105, R-120 to R-122, R-642."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.base.model import TopicPartition
from cleaner.storage.segment import names
from cleaner.storage.segment.names import DirKind, LogFile, PartitionDir

UNIQUE = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("name", "topic", "partition", "kind"),
    [
        pytest.param("orders-0", "orders", 0, DirKind.CURRENT, id="plain"),
        pytest.param("a-b.c_d-17", "a-b.c_d", 17, DirKind.CURRENT, id="dashes-and-dots-in-topic"),
        pytest.param("orders-delete-3", "orders-delete", 3, DirKind.CURRENT, id="topic-ends-like-a-suffix"),
        pytest.param("orders--1", "orders-", 1, DirKind.CURRENT, id="topic-ends-with-dash"),
        pytest.param(f"orders-2.{UNIQUE}-delete", "orders", 2, DirKind.DELETE, id="deleted"),
        pytest.param(f"orders-2.{UNIQUE}-stray", "orders", 2, DirKind.STRAY, id="stray"),
        pytest.param(f"or.ders-2.{UNIQUE}-future", "or.ders", 2, DirKind.FUTURE, id="future-topic-with-dot"),
    ],
)
def test_partition_dir_name_is_read_and_written_alike(name: str, topic: str, partition: int, kind: DirKind) -> None:
    """R-103, R-104: split at the last dash; a suffix and its unique part begin at the last dot."""
    topic_partition = TopicPartition(topic, partition)
    assert names.parse_partition_dir(name) == PartitionDir(topic_partition, kind)
    assert names.partition_dir_name(topic_partition, kind, UNIQUE) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "lost+found",
        "orders",
        "-0",
        "orders-",
        "orders-x",
        "orders-2147483648",
        "orders-0-delete",
        "orders-0.abc-",
        "or ders-0.abc-stray",
        "ord\x1bers-0",
        "../orders-0",
    ],
)
def test_partition_dir_name_not_of_a_partition_is_refused(name: str) -> None:
    """R-102, R-104: a broker does not start with such a directory, or it cannot be a topic's."""
    with pytest.raises(ValueError, match=r"is not a topic|no unique part"):
        names.parse_partition_dir(name)


@pytest.mark.parametrize(
    ("kind", "length"),
    [(DirKind.DELETE, 255), (DirKind.STRAY, 255), (DirKind.FUTURE, 249 + len(f"-12.{UNIQUE}-future"))],
    ids=["delete-is-cut", "stray-is-cut", "future-is-not"],
)
def test_partition_dir_name_of_long_topic_is_cut_as_kafka_does(kind: DirKind, length: int) -> None:
    """R-103: names of deleted and stray directories fit into 255 characters, at the topic's expense."""
    name = names.partition_dir_name(TopicPartition("t" * 249, 12), kind, UNIQUE)
    assert len(name) == length
    assert names.parse_partition_dir(name).kind is kind


def test_partition_dir_name_without_unique_part_is_refused() -> None:
    """A renamed directory needs 32 hex digits; otherwise it could not be parsed again."""
    with pytest.raises(ValueError, match="32 hex digits"):
        names.partition_dir_name(TopicPartition("orders", 0), DirKind.STRAY, "1234")


@given(st.integers(0, 2**63 - 1), st.sampled_from([*names.SEGMENT_SUFFIXES, names.SNAPSHOT]), st.data())
def test_file_name_is_read_as_it_was_written(offset: int, suffix: str, data: st.DataObject) -> None:
    """R-120, R-122: 20 digits, the kind of file, at most one temporary suffix."""
    temporary = data.draw(st.sampled_from(["", *names.TEMPORARY_SUFFIXES]))
    name = names.segment_file_name(offset, suffix, temporary)
    found = names.parse_file_name(name)
    assert found == LogFile(offset, suffix, temporary)
    assert found is not None
    assert (found.name, names.offset_of(name), len(name)) == (name, offset, 20 + len(suffix) + len(temporary))


@pytest.mark.parametrize(
    "name",
    [
        "leader-epoch-checkpoint",
        "partition.metadata",
        "notes.log",
        "12.log",
        "00000000000000000012",
        "00000000000000000012.log.cleaned.swap",
        "00000000000000000012.log.bak",
        "-0000000000000000012.log",
        "99999999999999999999.log",
        "\u0661" * 20 + ".log",
        ".swap",
    ],
)
def test_file_name_kafka_would_not_write_is_foreign(name: str) -> None:
    """R-642: other names are foreign; they are left alone."""
    assert names.parse_file_name(name) is None


@pytest.mark.parametrize(
    ("name", "offset"),
    [("00000000000000000012.snapshot", 12), ("12.log.swap", 12), ("+7.index", 7), ("-1.log", -1)],
)
def test_offset_of_name_is_number_before_first_dot(name: str, offset: int) -> None:
    """R-121: everything that Java's parseLong accepts."""
    assert names.offset_of(name) == offset


@pytest.mark.parametrize("name", ["notes.log", ".swap", "12", "", "1_2.log", "9223372036854775808.log", " 1.log"])
def test_offset_of_name_without_number_is_refused(name: str) -> None:
    """R-121, R-630: Kafka cannot load a log with such a `.cleaned` or `.swap`."""
    with pytest.raises(ValueError, match="does not begin with an offset"):
        names.offset_of(name)


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_offset_prefix_of_no_offset_is_refused(offset: int) -> None:
    """No file is ever named after a number that is not an offset."""
    with pytest.raises(ValueError, match="is not an offset"):
        names.offset_prefix(offset)


def test_snapshot_name_is_20_digits_and_suffix() -> None:
    """R-120, R-125."""
    assert names.snapshot_file_name(42) == "00000000000000000042.snapshot"
