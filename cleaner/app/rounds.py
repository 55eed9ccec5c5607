"""The rounds of one loaded log, and the report that sums them up."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from cleaner.app import load as loading
from cleaner.app.keep_old import Keeper
from cleaner.app.options import CleanOptions, CleanRound
from cleaner.app.reports import SUMS, CleanReport, KeptDamage
from cleaner.app.session import Session
from cleaner.config.values import TopicConfig
from cleaner.errors import CleaningAborted, WriterWaitingError
from cleaner.policy.cleanable import Cleanable, cleanable, segments_between
from cleaner.storage.load.loaded_log import LoadedLog

if TYPE_CHECKING:
    from cleaner.cleaning.context import RoundContext
    from cleaner.cleaning.round.round import RoundResult


@dataclass(frozen=True)
class Work:
    """
    One loaded log and how to clean it.

    Attributes:
        session: the log dir.
        options: the caller's.
        log: loaded, not yet settled.
        topic: its settings.
        now_ms: the same moment for all its rounds.
        refuses_keyless: a record without a key in the range stops the cleaning before anything changes.
    """

    session: Session
    options: CleanOptions
    log: LoadedLog
    topic: TopicConfig
    now_ms: int
    refuses_keyless: bool = False

    def write_checkpoint(self, offset: int) -> None:
        """Write the partition's line in `cleaner-offset-checkpoint`, unless the writer has cut the log since."""
        topic_partition = self.log.topic_partition
        with self.session.partition_lock(topic_partition):
            self.log.require_unchanged(())
            self.session.put_cleaner_offset(topic_partition, offset)

    def settle(self) -> None:
        """Make the changes that loading has postponed."""
        with self.session.partition_lock(self.log.topic_partition):
            self.log.settle(self.session.context.fs)

    def context(self) -> RoundContext:
        """Return the context of a round."""
        from cleaner.cleaning.context import RoundContext

        caller, name = self.session.context, str(self.log.topic_partition)
        context = RoundContext(
            fs=caller.fs,
            clock=caller.clock,
            now_ms=self.now_ms,
            still_held=self.session.still_held,
            check_done=self.session.check_done,
            swapping=partial(self.session.swapping, self.log.topic_partition),
            throttle=self.session.throttle.for_worker(self.session.check_done, self.session.log_dir.path),
            window_bytes=partial(self.session.throttle.window_bytes, self.session.log_dir.path),
            progress=lambda phase, done, total: caller.progress(f"{name} {phase}", done, total),
            write_checkpoint=self.write_checkpoint,
            verify=self.options.verify,
            max_dirty_bytes=self.options.max_dirty_bytes,
            max_seconds=self.options.max_seconds,
            refuse_keyless=self.refuses_keyless,
            keep_tombstones=self.options.keep_tombstones,
            keep_damaged=self.options.damaged == "keep",
        )
        if self.options.keep_old is None:
            return context
        return replace(context, keep_old=Keeper(self.session, self.log, self.options.keep_old).keep)


def run_rounds(work: Work, found: Cleanable) -> CleanReport:
    """Run rounds until the range is clean or the limit is reached; with nothing to clean, only settle the log."""
    report = _empty_report(work, found)
    if found.cleanable_bytes == 0:
        work.settle()
        if found.force_checkpoint:
            work.write_checkpoint(found.first_dirty_offset)
        return replace(report, note=_why_nothing(work, found))
    if work.options.clean_round is not None:
        return _run_rounds(work, found, report, work.context(), work.options.clean_round)
    # These load the kernels, which a caller with nothing to clean does not need.
    from cleaner.cleaning.offset_map import OffsetMap
    from cleaner.cleaning.round.round import clean_log

    config = work.session.settings.cleaner
    with closing(OffsetMap(config.key_limit, config.slots)) as offset_map:
        return _run_rounds(work, found, report, replace(work.context(), offset_map=offset_map), clean_log)


def _run_rounds(
    work: Work, found: Cleanable, report: CleanReport, context: RoundContext, clean_round: CleanRound
) -> CleanReport:
    while True:
        try:
            result = clean_round(work.log, found, work.topic, work.session.settings.cleaner, context)
        except CleaningAborted as error:
            left = f"offsets {found.first_dirty_offset} to {found.first_uncleanable_offset}"
            kind = WriterWaitingError if isinstance(error, WriterWaitingError) else CleaningAborted
            raise kind(
                f"{report.partition}: {error}: groups already swapped stay, {left} remain to be cleaned"
            ) from error
        report = _add(report, result, work.session.settings.cleaner.key_limit)
        has_advanced = result.end_offset > found.first_dirty_offset
        found = cleanable(work.log, result.end_offset, work.topic, work.now_ms)
        if found.cleanable_bytes == 0:
            return report
        if report.rounds == work.options.rounds or not has_advanced:
            return _unfinished(report, result, work.log)


def _empty_report(work: Work, found: Cleanable) -> CleanReport:
    return CleanReport(
        partition=str(work.log.topic_partition),
        first_dirty_offset=found.first_dirty_offset,
        first_uncleanable_offset=found.first_uncleanable_offset,
        end_offset=found.first_dirty_offset,
    )


def _add(report: CleanReport, result: RoundResult, key_limit: int) -> CleanReport:
    """Add a round to the report."""
    adding = (*SUMS, "removed", "map_seconds", "copy_seconds")
    sums = {name: getattr(report, name) + getattr(result, name) for name in adding}
    return replace(
        report,
        **sums,
        end_offset=result.end_offset,
        rounds=report.rounds + 1,
        map_utilization=max(report.map_utilization, result.map_entries / key_limit),
        invalid_messages=report.invalid_messages + result.removed.keyless,
        kept_damage=tuple(
            KeptDamage(str(batch.path), batch.position, batch.base_offset, batch.last_offset, batch.reason)
            for batch in result.kept_damage
        ),
    )


def _unfinished(report: CleanReport, result: RoundResult, log: LoadedLog) -> CleanReport:
    """Note how much is left: the map was too small, or the round had to end early."""
    end, bound = result.end_offset, report.first_uncleanable_offset
    left_bytes = sum(segment.size for segment in segments_between(log.segments, end, max(end, bound)))
    remaining = max(1, math.ceil(left_bytes / max(1, result.map_bytes_read)))
    why = "the offset map was full" if result.map_full else "the round had to end early"
    return replace(
        report,
        rounds_remaining=remaining,
        note=f"{why} at offset {end} of {bound}: about {remaining} more rounds (--rounds all)",
    )


def _why_nothing(work: Work, found: Cleanable) -> str:
    if loading.lacks_high_watermark(work.session, work.log.topic_partition, work.options.high_watermark):
        return loading.NO_HIGH_WATERMARK
    return f"nothing to clean from offset {found.first_dirty_offset} on: the range ends at the {found.bounded_by}"
