"""Offset checkpoint files: R-113, R-114."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.base.model import TopicPartition
from cleaner.errors import CorruptCheckpointError, LogDirOfflineError
from cleaner.storage.files import checkpoint
from cleaner.storage.files.checkpoint import read_offset_checkpoint, write_offset_checkpoint
from cleaner.storage.fs.file_system import FileSystem

FS = FileSystem()
A0 = TopicPartition("a", 0)


@pytest.mark.parametrize(
    "content", [None, b"", b"0\n", b"0", b"0\n0\n"], ids=["missing", "empty", "one", "torn", "none"]
)
def test_checkpoint_without_entries_is_an_empty_map(tmp_path: Path, content: bytes | None) -> None:
    """R-114: Kafka creates the file empty when it first opens it."""
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    assert read_offset_checkpoint(FS, tmp_path / "file") == {}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"0\n2\na 0 5\nb-c 12 9\n", {A0: 5, TopicPartition("b-c", 12): 9}, id="as-written"),
        pytest.param(b"0\n1\na 0 5", {A0: 5}, id="no-last-newline"),
        pytest.param(b"0\r\n1\r\na 0 5\r\n", {A0: 5}, id="windows-lines"),
        pytest.param(b"0\r1\ra 0 5\r", {A0: 5}, id="old-mac-lines"),
        pytest.param(b"0\n1\na \t 0\x0b5 \n", {A0: 5}, id="any-white-space"),
        pytest.param(b"+0\n+1\na 0 +5\n", {A0: 5}, id="plus-signs"),
        pytest.param(b"0\n2\na 0 5\na 0 3\n", {A0: 3}, id="last-line-wins"),
        pytest.param(b"0\n1\na 0 -1\n", {A0: -1}, id="negative-offset"),
        pytest.param(b"0\n1\na 0 9223372036854775807\n", {A0: 2**63 - 1}, id="largest-offset"),
    ],
)
def test_checkpoint_is_read_as_java_reads_it(
    tmp_path: Path, content: bytes, expected: dict[TopicPartition, int]
) -> None:
    """R-113, R-114, R-442: line ends, words and numbers are parsed as in Java."""
    (tmp_path / "file").write_bytes(content)
    assert read_offset_checkpoint(FS, tmp_path / "file") == expected


@pytest.mark.parametrize(
    ("content", "position", "reason"),
    [
        pytest.param(b"not a checkpoint\n", 0, "the version is 'not a checkpoint'", id="text"),
        pytest.param(b"\n0\n", 0, "the version is ''", id="empty-line"),
        pytest.param(b"7\n1\na 0 3\n", 0, "the version is 7, not 0", id="version"),
        pytest.param(b"-1\n1\na 0 3\n", 0, "the version is -1", id="negative-version"),
        pytest.param(b"0\n1\n2\n", 4, "'2' is not an entry of 3 words", id="words"),
        pytest.param(b"0\n2\na 0 3\n", 2, "2 entries are announced, but there are 1", id="fewer"),
        pytest.param(b"0\n1\na 0 3\nb 0 3\n", 10, "more than the 1 entries announced", id="more"),
        pytest.param(b"0\n-1\n", 2, "-1 entries are announced", id="negative-count"),
        pytest.param(b"0\n2147483648\n", 2, "not a number of 32 bits", id="count-too-wide"),
        pytest.param(b"0\n2\na 0 3\nb 0 plenty\n", 10, "the offset is 'plenty'", id="offset"),
        pytest.param(b"0\n1\na 0 9223372036854775808\n", 4, "not a number of 64 bits", id="offset-too-wide"),
        pytest.param(b"0\n1\na 0 1_0\n", 4, "the offset is '1_0'", id="underscore"),
        pytest.param(b"0\n1\na x 3\n", 4, "the partition is 'x'", id="partition"),
        pytest.param(b"0\n1\na -1 3\n", 4, "the partition is '-1'", id="negative-partition"),
        pytest.param(b"0\n1\na 2147483648 3\n", 4, "is not a topic", id="partition-too-wide"),
        pytest.param(b"0\n1\n../a 0 3\n", 4, "is not a topic", id="path-as-topic"),
        pytest.param(b"0\n1\n\xff\x1b 0 3\n", 4, "is not a topic", id="bytes-as-topic"),
        pytest.param(b"0\n1\n a 0 3\n", 4, "is not an entry", id="leading-space"),
        pytest.param(b"0\n1\na 0 3\n\n", 10, "'' is not an entry", id="blank-line-at-end"),
        pytest.param(b"\x00" * 60, 0, "the version is", id="zeros"),
    ],
)
def test_checkpoint_malformed_is_refused_at_its_line(
    tmp_path: Path, content: bytes, position: int, reason: str
) -> None:
    """R-114: any deviation refuses the file and names the line's byte position; the file is unchanged."""
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(CorruptCheckpointError) as caught:
        read_offset_checkpoint(FS, path)
    assert (caught.value.path, caught.value.position) == (path, position)
    assert reason in caught.value.reason
    assert path.read_bytes() == content


