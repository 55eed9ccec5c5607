"""
The work on one log, for the command and for the daemon: load, find the range, rounds, retention, close.

The partition's directory is held from before the load until after the close: all of it happens in one directory, even
if its owner exchanges that directory meanwhile (`docs/design.md`, "Hostile owners").
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.app import load_partition
from cleaner.app.beside_writer import detect_changes
from cleaner.app.keep_old import Keeper
from cleaner.app.options import CleanOptions, CleanRound
from cleaner.app.reports import HELD_SUMS, OWN_RULE_SUMS, PACKED_SUMS, SUMS, UNREAD_SUMS, CleanReport, KeptDamage
from cleaner.app.session import Session
from cleaner.base.clock import require_set
from cleaner.base.key_views import KeyView, key_view_of
from cleaner.base.model import TopicPartition
from cleaner.base.segments import segments_between
from cleaner.config.forms import Recompression, parse_recompression
from cleaner.config.values import TopicConfig
from cleaner.errors import CleaningAborted, WriterWaitingError
from cleaner.policy.cleanable import Cleanable, cleanable, has_clean_section, range_of_round
from cleaner.policy.due import Due, due, watches_time
from cleaner.policy.retention import count_expired, limits
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.remove.retention import delete_oldest

if TYPE_CHECKING:
    from cleaner.cleaning.context import RoundContext
    from cleaner.cleaning.round.round import RoundResult
    from cleaner.state.key_index_dir import LogKeyIndexes


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
        found: what may be cleaned.
        refuses_keyless: a record without a key in the range stops the cleaning before anything changes.
        settled_ms: delete horizons up to it have had their effect; None: unknown.
        held_from: tombstones and markers from this offset on stay, whatever their horizon; None: none does (D-17).
    """

    session: Session
    options: CleanOptions
    log: LoadedLog
    topic: TopicConfig
    now_ms: int
    found: Cleanable
    refuses_keyless: bool = False
    settled_ms: int | None = None
    held_from: int | None = None

    @property
    def view(self) -> KeyView | None:
        """The key view of its topic."""
        return key_view_of(self.topic.key_view)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is dirty, and a round may do what only waited for its time (D-16, D-19)."""
        is_quiet = self.found.cleanable_bytes == 0 and self._has_clean_section
        return is_quiet and watches_time(
            quiet_cleaning=self.session.settings.cleaner.quiet_cleaning,
            expires_after_ms=self.topic.expires_after_ms,
            takes_whole_log=self.topic.takes_whole_log,
        )

    @property
    def recompress(self) -> Recompression | None:
        """How rounds pack what they keep: by the caller's option, or else by the setting; None: they do not."""
        if self.options.damaged == "keep" or self.options.clean_round is not None:
            return None
        asked = self.options.recompress
        return parse_recompression(self.session.settings.cleaner.recompress if asked is None else asked)

    @property
    def packs_clean(self) -> bool:
        """Whether nothing is dirty, and the caller asks for the batches of the clean section to be packed (D-18)."""
        is_asked = self.options.recompress is not None and self.recompress is not None
        return is_asked and self.found.cleanable_bytes == 0 and self._has_clean_section

    @property
    def _has_clean_section(self) -> bool:
        return has_clean_section(self.log, self.found)

    def due(self) -> Due:
        """Tell whether it is due; may read the times of its dirty segments."""
        if self.found.cleanable_bytes == 0 and self.lacks_high_watermark:
            return Due(False, load_partition.NO_HIGH_WATERMARK)
        return due(self.log, self.found, self.topic, self.now_ms)

    @property
    def lacks_high_watermark(self) -> bool:
        """Whether nothing counts as replicated."""
        return load_partition.lacks_high_watermark(self.session, self.log.topic_partition, self.options.high_watermark)

    def write_checkpoint(self, offset: int) -> None:
        """Write the partition's line in `cleaner-offset-checkpoint`, unless the writer has cut the log since."""
        topic_partition = self.log.topic_partition
        with self.session.partition_lock(topic_partition):
            self.log.require_unchanged(())
            self.session.put_cleaner_offset(topic_partition, offset)

    def settle(self) -> None:
        """Make the changes that loading has postponed."""
        self.log.settle(self.session.context.fs, partial(self.session.swapping, self.log.topic_partition))

    def correct_checkpoint(self) -> None:
        """Set a checkpoint outside the log right, whether or not the log is cleaned (R-420)."""
        if self.found.force_checkpoint:
            self.write_checkpoint(self.found.first_dirty_offset)

    def settle_uncleaned(self) -> None:
        """Leave a log that is not cleaned in order: first its files, then its checkpoint, as a round does."""
        self.settle()
        self.correct_checkpoint()

    def _key_indexes(self) -> LogKeyIndexes | None:
        session = self.session
        if session.key_index_dir is None or not session.settings.cleaner.index_enabled:
            return None
        return session.key_index_dir.of(session.log_dir.path, self.log.topic_partition)

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
            held_from=self.held_from,
            keep_damaged=self.options.damaged == "keep",
            kafka=self.session.settings.kafka.version,
            key_indexes=self._key_indexes(),
            full_read_days=self.session.settings.cleaner.full_read_days,
            recompress=self.recompress,
        )
        if self.options.keep_old is None:
            return context
        keeper = Keeper(self.session, self.log, self.options.keep_old)

        def write_checkpoint(offset: int) -> None:
            keeper.keep_checkpoint()
            self.write_checkpoint(offset)

        return replace(context, keep_old=keeper.keep, write_checkpoint=write_checkpoint)


