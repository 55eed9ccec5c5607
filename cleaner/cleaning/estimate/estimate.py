"""
Estimates a cleaning from a sample: drawn cells are read twice.

The first reading is for the keys: how often each key occurs gives the number of all keys, and the chance that the last
record read of a key is the last in the log (`key_sample.py`). Then some of the cells are recopied in memory, as in a
round, and each record is kept or removed at random by its chance: no formula gives the bytes that remain, which depend
on batches and codecs. If the whole log is read, each chance is 0 or 1.

A jackknife (Quenouille, Tukey) gives the possible error: the estimate is repeated without each tenth of the cells,
which shows how much it depends on the drawn cells.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import closing

import numpy as np

from cleaner.base.segments import MAX_RELATIVE_OFFSET
from cleaner.cleaning.context import RoundContext
from cleaner.cleaning.estimate.cells import OFFSETS_END, Cell, Cells
from cleaner.cleaning.estimate.key_sample import GROUPS, KeySample
from cleaner.cleaning.estimate.unseen_keys import Counts, Floats
from cleaner.cleaning.recopy.group import RecopyRules
from cleaner.cleaning.recopy.offset_bits import OffsetBits
from cleaner.cleaning.recopy.retained import RetainedWriter
from cleaner.cleaning.recopy.survivors import BitmapSurvivors, BlockRetention
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.kernels.retain import BATCH_DROP, BATCH_KEEP_IF_NOT_EMPTY
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.estimate import Estimate
from cleaner.policy.grouping import group_segments
from cleaner.policy.rounds_ahead import RoundsAhead, rounds_ahead
from cleaner.policy.survivor_rule import survivor_rule_of
from cleaner.storage.segment.segment import Segment

MIN_SAMPLE_BYTES = 256 << 20
MAX_SAMPLE_BYTES = 4 << 30
SAMPLE_PART = 0.1
_MAX_RECOPIED_BYTES = 64 << 20
_STANDARD_ERRORS = 2.26  # 95 % of Student's distribution, for ten groups
_STRETCHES, _STRETCH_BYTES = 8, 4 << 20
_INDEX_PART = 0.006  # index entries of 20 bytes for every 4 KiB
# Measured: the fixed time of a round, besides the time for its bytes.
_SECONDS_A_ROUND, _SECONDS_A_GROUP, _SECONDS_A_SEGMENT = 0.05, 0.02, 0.0005
_SPEED_UP_A_THREAD = 0.8


def estimate(
    segments: Sequence[Segment],
    found: Cleanable,
    topic: TopicConfig,
    config: CleanerConfig,
    context: RoundContext,
    sample_bytes: int | None,
) -> tuple[Estimate, RoundsAhead]:
    """
    Estimate what cleaning a log would do.

    Args:
        segments: all up to the first uncleanable offset, in order.
        found: the cleanable range, not empty.
        topic, config: the settings.
        context: gives the clock, the time, and `check_done`, which is called before each cell and may raise to stop.
        sample_bytes: how much to read; None: a tenth, or all of a small log, and never more than 4 GiB.
    Raises:
        CorruptLogError: damage in a sampled cell.
        UncleanableError: a sampled batch that no cleaner could write, or with a record above the topic's limit.
        FileNotFoundError: a segment is gone.
    """
    if sample_bytes is None:
        total_bytes = sum(segment.size for segment in segments)
        sample_bytes = min(MAX_SAMPLE_BYTES, max(MIN_SAMPLE_BYTES, int(total_bytes * SAMPLE_PART)))
    cells = Cells(
        segments,
        config.batch_limit_bytes(topic),
        context.now_ms,
        sample_bytes,
        topic.max_decompressed_message_bytes,
        numbers=survivor_rule_of(topic.survivor).numbers,
        uses_last_entry=context.kafka.reads_every_index,
    )
    with closing(cells):
        return _Estimator(segments, found, topic, config, context, sample_bytes, cells).estimate()


class _Estimator:
    """One estimate."""

    def __init__(
        self,
        segments: Sequence[Segment],
        found: Cleanable,
        topic: TopicConfig,
        config: CleanerConfig,
        context: RoundContext,
        sample_bytes: int,
        cells: Cells,
    ) -> None:
        self._segments, self._range, self._topic, self._config, self._context = segments, found, topic, config, context
        self._cells = cells
        bases = [segment.base_offset for segment in segments]
        self._first_dirty = max(0, bisect_right(bases, found.first_dirty_offset) - 1)
        self._sample_bytes = sample_bytes
        self._lots = np.random.default_rng(0)
        clean_bytes = int(cells.before[self._first_dirty])
        self._section_bytes = np.array([clean_bytes, cells.total_bytes - clean_bytes])

    def estimate(self) -> tuple[Estimate, RoundsAhead]:
        """Read, judge and recopy the sample, and add up the results."""
        total, context = self._cells.total_bytes, self._context
        drawn = self._draw()
        is_dirty = np.array([cell.segment >= self._first_dirty for cell in drawn])
        before, end = np.array([(cell.before, cell.before + cell.end - cell.start) for cell in drawn]).T
        clean_bytes, dirty_bytes = self._section_bytes.tolist()
        place = np.clip((before - clean_bytes) / dirty_bytes, 0, 1)
        self._sample = sample = KeySample(is_dirty, place, end - before, self._section_bytes)
        # The cells that are recopied in memory, spread over the log.
        recopied = range(0, len(drawn), max(1, math.ceil((end - before).sum() / _MAX_RECOPIED_BYTES)))
        for number, cell in enumerate(drawn):
            context.check_done()
            for block in self._cells.blocks(cell, leaves_cache=number in recopied):
                sample.add(number, *self._cells.digest(block, sample.secret))
        sample.judge()
        now_ms = context.now_ms
        expire_before_ms = self._topic.expire_before_ms(now_ms)
        retention_ms = self._topic.delete_retention_ms
        rules = RecopyRules(0, True, 0, now_ms, now_ms, retention_ms, expire_before_ms=expire_before_ms)
        self._expiry = rules.expiry(OFFSETS_END)
        self._writer = RetainedWriter(rules.new_horizon_ms)
        # For each drawn cell: bytes read, records that stay, bytes that stay.
        counted = np.zeros((len(drawn), 3))
        for number in recopied:
            context.check_done()
            counted[number] = end[number] - before[number], *self._recopy(drawn[number])
        after, error = self._add_up(is_dirty.astype(np.int64), counted)
        by_segment = self._spread(after, before[recopied], counted[recopied])
        bytes_after = min(total, int(after.sum()))
        dirty_keys = round(sample.dirty.total / sample.part)
        ahead = rounds_ahead(
            self._config,
            self._topic,
            keys=dirty_keys,
            dirty_bytes=self._range.cleanable_bytes,
            head_part=sample.dirty.part_with(self._config.key_limit_of(self._topic) * sample.part),
        )
        return Estimate(
            sampled_bytes=int((end - before).sum()),
            sample_part=float((end - before).sum() / max(1, total)),
            records=round(sample.staying.sum() / sample.part),
            dirty_keys=dirty_keys,
            bytes_before=total,
            bytes_after=bytes_after,
            bytes_freed=total - bytes_after,
            least_bytes_freed=max(0, total - bytes_after - int(error)),
            most_bytes_freed=total - max(0, bytes_after - int(error)),
            extra_disk_bytes=self._extra_disk(by_segment),
            seconds=self._seconds(*self._rates(), ahead, by_segment),
        ), ahead

    def _draw(self) -> list[Cell]:
        """Draw cells of both sections."""
        cells, sample_bytes, (clean_bytes, dirty_bytes) = self._cells, self._sample_bytes, self._section_bytes.tolist()
        # The same log gets the same estimate again.
        chance = random.Random(cells.total_bytes)  # noqa: S311 - no secret
        # The dirty section shows which keys repeat: it gets half of the sample, and what the clean one does not need.
        for_dirty = max(sample_bytes // 2, sample_bytes - clean_bytes)
        dirty = cells.draw(self._first_dirty, len(self._segments), for_dirty, chance)
        return cells.draw(0, self._first_dirty, sample_bytes - min(for_dirty, dirty_bytes), chance) + dirty

    def _recopy(self, cell: Cell) -> tuple[int, int]:
        """Recopy a cell into memory; returns how many of its records with a key stay, and how many bytes stay."""
        is_dirty = cell.segment >= self._first_dirty
        records, before = 0, self._writer.counts.bytes_written
        for part in self._cells.blocks(cell):
            path, block, gone = part
            digests, offsets, _ = self._cells.digest(part, self._sample.secret)
            goes = self._lots.random(len(digests)) >= self._sample.chances(digests, offsets, is_dirty)
            records += len(goes) - int(goes.sum())
            places = offsets[goes].astype(np.int64) - 1
            bits = OffsetBits(int(places.min(initial=OFFSETS_END)))
            bits.set(places[places <= bits.base_offset + MAX_RELATIVE_OFFSET] - bits.base_offset)
            kept_as = np.where(gone, BATCH_DROP, BATCH_KEEP_IF_NOT_EMPTY).astype(np.int8)
            known = BlockRetention(kept_as, gone, gone, np.zeros_like(gone), legacy_deletes_stay=True)
            verdicts = np.zeros(block.record_count(gone), np.uint8)
            BitmapSurvivors(bits, OFFSETS_END, OFFSETS_END, self._context.now_ms).judge(path, block, known, verdicts)
            if self._expiry is not None:
                block, _ = self._expiry.apply(path, block, known, verdicts)
            self._writer.begin(len(block.batches))
            self._writer.write(path, block, known, verdicts)
            self._writer.end()
        return records, self._writer.counts.bytes_written - before

    def _add_up(self, section: Counts, counted: Floats) -> tuple[Floats, float]:
        """Return the bytes that stay of each section, and the possible error of their sum."""
        sample = self._sample
        by_group = np.zeros((GROUPS, 2, 3))
        np.add.at(by_group, (sample.groups, section), counted)
        whole = by_group.sum(axis=0)

        def bytes_after(staying: Floats, counted: Floats) -> Floats:
            # Scale the bytes by the records that stay; if none does, by the bytes read.
            read, records, written = np.moveaxis(counted, -1, 0)
            by_record = staying / sample.part * written / np.maximum(1, records)
            after: Floats = np.where(records > 0, by_record, self._section_bytes * written / np.maximum(1, read))
            return after

        after = bytes_after(sample.staying, whole)
        # The error from keys, and from bytes, had other cells been drawn. A section that was read whole has none.
        uncertainty = np.sqrt(1 - sample.shares), np.sqrt(1 - whole[:, 0] / np.maximum(1, self._section_bytes))
        keys_off = (bytes_after(sample.without, whole) - after) * uncertainty[0]
        bytes_off = (bytes_after(sample.staying, whole - by_group) - after) * uncertainty[1]
        variance = (GROUPS - 1) * (keys_off + bytes_off).sum(axis=1).var()
        variance += after.sum() ** 2 * (1 - sample.part) / max(1, sample.staying.sum())
        return after, _STANDARD_ERRORS * math.sqrt(variance)

    def _spread(self, after: Floats, before: Counts, counted: Floats) -> Floats:
        """Distribute the bytes that stay of each section over its segments, in proportion to the recopied cells."""
        cells = self._cells
        edges = np.append(before, cells.total_bytes)
        edges[0] = 0
        stays_up_to = np.concatenate([[0], np.cumsum(np.diff(edges) * counted[:, 2] / counted[:, 0])])
        stays: Floats = np.diff(np.interp(cells.before, edges, stays_up_to))
        section = (np.arange(len(stays)) >= self._first_dirty).astype(np.int64)
        return stays * (after / np.maximum(1, np.bincount(section, stays, minlength=2)))[section]

    def _rates(self) -> tuple[float, float]:
        """
        Return the seconds for each byte of both passes, on one thread, measured on a few long parts of the log.

        Single cells are too short: their fixed cost is larger than that of their bytes.
        """
        stretches, now_ns = self._cells.stretches(_STRETCHES, _STRETCH_BYTES), self._context.clock.monotonic_ns
        # The first part is read twice: kernels are loaded at their first call.
        for cell in stretches[:1]:
            self._recopy(cell)
        times = [now_ns()]
        for cell in stretches:
            self._context.check_done()
            for part in self._cells.blocks(cell, leaves_cache=True):
                self._cells.digest(part, self._sample.secret)
        times.append(now_ns())
        for cell in stretches:
            self._context.check_done()
            self._recopy(cell)
        times.append(now_ns())
        read, copy = np.diff(times) / 1e9 / max(1, sum(cell.end - cell.start for cell in stretches))
        return float(read), float(copy)

    def _extra_disk(self, after: Floats) -> int:
        """Return the most extra disk space that the first round needs, group by group, before old files are removed."""
        topic = self._topic
        groups = group_segments(
            self._segments,
            max_log_bytes=topic.segment_bytes,
            max_index_bytes=topic.segment_index_bytes,
            first_uncleanable_offset=self._range.first_uncleanable_offset,
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
        """Return the time of all rounds: each maps a part of the dirty section, and recopies all below its end."""
        config, total = self._config, self._cells.total_bytes
        dirty_bytes = self._range.cleanable_bytes
        rounds = max(1, ahead.count)
        # Round by round the clean section grows by what stays of the mapped part.
        clean, kept = total - dirty_bytes, float(after.sum()) / max(1, total)
        recopied = sum(clean * (kept if n else 1) + dirty_bytes / rounds * (1 + n * kept) for n in range(rounds))
        speed = 1 + (config.pipeline_threads - 1) * _SPEED_UP_A_THREAD
        seconds = (dirty_bytes * read + recopied * copy) / speed
        at_least = (dirty_bytes + recopied * (1 + kept)) / config.io_max_bytes_per_second
        overhead = rounds * (_SECONDS_A_ROUND + self._groups * _SECONDS_A_GROUP) + len(after) * _SECONDS_A_SEGMENT
        return max(seconds, at_least) + overhead
