"""One group of segments recopied into one: its steps, and the verdicts of any judge."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cleaner.base.model import AbortedTxn, LastRecord
from cleaner.cleaning.passes.lane_memory import LaneMemory
from cleaner.cleaning.passes.segment_chunks import Claim, SegmentChunks
from cleaner.cleaning.recopy.batch_retention import ActiveProducers
from cleaner.cleaning.recopy.cleaned_segment import CleanedSegment
from cleaner.cleaning.recopy.group import GroupRecopier, RecopyRules
from cleaner.cleaning.recopy.survivors import BlockRetention, Survivors
from cleaner.errors import CorruptBatchError, CorruptIndexError
from cleaner.format.chunks import Flags
from cleaner.format.parallel_reader import WindowBuffer
from cleaner.format.records import Block, Unpacker
from cleaner.kernels.offset_map import KEEP, SUPERSEDED
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loaded_log import list_segments
from cleaner.storage.segment.segment import Segment
from tests.reference.batches import read_batches, read_records
from tests.support.batch_builder import Producer, Record, marker_batch
from tests.support.log_builder import LogBuilder
from tests.support.watched_fs import WatchedFileSystem

pytestmark = pytest.mark.kernels

NOW_MS = 1_700_000_900_000


class ByPlace:
    """Verdicts by the place of a record among all that are read; counts the records judged."""

    def __init__(self, keep_every: int) -> None:
        self._keep_every = keep_every
        self.asked = 0

    def judge(self, path: Path, block: Block, retention: BlockRetention, verdicts: Flags) -> None:
        """Keep every n-th record."""
        for i in range(block.record_count(retention.unread)):
            verdicts[i] = KEEP if self.asked % self._keep_every == 0 else SUPERSEDED
            self.asked += 1


def recopy(
    directory: Path,
    survivors: Survivors | Callable[[], Survivors],
    *,
    producers: dict[int, LastRecord] | None = None,
    first_uncleanable: int = 10**6,
    chunk_bytes: int = 400,
    aborted: Sequence[AbortedTxn] = (),
    steps: list[tuple[int, int]] | None = None,
    lanes: int = 1,
    ranges: list[tuple[int, int]] | None = None,
    before_read: Callable[[int], None] = lambda _: None,
    delete_retention_ms: int = 1000,
) -> tuple[bytes, list[AbortedTxn], GroupRecopier]:
    """Recopy all segments of a directory as one group; returns the new log's bytes."""
    steps = [] if steps is None else steps
    ranges = [] if ranges is None else ranges
    group: list[Segment] = list_segments(FileSystem(), directory)

    def collect(from_offset: int, upper_offset: int) -> Sequence[AbortedTxn]:
        ranges.append((from_offset, upper_offset))
        return aborted

    recopier = GroupRecopier(
        rules=RecopyRules(first_uncleanable, True, 0, NOW_MS, NOW_MS, delete_retention_ms),
        make_survivors=survivors if callable(survivors) else lambda: survivors,
        producers=ActiveProducers(producers or {}),
        collect_aborted=collect,
        lanes=[LaneMemory(WindowBuffer(chunk_bytes), Unpacker(1 << 20)) for _ in range(lanes)],
        before_read=before_read,
        before_chunk=lambda read: steps.append((read, 0)),
        after_write=lambda written: steps.append((0, written)),
    )
    fs = WatchedFileSystem()
    target = CleanedSegment(
        fs, directory, group[0].base_offset, like=group[0].log_path, interval_bytes=100, max_index_bytes=1 << 20
    )
    retained = recopier.recopy(group, 2**63 - 1, target)
    data = target.path.read_bytes()
    target.discard()
    return data, [AbortedTxn(*row) for row in retained.tolist()], recopier


def log_of(*segments: int) -> LogBuilder:
    """Build segments with these numbers of batches of two records."""
    log = LogBuilder(index_interval_bytes=100)
    for number, batches in enumerate(segments):
        if number:
            log.roll()
        for _ in range(batches):
            log.append((f"k{log.next_offset}", "value"), ("same", f"value {log.next_offset}"))
    return log


