"""The three index files: R-301 to R-314, R-333."""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from cleaner.base.model import AbortedTxn
from cleaner.errors import CorruptIndexError
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.segment.indexes import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    TXN_ENTRY,
    OffsetIndexCheck,
    lookup_position,
    max_index_bytes,
    offset_entries,
    read_entries,
    read_offset_index,
    read_time_index,
    read_txn_index,
    txn_index_bytes,
)

FS = FileSystem()


def written(tmp_path: Path, layout: str, *rows: tuple[int, ...], tail: bytes = b"") -> Path:
    """Write entries of a struct layout, and optional further bytes."""
    path = tmp_path / "index"
    path.write_bytes(b"".join(struct.pack(layout, *row) for row in rows) + tail)
    return path


def test_offset_index_is_read_as_written(tmp_path: Path) -> None:
    """R-301: relative offset, then position, both 32 bits, big-endian."""
    path = written(tmp_path, ">ii", (3, 100), (2**31 - 1, 200))
    assert read_offset_index(FS, path, 201).tolist() == [(3, 100), (2**31 - 1, 200)]


@pytest.mark.parametrize(
    ("rows", "tail", "position"),
    [
        pytest.param([(3, 100)], b"\0\0\0", 8, id="odd-length"),
        pytest.param([(3, 100), (-1, 200)], b"", 8, id="offset-below-base"),
        pytest.param([(3, 100), (4, 1000)], b"", 8, id="past-the-end"),
        pytest.param([(3, 100), (3, 200)], b"", 8, id="offset-repeated"),
        pytest.param([(5, 100), (4, 200)], b"", 8, id="offset-back"),
        pytest.param([(3, 200), (4, 100)], b"", 8, id="position-back"),
        pytest.param([(3, 100), (0, 0), (4, 200)], b"", 8, id="zeros-before-an-entry"),
    ],
)
def test_offset_index_with_impossible_entries_is_refused(
    tmp_path: Path, rows: list[tuple[int, int]], tail: bytes, position: int
) -> None:
    """R-333: everything that does not need the log is checked on reading, and the entry is named."""
    path = written(tmp_path, ">ii", *rows, tail=tail)
    with pytest.raises(CorruptIndexError) as caught:
        read_offset_index(FS, path, 1000)
    assert (caught.value.path, caught.value.position) == (path, position)


@pytest.mark.parametrize("entries", [0, 1, 50])
def test_offset_index_of_zeros_alone_is_empty(tmp_path: Path, entries: int) -> None:
    """R-310, R-631: as Kafka creates one for a new segment without one: it leads to position 0."""
    assert len(read_offset_index(FS, written(tmp_path, ">ii", *[(0, 0)] * entries), 1000)) == 0


@pytest.mark.parametrize(
    ("rows", "tail"),
    [
        pytest.param([(10, 1)], b"\0", id="odd-length"),
        pytest.param([(10, 1), (9, 2)], b"", id="timestamp-back"),
        pytest.param([(10, 2), (11, 1)], b"", id="offset-back"),
        pytest.param([(10, -2)], b"", id="offset-below-base"),
    ],
)
def test_time_index_that_goes_back_is_refused(tmp_path: Path, rows: list[tuple[int, int]], tail: bytes) -> None:
    """R-313, R-332: timestamps and offsets ascend."""
    with pytest.raises(CorruptIndexError):
        read_time_index(FS, written(tmp_path, ">qi", *rows, tail=tail))


def test_txn_index_ignores_a_partial_entry_at_its_end(tmp_path: Path) -> None:
    """R-303: entries are 34 bytes; bytes after the last whole one are ignored."""
    txns = [AbortedTxn(7, 1, 5, 6), AbortedTxn(8, 2, 9, 10)]
    path = tmp_path / "index"
    path.write_bytes(txn_index_bytes(txns) + b"\0" * 33)
    assert path.stat().st_size == 2 * 34 + 33
    assert read_txn_index(FS, path, log_bytes=1 << 20).tolist() == [list(txn) for txn in txns]


