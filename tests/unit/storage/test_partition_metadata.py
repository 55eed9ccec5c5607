"""`partition.metadata` and Kafka's UUID text: R-124."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.errors import CorruptCheckpointError
from cleaner.storage.files.kafka_uuid import format_uuid, parse_uuid
from cleaner.storage.files.partition_metadata import read_topic_id, write_topic_id
from cleaner.storage.fs.file_system import FileSystem

FS = FileSystem()
FROM_KAFKA = b"version: 0\ntopic_id: YtvD2zgwZDjoVl7HCIonJw"
TOPIC_ID = UUID("62dbc3db-3830-6438-e856-5ec7088a2727")


def test_topic_id_of_kafka_is_read_and_written_alike(tmp_path: Path) -> None:
    """R-124: two lines, no newline at the end."""
    path = tmp_path / "partition.metadata"
    path.write_bytes(FROM_KAFKA)
    assert read_topic_id(FS, path) == TOPIC_ID
    write_topic_id(FS, path, TOPIC_ID)
    assert path.read_bytes() == FROM_KAFKA


def test_topic_id_missing_is_none(tmp_path: Path) -> None:
    """A bare copy may not have it."""
    assert read_topic_id(FS, tmp_path / "partition.metadata") is None


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(FROM_KAFKA + b"\n", id="last-newline"),
        pytest.param(FROM_KAFKA.replace(b"\n", b"\r\n"), id="windows-lines"),
        pytest.param(FROM_KAFKA.replace(b"0", b"3", 1) + b"\nmore: to come", id="newer-version"),
        pytest.param(FROM_KAFKA + b"==", id="padding"),
    ],
)
def test_topic_id_of_other_makers_is_read(tmp_path: Path, content: bytes) -> None:
    """Everything that Kafka accepts: other line ends, padding, versions of newer brokers."""
    (tmp_path / "file").write_bytes(content)
    assert read_topic_id(FS, tmp_path / "file") == TOPIC_ID


@pytest.mark.parametrize(
    ("content", "position"),
    [
        pytest.param(b"", 0, id="empty"),
        pytest.param(b"\x00" * 44, 0, id="zeros"),
        pytest.param(b"version: 0", 0, id="one-line"),
        pytest.param(b"version: -1\ntopic_id: YtvD2zgwZDjoVl7HCIonJw", 9, id="negative-version"),
        pytest.param(b"version: x\ntopic_id: YtvD2zgwZDjoVl7HCIonJw", 9, id="version-word"),
        pytest.param(b"version: 0\ntopic: YtvD2zgwZDjoVl7HCIonJw", 11, id="no-id"),
        pytest.param(FROM_KAFKA[:-1], 21, id="torn-id"),
        pytest.param(FROM_KAFKA + b" ", 21, id="space-behind-id"),
        pytest.param(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 21, id="zero-id"),
        pytest.param(b"version: 0\ntopic_id: " + b"\xff" * 22, 21, id="bytes-as-id"),
        pytest.param(FROM_KAFKA + b"\n" * 5000, 4096, id="absurdly-long"),
    ],
)
def test_topic_id_malformed_is_refused_at_its_byte(tmp_path: Path, content: bytes, position: int) -> None:
    """R-124: a broker would not load such a directory."""
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(CorruptCheckpointError) as caught:
        read_topic_id(FS, tmp_path / "file")
    assert caught.value.position == position


def test_topic_id_of_zeros_is_not_written(tmp_path: Path) -> None:
    """The all-zero id belongs to no topic."""
    with pytest.raises(ValueError, match="all-zero"):
        write_topic_id(FS, tmp_path / "file", UUID(int=0))
    assert not (tmp_path / "file").exists()


@given(st.uuids())
def test_uuid_text_is_22_characters_and_read_back(uuid: UUID) -> None:
    """Kafka's text form loses nothing."""
    assert len(format_uuid(uuid)) == 22
    assert parse_uuid(format_uuid(uuid)) == uuid


@pytest.mark.parametrize("text", ["", "YtvD2zgwZDjoVl7HCIonJ", "YtvD2zgwZDjoVl7HCIonJ+", "YtvD2zgwZDjoVl7HCIonJw="])
def test_uuid_text_of_other_length_or_letters_is_refused(text: str) -> None:
    """16 bytes, URL-safe letters, whole padding or none."""
    with pytest.raises(ValueError, match="is not a UUID"):
        parse_uuid(text)