@pytest.mark.parametrize("keep_every", [1, 2, 3, 7])
@pytest.mark.parametrize("chunk_bytes", [100, 400, 1 << 16])
def test_group_keeps_what_the_survivors_say(tmp_path: Path, keep_every: int, chunk_bytes: int) -> None:
    """For any verdicts, and however the sources are cut into chunks; every record is judged once."""
    directory = log_of(6, 9, 3).write(tmp_path)
    survivors = ByPlace(keep_every)
    data, _, recopier = recopy(directory, survivors, chunk_bytes=chunk_bytes)
    offsets = [record.offset for batch in read_batches(data) for record in read_records(batch)]
    assert offsets == list(range(0, 36, keep_every))
    assert survivors.asked == 36
    assert (recopier.counts.messages_read, recopier.counts.messages_written) == (36, len(offsets))


class ByOffset:
    """Verdicts by a record's offset, the same in every lane; one judge for each lane."""

    made = 0

    def __init__(self) -> None:
        ByOffset.made += 1

    def judge(self, path: Path, block: Block, retention: BlockRetention, verdicts: Flags) -> None:
        """Keep the even offsets."""
        offsets = [int(row["base_offset"]) + i for row in block.batches for i in range(int(row["count"]))]
        verdicts[: len(offsets)] = [SUPERSEDED if offset % 2 else KEEP for offset in offsets]


@pytest.mark.parametrize("chunk_bytes", [100, 400, 1 << 16])
def test_lanes_leave_the_same_segment_and_each_has_its_own_judge(tmp_path: Path, chunk_bytes: int) -> None:
    """Bytes and counts; chunks are announced in the order of the log."""
    directory = log_of(6, 9, 3).write(tmp_path)
    found = []
    for lanes in (1, 2, 4):
        steps: list[tuple[int, int]] = []
        ByOffset.made = 0
        data, _, recopier = recopy(directory, ByOffset, lanes=lanes, chunk_bytes=chunk_bytes, steps=steps)
        assert ByOffset.made == lanes
        found.append((data, recopier.counts, [read for read, _ in steps if read]))
        assert sum(written for _, written in steps) == len(data)
    assert found[1:] == found[:1] * 2
    offsets = [record.offset for batch in read_batches(found[0][0]) for record in read_records(batch)]
    assert offsets == list(range(0, 36, 2))


def test_group_that_keeps_all_is_its_sources_end_to_end(tmp_path: Path) -> None:
    """Byte for byte."""
    directory = log_of(6, 9, 3).write(tmp_path)
    sources = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    assert recopy(directory, ByPlace(1))[0] == sources


def test_caller_is_called_before_every_window_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A speed limit applied afterwards would let windows of all lanes pass at once."""
    directory = log_of(20).write(tmp_path)
    events: list[tuple[str, int]] = []
    read = SegmentChunks.fill

    def fill(claim: Claim, buffer: WindowBuffer) -> None:
        events.append(("read", claim.window.size))
        read(claim, buffer)

    monkeypatch.setattr(SegmentChunks, "fill", staticmethod(fill))

    recopy(directory, ByPlace(1), before_read=lambda size: events.append(("told", size)))
    told = [size for what, size in events if what == "told"]
    assert sum(told) == (directory / f"{0:020d}.log").stat().st_size
    assert events == [event for size in told for event in (("told", size), ("read", size))]


def test_caller_is_called_before_and_after_every_chunk(tmp_path: Path) -> None:
    """Bytes read before they are processed, bytes written after (R-715)."""
    directory = log_of(6, 9).write(tmp_path)
    steps: list[tuple[int, int]] = []
    data, _, recopier = recopy(directory, ByPlace(2), steps=steps)
    assert sum(read for read, _ in steps) == recopier.counts.bytes_read
    assert sum(written for _, written in steps) == len(data) == recopier.counts.bytes_written
    assert [read > 0 for read, _ in steps] == [True, False] * (len(steps) // 2)


def test_aborts_are_collected_for_each_source_up_to_the_next(tmp_path: Path) -> None:
    """The last one's range ends at its own next offset (R-536)."""
    directory = log_of(6, 9, 3).write(tmp_path)
    ranges: list[tuple[int, int]] = []
    recopy(directory, ByPlace(1), ranges=ranges)
    assert ranges == [(0, 12), (12, 30), (30, 36)]


