"""
A task checks every batch of a range, digests every key, and emits one row for each key.

A row is a key's digest and an offset code (`plan.py`), and the record's number where the survivor rule compares
numbers. If a key repeats, only its last record has a row, as long as the
task remembers the key. When the task holds as many keys as it may, it emits them all and starts again with none, so its
memory is bounded for any keys. Records whose keys do not count (of the clean section and of aborted transactions) have
one row each, which only asks.

The task also writes a report on the range, a small file in the job's directory, for the driver.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cleaner.base.json_values import json_value
from cleaner.cleaning.map.digests import DigestedChunk, DirtyChunk
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.passes.index_follower import IndexFollower
from cleaner.cleaning.passes.segment_chunks import ArrangedChunk, SegmentChunks
from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import CONTROL_FLAG, TRANSACTIONAL_FLAG, Chunk, Flags, control_batches
from cleaner.format.key_digests import FIRST, OFFSET_PLUS_1, SECOND, Words
from cleaner.format.parallel_reader import WindowBuffer
from cleaner.format.records import Unpacker
from cleaner.kernels import offset_map as kernel
from cleaner.kernels import transactions as transaction_kernel
from cleaner.spark.clean.damage import REPORTED, ErrorValue, to_value
from cleaner.spark.clean.plan import OUTRANKING, Codes, JobSettings, Range
from cleaner.spark.clean.transactions import PassState, PassSummary
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.segment import Segment, SegmentIndexes

_ROWS_AT_A_TIME = 1 << 19  # 12 MiB
_TABLE_DENSITY = 0.7


NO_NUMBERS: npt.NDArray[np.int64] = np.zeros(0, np.int64)
_BIAS = np.uint64(1 << 63)


class DigestRows(NamedTuple):
    """
    Rows of some keys: the two halves of their digests, and offset codes.

    With a survivor rule that compares numbers, also the records' numbers; else none.
    """

    sip: npt.NDArray[np.int64]
    murmur: npt.NDArray[np.int64]
    codes: Codes
    numbers: npt.NDArray[np.int64] = NO_NUMBERS

    @property
    def columns(self) -> tuple[npt.NDArray[np.int64], ...]:
        """The columns that have a value for each row."""
        return self if len(self.numbers) == len(self.codes) else self[:-1]


@dataclass(frozen=True)
class RangeStart:
    """
    A range and what a task needs to digest it.

    Attributes:
        range: the range.
        copied, mapped: state of the second and the first pass at the range's start. `mapped` is None if the first pass
            of a round of one process does not read the range.
    """

    range: Range
    copied: PassState
    mapped: PassState | None


@dataclass
class RangeReport:
    """
    The report on a range.

    Attributes:
        messages, keyless: records of the dirty section, and how many of them have no key (R-718).
        first_offset, first_last_offset: base and last offset of its first batch; -1 if it has none.
        last_offset: of its last batch; -1 if it has none.
        copied, mapped: how the range changes the state of the passes.
        error: the error in the range, if any.
    """

    messages: int = 0
    keyless: int = 0
    first_offset: int = -1
    first_last_offset: int = -1
    last_offset: int = -1
    copied: PassSummary = field(default_factory=PassSummary)
    mapped: PassSummary = field(default_factory=PassSummary)
    error: ErrorValue | None = None


def report_path(work_dir: Path, number: int) -> Path:
    """Return the path of a range's report."""
    return work_dir / f"range-{number:07d}.json"


def digest_range(fs: FileSystem, settings: JobSettings, start: RangeStart) -> Iterator[DigestRows]:
    """Digest a range and write its report; see above. Raises errors of the disk."""
    digester = RangeDigester(fs, settings, start)
    try:
        yield from digester.rows()
    except REPORTED as error:
        digester.report.error = to_value(error)
    path = report_path(settings.work_dir, start.range.number)
    # Several attempts may write it at the same time; their content is the same.
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    with fs.create(temporary, like=settings.work_dir) as file:
        file.write(json.dumps(json_value(digester.report)).encode("ascii"), 0)
    fs.rename(temporary, path)


