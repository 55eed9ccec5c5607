"""The `.cleaned` files of a group: content, times and modes, and how they are read back."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from cleaner.base.model import AbortedTxn
from cleaner.cleaning.recopy.cleaned_segment import CleanedSegment
from cleaner.cleaning.recopy.verify import verify_cleaned
from cleaner.errors import CleanerError, CorruptBatchError, UncleanableError
from cleaner.format.parallel_reader import WindowBuffer
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.index_builder import WRITTEN_DTYPE
from cleaner.storage.segment.indexes import txn_index_bytes
from tests.support.batch_builder import Record, data_batch
from tests.support.batch_reader import batch_info
from tests.support.watched_fs import Operation, WatchedFileSystem

pytestmark = pytest.mark.kernels

BASE = 100
NAME = f"{BASE:020d}"
MTIME_NS = 1_600_000_000_123_000_000
BATCHES = [data_batch([Record(b"k", bytes(20 * i))], BASE + 10 * i, timestamp_ms=1000 + i) for i in range(6)]


def rows(batches: list[bytes]) -> np.ndarray:
    """Return the batch rows that an appender gets."""
    infos = [batch_info(batch) for batch in batches]
    content = [
        (len(batch), info.last_offset, info.max_timestamp_ms) for batch, info in zip(batches, infos, strict=True)
    ]  # fmt: skip
    return np.array(content, WRITTEN_DTYPE)


def target(directory: Path, fs: FileSystem | None = None, max_index_bytes: int = 1000) -> CleanedSegment:
    """Open a segment for writing, next to the source it is modelled on."""
    (directory / f"{NAME}.log").write_bytes(b"old")
    return CleanedSegment(
        fs or WatchedFileSystem(), directory, BASE, like=directory / f"{NAME}.log", interval_bytes=100,
        max_index_bytes=max_index_bytes,
    )  # fmt: skip


def append(segment: CleanedSegment, batches: list[bytes]) -> None:
    """Append batches in one call."""
    data = b"".join(batches)
    segment.write(memoryview(data), segment.reserve(len(data), rows(batches), batch_info(batches[-1]).last_offset))


def names(directory: Path) -> list[str]:
    """Return the names in a directory, without the source."""
    return sorted(path.name for path in directory.iterdir() if path.name != f"{NAME}.log")


def test_finished_segment_has_log_and_indexes_with_the_sources_time(tmp_path: Path) -> None:
    """All bytes in order; index entries as in R-320; no transaction index without aborts (R-591)."""
    segment = target(tmp_path)
    append(segment, BATCHES[:2])
    append(segment, BATCHES[2:])
    segment.finish([], MTIME_NS)
    assert names(tmp_path) == [f"{NAME}.{kind}.cleaned" for kind in ("index", "log", "timeindex")]
    assert (tmp_path / f"{NAME}.log.cleaned").read_bytes() == b"".join(BATCHES)
    assert (segment.size, segment.batch_count) == (sum(map(len, BATCHES)), 6)
    entries = list(struct.iter_unpack(">ii", (tmp_path / f"{NAME}.index.cleaned").read_bytes()))
    starts = [sum(map(len, BATCHES[:i])) for i in range(6)]
    assert entries == [(10 * i, starts[i]) for i in (2, 3, 4, 5)]
    times = list(struct.iter_unpack(">qi", (tmp_path / f"{NAME}.timeindex.cleaned").read_bytes()))
    assert times == [(1000 + i, 10 * i) for i in (2, 3, 4, 5)]
    assert {path.stat().st_mtime_ns for path in tmp_path.glob("*.cleaned")} == {MTIME_NS}


def test_segment_with_aborts_gets_a_transaction_index(tmp_path: Path) -> None:
    """With unchanged entries (R-533)."""
    segment = target(tmp_path)
    aborts = [AbortedTxn(1, 100, 105, 106), AbortedTxn(2, 101, 107, 108)]
    segment.finish(aborts, MTIME_NS)
    assert (tmp_path / f"{NAME}.txnindex.cleaned").read_bytes() == txn_index_bytes(aborts)


def test_segment_without_records_is_empty_files(tmp_path: Path) -> None:
    """A group whose records are all removed still gives a segment (R-591)."""
    segment = target(tmp_path)
    assert segment.reserve(0, rows([]), -1) == 0
    segment.finish([], MTIME_NS)
    assert {path.stat().st_size for path in tmp_path.glob("*.cleaned")} == {0}


def test_files_take_over_the_modes_of_their_sources(tmp_path: Path) -> None:
    """Each file has the mode of the same kind of file; if the source has none, that of the log."""
    segment_log = tmp_path / f"{NAME}.log"
    segment_log.write_bytes(b"old")
    segment_log.chmod(0o640)
    index = tmp_path / f"{NAME}.index"
    index.write_bytes(b"")
    index.chmod(0o604)
    segment = target(tmp_path)
    segment.finish([AbortedTxn(1, 100, 105, 106)], MTIME_NS)
    modes = {path.name[21:]: path.stat().st_mode & 0o777 for path in tmp_path.glob("*.cleaned")}
    assert modes == {
        "log.cleaned": 0o640, "index.cleaned": 0o604, "timeindex.cleaned": 0o640, "txnindex.cleaned": 0o640,
    }  # fmt: skip


def test_every_file_is_synced_after_its_last_change_and_then_the_directory(tmp_path: Path) -> None:
    """Step S0 of the swap: content first, then the names (D-10)."""

    class Noting(WatchedFileSystem):
        def __init__(self) -> None:
            self.operations: list[Operation] = []

        def after(self, operation: Operation) -> None:
            self.operations.append(operation)

    fs = Noting()
    segment = target(tmp_path, fs)
    append(segment, BATCHES)
    segment.finish([AbortedTxn(1, 100, 105, 106)], MTIME_NS)
    kinds = [(operation.kind, operation.path.name) for operation in fs.operations]
    assert kinds[-1] == ("fsync_dir", tmp_path.name)
    for extension in ("log", "index", "timeindex", "txnindex"):
        name = f"{NAME}.{extension}.cleaned"
        writes = [i for i, kind in enumerate(kinds) if kind == ("write", name)]
        syncs = [i for i, kind in enumerate(kinds) if kind == ("fsync", name)]
        assert len(syncs) == 1
        assert all(write < syncs[0] for write in writes)


def test_left_overs_of_an_earlier_attempt_are_removed_first(tmp_path: Path) -> None:
    """Of the same base, all four (R-590)."""
    for extension in ("log", "index", "timeindex", "txnindex"):
        (tmp_path / f"{NAME}.{extension}.cleaned").write_bytes(b"left over")
    segment = target(tmp_path)
    assert names(tmp_path) == [f"{NAME}.log.cleaned"]
    segment.discard()


@pytest.mark.parametrize("finished", [False, True])
def test_discarded_segment_leaves_nothing(tmp_path: Path, finished: bool) -> None:
    """At any stage of writing (R-595)."""
    segment = target(tmp_path)
    append(segment, BATCHES)
    if finished:
        segment.finish([AbortedTxn(1, 100, 105, 106)], MTIME_NS)
    segment.discard()
    assert names(tmp_path) == []


def test_segment_beyond_two_gib_is_refused_before_it_is_written(tmp_path: Path) -> None:
    """Kafka's file positions have 31 bits (R-597)."""
    segment = target(tmp_path)
    segment.size = 2**31 - 1 - len(BATCHES[0]) + 1
    with pytest.raises(UncleanableError, match="2147483647 bytes"):
        append(segment, BATCHES[:1])
    assert (tmp_path / f"{NAME}.log.cleaned").stat().st_size == 0


