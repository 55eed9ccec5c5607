"""Recopying cells of a log into memory, each record staying by chance: how many bytes a round would leave of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cleaner.base.clock import Clock
from cleaner.cleaning.estimate.cell_reader import CellReader
from cleaner.cleaning.estimate.cells import Cell
from cleaner.cleaning.estimate.key_sample import KeySample
from cleaner.cleaning.estimate.unseen_keys import Floats
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.recopy.group import RecopyRules
from cleaner.cleaning.recopy.retained import RetainedWriter
from cleaner.cleaning.recopy.survivors import MapSurvivors
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.kernels import offset_map as kernel
from cleaner.policy.cleanable import Cleanable
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.segment import Segment

_NEVER = 2**62  # as the last offset of a map: every record is asked for


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


class TrialRecopier:
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
