"""The chunks of several segments: in order, files closed when no lane reads them, indexes checked."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.cleaning.passes.pipeline import OrderedPipeline
from cleaner.cleaning.passes.segment_chunks import ArrangedChunk, Claim, SegmentChunks
from cleaner.errors import CorruptBatchError, CorruptIndexError
from cleaner.format.parallel_reader import WindowBuffer
from cleaner.kernels.batch_header import HEAD_BYTES
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.load.loaded_log import list_segments
from cleaner.storage.segment.segment import Segment
from tests.support.batch_builder import marker_batch
from tests.support.log_builder import LogBuilder

pytestmark = pytest.mark.kernels

WINDOW_BYTES = 150  # about two batches


class CountedFile(File):
    """A file that counts how often it is closed, and refuses to be read afterwards."""

    def __init__(self, path: Path, handle: io.FileIO) -> None:
        super().__init__(path, handle)
        self.closed = 0

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Read, if it is open."""
        assert not self.closed, "read after it was closed"
        return super().read_into(buffer, position)

    def close(self) -> None:
        """Count real closes."""
        self.closed += self.fileno() >= 0
        super().close()


class CountingFileSystem(FileSystem):
    """A disk that remembers the `.log` files opened, in order."""

    def __init__(self) -> None:
        self.logs: list[CountedFile] = []

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open a file; a `.log` is counted."""
        file = super().open(path, write=write)
        if path.suffix != ".log":
            return file
        self.logs.append(CountedFile(path, file.handle))
        return self.logs[-1]

    @property
    def closed(self) -> list[int]:
        """How often each has been closed."""
        return [file.closed for file in self.logs]


def log_of(*segments: int) -> LogBuilder:
    """Build segments with these numbers of batches, all but the first with an index entry; 0 is an empty segment."""
    log = LogBuilder(index_interval_bytes=1)
    for number, batches in enumerate(segments):
        for i in range(batches):
            log.append((f"k{i}", "value" * (1 + i % 4)), (f"l{i}", None))
        log.skip(2)
        if number < len(segments) - 1:
            log.roll()
    return log


def written(log: LogBuilder, directory: Path) -> tuple[CountingFileSystem, list[Segment]]:
    """Write a log and list its segments on a disk that counts."""
    fs = CountingFileSystem()
    return fs, list_segments(fs, log.write(directory))


def numbered(segments: list[Segment], start: int = 0) -> Iterator[tuple[int, Segment, int]]:
    """Number segments; the first is read from a position on."""
    for number, segment in enumerate(segments):
        yield number, segment, start if number == 0 else 0


class CollectingLane:
    """A lane of the pipeline that only collects."""

    def __init__(self, chunks: SegmentChunks, found: list[tuple[int, bytes]]) -> None:
        self._chunks = chunks
        self._found = found
        self._buffer = WindowBuffer(WINDOW_BYTES)
        self._claim: Claim | None = None
        self._arranged: ArrangedChunk | None = None

    def take(self) -> bool:
        """Claim a window."""
        self._claim = self._chunks.claim()
        return self._claim is not None

    def fill(self) -> None:
        """Read it."""
        assert self._claim is not None
        self._chunks.fill(self._claim, self._buffer)

    def arrange(self) -> None:
        """List its batches."""
        assert self._claim is not None
        self._arranged = self._chunks.arrange(self._claim, self._buffer)

    def work(self) -> int:
        """Verify their checksums."""
        assert self._arranged is not None
        self._chunk = self._chunks.verify(self._arranged)
        return 0

    def commit(self) -> None:
        """Check the index and keep a copy."""
        assert self._arranged is not None
        assert self._claim is not None
        self._chunks.check_index(self._arranged, self._chunk)
        self._found.append((self._claim.number, self._chunk.data[: self._chunk.length].tobytes()))
        if self._chunk.failure is not None:
            raise self._chunk.failure

    def finish(self) -> None:
        """Release the window."""
        assert self._claim is not None
        self._chunks.release(self._claim)


def collect(segments: list[Segment], lanes: int, start: int = 0) -> list[tuple[int, bytes]]:
    """Read segments on `lanes` lanes and half as many threads; returns number and bytes of the committed chunks."""
    found: list[tuple[int, bytes]] = []
    chunks = SegmentChunks(numbered(segments, start), WINDOW_BYTES)
    try:
        OrderedPipeline([CollectingLane(chunks, found) for _ in range(lanes)], "test-chunks").run()
    finally:
        chunks.close()
    return found


def flip(segment: Segment, position: int) -> None:
    """Flip a bit of a `.log`."""
    data = bytearray(segment.log_path.read_bytes())
    data[position] ^= 1
    segment.log_path.write_bytes(bytes(data))


@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_segments_give_all_batches_in_order(tmp_path: Path, lanes: int) -> None:
    """With empty segments among them, also at both ends; every file is opened once and closed once."""
    fs, segments = written(log_of(0, 9, 1, 0, 0, 30, 2, 0), tmp_path)
    found = collect(segments, lanes)
    for number, segment in enumerate(segments):
        assert b"".join(data for n, data in found if n == number) == segment.log_path.read_bytes()
    assert [n for n, _ in found] == sorted(n for n, _ in found)
    assert [file.path for file in fs.logs] == [segment.log_path for segment in segments if segment.size]
    assert fs.closed == [1] * 4


def test_no_segments_have_no_chunks(tmp_path: Path) -> None:
    """Nor have empty ones; none is opened."""
    fs, segments = written(log_of(0), tmp_path)
    assert collect(segments, 2) == collect([], 2) == []
    assert fs.logs == []


def test_first_segment_is_read_from_the_position_given(tmp_path: Path) -> None:
    """Its index cannot be followed from there; the indexes of later segments are checked."""
    _, segments = written(log_of(9, 9), tmp_path)
    position = segments[0].position_at(8)
    found = collect(segments, 2, position)
    assert position > 0
    assert b"".join(data for n, data in found if n == 0) == segments[0].log_path.read_bytes()[position:]
    make_wrong(segments[0])
    assert collect(segments, 2, position) == found
    make_wrong(segments[1])
    with pytest.raises(CorruptIndexError):
        collect(segments, 2, position)


@pytest.mark.parametrize("seed", range(20))
def test_file_is_closed_when_its_last_window_is_released_and_not_before(tmp_path: Path, seed: int) -> None:
    """Windows are released in any order, long before or after all are claimed; none is filled from a closed file."""
    rng = random.Random(seed)
    fs, segments = written(log_of(6, 2, 0, 9), tmp_path)
    chunks = SegmentChunks(numbered(segments), WINDOW_BYTES)
    held: list[Claim] = []
    has_ended = False
    while held or not has_ended:
        if not has_ended and rng.random() < 0.6:
            claim = chunks.claim()
            has_ended = claim is None
            held += [] if claim is None else [claim]
        if held and rng.random() < 0.5:
            claim = held.pop(rng.randrange(len(held)))
            chunks.fill(claim, WindowBuffer(WINDOW_BYTES))
            chunks.release(claim)
        open_logs = {file.path for file in fs.logs if not file.closed}
        assert {claim.path for claim in held} <= open_logs
        assert len(open_logs - {claim.path for claim in held}) <= (0 if has_ended else 1)
    assert fs.closed == [1, 1, 1]
    chunks.close()
    assert fs.closed == [1, 1, 1]


def test_files_of_windows_never_released_are_closed_in_the_end(tmp_path: Path) -> None:
    """A round that fails drops chunks at any step."""
    fs, segments = written(log_of(4, 4, 4), tmp_path)
    chunks = SegmentChunks(numbered(segments), WINDOW_BYTES)
    while (claim := chunks.claim()) is not None:
        if claim.number == 1:
            chunks.release(claim)
    assert fs.closed == [0, 1, 0]
    chunks.close()
    assert fs.closed == [1, 1, 1]


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_damage_is_reported_with_its_place_and_all_files_are_closed(tmp_path: Path, lanes: int, damaged: int) -> None:
    """All chunks before it are committed, though later windows were claimed."""
    fs, segments = written(log_of(7, 7, 7), tmp_path)
    position = segments[damaged].position_at(segments[damaged].base_offset + 8)
    flip(segments[damaged], position + 80)
    with pytest.raises(CorruptBatchError, match="CRC-32C") as raised:
        collect(segments, lanes)
    assert (raised.value.path, raised.value.position) == (segments[damaged].log_path, position)
    assert fs.closed == [1] * len(fs.logs)


def make_wrong(segment: Segment, entry: int = 0, offset_by: int = 0, position_by: int = 1) -> None:
    """Change an index entry."""
    data = bytearray(segment.index_path.read_bytes())
    data[8 * entry + 3] += offset_by
    data[8 * entry + 7] += position_by
    segment.index_path.write_bytes(bytes(data))
    segment.forget()


@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_index_is_compared_with_the_batches_in_order(tmp_path: Path, lanes: int) -> None:
    """Good indexes pass, whichever lane is faster; an entry that points into a batch does not (R-333)."""
    for entry in (0, 3, 6):
        _, segments = written(log_of(3, 9, 4), tmp_path / str(entry))
        collect(segments, lanes)
        make_wrong(segments[1], entry)
        with pytest.raises(CorruptIndexError, match="middle of a batch") as raised:
            collect(segments, lanes)
        assert (raised.value.path, raised.value.position) == (segments[1].index_path, 8 * entry)


@pytest.mark.parametrize("lanes", [1, 4])
def test_index_is_checked_to_its_end_once_the_segment_has_ended(tmp_path: Path, lanes: int) -> None:
    """An offset after the last batch is found only at the end, also if no batch begins in the last windows."""
    log = log_of(5)
    log.append(("large", "value" * 100))  # larger than its windows
    log.roll()
    _, segments = written(log, tmp_path)
    collect(segments, lanes)
    last = len(segments[0].offset_index()) - 1
    make_wrong(segments[0], last, offset_by=5, position_by=0)
    with pytest.raises(CorruptIndexError, match="beyond the segment's last"):
        collect(segments, lanes)


def test_end_of_a_segment_is_reported_once(tmp_path: Path) -> None:
    """With the chunk that reaches it; windows within a large last batch come after it and are empty."""
    log = log_of(2)
    log.append(("large", "value" * 300))
    _, segments = written(log, tmp_path)
    chunks = SegmentChunks(numbered(segments), WINDOW_BYTES)
    claims = [(claim, WindowBuffer(WINDOW_BYTES)) for claim in iter(chunks.claim, None)]
    for claim, buffer in claims:
        chunks.fill(claim, buffer)
    arranged = [chunks.arrange(claim, buffer) for claim, buffer in claims]
    chunks.close()
    assert len(arranged) > 8
    assert [one.ends_segment for one in arranged].count(True) == 1
    end = next(i for i, one in enumerate(arranged) if one.ends_segment)
    assert arranged[end].chunk.position + arranged[end].chunk.length == segments[0].size
    assert all(one.chunk.length == 0 for one in arranged[end + 1 :])


def test_damaged_index_is_reported_by_the_claim_of_its_segments_first_window(tmp_path: Path) -> None:
    """Windows claimed before stay good, and no file is left open."""
    fs, segments = written(log_of(2, 2), tmp_path)
    segments[1].index_path.write_bytes(b"\xff" * 8)
    chunks = SegmentChunks(numbered(segments), WINDOW_BYTES)
    claims = []
    with pytest.raises(CorruptIndexError) as raised:
        claims += iter(chunks.claim, None)
    assert raised.value.path == segments[1].index_path
    assert len(fs.logs) == 1
    chunks.close()
    assert fs.closed == [1]


def test_window_given_up_leaves_the_rest_of_its_segment_empty(tmp_path: Path) -> None:
    """It could not be filled: what comes after it has no beginning."""
    _, segments = written(log_of(8, 3), tmp_path)
    chunks = SegmentChunks(numbered(segments), WINDOW_BYTES)
    found = []
    for number, claim in enumerate(iter(chunks.claim, None)):
        buffer = WindowBuffer(WINDOW_BYTES)
        if number == 1:
            chunks.abandon(claim)
        else:
            chunks.fill(claim, buffer)
            found.append((claim.number, chunks.arrange(claim, buffer).chunk.length > 0))
    chunks.close()
    assert found[0] == (0, True)
    assert set(found[1:]) == {(1, True)}


def test_first_damage_is_the_earlier_of_a_bad_checksum_and_what_arranging_says(tmp_path: Path) -> None:
    """If both name the same batch, it is the checksum: the batch's content cannot be trusted then."""
    log = log_of(2)
    log.append_raw(marker_batch(log.next_offset, 5, 0, commit=True))
    _, (segment,) = written(log, tmp_path)
    positions = [0, *segment.offset_index()["position"].tolist()]
    flip(segment, positions[1] + 70)
    chunks = SegmentChunks(numbered([segment]), 1 << 16)
    claim, buffer = chunks.claim(), WindowBuffer(1 << 16)
    assert claim is not None
    chunks.fill(claim, buffer)
    arranged = chunks.arrange(claim, buffer)
    chunks.close()
    assert len(arranged.chunk.batches) == 3
    said = [
        chunks.first_damage(arranged, CorruptBatchError(claim.path, int(position), "a marker"))
        for position in arranged.chunk.batches["position"]
    ]
    assert [error.position for error in said] == [0, positions[1], positions[1]]
    assert ["CRC-32C" in error.reason for error in said] == [False, True, True]


def test_windows_are_no_larger_than_asked_for_at_each_segment(tmp_path: Path) -> None:
    """The buffer's size is the limit of that; the batches are the same, also those larger than a window."""
    log = log_of(30, 30)
    log.append(("large", "value" * 300))
    _, segments = written(log, tmp_path)
    most = iter([HEAD_BYTES, 10 * WINDOW_BYTES])
    chunks = SegmentChunks(numbered(segments), WINDOW_BYTES, most_bytes=lambda: next(most))
    sizes: dict[int, int] = {0: 0, 1: 0}
    data = {0: b"", 1: b""}
    buffer = WindowBuffer(WINDOW_BYTES)
    while (claim := chunks.claim()) is not None:
        chunks.fill(claim, buffer)
        chunk = chunks.arrange(claim, buffer).chunk
        sizes[claim.number] = max(sizes[claim.number], claim.window.size)
        data[claim.number] += chunk.data[: chunk.length].tobytes()
        chunks.release(claim)
    chunks.close()
    assert sizes == {0: HEAD_BYTES, 1: WINDOW_BYTES}
    assert list(data.values()) == [segment.log_path.read_bytes() for segment in segments]