def test_offset_too_far_from_the_base_is_refused_before_it_is_written(tmp_path: Path) -> None:
    """More than 2**31 - 1 above the base offset (R-304, D-15)."""
    segment = target(tmp_path)
    fits, too_far = (data_batch([Record(b"k", b"v")], BASE + distance) for distance in (2**31 - 1, 2**31))
    append(segment, [fits])
    with pytest.raises(UncleanableError, match="2147483748"):
        append(segment, [too_far])
    assert segment.size == len(fits)


def test_last_offset_without_its_record_is_refused_by_the_index(tmp_path: Path) -> None:
    """It is the batch's last offset that must fit an entry, not the largest record's (R-320)."""
    segment = target(tmp_path)
    far = data_batch([Record(b"k", b"v")], BASE + 2**31 - 1, last_offset=BASE + 2**31)
    with pytest.raises(UncleanableError, match=r"2\*\*31 - 1 above"):
        segment.reserve(sum(map(len, [*BATCHES, far])), rows([*BATCHES, far]), BASE + 2**31 - 1)


@pytest.mark.parametrize(("room", "reason"), [(16, "time index"), (24, "time index")])
def test_full_index_is_refused(tmp_path: Path, room: int, reason: str) -> None:
    """As Kafka's cleaner would fail (R-311, R-325)."""
    segment = target(tmp_path, max_index_bytes=room)
    with pytest.raises(UncleanableError, match=reason):
        append(segment, BATCHES)


