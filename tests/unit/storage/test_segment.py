"""Segments: R-120, R-310, R-314, R-324, R-416, R-537."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.errors import CorruptBatchError, CorruptIndexError
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.load.loaded_log import list_segments
from cleaner.storage.segment.segment import Segment, SegmentIndexes
from tests.support.log_builder import START_MS, LogBuilder

FS = FileSystem()


def small(tmp_path: Path, base_offset: int = 0) -> Segment:
    """A segment of ten batches of two records, indexed every other batch."""
    log = LogBuilder(base_offset=base_offset, index_interval_bytes=100)
    for number in range(10):
        log.append((f"k{number}", "v"), (f"l{number}", "v"))
    return Segment.open(FS, log.write(tmp_path), base_offset)


def test_segment_names_follow_the_base_offset(tmp_path: Path) -> None:
    """R-120: 20 digits and a suffix."""
    segment = small(tmp_path, 42)
    assert segment.log_path.name == "00000000000000000042.log"
    assert segment.txn_index_path.name == "00000000000000000042.txnindex"
    assert segment.size == segment.log_path.stat().st_size


def test_listing_looks_at_names_only_and_passes_over_temporary_files(tmp_path: Path) -> None:
    """R-122: `.swap`, `.deleted` and other temporary files are not segments."""
    directory = small(tmp_path).directory
    for name in ("00000000000000000099.log.deleted", "00000000000000000098.log.swap", "notes.txt"):
        (directory / name).write_bytes(b"")
    (directory / "00000000000000000020.log").write_bytes(b"")
    assert [segment.base_offset for segment in list_segments(FS, directory)] == [0, 20]


def test_next_offset_follows_the_last_batch(tmp_path: Path) -> None:
    """R-537: with or without an index to start from."""
    segment = small(tmp_path)
    assert segment.next_offset() == 20
    segment.index_path.unlink()
    assert segment.next_offset() == 20


def test_next_offset_of_an_empty_segment_is_its_base(tmp_path: Path) -> None:
    """R-537: there is no batch."""
    directory = LogBuilder(base_offset=7).write(tmp_path)
    assert Segment.open(FS, directory, 7).next_offset() == 7


def test_next_offset_refuses_an_index_beyond_the_log(tmp_path: Path) -> None:
    """R-333: the last entry names an offset that the log does not reach."""
    segment = small(tmp_path)
    data = bytearray(segment.index_path.read_bytes())
    data[-8:-4] = (1000).to_bytes(4, "big")
    segment.index_path.write_bytes(data)
    with pytest.raises(CorruptIndexError):
        segment.next_offset()


def test_next_offset_refuses_a_torn_last_batch(tmp_path: Path) -> None:
    """R-202: after a clean stop nothing may be torn."""
    segment = small(tmp_path)
    with segment.log_path.open("r+b") as file:
        file.truncate(segment.size - 1)
    with pytest.raises(CorruptBatchError):
        Segment.open(FS, segment.directory, 0).next_offset()


def test_largest_timestamp_is_the_last_of_the_time_index(tmp_path: Path) -> None:
    """R-324: the closing entry of the time index."""
    assert small(tmp_path).largest_timestamp() == START_MS + 10


@pytest.mark.parametrize("magic", [0, 2])
def test_largest_timestamp_without_one_is_the_files_mtime(tmp_path: Path, magic: int) -> None:
    """R-324: with an empty time index, as for magic 0, it is the `.log`'s mtime, in whole milliseconds."""
    log = LogBuilder()
    if magic == 0:
        log.append(("k", "v"), magic=0)
    log.set_mtime(START_MS - 5)
    segment = Segment.open(FS, log.write(tmp_path), 0)
    FS.set_mtime_ns(segment.log_path, (START_MS - 5) * 1_000_000 + 999_999)
    assert Segment.open(FS, segment.directory, 0).largest_timestamp() == START_MS - 5


@pytest.mark.parametrize(("magic", "expected"), [(0, -1), (1, START_MS + 1), (2, START_MS + 1)])
def test_first_batch_timestamp_is_that_of_the_first_batch(tmp_path: Path, magic: int, expected: int) -> None:
    """R-416: for every magic; magic 0 has none."""
    log = LogBuilder()
    log.append(("k", "v"), magic=magic)
    log.append(("k", "w"), magic=magic)
    assert Segment.open(FS, log.write(tmp_path), 0).first_batch_timestamp() == expected


