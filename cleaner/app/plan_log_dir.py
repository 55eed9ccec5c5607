"""`plan`: the state of each partition of a log dir, and whether it is due; locks and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from cleaner.app import load_partition
from cleaner.app.inspect_log import Inspection, PlanTarget, inspect_log
from cleaner.app.options import CallContext, HighWatermark, Sampling
from cleaner.app.plan_report import PlanEntry
from cleaner.app.plan_settings import settings_in_force
from cleaner.app.session import Session, as_cleaner_errors, choose_partitions, open_session, parse_names
from cleaner.app.trust import origin_of_policy, policy_words, replication_warning, standing
from cleaner.base.key_views import KeyView, key_view_of
from cleaner.base.model import TopicPartition
from cleaner.base.sizes import duration
from cleaner.config.forms import parse_recompression
from cleaner.config.values import TopicConfig
from cleaner.errors import CleanerError, CleaningAborted, as_value, unexpected
from cleaner.policy.cleanable import Cleanable, bounds_of, first_young_segment, has_clean_section, range_of_round
from cleaner.policy.due import due_words, earliest_dirty_timestamp_ms, judge, overdue_at_ms, overdue_ms, watches_time
from cleaner.policy.reasons import Reason
from cleaner.policy.rounds_ahead import rounds_ahead
from cleaner.policy.sections import sections_of
from cleaner.read.open_transactions import undecided_at
from cleaner.read.summary import ListedFiles, look_again, may_pass
from cleaner.settings import ResolvedTopic
from cleaner.settings.sources import Sources
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.lock.lock_probe import LockHolder
from cleaner.storage.log_dir import CachedLogDir, Use
from cleaner.storage.segment.segment import Segment


def plan_log_dir(
    log_dir: Path,
    sources: Sources,
    context: CallContext,
    *,
    partitions: Sequence[str] | None = None,
    high_watermark: HighWatermark = "checkpoint",
    as_if_all: bool = False,
    sampling: Sampling | None = None,
    recompress: str | None = None,
) -> list[PlanEntry]:
    """
    Look at every partition of a log dir.

    A live broker may be at work in it: the entries are then true only for a moment, and say so.

    Args:
        log_dir: the directory.
        sources: where settings come from.
        context: the caller's file system, clock, stop check and warnings.
        partitions: names, judged as named by the operator; None: all of them, judged as by `clean --all`.
        high_watermark: records below it count as replicated.
        as_if_all: judge named ones as by `clean --all`, too.
        sampling: also estimate what cleaning would do; None: do not.
        recompress: as for `clean`.
    Raises:
        UsageError: no such directory or partition.
        CorruptCheckpointError, UncleanableError: the directory as a whole is not sound.
        ConfigError: a bad setting of the process.
    """
    with as_cleaner_errors(log_dir), open_session(log_dir, sources, context, mode=None) as session:
        named = None if partitions is None else parse_names(partitions)
        session = replace(session, log_dir=CachedLogDir(context.fs, session.log_dir.path))
        state = DirState.of(session)
        entries = []
        for topic_partition, directory in choose_partitions(session, named).items():
            context.check_done()
            is_named = named is not None and not as_if_all
            view = _View(session, topic_partition, directory, is_named, high_watermark, state, sampling, recompress)
            entries.append(view.entry())
        return entries


class DirState(NamedTuple):
    """
    The state that all partitions of a log dir share.

    `in_use` names the process at work in it; `keeps_out` says whether that keeps a cleaner out; `use` is the resulting
    mode for a load.
    """

    in_use: str
    keeps_out: bool
    use: Use

    @staticmethod
    def of(session: Session) -> DirState:
        """Find out which process holds the lock, without locking anything even for a moment."""
        report, use = session.log_dir.look()
        keeps_out = report.holder is not LockHolder.NOBODY
        pid = f" (process {report.pid})" if report.pid is not None else ""
        beside = "a writer" if report.has_writer else ""
        return DirState(report.holder.value + pid if keeps_out else beside, keeps_out, use)


@dataclass(frozen=True)
class _View:
    """One partition that is being looked at."""

    session: Session
    topic_partition: TopicPartition
    directory: Path
    is_named: bool
    high_watermark: HighWatermark
    state: DirState
    sampling: Sampling | None
    recompress: str | None

    def entry(self) -> PlanEntry:
        """Return the partition's entry, or one with an error; the directory is listed again if a file vanishes."""
        now_ms = self.session.context.clock.now_ms()
        entry = PlanEntry(str(self.topic_partition), now_ms=now_ms, in_use=self.state.in_use)
        looks = 0

        def look(listed: Sequence[ListedFiles]) -> PlanEntry:
            nonlocal entry, looks
            looks += 1
            if looks > 1:  # its files come and go: a process is at work, whether or not one has the lock
                entry = replace(entry, in_use=entry.in_use or "a process that creates and deletes files")
            (files,) = listed
            with as_cleaner_errors(self.directory):
                entry = replace(entry, segments=len(files.segments), bytes=sum(s.size for s in files.segments))
                resolved = self.session.topic(self.topic_partition, self.directory)
                entry = self._describe(entry, resolved)
                self.session.require_one_directory(self.topic_partition, self.directory)
                return self._judge(entry, resolved, files)

        try:
            return look_again(
                self.session.context.fs,
                [self.directory],
                look,
                is_doubtful=lambda error: bool(entry.in_use) and may_pass(error, self.session.context.clock),
            )
        except CleaningAborted:
            raise
        except CleanerError as error:
            return _failed(entry, as_value(error))
        except Exception as error:  # noqa: BLE001 - an internal error about one log must not hide the others
            return _failed(entry, unexpected(self.directory, error))

    def _describe(self, entry: PlanEntry, resolved: ResolvedTopic) -> PlanEntry:
        """Add the topic's settings and warnings."""
        replicas = replication_warning(resolved)
        return replace(
            entry,
            policy=policy_words(resolved.config),
            policy_origin=origin_of_policy(resolved),
            policy_trusted=resolved.policy_trusted,
            settings=settings_in_force(self.session, resolved),
            replicas=resolved.replicas,
            replicas_origin=resolved.replicas_origin,
            warnings=(*resolved.warnings, replicas) if replicas else resolved.warnings,
        )

    def _judge(self, entry: PlanEntry, resolved: ResolvedTopic, files: ListedFiles) -> PlanEntry:
        """Say whether it would be cleaned."""
        trust_default = self.session.settings.trusts_default_policy
        verdict = standing(resolved, is_named=self.is_named, trust_default=trust_default)
        if resolved.config.compact:
            entry = self._weigh(entry, resolved, files)
        if verdict.why is not None:
            return replace(entry, is_due=False, why=verdict.why, reason=verdict.reason)
        return self._as_log_dir_allows(entry)

    def _as_log_dir_allows(self, entry: PlanEntry) -> PlanEntry:
        """Add why the state of the whole log dir keeps a due partition from being cleaned."""
        if not entry.is_due:
            return entry
        if self.state.keeps_out:
            return replace(entry, why=Reason.LOG_DIR_LOCKED, reason=f"{entry.reason}; in use by {self.state.in_use}")
        if self.state.use is Use.TORN:
            return replace(
                entry, why=Reason.LOG_DIR_NEEDS_RECOVERY, reason=f"{entry.reason}; the log dir has to be recovered"
            )
        return entry

    def _weigh(self, entry: PlanEntry, resolved: ResolvedTopic, files: ListedFiles) -> PlanEntry:
        """Find the cleanable range, its size and its bounds."""
        session, state, topic, now_ms = self.session, self.state, resolved.config, entry.now_ms
        is_in_use = bool(entry.in_use)
        place = PlanTarget(
            session,
            self.topic_partition,
            self.directory,
            topic,
            now_ms,
            self.high_watermark,
            state.use,
            is_in_use,
        )
        look = inspect_log(place, files)
        log, found = look.log, look.found
        earliest_ms = None
        if topic.max_compaction_lag_ms < now_ms:
            earliest_ms = earliest_dirty_timestamp_ms(log, found.first_dirty_offset)
        delay_ms = overdue_ms(earliest_ms, topic.max_compaction_lag_ms, now_ms)
        taken = range_of_round(log, found, topic, now_ms)
        dueness = judge(found, delay_ms, topic.min_cleanable_dirty_ratio)
        entry = replace(
            entry,
            first_dirty_offset=found.first_dirty_offset,
            first_uncleanable_offset=found.first_uncleanable_offset,
            clean_bytes=found.clean_bytes,
            dirty_bytes=found.cleanable_bytes,
            uncleanable_bytes=found.uncleanable_bytes,
            ratio=found.ratio,
            is_due=dueness.is_due,
            why=dueness,
            overdue_ms=delay_ms,
            overdue_at_ms=None if delay_ms else overdue_at_ms(earliest_ms, topic.max_compaction_lag_ms),
            sections=sections_of(log, found, topic.delete_retention_ms),
            rounds=rounds_ahead(
                session.settings.cleaner,
                topic,
                keys=max(0, taken.first_uncleanable_offset - taken.first_dirty_offset),
                dirty_bytes=taken.cleanable_bytes,
            ),
            cut_bytes=look.cut_bytes,
        )
        entry = self._bound(entry, look, place)
        entry = replace(
            entry,
            survivor=topic.own_survivor,
            record_ttl_ms=topic.expires_after_ms,
        )
        if (view := key_view_of(topic.key_view)) is not None:
            entry = self._with_view(entry, view, topic)
        entry = self._with_packing(entry, found)
        if self.sampling is not None and (found.cleanable_bytes or entry.recompress):
            entry = self._with_estimate(entry, look, topic, now_ms, self.sampling.most_bytes)
        reason = due_words(dueness, found, delay_ms, topic.min_cleanable_dirty_ratio)
        swap = files.temporary_files.swap if place.is_closed else None
        if swap is not None and not dueness.is_due:
            return replace(entry, is_due=True, why=Reason.UNFINISHED_SWAP, reason=f"{swap.value}; {reason}")
        if dueness is Reason.NOTHING_TO_CLEAN:
            if load_partition.lacks_high_watermark(session, self.topic_partition, self.high_watermark):
                return replace(entry, why=Reason.NO_HIGH_WATERMARK, reason=load_partition.NO_HIGH_WATERMARK)
            reason += _figure_of_bound(entry)
            return self._with_quiet_work(replace(entry, reason=reason), look, topic)
        return replace(entry, reason=reason)

    def _with_quiet_work(self, entry: PlanEntry, look: Inspection, topic: TopicConfig) -> PlanEntry:
        """Say so if a round would do what only waited for its time (D-16, D-19); of a log in use nothing is known."""
        is_watched = watches_time(
            quiet_cleaning=self.session.settings.cleaner.quiet_cleaning,
            expires_after_ms=topic.expires_after_ms,
            takes_whole_log=topic.takes_whole_log,
        )
        log = look.log
        if not (is_watched and isinstance(log, LoadedLog) and has_clean_section(log, look.found)):
            return entry
        from cleaner.cleaning.round.quiet import find_quiet_work  # loads kernels, which other topics do not need

        work = find_quiet_work(log, look.found, topic, entry.now_ms, None, self.session.check_done)
        if not work.segments:
            return replace(entry, next_horizon_ms=work.next_ms)
        why = Reason.HORIZON_PASSED
        reason = f"{why.words.line}, segments: {len(work.segments)}"
        return replace(entry, is_due=True, why=why, reason=reason, next_horizon_ms=work.next_ms)

    def _with_packing(self, entry: PlanEntry, found: Cleanable) -> PlanEntry:
        """Add how a round would pack what stays; without anything dirty there is one only if the caller asks for it."""
        setting = self.session.settings.cleaner.recompress
        target = parse_recompression(setting if self.recompress is None else self.recompress)
        if target is None or not (found.cleanable_bytes or (self.recompress and found.clean_bytes)):
            return entry
        return replace(entry, recompress=str(target))

    def _with_view(self, entry: PlanEntry, view: KeyView, topic: TopicConfig) -> PlanEntry:
        """Add what the topic's key view removes and Kafka's cleaner would keep."""
        from cleaner.cleaning.estimate.merged_keys import count_merged  # loads kernels, which other topics do not need

        merged, end = None, entry.first_uncleanable_offset
        if end:
            merged = count_merged(
                self.session.context.fs,
                self.topic_partition,
                self.directory,
                end,
                view,
                limit_bytes=self.session.settings.cleaner.batch_limit_bytes(topic),
                check_done=self.session.check_done,
            )
        return replace(entry, key_view=view.name, merged_keys=merged)

    def _with_estimate(
        self, entry: PlanEntry, look: Inspection, topic: TopicConfig, now_ms: int, sample_bytes: int | None
    ) -> PlanEntry:
        """Add an estimate of what cleaning would do; there is something to clean, or to pack."""
        from cleaner.cleaning.context import RoundContext
        from cleaner.cleaning.estimate.estimate import estimate  # loads kernels, which other calls do not need
        from cleaner.cleaning.estimate.packing import estimate_packing

        caller, config = self.session.context, self.session.settings.cleaner
        segments = [
            Segment(caller.fs, self.directory, seen.base_offset, size=seen.size, mtime_ns=seen.mtime_ns)
            for seen in look.log.segments
            if seen.base_offset < look.found.first_uncleanable_offset
        ]
        kafka = self.session.settings.kafka.version
        context = RoundContext(caller.fs, caller.clock, now_ms, check_done=self.session.check_done, kafka=kafka)
        staying = entry.clean_bytes
        if look.found.cleanable_bytes:
            taken = range_of_round(look.log, look.found, topic, now_ms)
            found, ahead = estimate(segments, taken, topic, config, context, sample_bytes)
            staying, entry = found.bytes_after, replace(entry, estimate=found, rounds=ahead)
        target = parse_recompression(entry.recompress)
        if target is None or not segments:
            return entry
        return replace(entry, packing=estimate_packing(segments, staying, target, topic, config, context))

    def _bound(self, entry: PlanEntry, look: Inspection, place: PlanTarget) -> PlanEntry:
        """Add each bound of the range with its value."""
        log, found, topic = look.log, look.found, place.topic
        lag_ms = topic.min_compaction_lag_ms
        young = first_young_segment(log, found.first_dirty_offset, lag_ms, place.now_ms)
        undecided = None
        if log.last_stable_offset < log.high_watermark:
            fs = self.session.context.fs
            undecided = undecided_at(fs, self.directory, log.segments, log.last_stable_offset)
        return replace(
            entry,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            bounded_by=found.bounded_by,
            bounds=tuple(bounds_of(log, found.first_dirty_offset, lag_ms, place.now_ms)),
            checkpoint_offset=self.session.log_dir.cleaner_offsets.get(self.topic_partition),
            is_checkpoint_reset=found.force_checkpoint,
            undecided=undecided,
            lag_ends_ms=None if young is None else young.largest_timestamp() + lag_ms,
        )


def _failed(entry: PlanEntry, error: CleanerError) -> PlanEntry:
    why = Reason.of_error(error)
    return replace(entry, error=str(error), why=why, reason=why.words.line)


def _figure_of_bound(entry: PlanEntry) -> str:
    """Return the details of the bound that ends the range."""
    offset = next((bound.offset for bound in entry.bounds if bound.name == entry.bounded_by), None)
    words = f" at offset {offset} of {entry.log_end_offset}"
    if entry.bounded_by == "last stable offset" and entry.undecided is not None:
        open_ms = max(0, entry.now_ms - entry.undecided.since_ms)
        whose = f"producer {entry.undecided.producer_id}, epoch {entry.undecided.producer_epoch}"
        return f"{words}: a transaction of {whose} is open for {duration(open_ms)}"
    if entry.bounded_by == "min.compaction.lag.ms" and entry.lag_ends_ms is not None:
        return f"{words}: the segment is too young for {duration(entry.lag_ends_ms - entry.now_ms)} more"
    return words
