"""Leader epochs: R-113, R-123."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.base.model import EpochEntry
from cleaner.errors import CorruptCheckpointError
from cleaner.storage.files.leader_epochs import (
    assign_epoch,
    read_leader_epochs,
    truncate_from_end,
    truncate_from_start,
    write_leader_epochs,
)
from cleaner.storage.fs.file_system import FileSystem

FS = FileSystem()


def epochs(*pairs: tuple[int, int]) -> list[EpochEntry]:
    """Entries from pairs."""
    return [EpochEntry(*pair) for pair in pairs]


LOG = epochs((0, 0), (3, 10), (4, 20))


@pytest.mark.parametrize(
    ("end_offset", "expected"),
    [
        pytest.param(21, LOG, id="above-all"),
        pytest.param(20, LOG[:2], id="at-last-start"),
        pytest.param(10, LOG[:1], id="at-middle-start"),
        pytest.param(1, LOG[:1], id="inside-first"),
        pytest.param(0, [], id="empty-log"),
        pytest.param(-1, LOG, id="unknown-end"),
    ],
)
def test_truncate_from_end_drops_epochs_starting_at_or_above_it(end_offset: int, expected: list[EpochEntry]) -> None:
    """R-123: no epoch begins beyond the log."""
    assert truncate_from_end(LOG, end_offset) == expected


@pytest.mark.parametrize(
    ("start_offset", "expected"),
    [
        pytest.param(0, LOG, id="no-checkpointed-start"),
        pytest.param(5, epochs((0, 5), (3, 10), (4, 20)), id="inside-first"),
        pytest.param(10, epochs((3, 10), (4, 20)), id="at-middle-start"),
        pytest.param(15, epochs((3, 15), (4, 20)), id="inside-middle"),
        pytest.param(500, epochs((4, 500)), id="above-all"),
        pytest.param(-1, LOG, id="below-all"),
    ],
)
def test_truncate_from_start_keeps_the_epoch_it_falls_into(start_offset: int, expected: list[EpochEntry]) -> None:
    """R-123: entries at or below the checkpointed log start are dropped, except the last, which then begins there."""
    assert truncate_from_start(LOG, start_offset) == expected


@pytest.mark.parametrize(
    ("epoch", "start_offset", "expected"),
    [
        pytest.param(4, 25, LOG, id="same-epoch-goes-on"),
        pytest.param(5, 30, [*LOG, EpochEntry(5, 30)], id="next-epoch"),
        pytest.param(5, 20, epochs((0, 0), (3, 10), (5, 20)), id="epoch-without-records-gives-way"),
        pytest.param(4, 15, epochs((0, 0), (3, 10), (4, 15)), id="same-epoch-earlier"),
        pytest.param(2, 30, epochs((0, 0), (2, 30)), id="older-epoch-later"),
        pytest.param(1, 0, epochs((1, 0)), id="all-give-way"),
    ],
)
def test_assign_epoch_keeps_epochs_and_offsets_ascending(
    epoch: int, start_offset: int, expected: list[EpochEntry]
) -> None:
    """The new entry replaces entries that are not older in both, as in Kafka's cache."""
    assert assign_epoch(LOG, epoch, start_offset) == expected


def test_leader_epochs_are_written_and_read(tmp_path: Path) -> None:
    """R-113: the checkpoint format with two words a line."""
    write_leader_epochs(FS, tmp_path / "file", LOG)
    assert (tmp_path / "file").read_bytes() == b"0\n3\n0 0\n3 10\n4 20\n"
    assert read_leader_epochs(FS, tmp_path / "file") == LOG


@pytest.mark.parametrize("content", [None, b"", b"0\n0\n"], ids=["missing", "empty", "none"])
def test_leader_epochs_without_entries_are_an_empty_list(tmp_path: Path, content: bytes | None) -> None:
    """R-114."""
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    assert read_leader_epochs(FS, tmp_path / "file") == []


def test_leader_epochs_out_of_order_are_read_as_kafka_reads_them(tmp_path: Path) -> None:
    """A line that goes back replaces the entries it contradicts."""
    (tmp_path / "file").write_bytes(b"0\n5\n0 0\n1 10\n2 8\n2 9\n5 30\n")
    assert read_leader_epochs(FS, tmp_path / "file") == epochs((0, 0), (2, 8), (5, 30))


@pytest.mark.parametrize(
    ("content", "position"),
    [
        pytest.param(b"0\n1\n-1 0\n", 4, id="negative-epoch"),
        pytest.param(b"0\n2\n1 0\n2 -5\n", 8, id="negative-offset"),
        pytest.param(b"0\n1\n2147483648 0\n", 4, id="epoch-too-wide"),
        pytest.param(b"0\n1\n1 2 3\n", 4, id="words"),
        pytest.param(b"1\n0\n", 0, id="version"),
    ],
)
def test_leader_epochs_malformed_are_refused_at_their_line(tmp_path: Path, content: bytes, position: int) -> None:
    """Kafka cannot load a log with such a file."""
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(CorruptCheckpointError) as caught:
        read_leader_epochs(FS, tmp_path / "file")
    assert caught.value.position == position


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 40)), max_size=12), st.integers(-1, 50), st.integers(-1, 50)
)
def test_epochs_whatever_happens_ascend_within_the_log(
    pairs: list[tuple[int, int]], start_offset: int, end_offset: int
) -> None:
    """After any assignments and cuts both columns ascend, and no epoch begins at or above the end."""
    entries: list[EpochEntry] = []
    for epoch, offset in pairs:
        entries = assign_epoch(entries, epoch, offset)
    entries = truncate_from_start(truncate_from_end(entries, end_offset), start_offset)
    assert entries == sorted(set(entries))
    assert len({entry.start_offset for entry in entries}) == len({entry.epoch for entry in entries}) == len(entries)
    assert all(
        entry.start_offset < end_offset or end_offset < 0 or entry.start_offset == start_offset for entry in entries
    )