def test_checkpoint_foreign_bytes_in_message_are_escaped_and_short(tmp_path: Path) -> None:
    """A hostile line can neither control the operator's terminal nor fill it."""
    (tmp_path / "file").write_bytes(b"0\n1\n" + b"\x1b[2J" * 5000)
    with pytest.raises(CorruptCheckpointError) as caught:
        read_offset_checkpoint(FS, tmp_path / "file")
    assert caught.value.reason.isprintable()
    assert len(caught.value.reason) < 200


def test_checkpoint_absurdly_long_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sparse file of a terabyte costs no memory."""
    monkeypatch.setattr("cleaner.storage.fs.file_system.File.read", lambda *_: pytest.fail("the file was read"))
    with (tmp_path / "file").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CorruptCheckpointError, match="1099511627776 bytes"):
        read_offset_checkpoint(FS, tmp_path / "file")


def test_checkpoint_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """A link to elsewhere is not followed."""
    (tmp_path / "elsewhere").write_bytes(b"0\n0\n")
    (tmp_path / "file").symlink_to("elsewhere")
    with pytest.raises(LogDirOfflineError):
        read_offset_checkpoint(FS, tmp_path / "file")


def test_checkpoint_is_written_in_kafkas_format(tmp_path: Path) -> None:
    """R-113: version, count, one line an entry, each with a newline; sorted, so equal content gives equal bytes."""
    write_offset_checkpoint(FS, tmp_path / "file", {TopicPartition("b", 10): 7, TopicPartition("b", 9): 1, A0: 5})
    assert (tmp_path / "file").read_bytes() == b"0\n3\na 0 5\nb 9 1\nb 10 7\n"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


PARTITIONS = st.builds(
    TopicPartition,
    st.text("abcXYZ019._-", min_size=1, max_size=20),
    st.integers(0, 2**31 - 1),
)


@given(st.dictionaries(PARTITIONS, st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_checkpoint_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[TopicPartition, int]
) -> None:
    """Written entries are read back."""
    path = tmp_path_factory.getbasetemp() / "round-trip-checkpoint"
    write_offset_checkpoint(FS, path, entries)
    assert read_offset_checkpoint(FS, path) == entries


@given(st.binary(max_size=80) | st.text("0123 \n\ra-", max_size=40).map(str.encode))
def test_checkpoint_of_any_bytes_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """No content raises anything but CorruptCheckpointError with a position inside the file."""
    path = tmp_path_factory.getbasetemp() / "any-bytes-checkpoint"
    path.write_bytes(data)
    try:
        entries = read_offset_checkpoint(FS, path)
    except CorruptCheckpointError as error:
        assert 0 <= error.position <= len(data)
    else:
        assert all(topic_partition.partition >= 0 for topic_partition in entries)


def test_checkpoint_limit_holds_a_hundred_thousand_longest_lines() -> None:
    """The limit of the file's length does not limit any real broker."""
    assert 100_000 * len(f"{'t' * 249} {2**31 - 1} {2**63 - 1}\n") <= checkpoint.CHECKPOINT_LIMIT_BYTES
