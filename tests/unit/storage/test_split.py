"""Splitting segments whose offsets overflow: R-304, R-612, R-614."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from cleaner.base.model import AbortedTxn
from cleaner.config.values import TopicConfig
from cleaner.errors import CorruptBatchError, TruncationRefusedError
from cleaner.format.batch import ReadBuffer
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.indexes import txn_index_bytes
from cleaner.storage.segment.segment import Segment
from cleaner.storage.swap.split import split_overflowed_segment
from tests.support.batch_builder import Record, data_batch
from tests.unit.storage.logs import WatchedFileSystem, content, finish, load

FAR = 2**31
MTIME_NS = 1_600_000_000_123_000_000


def batch(offset: int) -> bytes:
    """A batch of one record."""
    return data_batch([Record(b"k", b"v" * 50)], offset)


def overflowed(tmp_path: Path, *offsets: int, base: int = 0) -> Path:
    """A directory with one segment that has batches at these offsets."""
    directory = tmp_path / "topic-0"
    directory.mkdir()
    path = directory / f"{base:020d}.log"
    path.write_bytes(b"".join(batch(offset) for offset in offsets))
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).write_bytes(b"")
    os.utime(path, ns=(MTIME_NS, MTIME_NS))
    return directory


def logs(directory: Path) -> dict[int, bytes]:
    """The `.log` files by base offset."""
    return {int(name[:20]): data for name, data in content(directory).items() if name.endswith(".log")}


def test_segment_is_split_where_offsets_no_longer_fit(tmp_path: Path) -> None:
    """R-612: a new segment begins with its first batch and takes all that fit; bytes and mtime are the source's."""
    directory = overflowed(tmp_path, 0, 7, FAR - 1, FAR, FAR + 5, 3 * FAR)
    bases = split_overflowed_segment(
        FileSystem(), Segment.open(FileSystem(), directory, 0), TopicConfig(), ReadBuffer()
    )
    assert bases == [0, FAR, 3 * FAR]
    assert logs(directory) == {
        0: batch(0) + batch(7) + batch(FAR - 1),
        FAR: batch(FAR) + batch(FAR + 5),
        3 * FAR: batch(3 * FAR),
    }
    assert {path.stat().st_mtime_ns for path in directory.glob("*.log")} == {MTIME_NS}


def test_aborted_transactions_go_with_their_markers(tmp_path: Path) -> None:
    """An aborted record must not become readable because its segment was split."""
    directory = overflowed(tmp_path, 0, FAR)
    txns = [AbortedTxn(7, 0, FAR - 1, FAR), AbortedTxn(8, 1, FAR + 3, FAR + 4)]
    (directory / f"{0:020d}.txnindex").write_bytes(txn_index_bytes(txns))
    split_overflowed_segment(FileSystem(), Segment.open(FileSystem(), directory, 0), TopicConfig(), ReadBuffer())
    assert Segment.open(FileSystem(), directory, 0).aborted_txns().tolist() == [list(txns[0])]
    assert Segment.open(FileSystem(), directory, FAR).aborted_txns().tolist() == [list(txns[1])]


@pytest.mark.parametrize("clean", [True, False])
def test_loading_splits_until_nothing_overflows(tmp_path: Path, clean: bool) -> None:
    """R-614: after a clean stop only if an index is rebuilt."""
    directory = overflowed(tmp_path, 3, 9, FAR + 4, FAR + 5, 2 * FAR + 6)
    if clean:
        (directory / f"{0:020d}.index").unlink()
    log = load(directory, clean=clean)
    finish(log)
    assert list(logs(directory)) == [3, FAR + 4, 2 * FAR + 6]
    assert (log.log_start_offset, log.log_end_offset) == (3, 2 * FAR + 7)
    assert not [name for name in content(directory) if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_damaged_segment_is_not_split(tmp_path: Path) -> None:
    """R-612: nothing is changed, and no `.cleaned` file is left."""
    directory = overflowed(tmp_path, 0, FAR)
    path = directory / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1])
    before = content(directory)
    with pytest.raises(CorruptBatchError):
        split_overflowed_segment(FileSystem(), Segment.open(FileSystem(), directory, 0), TopicConfig(), ReadBuffer())
    assert content(directory) == before


def test_segment_that_begins_below_its_base_is_not_split(tmp_path: Path) -> None:
    """R-612 requires a real overflow. Recovery does not cut the log there: no power cut leaves such a batch."""
    directory = overflowed(tmp_path, 50, 101, base=100)
    with pytest.raises(CorruptBatchError):
        load(directory, clean=False)
    assert list(logs(directory)) == [100]


def test_first_batch_whose_offset_was_lost_is_cut(tmp_path: Path) -> None:
    """No checksum covers the base offset: a power cut that has lost a short write leaves zeros there."""
    directory = overflowed(tmp_path, 0, base=100)
    with pytest.raises(TruncationRefusedError):
        load(directory, clean=False, allow_truncate=False)
    finish(load(directory, clean=False))
    assert logs(directory) == {100: b""}


def test_new_segments_are_announced_from_the_highest_and_named_from_the_lowest(tmp_path: Path) -> None:
    """R-601: any `.cleaned` condemns the `.swap` files above it; `.log.swap` files condemn everything between them."""
    directory = overflowed(tmp_path, 0, FAR, 2 * FAR)
    fs = WatchedFileSystem()
    split_overflowed_segment(fs, Segment.open(fs, directory, 0), TopicConfig(), ReadBuffer())
    renamed = [operation for operation in fs.operations if operation.startswith("rename") and ".log" in operation]
    bases = [f"{base:020d}" for base in (0, FAR, 2 * FAR)]
    assert renamed == [
        *(f"rename {base}.log.cleaned" for base in reversed(bases)),
        f"rename {bases[0]}.log",
        *(f"rename {base}.log.swap" for base in bases),
    ]
    places = [at for at, operation in enumerate(fs.operations) if operation in renamed]
    assert all("fence" in fs.operations[first:second] for first, second in pairwise(places))
