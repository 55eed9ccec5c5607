"""KRaft records: the image they add up to, and damage as an error."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.format.metadata import MetadataImage, read_batch
from cleaner.kernels.checksums import crc32c
from tests.support.metadata_builder import (
    ABORT,
    BEGIN,
    BROKER,
    END,
    NO_OP,
    TOPIC,
    batch,
    config_record,
    feature_record,
    partition_change_record,
    partition_record,
    record,
    remove_topic_record,
    topic_record,
)

ONE, TWO = UUID(int=1), UUID(int=2)
COMPACT = config_record(TOPIC, "t", "cleanup.policy", "compact")


def _image(*values: bytes) -> MetadataImage:
    image = MetadataImage()
    for value in values:
        image.apply(value)
    return image


def test_image_of_topic_and_settings_holds_them_by_name() -> None:
    """Settings of topics and of brokers are kept apart; other records and resources are skipped."""
    other = config_record(16, "group", "x", "1")
    broker = config_record(BROKER, "", "log.cleaner.threads", "2")
    image = _image(NO_OP, topic_record("t", ONE), COMPACT, broker, other)
    assert image.topic_ids == {"t": ONE}
    assert image.topic_configs == {"t": {"cleanup.policy": "compact"}}
    assert image.broker_configs == {"": {"log.cleaner.threads": "2"}}


def test_image_of_setting_set_to_null_loses_it() -> None:
    """A null value removes a setting; otherwise the last value counts."""
    image = _image(COMPACT, config_record(TOPIC, "t", "a", "1"), config_record(TOPIC, "t", "a", "2"))
    assert image.topic_configs["t"] == {"cleanup.policy": "compact", "a": "2"}
    image.apply(config_record(TOPIC, "t", "cleanup.policy", None))
    assert image.topic_configs["t"] == {"a": "2"}


def test_image_holds_the_last_level_of_each_feature() -> None:
    """A later record of a feature wins; one of a version that is not known here is no reason to refuse the settings."""
    levels = feature_record("metadata.version", 30), feature_record("group.version", 1)
    image = _image(*levels, feature_record("metadata.version", 33))
    assert image.feature_levels == {"metadata.version": 33, "group.version": 1}
    assert _image(feature_record("metadata.version", 33, version=1), COMPACT).feature_levels == {}


def test_levels_of_an_aborted_transaction_do_not_count() -> None:
    """A metadata transaction that is aborted, or open at the end, leaves the level as it was."""
    image = _image(feature_record("metadata.version", 30), BEGIN, feature_record("metadata.version", 33), ABORT)
    assert image.feature_levels == {"metadata.version": 30}


def test_image_counts_the_replicas_of_partitions() -> None:
    """The first list counts, then the last change that names replicas; other changes leave it; removal forgets it."""
    image = _image(partition_record(ONE, 0, [1, 2, 3]), partition_record(ONE, 1, [1]), partition_record(TWO, 0, []))
    assert image.replicas == {ONE: {0: 3, 1: 1}, TWO: {0: 0}}
    image.apply(partition_change_record(ONE, 0, None))
    image.apply(partition_change_record(ONE, 1, [4, 5]))
    assert image.replicas[ONE] == {0: 3, 1: 2}
    for value in (BEGIN, partition_change_record(ONE, 0, [9]), ABORT, remove_topic_record(TWO)):
        image.apply(value)
    assert image.replicas == {ONE: {0: 3, 1: 2}}


def test_image_of_removed_topic_forgets_its_settings() -> None:
    """A topic made anew under the name starts without the settings of the old one."""
    image = _image(topic_record("t", ONE), COMPACT, remove_topic_record(ONE), topic_record("t", TWO))
    assert image.topic_ids == {"t": TWO}
    assert image.topic_configs == {}


def test_image_of_aborted_transaction_is_as_before_it() -> None:
    """Records between begin and abort do not count; those between begin and end do."""
    image = _image(topic_record("t", ONE), BEGIN, COMPACT, remove_topic_record(ONE), ABORT)
    assert (image.topic_ids, image.topic_configs) == ({"t": ONE}, {})
    image = _image(topic_record("t", ONE), BEGIN, COMPACT, END, BEGIN, remove_topic_record(ONE))
    image.drop_unfinished_transaction()
    assert (image.topic_ids, image.topic_configs) == ({"t": ONE}, {"t": {"cleanup.policy": "compact"}})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param(record(2, b"", frame_version=2), "frame version 2", id="frame-version"),
        pytest.param(record(4, b"", version=1), "version 1", id="version"),
        pytest.param(topic_record("t", ONE)[:-8], "a field of 16 bytes", id="cut"),
        pytest.param(b"\x01\x02\x00\x00" + ONE.bytes, "null", id="null-name"),
        pytest.param(b"\xff" * 11, "a varint", id="overlong-varint"),
    ],
)
def test_image_of_malformed_record_is_refused(value: bytes, reason: str) -> None:
    """Bytes that are no metadata record of a known version are an error that says why."""
    with pytest.raises(ValueError, match=reason):
        MetadataImage().apply(value)


def test_nested_transaction_is_refused() -> None:
    """A transaction never begins inside another."""
    with pytest.raises(ValueError, match="inside another"):
        _image(BEGIN, BEGIN)


def test_read_batch_returns_offsets_and_values() -> None:
    """A batch gives the values of its records in order; one that is cut off is None."""
    data = memoryview(b"xx" + batch(7, [COMPACT, NO_OP]) + b"rest")
    found = read_batch(data, 2)
    assert found is not None
    assert (found.base_offset, found.last_offset, found.size) == (7, 8, len(data) - 6)
    assert found.values == [COMPACT, NO_OP]
    assert read_batch(data[:-5], 2) is None
    assert read_batch(data, len(data) - 4) is None


def test_read_batch_of_control_records_has_no_values() -> None:
    """Leader changes and snapshot footers carry offsets only."""
    found = read_batch(memoryview(batch(3, [b"\0"], attributes=0x20)), 0)
    assert found is not None
    assert (found.is_control, found.values) == (True, [])


@pytest.mark.parametrize(
    ("position", "byte", "reason"),
    [(8, 0x7F, "bytes"), (16, 1, "magic 1"), (60, 9, "CRC"), (70, 0xFF, "CRC")],
)
def test_read_batch_with_damage_is_refused(position: int, byte: int, reason: str) -> None:
    """Each kind of damage is named."""
    data = bytearray(batch(0, [COMPACT]))
    data[position] = byte
    with pytest.raises(ValueError, match=reason):
        read_batch(memoryview(data), 0)


def test_read_batch_with_compression_is_refused() -> None:
    """Kafka never compresses metadata."""
    with pytest.raises(ValueError, match="compressed"):
        read_batch(memoryview(batch(0, [COMPACT], attributes=4)), 0)


@given(st.binary(max_size=80))
def test_image_of_any_bytes_ends_in_value_error_at_worst(value: bytes) -> None:
    """Hostile bytes never lead to another error."""
    try:
        MetadataImage().apply(value)
    except ValueError as error:
        assert str(error)


@given(
    st.lists(st.binary(max_size=20), min_size=1, max_size=3), st.integers(61, 120), st.binary(min_size=1, max_size=8)
)
def test_read_batch_with_any_records_ends_in_value_error_at_worst(values: list[bytes], start: int, junk: bytes) -> None:
    """Records overwritten under a right checksum never lead to another error than ValueError."""
    data = bytearray(batch(0, values))
    data[start : start + len(junk)] = junk
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    try:
        found = read_batch(memoryview(data), 0)
    except ValueError as error:
        assert str(error)
    else:
        assert found is not None