@contextmanager
def open_work(
    session: Session,
    topic_partition: TopicPartition,
    directory: Path,
    topic: TopicConfig,
    options: CleanOptions,
    *,
    clean_shutdown: bool,
    refuses_keyless: bool,
) -> Iterator[Work]:
    """
    Load a log and find its range, for a `with` block; its directory is held until the end of the block.

    Args:
        session: the log dir.
        topic_partition: which.
        directory: where.
        topic: its settings.
        options: how to clean it.
        clean_shutdown: False recovers the log.
        refuses_keyless: see `Work`.
    Raises:
        LogChangedError: something failed, in the block too, because a writer has changed the log.
        CorruptLogError, TruncationRefusedError: as for a load.
    """
    now_ms = require_set(session.context.clock.now_ms())
    with session.context.fs.hold(directory), detect_changes(session, directory) as follow:
        log = load_partition.load(
            session,
            topic_partition,
            directory,
            topic,
            now_ms=now_ms,
            clean_shutdown=clean_shutdown,
            high_watermark=options.high_watermark,
            allow_truncate=options.allow_truncate,
        )
        follow(log)
        found = cleanable(log, session.log_dir.cleaner_offsets.get(topic_partition), topic, now_ms)
        yield Work(session, options, log, topic, now_ms, found, refuses_keyless=refuses_keyless)


def clean_and_close(work: Work) -> CleanReport:
    """
    Run the rounds, delete what has expired if the options say so, and close the log; call in `open_work`'s block.

    With nothing to clean only settle the log, and correct a checkpoint that is outside of it.

    Raises:
        CleaningAborted, WriterWaitingError: asked to stop; the message says what remains.
        CleanerError: as `clean_log`.
    """
    report = _clean(work)
    has_retention = work.options.retention and not work.session.beside_writer
    deleted = _delete_expired(work) if has_retention else 0
    load_partition.close(work.session, work.log)
    return replace(report, retention_deleted_segments=deleted)


def _delete_expired(work: Work) -> int:
    """
    Delete the segments that have expired as a whole (R-712, R-901), pass by pass; returns how many.

    Nothing is deleted from a tiered log (R-914).
    """
    deleted = 0
    for limit in limits(work.topic):
        count = count_expired(work.log, limit, work.topic, work.now_ms)
        if count:
            with work.session.swapping(work.log.topic_partition):
                delete_oldest(work.session.context.fs, work.log, count)
        deleted += count
    return deleted


def _clean(work: Work) -> CleanReport:
    """Run rounds until the range is clean or the limit is reached; with nothing to clean, only settle the log."""
    found = range_of_round(work.log, work.found, work.topic, work.now_ms)
    report = _empty_report(work, found)
    packs_clean = work.packs_clean and not work.topic.takes_whole_log
    if work.is_quiet:  # first, as packing keeps everything, also what is past its time
        report = _clean_quiet(work, report)
        if not packs_clean:
            return report
    if packs_clean:
        return _pack_clean(work, report)
    if found.cleanable_bytes == 0:
        work.settle_uncleaned()
        return replace(report, note=_why_nothing(work, found))
    if work.view is not None:
        report = replace(report, merged_keys=_count_merged(work, work.view, found))
    if work.options.clean_round is not None:
        return _run_rounds(work, found, report, work.context(), work.options.clean_round)
    return _clean_here(work, found, report)


def _clean_here(work: Work, found: Cleanable, report: CleanReport) -> CleanReport:
    """Run rounds in this process."""
    # These load the kernels, which a caller with nothing to clean does not need.
    from cleaner.cleaning.offset_map import OffsetMap
    from cleaner.cleaning.round.round import clean_log
    from cleaner.policy.survivor_rule import survivor_rule_of

    config = work.session.settings.cleaner
    rule = survivor_rule_of(work.topic.survivor)
    with closing(OffsetMap(config.key_limit_of(work.topic), config.slots_of(work.topic), rule)) as offset_map:
        return _run_rounds(work, found, report, replace(work.context(), offset_map=offset_map), clean_log)