def test_aborted_data_is_not_judged_and_its_marker_is_kept(tmp_path: Path) -> None:
    """Survivors see only batches that are read; the abort goes into the new transaction index (R-533, R-540)."""
    log = LogBuilder()
    log.append(("a", "v"))
    log.append(("b", "v"), ("c", "v"), producer=Producer(5, 0, 0, True))
    log.roll()
    log.end_transaction(5, 0, commit=False)
    log.append(("d", "v"))
    abort = AbortedTxn(5, 1, 3, 4)
    survivors = ByPlace(1)
    data, retained, recopier = recopy(log.write(tmp_path), survivors, aborted=[abort])
    assert [batch.base_offset for batch in read_batches(data)] == [0, 3, 4]
    assert retained == [abort]
    assert survivors.asked == 3
    assert recopier.counts.removed.aborted == 2


def test_active_producers_last_batch_stays_without_records(tmp_path: Path) -> None:
    """For its sequence number; and the batch that ends the range, for the log end offset (R-541, R-575)."""
    log = LogBuilder()
    for i in range(4):
        log.append(("k", "v"), producer=Producer(5, 0, i))
    log.append(("k", "v"))
    data, _, recopier = recopy(
        log.write(tmp_path), ByPlace(100), producers={5: LastRecord(2, 0)}, first_uncleanable=5
    )  # fmt: skip
    found = [(batch.base_offset, batch.count) for batch in read_batches(data)]
    assert found == [(0, 1), (2, 0), (4, 0)]
    assert recopier.counts.messages_written == 1


def test_new_horizon_wraps_like_javas_sum() -> None:
    """A huge delete.retention.ms gives a negative number, and so no horizon (R-563, R-568)."""
    assert RecopyRules(0, True, 0, NOW_MS, NOW_MS, 1000).new_horizon_ms == NOW_MS + 1000
    assert RecopyRules(0, True, 0, NOW_MS, NOW_MS, 2**63 - 1).new_horizon_ms == NOW_MS - 1 - 2**63


def test_marker_without_data_gets_its_horizon_and_goes_once_that_has_passed(tmp_path: Path) -> None:
    """Three states of a marker whose data is gone: stamped, waiting, gone (R-534)."""
    log = LogBuilder()
    log.append_raw(marker_batch(0, 5, 0, commit=True))
    log.append_raw(marker_batch(1, 6, 0, commit=True, delete_horizon_ms=NOW_MS + 1))
    log.append_raw(marker_batch(2, 7, 0, commit=True, delete_horizon_ms=NOW_MS))
    data, _, recopier = recopy(log.write(tmp_path), ByPlace(1))
    horizons = [(batch.base_offset, batch.delete_horizon) for batch in read_batches(data)]
    assert horizons == [(0, NOW_MS + 1000), (1, NOW_MS + 1)]
    assert recopier.counts.removed.markers == 1


def test_damaged_source_is_refused_where_the_damage_is(tmp_path: Path) -> None:
    """A flipped bit in the middle of the second segment."""
    log = log_of(6, 9)
    directory = log.write(tmp_path)
    path = directory / f"{12:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(CorruptBatchError) as raised:
        recopy(directory, ByPlace(1))
    assert raised.value.path == path
    batches = read_batches(bytes(data))
    assert raised.value.position in [batch.position for batch in batches]


def test_source_below_its_base_offset_is_refused(tmp_path: Path) -> None:
    """Its batches belong to another segment."""
    directory = log_of(3).write(tmp_path)
    (directory / f"{0:020d}.log").rename(directory / f"{1:020d}.log")
    with pytest.raises(CorruptBatchError, match="not above the one before") as raised:
        recopy(directory, ByPlace(1))
    assert raised.value.position == 0


def test_index_that_does_not_fit_its_log_is_refused(tmp_path: Path) -> None:
    """Each source's index is compared with its log (R-333)."""
    directory = log_of(9, 9).write(tmp_path)
    path = directory / f"{0:020d}.index"
    data = bytearray(path.read_bytes())
    assert len(data) > 8
    data[7] += 2
    path.write_bytes(bytes(data))
    with pytest.raises(CorruptIndexError):
        recopy(directory, ByPlace(1))


