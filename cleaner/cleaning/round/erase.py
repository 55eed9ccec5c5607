"""
Erases records from segments, for `erase`.

    1. All segments are read, and every batch is checked: what is found is counted, and so is the output (`search`).
       Nothing has changed so far, and whatever is damaged, or cannot be rewritten, has been met.
    2. Each segment with something to erase is recopied without it, read back and swapped in (`erase`), the last three
       while the next one is recopied. A crash leaves each segment old or new; the same command finishes.

A segment without anything to erase is not written, and neither are its indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from cleaner.cleaning.context import RoundContext
from cleaner.cleaning.passes.lane_memory import LaneMemory
from cleaner.cleaning.recopy.cleaned_segment import CleanedSegment
from cleaner.cleaning.recopy.erasure import ErasedRecords, ErasingRecopier, TrialSegment
from cleaner.cleaning.recopy.verify import verify_cleaned
from cleaner.cleaning.round.group_end import GroupEnd, GroupEnds, Note
from cleaner.cleaning.round.steps import install_group
from cleaner.config.values import TopicConfig
from cleaner.format.parallel_reader import WindowBuffer
from cleaner.storage.fs.space import require_room
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.segment.segment import Segment
from cleaner.storage.swap.swap import replace_segments

_NO_OFFSET = -1

Target = TypeVar("Target", bound=CleanedSegment)


@dataclass(frozen=True)
class Kept:
    """
    Batches that stay even if all their records go.

    Attributes:
        ends: by their last offsets: the last batch of the log, and of each active producer.
        starts: by their base offsets: the first one of each open transaction.
    """

    ends: Collection[int]
    starts: Collection[int]

    @staticmethod
    def of(log: LoadedLog) -> Kept:
        """
        Return those of a log.

        Without its last batch a log would end earlier, and offsets be given again. A producer's sequence, and the place
        where its open transaction begins, are read from its batches if a snapshot is lost (R-545, R-652).
        """
        entries = log.producers.entries()
        ends = {log.log_end_offset - 1, *(entry.last_offset for entry in entries)}
        starts = {entry.current_txn_first_offset for entry in entries}
        return Kept(ends - {_NO_OFFSET}, starts - {_NO_OFFSET})


@dataclass(frozen=True)
class FoundInSegment:
    """
    What is erased from a segment.

    Attributes:
        segment: as it is before.
        batches, records: with something to erase, and to erase.
        bytes_after: of its `.log` afterwards.
        messages_after: records that stay.
        touched: the positions of these batches.
    """

    segment: Segment
    batches: int
    records: int
    bytes_after: int
    messages_after: int
    touched: npt.NDArray[np.int64]


Install = Callable[[Segment, CleanedSegment, int], Note]
"""Swaps in the finished output of a segment, with so many threads to remove files."""


class SegmentEraser:
    """
    Erases records from the segments of a directory.

    Args:
        wanted: what is erased.
        kept: batches that stay.
        topic: `index_interval_bytes` and `segment_index_bytes` are used.
        lanes: memory, as many as `lanes_for` returns.
        context: the disk, the time, and the means to watch, throttle and stop it.
    """

    def __init__(
        self,
        wanted: ErasedRecords,
        kept: Kept,
        topic: TopicConfig,
        lanes: Sequence[LaneMemory],
        context: RoundContext,
    ) -> None:
        self._topic = topic
        self._lanes = lanes
        self._context = context
        self._done = self._total = 0
        self._phase = "search"
        self._wanted = wanted
        self._kept = kept

    def _recopier(self) -> ErasingRecopier:
        return ErasingRecopier(
            self._wanted,
            kept_ends=self._kept.ends,
            kept_starts=self._kept.starts,
            lanes=self._lanes,
            before_read=self._context.throttle,
            before_chunk=self._add,
            after_write=self._context.throttle,
            most_bytes=self._context.window_bytes,
        )

    def _add(self, size: int) -> None:
        self._context.check_done()
        self._done += size
        self._context.progress(self._phase, self._done, self._total)

    def search(self, segments: Sequence[Segment], end_of: Callable[[Segment], int]) -> list[FoundInSegment]:
        """
        Read segments, and return those with something to erase. Changes nothing.

        Args:
            segments: which.
            end_of: returns the offset at which a segment ends.
        Raises:
            CorruptLogError: damage; it may hide a record to erase.
            UncleanableError: a segment cannot be rewritten.
        """
        self._phase, self._done, self._total = "search", 0, sum(segment.size for segment in segments)
        found, recopier = [], self._recopier()
        for segment in segments:
            trial = self._target(segment, TrialSegment)
            before = recopier.counts.messages_written
            recopier.recopy([segment], end_of(segment), trial)
            trial.close()
            batches, records, touched = recopier.take_counts()
            if batches:
                if trial.refusal is not None:
                    raise trial.refusal
                after = recopier.counts.messages_written - before
                found.append(FoundInSegment(segment, batches, records, trial.size, after, touched))
        return found

    def erase(self, found: Sequence[FoundInSegment], end_of: Callable[[Segment], int], install: Install) -> None:
        """
        Recopy the segments with something to erase, one by one, and swap them in.

        Args:
            found: from `search`.
            end_of: as there.
            install: swaps one in.
        Raises:
            CleaningAborted: stopped; what is swapped in stays.
            NoSpaceError, LogDirOfflineError: the disk refused; likewise.
        """
        self._phase, self._done, self._total = "erase", 0, sum(each.segment.size for each in found)
        recopier = self._recopier()
        with GroupEnds() as ends:
            for each in found:
                self._erase(recopier, each, end_of(each.segment), install, ends, is_last=each is found[-1])

    def _erase(
        self,
        recopier: ErasingRecopier,
        each: FoundInSegment,
        end_offset: int,
        install: Install,
        ends: GroupEnds,
        *,
        is_last: bool,
    ) -> None:
        fs, segment = self._context.fs, each.segment
        ends.linger_unless_plenty(fs, segment.directory, segment.size)
        require_room(fs, segment.directory, each.bytes_after + segment.index_bytes + segment.time_index_bytes)
        target = self._target(segment, CleanedSegment)

        def recopy() -> GroupEnd:
            recopier.touched = each.touched
            aborts = recopier.recopy([segment], end_offset, target)
            leaves_cache = not recopier.found_cold

            def finish(buffers: Sequence[WindowBuffer]) -> None:
                target.finish(aborts, mtime_ns=segment.mtime_ms * 1_000_000)
                verify_cleaned(
                    fs,
                    target,
                    each.messages_after,
                    interval_bytes=self._topic.index_interval_bytes,
                    max_index_bytes=self._topic.segment_index_bytes,
                    buffers=buffers,
                    leaves_cache=leaves_cache,
                )

            return GroupEnd(finish, partial(install, segment, target))

        ends.recopy(target, recopy, self._lanes, is_last=is_last)

    def _target(self, segment: Segment, kind: type[Target]) -> Target:
        return kind(
            self._context.fs,
            segment.directory,
            segment.base_offset,
            like=segment.log_path,
            interval_bytes=self._topic.index_interval_bytes,
            max_index_bytes=self._topic.segment_index_bytes,
            source=segment,
            after_copy=self._context.throttle,
        )

    def into_log(self, log: LoadedLog) -> Install:
        """Return what swaps a segment of a loaded log in."""

        def install(segment: Segment, target: CleanedSegment, threads: int) -> Note:
            new = install_group(log, [segment], self._context, discard=target.discard, threads=threads)
            return partial(log.replace, [segment], new)

        return install

    def into_directory(self, directory: Path) -> Install:
        """Return what swaps a segment into a directory that is no log: one that keeps old segments."""

        def install(segment: Segment, _target: CleanedSegment, _threads: int) -> Note:
            base = segment.base_offset
            still_held = self._context.still_held
            replace_segments(self._context.fs, directory, new_base=base, old_bases=[base], still_held=still_held)
            return _nothing

        return install


def _nothing() -> None:
    """Note nothing: what a kept segment's neighbours are decides nothing."""