def test_zeros_behind_the_indexes_count_as_room_and_not_as_entries(tmp_path: Path) -> None:
    """D-02, R-310: groups count them as used, as Kafka does; but they do not make a segment expire as one of 1970."""
    segment = small(tmp_path)
    used = len(segment.offset_index())
    for path, width in ((segment.index_path, 8), (segment.time_index_path, 12)):
        path.write_bytes(path.read_bytes() + bytes(96000 - path.stat().st_size))
        assert path.stat().st_size % width == 0
    padded = Segment.open(FS, segment.directory, 0)
    assert len(padded.offset_index()) == used
    assert len(padded.time_index())
    assert (padded.index_bytes, padded.time_index_bytes) == (96000, 96000)
    assert padded.largest_timestamp() == START_MS + 10
    padded.time_index_path.write_bytes(bytes(96000))
    FS.set_mtime_ns(padded.log_path, START_MS * 1_000_000)
    assert Segment.open(FS, segment.directory, 0).largest_timestamp() == START_MS


def test_single_time_entry_of_zeros_is_that_of_a_record_of_1970_only(tmp_path: Path) -> None:
    """D-02: a segment with one entry, which a power cut has left as zeros, must not expire for it."""
    segment = small(tmp_path / "now")
    segment.time_index_path.write_bytes(bytes(12))
    FS.set_mtime_ns(segment.log_path, START_MS * 1_000_000)
    assert Segment.open(FS, segment.directory, 0).largest_timestamp() == START_MS
    old = LogBuilder()
    old.append(("k", "v"), timestamp_ms=0)
    old.roll()
    old.append(("k", "w"))
    assert Segment.open(FS, old.write(tmp_path / "then"), 0).largest_timestamp() == 0


def test_index_bytes_count_whole_entries(tmp_path: Path) -> None:
    """R-310: a file counts as used up to its last whole entry."""
    segment = small(tmp_path)
    whole = segment.index_path.stat().st_size
    with segment.index_path.open("ab") as file:
        file.write(b"\0\0\0")
    assert whole and segment.index_bytes == whole


def test_position_at_is_never_after_the_batch(tmp_path: Path) -> None:
    """R-314: reading from there reaches the batch that contains the offset."""
    segment = small(tmp_path)
    for offset in range(20):
        assert segment.batch_at(offset) == offset - offset % 2
    assert segment.position_at(19) > 0
    assert segment.batch_at(20) is None


class _Reading(FileSystem):
    """Lists the files that are opened."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    def open(self, path: Path, *, write: bool = False) -> File:
        self.opened.append(path.suffix)
        return super().open(path, write=write)


def test_short_offset_index_is_read_once_until_it_changes(tmp_path: Path) -> None:
    """Every pass of a round needs it; after a rebuild or `forget` it is not taken from memory."""
    fs = _Reading()
    segment = Segment.open(fs, small(tmp_path).directory, 0)
    first = segment.offset_index()
    assert len(first)
    assert segment.offset_index() is first
    assert segment.index_bytes == first.nbytes
    assert fs.opened == [".index"]
    segment.rebuilt = SegmentIndexes.empty()
    assert (len(segment.offset_index()), segment.index_bytes) == (0, 0)
    segment.rebuilt = None
    assert segment.offset_index().tolist() == first.tolist()
    segment.index_path.write_bytes(first.tobytes()[:8])
    segment.forget()
    assert (len(segment.offset_index()), segment.index_bytes) == (1, 8)
    assert fs.opened == [".index"] * 3


def test_long_offset_index_is_not_kept_in_memory(tmp_path: Path) -> None:
    """One process may inspect thousands of partitions."""
    log = LogBuilder(index_interval_bytes=1)
    for number in range(300):
        log.append((f"k{number}", "v"))
    fs = _Reading()
    segment = Segment.open(fs, log.write(tmp_path), 0)
    assert segment.offset_index().tolist() == segment.offset_index().tolist()
    assert fs.opened == [".index"] * 2