def test_large_batch_goes_through_a_small_buffer(tmp_path: Path) -> None:
    """The buffer grows for it and shrinks again."""
    log = log_of(2)
    log.append(Record(b"large", bytes(100_000)))
    log.append(("k", "v"))
    directory = log.write(tmp_path)
    sources = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    assert recopy(directory, ByPlace(1), chunk_bytes=200)[0] == sources


def recopied(
    directory: Path, survivors: Callable[[], Survivors], *, may_stay: bool, lanes: int = 1
) -> dict[str, bytes]:
    """Recopy the first segment, lazily or not; returns the files that a swap would leave, by their last suffix."""
    group = list_segments(FileSystem(), directory)[:1]
    recopier = GroupRecopier(
        rules=RecopyRules(10**6, True, 0, NOW_MS, NOW_MS, 1000),
        make_survivors=survivors,
        producers=ActiveProducers({}),
        collect_aborted=lambda *_: (),
        lanes=[LaneMemory(WindowBuffer(150), Unpacker(1 << 20)) for _ in range(lanes)],
        before_read=lambda _: None,
        before_chunk=lambda _: None,
        after_write=lambda _: None,
    )
    target = CleanedSegment(
        WatchedFileSystem(),
        directory,
        group[0].base_offset,
        like=group[0].log_path,
        interval_bytes=100,
        max_index_bytes=1 << 20,
        source=group[0] if may_stay else None,
    )
    aborts = recopier.recopy(group, 2**63 - 1, target)
    if target.equals_source(aborts):
        files = directory.glob(f"{group[0].base_offset:020d}.*")
        left = {path.suffix[1:]: path.read_bytes() for path in files}
    else:
        target.finish(aborts, group[0].mtime_ns)
        left = {path.name.split(".")[1]: path.read_bytes() for path in directory.glob("*.cleaned")}
    target.discard()
    assert not list(directory.glob("*.cleaned"))
    return left


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("first_lost", [0, 1, 7, 17, 20, 35, 36])
def test_segment_is_written_from_its_first_difference_on(tmp_path: Path, first_lost: int, lanes: int) -> None:
    """Whatever record is the first to go, the files are those of a recopying that writes everything."""

    class Losing:
        def judge(self, path: Path, block: Block, retention: BlockRetention, verdicts: Flags) -> None:
            offsets = [int(row["base_offset"]) + i for row in block.batches for i in range(int(row["count"]))]
            verdicts[: len(offsets)] = [SUPERSEDED if offset == first_lost else KEEP for offset in offsets]

    directory = log_of(18, 1).write(tmp_path)
    log, inode = directory / f"{0:020d}.log", (directory / f"{0:020d}.log").stat().st_ino
    whole = recopied(directory, Losing, may_stay=False)
    assert recopied(directory, Losing, may_stay=True, lanes=lanes) == whole
    assert (whole["log"] == log.read_bytes()) == (first_lost == 36)
    assert log.stat().st_ino == inode


@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex"])
def test_segment_whose_index_would_be_another_is_written(tmp_path: Path, suffix: str) -> None:
    """Its records all stay; the index that recopying makes must not be missing."""
    directory = log_of(6, 1).write(tmp_path)
    whole = recopied(directory, lambda: ByPlace(1), may_stay=False)
    (directory / f"{0:020d}.{suffix}").write_bytes(b"")
    assert recopied(directory, lambda: ByPlace(1), may_stay=True) == whole


@pytest.mark.parametrize("error", [None, 0, errno.EXDEV, errno.EPERM])
def test_segment_is_copied_where_the_system_cannot_copy_within_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int | None
) -> None:
    """By reading and writing; of a source that ends early what there is, without an endless loop."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(range(256)) * 20)
    fs = FileSystem()
    if error is not None:
        monkeypatch.setattr(os, "copy_file_range", _refuse(error))
    with fs.open(source) as read, fs.create(target, like=source) as written:
        assert written.copy_from(read, 5000, 0) == 5000
        assert target.read_bytes() == source.read_bytes()[:5000]
        assert written.copy_from(read, 1000, 5000) == 120


def _refuse(error: int) -> Callable[..., int]:
    def copy_file_range(*_: object) -> int:
        if error:
            raise OSError(error, os.strerror(error))
        return 0

    return copy_file_range
