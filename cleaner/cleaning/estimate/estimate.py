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
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from cleaner.cleaning.estimate.cell_reader import CellReader
from cleaner.cleaning.estimate.cells import Cell, Cells
from cleaner.cleaning.estimate.key_sample import KeySample
from cleaner.cleaning.estimate.survival import Drawn, likely_error, survival
from cleaner.cleaning.estimate.trial_recopy import Subject, TrialRecopier
from cleaner.cleaning.estimate.unseen_keys import Floats
from cleaner.policy.estimate import Estimate
from cleaner.policy.grouping import group_segments
from cleaner.policy.rounds_ahead import RoundsAhead, rounds_ahead

LEAST_SAMPLE_BYTES = 256 << 20
MOST_SAMPLE_BYTES = 4 << 30
SAMPLE_PART = 0.1
_MOST_RECOPIED_BYTES = 64 << 20
_BINS = 16
_STRETCHES, _STRETCH_BYTES = 8, 4 << 20
_INDEX_PART = 0.006  # index entries of 20 bytes for every 4 KiB
# Measured: what a round takes beside its bytes.
_SECONDS_A_ROUND, _SECONDS_A_GROUP, _SECONDS_A_SEGMENT = 0.05, 0.02, 0.0005
_SPEED_UP_A_THREAD = 0.8


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
    most_bytes = default_sample_bytes(cells.total_bytes) if sample_bytes is None else sample_bytes
    bases = [segment.base_offset for segment in subject.segments]
    first_dirty = max(0, bisect_right(bases, subject.found.first_dirty_offset) - 1)
    bound = cells.first_of(first_dirty)
    # The dirty section says which keys come again: it gets half, and what the clean one does not need.
    clean_bytes = int(cells.sizes[:first_dirty].sum())
    for_dirty = max(most_bytes // 2, most_bytes - clean_bytes)
    dirty = cells.draw(bound, cells.count, for_dirty, chance)
    for_clean = max(0, most_bytes - min(for_dirty, cells.total_bytes - clean_bytes))
    clean = cells.draw(0, bound, for_clean, chance) if bound else []
    placed = list(cells.place([*clean, *dirty]))
    drawn = Drawn(
        places=np.array([cell.place for cell in placed]),
        clean=len(clean),
        clean_cells=bound,
        dirty_cells=cells.count - bound,
        dirty_place=clean_bytes / max(1, cells.total_bytes),
    )
    limit_bytes = subject.config.batch_limit_bytes(subject.topic)
    with CellReader(subject.fs, subject.segments, limit_bytes, subject.now_ms) as reader:
        return _Estimator(subject, cells, placed, drawn, reader, chance).estimate()


class _Estimator:
    """One estimate."""

    def __init__(
        self,
        subject: Subject,
        cells: Cells,
        placed: Sequence[Cell],
        drawn: Drawn,
        reader: CellReader,
        chance: random.Random,
    ) -> None:
        self._subject = subject
        self._cells = cells
        self._placed = placed
        self._drawn = drawn
        self._reader = reader
        self._chance = chance
        self._sample = KeySample()
        self._sampled_bytes = sum(cell.end - cell.start for cell in placed)
        # Those that are recopied in memory, spread over the log.
        step = max(1, math.ceil(self._sampled_bytes / _MOST_RECOPIED_BYTES))
        self._recopied = range(0, len(placed), step)

    def estimate(self) -> tuple[Estimate, RoundsAhead]:
        """Read, judge, recopy, and add up."""
        subject, config, total = self._subject, self._subject.config, self._cells.total_bytes
        self._read_keys()
        found = survival(self._sample, self._drawn)
        usual = float(found.stays.mean()) if len(found.stays) else 1.0
        after = self._recopy(found.stays, usual)
        bytes_after = int(after.sum())
        error = likely_error(self._sample, self._drawn, found, self._chance)
        dirty_keys = round(found.dirty.total / self._sample.part)
        ahead = rounds_ahead(
            config,
            keys=dirty_keys,
            dirty_bytes=subject.found.cleanable_bytes,
            head_part=found.dirty.part_with(config.key_limit * self._sample.part),
        )
        return Estimate(
            sampled_bytes=self._sampled_bytes,
            sample_part=self._sampled_bytes / max(1, total),
            records=round(found.records / self._sample.part),
            dirty_keys=dirty_keys,
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
        for number, cell in enumerate(self._placed):
            self._subject.check_done()
            self._sample.begin_cell()
            for part in self._reader.blocks(cell, leaves_cache=number in self._recopied):
                self._sample.add(self._reader.digest(part, self._sample.keys)[0])

    def _recopy(self, stays: Floats, usual: float) -> Floats:
        """Recopy some cells in memory; returns how many bytes of each segment stay."""
        recopier = TrialRecopier(self._subject, self._reader, self._sample)
        rows = self._sample.first_rows()
        read, written = np.zeros((2, _BINS)), np.zeros((2, _BINS))
        for number in self._recopied:
            self._subject.check_done()
            cell = self._placed[number]
            mine = stays[rows[number] : rows[number + 1]]
            at = int(number >= self._drawn.clean), min(int(cell.place * _BINS), _BINS - 1)
            read[at] += cell.end - cell.start
            written[at] += recopier.recopy(cell, mine, float(mine.mean()) if len(mine) else usual)
        return self._spread(read, written)

    def _spread(self, read: Floats, written: Floats) -> Floats:
        """Spread what stays over segments: by their places, and as much as in all of their section."""
        sizes = self._cells.sizes
        begins = np.cumsum(sizes) - sizes
        place = np.minimum(((begins + sizes / 2) * _BINS / max(1, sizes.sum())).astype(np.int64), _BINS - 1)
        is_dirty = (np.arange(len(sizes)) >= self._cells.segment_of(self._drawn.clean_cells)).astype(np.int64)
        whole = np.where(read.sum(axis=1) > 0, written.sum(axis=1) / np.maximum(read.sum(axis=1), 1), 1.0)
        shares = np.where(read > 0, written / np.maximum(read, 1), whole[:, None])
        after: Floats = sizes * shares[is_dirty, place]
        for section in (0, 1):
            mine = is_dirty == section
            after[mine] *= whole[section] * sizes[mine].sum() / max(1.0, after[mine].sum())
        return after

    def _rates(self, usual: float) -> tuple[float, float]:
        """
        Return seconds a byte of both passes, on one thread, from a few long stretches of the log.

        Cells are short, and what there is to do for each takes longer than its bytes.
        """
        recopier = TrialRecopier(self._subject, self._reader, self._sample)
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