def _count_merged(work: Work, view: KeyView, found: Cleanable) -> int | None:
    """Return how many keys are only another writing of a key with a later record."""
    from cleaner.cleaning.estimate.merged_keys import count_merged  # loads kernels

    return count_merged(
        work.session.context.fs,
        work.log.topic_partition,
        work.log.directory,
        found.first_uncleanable_offset,
        view,
        limit_bytes=work.session.settings.cleaner.batch_limit_bytes(work.topic),
        check_done=work.session.check_done,
    )


def _clean_quiet(work: Work, report: CleanReport) -> CleanReport:
    """Recopy the segments in which only time has brought something to remove."""
    from cleaner.cleaning.offset_map import OffsetMap
    from cleaner.cleaning.round.quiet import find_quiet_work
    from cleaner.cleaning.round.round import clean_log

    now_ms = None if work.options.keep_tombstones else work.now_ms
    quiet = find_quiet_work(
        work.log,
        work.found,
        work.topic,
        now_ms,
        work.settled_ms,
        work.session.check_done,
    )
    if not quiet.segments:
        work.settle_uncleaned()
        note = f"{_why_nothing(work, work.found)}; no delete horizon has passed"
        if work.topic.expires_after_ms is not None:
            note += ", and no record has expired"
        return replace(report, note=note, next_horizon_ms=quiet.next_ms)
    with closing(OffsetMap(1, 1)) as offset_map:
        context = replace(work.context(), offset_map=offset_map, only=quiet.segments)
        result = clean_log(work.log, work.found, work.topic, work.session.settings.cleaner, context)
    # What gets a horizon only now has at least the topic's time left.
    next_ms = min(quiet.next_ms, work.now_ms + work.topic.delete_retention_ms)
    return replace(
        _add(report, result, key_limit=1), note="nothing dirty: what waited for its time", next_horizon_ms=next_ms
    )


def _pack_clean(work: Work, report: CleanReport) -> CleanReport:
    """Recopy the clean section of a log without anything dirty: all its records stay, packed in another way."""
    from cleaner.cleaning.offset_map import OffsetMap
    from cleaner.cleaning.round.round import clean_log

    with closing(OffsetMap(1, 1)) as offset_map:
        context = replace(work.context(), offset_map=offset_map, removes_nothing=True)
        result = clean_log(work.log, work.found, work.topic, work.session.settings.cleaner, context)
    what = "batches packed" if result.batches_packed else "all batches are packed already"
    done = report.note if report.rounds else "nothing dirty"
    return replace(_add(report, result, key_limit=1), note=f"{done}: {what}")


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
        report = _add(report, result, work.session.settings.cleaner.key_limit_of(work.topic))
        has_advanced = result.end_offset > found.first_dirty_offset
        found = cleanable(work.log, result.end_offset, work.topic, work.now_ms)
        if found.cleanable_bytes == 0:
            return report
        # If the first round begins at the log start, the checkpoint must not stay behind where it was.
        is_behind = result.end_offset <= work.found.first_dirty_offset and work.topic.takes_whole_log
        is_last = work.options.rounds != "all" and report.rounds >= work.options.rounds and not is_behind
        if is_last or not has_advanced:
            return _unfinished(report, result, work.log)


def _empty_report(work: Work, found: Cleanable) -> CleanReport:
    kafka = work.session.settings.kafka
    return CleanReport(
        partition=str(work.log.topic_partition),
        first_dirty_offset=found.first_dirty_offset,
        first_uncleanable_offset=found.first_uncleanable_offset,
        end_offset=found.first_dirty_offset,
        kafka=kafka.version.name,
        kafka_origin=kafka.origin,
        high_watermark=work.log.high_watermark,
        safe_offset=work.held_from,
        recompress=str(work.recompress or ""),
        key_view="" if work.view is None else work.view.name,
        survivor=work.topic.own_survivor,
        record_ttl_ms=work.topic.expires_after_ms,
    )


def _add(report: CleanReport, result: RoundResult, key_limit: int) -> CleanReport:
    """Add a round to the report."""
    adding = (*SUMS, *UNREAD_SUMS, *HELD_SUMS, *OWN_RULE_SUMS, *PACKED_SUMS, "removed", "map_seconds", "copy_seconds")
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
    """Note how much is left, and what ended the last round's map."""
    end, bound = result.end_offset, report.first_uncleanable_offset
    left_bytes = sum(segment.size for segment in segments_between(log.segments, end, max(end, bound)))
    remaining = max(1, math.ceil(left_bytes / max(1, result.map_bytes_read)))
    why = "the round ended" if result.map_ended_by is None else result.map_ended_by.value
    return replace(
        report,
        rounds_remaining=remaining,
        note=f"{why} at offset {end} of {bound}: about {remaining} more rounds (--rounds all)",
    )


def _why_nothing(work: Work, found: Cleanable) -> str:
    if work.lacks_high_watermark:
        return load_partition.NO_HIGH_WATERMARK
    return f"nothing to clean from offset {found.first_dirty_offset} on: the range ends at the {found.bounded_by}"
