"""
Foretelling a cleaning from a sample: drawn cells are read twice.

First for their keys: how often each was met says how many there are in all (`unseen_keys.py`), and how likely the last
record met of a key is the last there is. Then some of the cells are recopied, into memory and as a round would do it,
with every record staying or going by these chances: how many bytes stay depends on batches and codecs in ways that no
formula has. Where all of a log is read, each chance is 0 or 1.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cleaner.clock import Clock
from cleaner.config import CleanerConfig, TopicConfig
from cleaner.engine.cell_reader import CellReader
from cleaner.engine.cells import Cell, Cells
from cleaner.engine.key_sample import KeySample
from cleaner.engine.unseen_keys import Counts, Floats, Multiplicities
from cleaner.kernels.ready import offset_map as kernel
from cleaner.offset_map import OffsetMap
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.estimate import Estimate
from cleaner.policy.grouping import group_segments
from cleaner.policy.rounds_ahead import RoundsAhead, rounds_ahead
from cleaner.recopy.group import RecopyRules
from cleaner.recopy.retained import RetainedWriter
from cleaner.recopy.survivors import MapSurvivors
from cleaner.storage.fs import FileSystem
from cleaner.storage.segment import Segment

LEAST_SAMPLE_BYTES = 256 << 20
MOST_SAMPLE_BYTES = 4 << 30
SAMPLE_PART = 0.1
_MOST_RECOPIED_BYTES = 64 << 20
_BINS = 16
_STRETCHES, _STRETCH_BYTES = 8, 4 << 20
_NEVER = 2**62  # as the last offset of a map: every record is asked for
_INDEX_PART = 0.006  # index entries of 20 bytes for every 4 KiB
# Measured: what a round takes beside its bytes.
_SECONDS_A_ROUND, _SECONDS_A_GROUP, _SECONDS_A_SEGMENT = 0.05, 0.02, 0.0005
_SPEED_UP_A_THREAD = 0.8


@dataclass(frozen=True)
class Subject:
    """
    The log to be foretold.

    Attributes:
        fs, clock: the caller's.
        segments: all up to the first uncleanable offset, in order.
        found: the cleanable range.
        topic, config: the settings.
        now_ms: the moment.
        check_done: asked before each cell; raises to stop.
    """

    fs: FileSystem
    clock: Clock
    segments: Sequence[Segment]
    found: Cleanable
    topic: TopicConfig
    config: CleanerConfig
    now_ms: int
    check_done: Callable[[], None]


def default_sample_bytes(total_bytes: int) -> int:
    """Return how much of a log is read: a tenth, all of a small one, and never more than 4 GiB."""
    return min(MOST_SAMPLE_BYTES, max(LEAST_SAMPLE_BYTES, int(total_bytes * SAMPLE_PART)))


def estimate(subject: Subject, sample_bytes: int | None) -> tuple[Estimate, RoundsAhead]:
    """
    Foretell what cleaning a log would do.

    Args:
        subject: the log; its range must not be empty.
        sample_bytes: how much to read; None: `default_sample_bytes`.
    Raises:
        CorruptLogError: damage in a sampled cell.
        UncleanableError: a sampled batch that no cleaner could write.
        FileNotFoundError: a segment has gone.
    """
    cells = Cells(subject.segments)
    # Whoever asks again is told the same.
    chance = random.Random(cells.total_bytes)  # noqa: S311 - no secret
    wanted = default_sample_bytes(cells.total_bytes) if sample_bytes is None else sample_bytes
    numbers = cells.draw(wanted, chance)
    drawn = list(cells.place(numbers))
    limit_bytes = subject.config.batch_limit_bytes(subject.topic)
    with CellReader(subject.fs, subject.segments, limit_bytes, subject.now_ms) as reader:
        return _Estimator(subject, cells, numbers, drawn, reader, chance).estimate()


class _Estimator:
    def __init__(
        self,
        subject: Subject,
        cells: Cells,
        numbers: Sequence[int],
        drawn: Sequence[Cell],
        reader: CellReader,
        chance: random.Random,
    ) -> None:
        self._subject = subject
        self._cells = cells
        self._numbers = np.array(numbers, np.int64)
        self._drawn = drawn
        self._reader = reader
        self._chance = chance
        self._sample = KeySample()
        self._sampled_bytes = sum(cell.end - cell.start for cell in drawn)
        # Those that are recopied in memory, spread over the log.
        step = max(1, math.ceil(self._sampled_bytes / _MOST_RECOPIED_BYTES))
        self._recopied = set(range(0, len(drawn), step))

    def estimate(self) -> tuple[Estimate, RoundsAhead]:
        subject, found = self._subject, self._subject.found
        self._read_keys()
        every = np.arange(len(self._drawn), dtype=np.int64)
        met = self._sample.met(every)
        keys = Multiplicities.fit(met.cells, len(every), self._cells.count)
        bases = [segment.base_offset for segment in subject.segments]
        first_dirty = max(0, int(np.searchsorted(bases, found.first_dirty_offset, side="right")) - 1)
        dirty = self._fit_from(first_dirty)
        places = np.array([cell.place for cell in self._drawn])
        rows = self._sample.first_rows()
        of_cell = np.searchsorted(rows, met.last_record, side="right") - 1
        stays = np.zeros(int(rows[-1]))
        stays[met.last_record] = keys.chance_of_last(met.cells, places[of_cell])
        usual = float(stays.mean()) if len(stays) else 1.0
        shares, whole = self._recopy(stays, rows, usual)
        sizes = self._cells.sizes
        segment_places = (np.cumsum(sizes) - sizes / 2) / max(1, self._cells.total_bytes)
        after = sizes * shares[np.minimum((segment_places * _BINS).astype(np.int64), _BINS - 1)]
        bytes_after = int(self._cells.total_bytes * whole)
        after *= bytes_after / max(1.0, after.sum())
        error = self._error(keys, every)
        scale = 1 / self._sample.part
        head_part = dirty.part_with(subject.config.key_limit * self._sample.part)
        ahead = rounds_ahead(
            subject.config,
            keys=round(dirty.total * scale),
            dirty_bytes=found.cleanable_bytes,
            head_part=head_part,
        )
        total = self._cells.total_bytes
        return Estimate(
            sampled_bytes=self._sampled_bytes,
            sample_part=self._sampled_bytes / max(1, total),
            keys=round(keys.total * scale),
            dirty_keys=round(dirty.total * scale),
            bytes_before=total,
            bytes_after=bytes_after,
            bytes_freed=total - bytes_after,
            least_bytes_freed=max(0, total - int(bytes_after * (1 + error))),
            most_bytes_freed=total - int(bytes_after * (1 - min(1.0, error))),
            extra_disk_bytes=self._extra_disk(after),
            seconds=self._seconds(*self._rates(usual), ahead, after),
        ), ahead

    def _read_keys(self) -> None:
        """Collect the keys of the drawn cells."""
        for number, cell in enumerate(self._drawn):
            self._subject.check_done()
            self._sample.begin_cell()
            for part in self._reader.blocks(cell, leaves_cache=number in self._recopied):
                self._sample.add(self._reader.digest(part, self._sample.keys)[0])

    def _fit_from(self, segment: int) -> Multiplicities:
        """Estimate the keys of all cells from a segment on."""
        first_number = int(np.searchsorted(self._numbers, self._cells.first_of(segment)))
        mine = np.arange(first_number, len(self._drawn), dtype=np.int64)
        count = self._cells.count - self._cells.first_of(segment)
        return Multiplicities.fit(self._sample.met(mine).cells, max(1, len(mine)), max(1, count))

    def _error(self, keys: Multiplicities, every: Counts) -> float:
        """Return how far the estimate may be wrong, as a part of what stays."""
        by_chance = 2 / math.sqrt(max(1.0, keys.total))
        if keys.share >= 1:
            return by_chance if self._sample.part < 1 else 0.0
        half = np.sort(np.array(self._chance.sample(every.tolist(), max(1, len(every) // 2)), np.int64))
        fewer = Multiplicities.fit(self._sample.met(half).cells, len(half), self._cells.count)
        return by_chance + abs(fewer.total - keys.total) / max(1.0, keys.total)

    def _recopy(self, stays: Floats, rows: Counts, usual: float) -> tuple[Floats, float]:
        """Recopy some cells in memory; returns the part that stays by place in the log, and of all."""
        recopier = _Recopier(self._subject, self._reader, self._sample)
        read, written = np.zeros(_BINS), np.zeros(_BINS)
        for number in sorted(self._recopied):
            self._subject.check_done()
            cell = self._drawn[number]
            mine = stays[rows[number] : rows[number + 1]]
            place = min(int(cell.place * _BINS), _BINS - 1)
            read[place] += cell.end - cell.start
            written[place] += recopier.recopy(cell, mine, float(mine.mean()) if len(mine) else usual)
        whole = written.sum() / max(1.0, read.sum())
        return np.where(read > 0, written / np.maximum(read, 1), whole), float(whole)

    def _rates(self, usual: float) -> tuple[float, float]:
        """
        Return seconds a byte of both passes, on one thread, from a few long stretches of the log.

        Cells are short, and what there is to do for each takes longer than its bytes.
        """
        recopier = _Recopier(self._subject, self._reader, self._sample)
        stretches = list(self._cells.stretches(_STRETCHES, _STRETCH_BYTES))
        nothing = np.zeros(0)
        # The first is done twice: kernels are loaded when they are first called.
        for cell in stretches[:1]:
            recopier.recopy(cell, nothing, usual)
        total, began_ns = sum(cell.end - cell.start for cell in stretches), self._subject.clock.monotonic_ns()
        for cell in stretches:
            self._subject.check_done()
            for part in self._reader.blocks(cell, leaves_cache=True):
                self._reader.digest(part, self._sample.keys)
        read_ns = self._subject.clock.monotonic_ns()
        for cell in stretches:
            self._subject.check_done()
            recopier.recopy(cell, nothing, usual)
        copy_ns = self._subject.clock.monotonic_ns()
        return (read_ns - began_ns) / 1e9 / max(1, total), (copy_ns - read_ns) / 1e9 / max(1, total)

    def _extra_disk(self, after: Floats) -> int:
        """Return the most that is written before as much was removed, group by group of the first round."""
        segments, topic = self._subject.segments, self._subject.topic
        groups = group_segments(
            segments,
            max_log_bytes=topic.segment_bytes,
            max_index_bytes=topic.segment_index_bytes,
            first_uncleanable_offset=self._subject.found.first_uncleanable_offset,
        )
        most, row, balance = 0.0, 0, 0.0
        for group in groups:
            output = float(after[row : row + len(group)].sum()) * (1 + _INDEX_PART)
            most = max(most, balance + output)
            balance += output - sum(s.size + s.index_bytes + s.time_index_bytes for s in group)
            row += len(group)
        self._groups = len(groups)
        return int(most)

    def _seconds(self, read: float, copy: float, ahead: RoundsAhead, after: Floats) -> float:
        """Return how long all rounds take: each maps a part of the dirty section, and recopies what lies below."""
        config, total = self._subject.config, self._cells.total_bytes
        dirty_bytes = self._subject.found.cleanable_bytes
        rounds = max(1, ahead.count)
        # Round by round the clean section grows by what stays of one head.
        clean, kept = total - dirty_bytes, float(after.sum()) / max(1, total)
        recopied = sum(clean * (kept if n else 1) + dirty_bytes / rounds * (1 + n * kept) for n in range(rounds))
        speed = 1 + (config.pipeline_threads - 1) * _SPEED_UP_A_THREAD
        seconds = (dirty_bytes * read + recopied * copy) / speed
        at_least = (dirty_bytes + recopied * (1 + kept)) / config.io_max_bytes_per_second
        beside = rounds * (_SECONDS_A_ROUND + self._groups * _SECONDS_A_GROUP) + len(after) * _SECONDS_A_SEGMENT
        return max(seconds, at_least) + beside


class _Recopier:
    """Recopies cells into memory, each record staying by chance."""

    def __init__(self, subject: Subject, reader: CellReader, sample: KeySample) -> None:
        rules = RecopyRules(0, 0, subject.now_ms, subject.now_ms, subject.topic.delete_retention_ms)
        nothing_known = OffsetMap(8, 8)
        nothing_known.latest_offset = _NEVER
        self._writer = RetainedWriter(rules.new_horizon_ms)
        self._survivors = MapSurvivors(nothing_known, subject.now_ms)
        self._reader = reader
        self._sample = sample
        self._draw = np.random.default_rng(len(subject.segments))

    def recopy(self, cell: Cell, known: Floats, others: float) -> int:
        """
        Recopy a cell; returns the bytes that stay.

        Args:
            cell: which.
            known: chances of the cell's records that were kept in the sample, in order; empty: none was.
            others: the chance of all others.
        """
        at, before = 0, self._writer.counts.bytes_written
        for part in self._reader.blocks(cell):
            fates = part.fates()
            verdicts = np.zeros(part.block.record_count(part.gone), np.uint8)
            self._survivors.judge(part.path, part.block, fates, verdicts)
            digests, places = self._reader.digest(part, self._sample.keys)
            chances = np.full(len(digests), others)
            if len(known):
                is_kept = digests <= self._sample.threshold
                kept = int(is_kept.sum())
                chances[is_kept] = known[at : at + kept]
                at += kept
            verdicts[places[self._draw.random(len(digests)) >= chances]] = kernel.SUPERSEDED
            self._writer.begin(len(part.block.batches))
            self._writer.write(part.path, part.block, fates, verdicts)
            self._writer.end()
        return self._writer.counts.bytes_written - before
