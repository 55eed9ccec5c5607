"""`meta.properties`: R-110."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.errors import CorruptCheckpointError
from cleaner.storage.files.kafka_uuid import parse_uuid
from cleaner.storage.files.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from cleaner.storage.fs.file_system import FileSystem

FS = FileSystem()
FROM_KAFKA = (
    b"#\n#Sun Jun 15 15:06:40 UTC 2025\ncluster.id=Y29ycG9yYS1jbHVzdGVyLQ\n"
    b"directory.id=ViqwA8c9U9AYIlH5sjT79w\nnode.id=1\nversion=1\n"
)
PROPERTIES = MetaProperties(1, "Y29ycG9yYS1jbHVzdGVyLQ", 1, parse_uuid("ViqwA8c9U9AYIlH5sjT79w"))


def test_meta_properties_of_kafka_are_read(tmp_path: Path) -> None:
    """R-110: version 1 as a KRaft broker writes it."""
    (tmp_path / "file").write_bytes(FROM_KAFKA)
    assert read_meta_properties(FS, tmp_path / "file") == PROPERTIES


def test_meta_properties_missing_are_none(tmp_path: Path) -> None:
    """A bare copy has none."""
    assert read_meta_properties(FS, tmp_path / "file") is None


@pytest.mark.parametrize(
    "properties",
    [PROPERTIES, MetaProperties(0), MetaProperties(0, "a cluster: with=odd\\id", 7), MetaProperties(1, "c", 2**31 - 1)],
    ids=["full", "nothing", "odd-text", "no-directory"],
)
def test_meta_properties_are_read_as_they_were_written(tmp_path: Path, properties: MetaProperties) -> None:
    """Including escapes and both names of the node's number."""
    write_meta_properties(FS, tmp_path / "file", properties)
    assert read_meta_properties(FS, tmp_path / "file") == properties


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"", MetaProperties(0), id="empty"),
        pytest.param(b"broker.id=5\n", MetaProperties(0, None, 5), id="no-version"),
        pytest.param(b"version = 1 \nnode.id:3\ncluster.id c\n", MetaProperties(1, "c", 3), id="spaces-and-colons"),
        pytest.param(b"version=0\nnode.id=3\n", MetaProperties(0), id="other-versions-key"),
    ],
)
def test_meta_properties_in_odd_forms_are_read(tmp_path: Path, content: bytes, expected: MetaProperties) -> None:
    """R-110: a missing version is 0, whose keys are `broker.id`, and nothing is required."""
    (tmp_path / "file").write_bytes(content)
    assert read_meta_properties(FS, tmp_path / "file") == expected


@pytest.mark.parametrize(
    ("content", "position", "reason"),
    [
        pytest.param(b"#\nversion=2\nnode.id=1\ncluster.id=c\n", 2, "version 2", id="version"),
        pytest.param(b"version=one\n", 0, "version is 'one'", id="version-word"),
        pytest.param(b"version=1\nnode.id=1\n", 20, "without cluster.id", id="no-cluster"),
        pytest.param(b"version=1\ncluster.id=c\n", 23, "without node.id", id="no-node"),
        pytest.param(b"version=1\nnode.id=1 \ncluster.id=c\n", 10, "node.id is '1 '", id="number-with-space"),
        pytest.param(b"version=0\nbroker.id=99999999999\n", 10, "not a number of 32 bits", id="number-too-wide"),
        pytest.param(b"version=0\ndirectory.id=short\n", 10, "not a UUID", id="directory"),
        pytest.param(b"version=0\nx=\\u12\n", 12, "hexadecimal", id="escape"),
        pytest.param(b"#" * 70000, 65536, "70000 bytes", id="absurdly-long"),
    ],
)
def test_meta_properties_malformed_are_refused_at_their_line(
    tmp_path: Path, content: bytes, position: int, reason: str
) -> None:
    """R-110: content with which a broker would not start is refused, with its position."""
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(CorruptCheckpointError) as caught:
        read_meta_properties(FS, tmp_path / "file")
    assert caught.value.position == position
    assert reason in caught.value.reason