def finished(tmp_path: Path) -> CleanedSegment:
    """Write all batches and finish."""
    segment = target(tmp_path)
    append(segment, BATCHES)
    segment.finish([], MTIME_NS)
    return segment


def verify(segment: CleanedSegment, messages: int = 6) -> None:
    """Read a finished segment back, with a buffer smaller than the log."""
    verify_cleaned(
        FileSystem(), segment, messages, interval_bytes=100, max_index_bytes=1000, buffers=[WindowBuffer(200)]
    )  # fmt: skip


def test_segment_read_back_as_written_is_sound(tmp_path: Path) -> None:
    """Checksums, order, counts, indexes (rule C-6)."""
    verify(finished(tmp_path))


def test_every_flipped_bit_of_a_segment_is_found_when_it_is_read_back(tmp_path: Path) -> None:
    """In the log or its indexes; only the leader epochs have no protection."""
    segment = finished(tmp_path)
    starts = [sum(map(len, BATCHES[:i])) for i in range(6)]
    epochs = {start + i for start in starts for i in range(12, 16)}
    for extension in ("log", "index", "timeindex"):
        path = tmp_path / f"{NAME}.{extension}.cleaned"
        whole = path.read_bytes()
        for position in range(len(whole)):
            if extension == "log" and position in epochs:
                continue
            damaged = bytearray(whole)
            damaged[position] ^= 1 << position % 8
            path.write_bytes(bytes(damaged))
            with pytest.raises(CleanerError):
                verify(segment)
        path.write_bytes(whole)
    verify(segment)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda data: data[: -len(BATCHES[-1])], id="last-batch-lost"),
        pytest.param(lambda data: data[len(BATCHES[0]) :], id="first-batch-lost"),
        pytest.param(lambda data: data + data_batch([], 1000), id="batch-added"),
        pytest.param(lambda data: data + bytes(100), id="zeros-added"),
        pytest.param(lambda data: data[:-1], id="byte-lost"),
        pytest.param(lambda data: b"".join([BATCHES[1], BATCHES[0], *BATCHES[2:]]), id="batches-swapped"),
    ],
)
def test_segment_whose_batches_changed_is_refused(tmp_path: Path, change: object) -> None:
    """Even if each batch alone is sound."""
    segment = finished(tmp_path)
    path = tmp_path / f"{NAME}.log.cleaned"
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(CorruptBatchError) as raised:
        verify(segment)
    assert raised.value.path == path


def test_segment_with_another_number_of_records_is_refused(tmp_path: Path) -> None:
    """The number of retained records is known."""
    with pytest.raises(CorruptBatchError, match=r"6 batches and 7 records were written, .* 6 and 6 read back"):
        verify(finished(tmp_path), messages=7)