@pytest.mark.parametrize(
    "entry",
    [(7, 6, 5, 6), (7, 5, 5, 6), (7, -1, 5, 6), (7, 1, 5, 7)],
    ids=["backward", "empty", "negative", "stable"],
)
def test_txn_index_with_offsets_that_no_marker_leaves_is_refused(tmp_path: Path, entry: tuple[int, ...]) -> None:
    """A search for aborts would end at a last stable offset that is too high, and a round take them for committed."""
    with pytest.raises(CorruptIndexError, match="34: "):
        path = written(tmp_path, ">hqqqq", (0, 7, 1, 2, 3), (0, *entry))
        read_txn_index(FS, path, log_bytes=1 << 20)


def test_txn_index_of_zeros_is_refused(tmp_path: Path) -> None:
    """In the segment that begins at 0 its last offset is one of the segment, and it would hide nothing."""
    path = written(tmp_path, ">hqqqq", (0, 0, 0, 0, 0))
    with pytest.raises(CorruptIndexError, match="0: a first offset"):
        read_txn_index(FS, path, log_bytes=1 << 20)


@pytest.mark.parametrize("version", [1, 255, 256, 2**15 - 1, -1, -255, -256, -(2**15)])
def test_txn_index_of_an_unknown_version_is_refused(tmp_path: Path, version: int) -> None:
    """R-303: any version but 0; Kafka up to 4.3 takes negative ones, and those whose first byte is 0."""
    with pytest.raises(CorruptIndexError, match=r"34: an entry of an unknown version"):
        path = written(tmp_path, ">hqqqq", (0, 7, 1, 2, 3), (version, 7, 4, 5, 6))
        read_txn_index(FS, path, log_bytes=1 << 20)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [pytest.param(2, 0, id="below"), pytest.param(3, 100, id="at"), pytest.param(9, 200, id="above")],
)
def test_lookup_returns_the_last_entry_at_or_below(offset: int, expected: int) -> None:
    """R-314: position 0 without one."""
    assert lookup_position(offset_entries([3, 6], [100, 200]), offset) == expected


def check(entries: list[tuple[int, int]], batches: list[tuple[int, int, int]], chunk: int) -> None:
    """Check entries against (position, base offset, last offset) rows, some rows at a time; base offset 100."""
    rows = np.array(batches, np.int64)
    checked = OffsetIndexCheck(
        offset_entries([offset - 100 for offset, _ in entries], [position for _, position in entries]),
        Path("x.index"),
        100,
    )
    for start in range(0, len(rows), chunk):
        part = rows[start : start + chunk]
        checked.add(part[:, 0], part[:, 1], part[:, 2])
    checked.finish()


BATCHES = [(0, 100, 104), (50, 105, 109), (90, 112, 119), (150, 120, 120)]


@pytest.mark.parametrize("chunk", [1, 2, 4])
@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([], id="empty"),
        pytest.param([(109, 50), (120, 150)], id="last-offset-of-the-batch"),
        pytest.param([(119, 50)], id="last-offset-of-the-append"),
        pytest.param([(104, 0), (105, 50)], id="first-batch"),
    ],
)
def test_index_check_takes_entries_of_every_version(entries: list[tuple[int, int]], chunk: int) -> None:
    """R-333: per batch since 4.1, per append before."""
    check(entries, BATCHES, chunk)


@pytest.mark.parametrize("chunk", [1, 2, 4])
@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([(109, 51)], id="into-a-batch"),
        pytest.param([(119, 120)], id="into-the-middle-of-a-later-batch"),
        pytest.param([(104, 50)], id="offset-before-the-batch"),
        pytest.param([(111, 90)], id="offset-in-the-gap-before-the-batch"),
        pytest.param([(121, 150)], id="offset-beyond-the-segment"),
        pytest.param([(120, 151)], id="past-the-last-batch"),
    ],
)
def test_index_check_refuses_entries_that_miss_a_batch(entries: list[tuple[int, int]], chunk: int) -> None:
    """R-333: an entry points at the start of a batch that contains its offset or comes before it."""
    with pytest.raises(CorruptIndexError):
        check(entries, BATCHES, chunk)