class RangeDigester:
    """
    Digests one range.

    Args:
        fs: access to the disk.
        settings, start: the task's input.

    Attributes:
        report: on the range, as far as it was read.
    """

    def __init__(self, fs: FileSystem, settings: JobSettings, start: RangeStart) -> None:
        self.report = RangeReport()
        self._settings = settings
        self._range = start.range
        self._segment, self._follower = _open(fs, settings.directory, start.range)
        self._copied = start.copied.aborting().begin()
        self._mapped = None if start.mapped is None else start.mapped.aborting().begin()
        self._markers: tuple[set[int], set[int]] = (set(), set())
        self._keys = settings.key_words
        self._map = OffsetMap(settings.task_entries, int(settings.task_entries / _TABLE_DENSITY), settings.rule)
        self._map.keys = self._keys
        self._unpacker = Unpacker(settings.batch_limit_bytes)
        # Keys of the clean section have no limit here: it counts when their records are recopied.
        numbers = settings.rule.numbers
        self._digested = DigestedChunk(record_limit_bytes=settings.record_limit_bytes, numbers=numbers)
        self._asking = DigestedChunk()
        self._throttle = settings.throttle()

    def rows(self) -> Iterator[DigestRows]:
        """Yield the rows of the range. Raises the error in it."""
        buffer = WindowBuffer()
        chunks = SegmentChunks(iter([(0, self._segment, self._range.start)]), buffer.window_bytes, drops_behind=True)
        try:
            while (claim := chunks.claim()) is not None:
                self._throttle(claim.window.size)
                chunks.fill(claim, buffer)
                yield from self._digest(chunks.arrange(claim, buffer))
                chunks.release(claim)
        finally:
            chunks.close()
        if self._follower is not None:
            self._follower.finish()
        yield from self._drain()
        committed, aborted = (frozenset(found) for found in self._markers)
        self.report.copied = PassSummary(PassState.of(self._copied), committed, aborted)
        if self._mapped is not None:
            self.report.mapped = PassSummary(PassState.of(self._mapped), committed, aborted)

    def _digest(self, arranged: ArrangedChunk) -> Iterator[DigestRows]:
        """Digest a chunk; errors are raised in the same order as in the first pass of a round."""
        listed, error = arranged.chunk, None
        skipped: Flags = np.zeros(len(listed.batches), np.uint8)
        try:
            skipped = self._skipped(arranged)
        except CorruptBatchError as found:
            error = SegmentChunks.first_damage(arranged, found)
        chunk = SegmentChunks.verify(arranged)
        if error is None and self._follower is not None:
            self._follower.add_batches(chunk.batches)
        if error is not None:
            raise error
        if chunk.length:
            self._note(chunk)
            yield from self._take(DirtyChunk(0, self._segment, arranged.claim, chunk=chunk), chunk, skipped)
        if chunk.failure is not None:
            raise chunk.failure

    def _skipped(self, arranged: ArrangedChunk) -> Flags:
        """Follow both passes' transactions through a chunk; returns 1 for batches aborted in the first pass."""
        chunk, path = arranged.chunk, arranged.claim.path
        if not len(chunk.batches) or not chunk.kinds & (TRANSACTIONAL_FLAG | CONTROL_FLAG):
            return np.zeros(len(chunk.batches), np.uint8)
        aborted = np.zeros(len(chunk.batches), np.uint8)
        if self._mapped is not None:
            aborted = self._mapped.discardable(path, chunk)
        self._copied.discardable(path, chunk)
        kinds = np.empty(len(chunk.batches), np.int8)
        transaction_kernel.list_markers(chunk.data, chunk.batches, kinds)
        for kind, found in zip(
            (transaction_kernel.MARKER_COMMIT, transaction_kernel.MARKER_ABORT), self._markers, strict=True
        ):
            found.update(np.unique(chunk.batches["producer_id"][kinds == kind]).tolist())
        return aborted

    def _note(self, chunk: Chunk) -> None:
        rows, report = chunk.batches, self.report
        if report.first_offset < 0:
            report.first_offset = int(rows[0]["base_offset"])
            report.first_last_offset = int(rows[0]["last_offset"])
        report.last_offset = int(rows[-1]["last_offset"])

    def _take(self, task: DirtyChunk, chunk: Chunk, aborted: Flags) -> Iterator[DigestRows]:
        rows = chunk.batches
        aborted = aborted[: len(rows)]
        is_control = control_batches(rows).astype(np.uint8)
        if not self._range.is_dirty:
            yield from self._ask(task, is_control, None)
            return
        first_dirty = self._settings.first_dirty_offset
        # Before a legacy batch is unpacked, only its last offset is known.
        before = np.concatenate(([-1], rows["last_offset"][:-1]))
        is_legacy_below = (rows["magic"] < 2) & (before + 1 < first_dirty)
        is_below = ((rows["base_offset"] < first_dirty) | is_legacy_below).astype(np.uint8)
        task.skipped = aborted | is_control
        self._digested.digest(task, self._unpacker, first_dirty, self._keys)
        if self._digested.error is not None:
            raise self._digested.error
        if self._digested.refusal is not None:
            raise self._digested.refusal
        self.report.messages += self._digested.messages
        self.report.keyless += self._digested.keyless
        if is_below.any():
            yield from self._ask(task, is_control | aborted | (1 - is_below).astype(np.uint8), first_dirty)
        if (aborted & (1 - is_control)).any():
            yield from self._ask(task, is_control | (1 - aborted).astype(np.uint8), None)
        yield from self._put(self._digested.rows)

    def _put(self, rows: Words) -> Iterator[DigestRows]:
        """Put keys into the task's map; emit all of them whenever it is full."""
        left = rows[: int(np.searchsorted(_offsets(rows), self._settings.latest_offset, side="right"))]
        while len(left):
            left = left[self._map.put(left) :]
            if len(left):
                yield from self._drain()

    def _drain(self) -> Iterator[DigestRows]:
        table = self._map.table.reshape(-1, kernel.WORDS)
        if self._map.entries:
            used = np.flatnonzero(table[:, 2])
            for first in range(0, len(used), _ROWS_AT_A_TIME):
                some = used[first : first + _ROWS_AT_A_TIME]
                rows = self._rows(table[some], puts=True)
                if self._settings.rule.numbers is not None:
                    codes = rows.codes | self._map.are_outranking(some) * np.int64(OUTRANKING)
                    rows = rows._replace(codes=codes, numbers=(self._map.numbers(some) ^ _BIAS).view(np.int64))
                yield rows
        self._map.clear()
        self._map.keys = self._keys

    def _ask(self, task: DirtyChunk, unwanted: Flags, below: int | None) -> Iterator[DigestRows]:
        """Emit a row for each record with a key in the wanted batches."""
        task.skipped = unwanted
        self._asking.digest(task, self._unpacker, 0, self._keys)
        if self._asking.error is not None:
            raise self._asking.error
        rows = self._asking.rows
        if below is not None:
            rows = rows[: int(np.searchsorted(_offsets(rows), below))]
        if len(rows):
            yield self._asking_rows(rows)

    def _asking_rows(self, rows: Words) -> DigestRows:
        asking = self._rows(rows, puts=False)
        return asking if self._settings.rule.numbers is None else asking._replace(numbers=np.zeros(len(rows), np.int64))

    def _rows(self, rows: Words, *, puts: bool) -> DigestRows:
        codes = self._range.codes(_offsets(rows), puts=puts)
        # Copies: the buffer is reused while Spark still reads the rows.
        return DigestRows(rows[:, FIRST].astype(np.int64), rows[:, SECOND].astype(np.int64), codes)


def _offsets(rows: Words) -> npt.NDArray[np.int64]:
    """Return the offsets of rows of digests, or of the map."""
    return rows[:, OFFSET_PLUS_1].astype(np.int64) - 1


def _open(fs: FileSystem, directory: Path, part: Range) -> tuple[Segment, IndexFollower | None]:
    """Return a range as a segment that ends where the range ends, and the follower that checks its index."""
    whole = Segment.open(fs, directory, part.base_offset)
    if whole.size < part.size:
        raise CorruptBatchError(whole.log_path, whole.size, f"the file became shorter, from {part.size} bytes")
    segment = Segment(fs, directory, part.base_offset, size=part.end, mtime_ns=whole.mtime_ns)
    segment.rebuilt = SegmentIndexes.empty()  # its own index is compared with its batches here
    if not part.checks_index:
        return segment, None
    entries = whole.offset_index()
    if not part.checks_last_entry:
        entries = entries[:-1]
    is_mine = (entries["position"] >= part.start) & (entries["position"] < part.end)
    return segment, IndexFollower(entries[is_mine], whole.index_path, part.base_offset)