@pytest.mark.parametrize("entry", [OFFSET_ENTRY, TIME_ENTRY], ids=["offsets", "times"])
@pytest.mark.parametrize("used", [0, 1, 3])
def test_zeros_at_the_end_of_an_index_are_no_entries(tmp_path: Path, entry: np.dtype[np.void], used: int) -> None:
    """D-02, R-310: a broker makes 10 MiB ahead, more than the index of a small log has; reading says where."""
    rows = [(number + 1, 10 * number) for number in range(used)]
    is_of_times = entry == TIME_ENTRY
    path = written(tmp_path, ">qi" if is_of_times else ">ii", *rows, tail=bytes((10 << 20) // 24 * 24))
    zeros: list[int] = []
    if is_of_times:
        entries = read_time_index(FS, path, log_bytes=100, on_zeros=zeros.append)
    else:
        entries = read_offset_index(FS, path, 100, on_zeros=zeros.append)
    assert (entries.tolist(), zeros) == (rows, [used * entry.itemsize])


def test_time_index_of_one_record_of_1970_has_its_entry(tmp_path: Path) -> None:
    """The timestamp 0 at the base offset looks like a zero that is no entry, and is one."""
    assert read_time_index(FS, written(tmp_path, ">qi", (0, 0)), log_bytes=100).tolist() == [(0, 0)]


@pytest.mark.parametrize("is_of_times", [False, True], ids=["offsets", "times"])
def test_index_longer_than_its_log_has_batches_for_is_not_read_whole(tmp_path: Path, is_of_times: bool) -> None:
    """A sparse file of 1 GiB takes no room on the disk; it must not take any in memory either."""
    path = tmp_path / "index"
    with path.open("wb") as file:
        file.truncate((1 << 30) - 1)
        file.seek(0, os.SEEK_END)
        file.write(b"\1")
    tracemalloc.start()
    try:
        with pytest.raises(CorruptIndexError, match="1073741824 bytes, more than the index of a log of 100 bytes has"):
            read_time_index(FS, path, log_bytes=100) if is_of_times else read_offset_index(FS, path, 100)
        entries = read_entries(FS, path, TIME_ENTRY if is_of_times else OFFSET_ENTRY, lambda _: None, 100)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert entries.nbytes <= 1 << 20
    assert peak_bytes < 8 << 20


@pytest.mark.parametrize("entry", [OFFSET_ENTRY, TIME_ENTRY, TXN_ENTRY], ids=["offsets", "times", "aborted"])
def test_index_of_a_sparse_log_is_bounded_too(entry: np.dtype[np.void]) -> None:
    """A `.log` of 1 TiB without a single block would allow indexes of hundreds of gigabytes."""
    assert max_index_bytes(1 << 40, entry) <= 256 << 20


def test_zeros_without_end_are_no_room_ahead_of_an_index(tmp_path: Path) -> None:
    """A sparse index longer than a broker can make is refused at once, not read to its end in an hour."""
    path = tmp_path / "index"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CorruptIndexError, match="1099511627776 bytes"):
        read_offset_index(FS, path, 100)


def test_index_of_a_log_with_a_batch_an_entry_is_read(tmp_path: Path) -> None:
    """Even with the smallest batches: a record of magic 0 without key and value takes 26 bytes."""
    rows = [(number, 26 * number) for number in range(300_000)]
    path = written(tmp_path, ">ii", *rows)
    assert len(read_offset_index(FS, path, 26 * len(rows))) == len(rows)


class TrimmedFile(File):
    """A file that a broker trims to 24 bytes after a first read went beyond them."""

    def read(self, size: int, position: int) -> bytes:
        """Read, and trim it the first time."""
        data = super().read(size, position)
        if self.size() == 24:
            return data
        os.truncate(self.path, 24)
        return data[:29]


class TrimmedFiles(FileSystem):
    """A file system that opens such files."""

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open one."""
        return TrimmedFile(path, io.FileIO(path, "r+" if write else "r"))


def test_index_that_is_trimmed_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    """A broker's roll cuts the room behind the entries off; what a read has got until then is no partial entry."""
    path = written(tmp_path, ">qi", (1000, 1), (2000, 2), tail=bytes(1200))
    found = read_entries(TrimmedFiles(), path, TIME_ENTRY)
    assert found.tolist() == [(1000, 1), (2000, 2)]
