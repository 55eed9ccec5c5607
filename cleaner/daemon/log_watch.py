"""
One log under watch: looked at again and again, at almost no cost while nothing about it changes.

Three layers, each used only when the one before gives a reason:

1. the times of the directory, and size and times of the active segment: two system calls. Any other file of a log that
   changes is created, renamed or removed, which changes the directory;
2. a listing, which gives segments, sizes and snapshots; with the checkpoints it says how much is dirty *at most*;
3. only for a log with something dirty below its active segment: files are opened, to find open transactions and, if
   timestamps matter, to read those.

What an operator changes in place, such as an older segment that `cp` overwrites, does not show in layer 1. So now and
then a look is made afresh, without anything remembered.

A worker that takes the log loads it and judges for itself; the look decides only which log it is given.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from cleaner.app.session import as_cleaner_errors
from cleaner.app.trust import is_trusted, origin_of_policy, policy_words, standing
from cleaner.base.model import TopicPartition
from cleaner.config.table import LONG_MAX
from cleaner.config.values import TopicConfig
from cleaner.daemon.log_status import LogStatus
from cleaner.daemon.topic_settings import WatchedTopicSettings
from cleaner.errors import CleanerError, describe
from cleaner.policy.cleanable import Cleanable, cleanable, first_young_segment, has_clean_section, may_hold_transactions
from cleaner.policy.due import earliest_dirty_timestamp_ms, watches_time
from cleaner.policy.reasons import Reason
from cleaner.policy.retention import Limit, daemon_limits, find_expired
from cleaner.policy.sections import sections_of
from cleaner.policy.selection_context import LogFacts
from cleaner.read.log_end import recovered_end
from cleaner.read.open_transactions import OpenTransactions
from cleaner.read.summary import ListedFiles, LogSummary, list_log_files, summarize
from cleaner.settings import ResolvedTopic
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import FileState, FileSystem
from cleaner.storage.load.leftovers import SwapState
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.load.loader import load_log
from cleaner.storage.log_dir import Use
from cleaner.storage.segment.names import LOG, PARTITION_METADATA, segment_file_name

# A file that changed this shortly before it was read may have changed again within the same tick of the file system's
# clock; it is read again next time. The longest tick of any file system is two seconds.
_OLD_ENOUGH_NS = 3_000_000_000
AFRESH_NS = 3_600_000_000_000
"""How long a look may rely on what earlier looks have read: an hour, monotonic."""
_ATTEMPTS = 3  # how often a log is looked at whose files change during the look


def proves_unchanged(state: FileState, now_ms: int) -> bool:
    """Tell whether a file or directory whose state is still this one some time later is unchanged."""
    return max(state.mtime_ns, state.ctime_ns) + _OLD_ENOUGH_NS < now_ms * 1_000_000


class Lines(NamedTuple):
    """A partition's lines in the checkpoints; None if it has none."""

    cleaner_offset: int | None = None
    high_watermark: int | None = None
    log_start_offset: int | None = None


class Moment(NamedTuple):
    """
    The inputs that all looks at the logs of one log dir share.

    Attributes:
        fs: the file system.
        settings: of topics.
        now_ms: the moment.
        now_ns: the same by the monotonic clock.
        watches_retention: whether `has_segments_to_delete` is asked for.
        trusts_default_policy: see `WatchedTopicSettings`.
        quiet_cleaning: `cleaner.quiet.cleaning`.
        use: how the log dir is used. Next to one of our writers a round sees a log only up to its active segment. A
            look does the same, or it would find a log due again and again in which no round finds anything to clean.
    """

    fs: FileSystem
    settings: WatchedTopicSettings
    now_ms: int
    now_ns: int = 0
    watches_retention: bool = False
    use: Use = Use.CLOSED
    trusts_default_policy: bool = False
    quiet_cleaning: bool = False


class WatchedLog:
    """
    One log under watch. Not safe to share between threads.

    Args:
        partition: which.
        log_dir: as in `LogStatus.log_dir`.
        directory: where.
    """

    __slots__ = (
        "_active_path",
        "_directory_state",
        "_end",
        "_files",
        "_fresh_ns",
        "_judged_at_ms",
        "_judged_by",
        "_judged_until_ms",
        "_open",
        "_open_by",
        "_proves_unchanged",
        "_status",
        "_topic_id",
        "directory",
        "log_dir",
        "partition",
    )

    def __init__(self, partition: TopicPartition, log_dir: str, directory: Path) -> None:
        self.partition = partition
        self.log_dir = log_dir
        self.directory = directory
        self._files = ListedFiles()
        self._directory_state = FileState()
        self._proves_unchanged = False
        self._fresh_ns = 0
        self._end: tuple[FileState, int] | None = None  # the log end, for a state of the active segment
        self._active_path = directory
        self._topic_id: UUID | None = None
        self._open: OpenTransactions | None = None
        self._open_by: object = None
        self._status: LogStatus | None = None
        # The inputs of the last judgement, and the time for which it holds.
        self._judged_by: object = None
        self._judged_at_ms = 0
        self._judged_until_ms = 0

    @property
    def status(self) -> LogStatus | None:
        """What the last look has found; None before the first one, and when the directory had gone."""
        return self._status

    def is_current(self, at: Moment, lines: Lines) -> bool:
        """Tell, in two system calls, whether a look would find nothing new."""
        if not self._proves_unchanged or not self._judged_at_ms <= at.now_ms < self._judged_until_ms:
            return False
        if at.now_ns - self._fresh_ns >= AFRESH_NS:
            return False
        try:
            if FileState.of(at.fs.stat(self.directory)) != self._directory_state:
                return False
            active = FileState.of(at.fs.stat(self._active_path))
            return self._judged_by == self._inputs(at, lines, active)
        except (CleanerError, OSError):
            return False  # the look finds out why

    def expect_freshness_until(self, now_ns: int, share: float) -> None:
        """Let this share of the usual time pass until the log is looked at afresh; spreads the logs of a log dir."""
        self._fresh_ns = now_ns - round(AFRESH_NS * (1 - share))

    def look(self, at: Moment, lines: Lines) -> LogStatus | None:
        """
        Look at the log now; returns the same object as last time while nothing has changed.

        Returns:
            None when the directory no longer exists.
        """
        for _ in range(_ATTEMPTS):
            try:
                with as_cleaner_errors(self.directory):
                    return self._look(at, lines)
            except CleanerError as error:
                self._proves_unchanged = False
                if not isinstance(error.__cause__, FileNotFoundError):
                    return self._failed(at, str(error), Reason.of_error(error))
                if not at.fs.exists(self.directory):
                    self._status = None
                    return None
            except Exception as error:  # noqa: BLE001 - even an internal error stops no other log
                self._proves_unchanged = False
                return self._failed(at, describe(error))
        return self._failed(at, "its files come and go; it is read again next time")

    def _look(self, at: Moment, lines: Lines) -> LogStatus:
        if at.now_ns - self._fresh_ns >= AFRESH_NS:
            self._forget()
            self._fresh_ns = at.now_ns
        self._list(at)
        active = self._files.segments[-1].state if self._files.segments else None
        judged_by = self._inputs(at, lines, active)
        is_in_time = self._judged_at_ms <= at.now_ms < self._judged_until_ms
        if self._status is None or not is_in_time or judged_by != self._judged_by:
            self._keep(self._judge(at, lines, judged_by[0]))
            self._judged_by, self._judged_at_ms = judged_by, at.now_ms
        return self._status  # type: ignore[return-value]  # _keep has set it

    def _inputs(self, at: Moment, lines: Lines, active: object) -> tuple[ResolvedTopic, object, Lines, object]:
        """Return what a judgement depends on besides time and listing; `active` is the active segment's state."""
        resolved = at.settings.topic(self.partition.topic, self._topic_id)
        return resolved, active, lines, (at.trusts_default_policy, at.watches_retention, at.quiet_cleaning, at.use)

    def _forget(self) -> None:
        """Forget everything read so far, but not the status, which stays the same object if it is found again."""
        self._files, self._open, self._proves_unchanged = ListedFiles(), None, False

    def _keep(self, status: LogStatus) -> None:
        """Keep the object of last time if this one is equal."""
        if status != self._status:
            self._status = status

    def _list(self, at: Moment) -> None:
        """List the directory if it has changed; otherwise only get the size of the active segment."""
        state = FileState.of(at.fs.stat(self.directory))
        if self._proves_unchanged and state == self._directory_state:
            if self._files.segments:
                self._files.segments[-1].follow(FileState.of(at.fs.stat(self._active_path)))
            return
        if state.inode != self._directory_state.inode:
            self._forget()  # another log of the same name
        self._judged_by = self._end = None
        self._files = list_log_files(at.fs, self.directory, self._files)
        self._topic_id = read_topic_id(at.fs, self.directory / PARTITION_METADATA)
        if self._files.segments:
            base_offset = self._files.segments[-1].base_offset
            self._active_path = self.directory / segment_file_name(base_offset, LOG)
        self._directory_state, self._proves_unchanged = state, proves_unchanged(state, at.now_ms)

    def _failed(self, at: Moment, error: str, held_by: Reason = Reason.UNREADABLE) -> LogStatus:
        status = LogStatus(
            self.partition,
            self.log_dir,
            self.directory,
            segments=len(self._files.segments),
            topic_id=self._topic_id,
        ).left_alone(error, held_by)
        # The settings themselves may be the error; then the policy is shown as empty.
        with contextlib.suppress(CleanerError):
            resolved = at.settings.topic(self.partition.topic, self._topic_id)
            status = replace(status, policy=policy_words(resolved.config), policy_origin=origin_of_policy(resolved))
            status = replace(status, resolved=resolved)
        self._judged_by = None
        self._keep(status)
        return status

    def _judge(self, at: Moment, lines: Lines, resolved: ResolvedTopic) -> LogStatus:
        """Derive the facts from the listing."""
        topic, files, swap = resolved.config, self._files, self._swap(at)
        verdict = standing(resolved, is_named=False, trust_default=at.trusts_default_policy)
        self._judged_until_ms = LONG_MAX
        log = self._load(at, lines, topic) or self._summary(at, lines)
        trusts = is_trusted(resolved, trust_default=at.trusts_default_policy)
        has_expired = at.watches_retention and self._has_expired(at, log, topic, trusts)
        found, facts = None, None
        seen = log
        if topic.compact:
            earliest_ms, found, seen = self._weigh(at, log, lines, topic)
            if verdict.why is None:
                facts = LogFacts(
                    self.partition,
                    self.log_dir,
                    found,
                    earliest_ms,
                    topic.min_cleanable_dirty_ratio,
                    topic.max_compaction_lag_ms,
                    has_segments_to_delete=has_expired,
                    unfinished_swap="" if swap is None else swap.value,
                    takes_whole_log=topic.takes_whole_log,
                    expires_after_ms=topic.expires_after_ms,
                    has_clean_section=has_clean_section(seen, found),
                    lacks_high_watermark=lines.high_watermark is None,
                )
        return LogStatus(
            self.partition,
            self.log_dir,
            self.directory,
            policy=policy_words(topic),
            policy_origin=origin_of_policy(resolved),
            segments=len(files.segments),
            sections=sections_of(seen, found, topic.delete_retention_ms),
            facts=facts,
            held_by=verdict.why,
            why=verdict.reason,
            warnings=resolved.warnings,
            topic=topic,
            resolved=resolved,
            is_policy_trusted=trusts,
            has_segments_to_delete=has_expired,
            deleted_files=files.temporary_files.deleted,
            topic_id=self._topic_id,
        )

    def _summary(self, at: Moment, lines: Lines, log_end_offset: int | None = None) -> LogSummary:
        segments = self._files.segments
        if log_end_offset is None and segments and (lines.cleaner_offset or 0) > segments[-1].base_offset:
            log_end_offset = self._log_end(at)  # whether that offset lies in the log decides what is dirty
        return summarize(
            self.directory,
            segments,
            log_start_offset=lines.log_start_offset or 0,
            high_watermark=lines.high_watermark,
            log_end_offset=log_end_offset,
        )

    def _log_end(self, at: Moment) -> int:
        """Return the log end offset a round would find; next to a writer that is where the active segment begins."""
        segments = self._files.segments
        if at.use is Use.WRITTEN:
            return segments[-1].base_offset
        state = segments[-1].state
        if self._end is None or self._end[0] != state:
            self._end = state, recovered_end(at.fs, self.directory, segments, None).log_end_offset
        return self._end[1]

    def _load(self, at: Moment, lines: Lines, topic: TopicConfig) -> LoadedLog | None:
        """
        Load a log that was closed but has lost an index, or has no segment: a load rebuilds the index, which may change
        producers and times, and begins a segment. None if there is no need, or the log cannot be loaded: a round will
        report why.
        """
        is_whole = self._files.segments and not (topic.compact and self._files.lacks_index)
        if at.use is not Use.CLOSED or self._swap(at) is SwapState.COMPLETED or is_whole:
            return None
        with contextlib.suppress(CleanerError):
            return load_log(
                at.fs,
                self.directory,
                self.partition,
                topic=topic,
                log_start_offset=lines.log_start_offset or 0,
                recovery_point=0,
                high_watermark=lines.high_watermark,
                clean_shutdown=True,
                producer_id_expiration_ms=LONG_MAX,  # what may be cleaned does not depend on idle producers
                now_ms=at.now_ms,
                allow_truncate=False,
                read_only=True,
            )
        return None

    def _weigh(
        self, at: Moment, log: LogSummary | LoadedLog, lines: Lines, topic: TopicConfig
    ) -> tuple[int | None, Cleanable, LogSummary | LoadedLog]:
        """Find the cleanable range, and the time of the oldest dirty segment if it can make the log due."""
        if isinstance(log, LoadedLog):
            return self._weigh_loaded(at, log, lines, topic)
        found = cleanable(log, lines.cleaner_offset, topic, at.now_ms)
        earliest_ms = None
        if found.cleanable_bytes and topic.max_compaction_lag_ms < LONG_MAX:
            earliest_ms = earliest_dirty_timestamp_ms(log, found.first_dirty_offset)
        is_known = self._swap(at) is not SwapState.COMPLETED
        if is_known and (may_hold_transactions(log, found) or self._may_be_quiet(at, log, found, topic)):
            log = self._summary(at, lines, log_end_offset=self._log_end(at))
            log = self._with_last_stable(at, log, found.first_uncleanable_offset)
            found = cleanable(log, lines.cleaner_offset, topic, at.now_ms)
        self._expires_with_lag(at, log, found, topic)
        return earliest_ms, found, log

    def _swap(self, at: Moment) -> SwapState | None:
        """Return what an interrupted swap has left; with a process at work it may be a swap of that one."""
        return self._files.temporary_files.swap if at.use is Use.CLOSED else None

    def _may_be_quiet(self, at: Moment, log: LogSummary, found: Cleanable, topic: TopicConfig) -> bool:
        """Tell whether time alone may make the log due, if nothing in it is dirty."""
        is_watched = watches_time(
            quiet_cleaning=at.quiet_cleaning,
            expires_after_ms=topic.expires_after_ms,
            takes_whole_log=topic.takes_whole_log,
        )
        return is_watched and has_clean_section(log, found)

    def _weigh_loaded(
        self, at: Moment, log: LoadedLog, lines: Lines, topic: TopicConfig
    ) -> tuple[int | None, Cleanable, LoadedLog]:
        found = cleanable(log, lines.cleaner_offset, topic, at.now_ms)
        earliest_ms = None
        if found.cleanable_bytes and topic.max_compaction_lag_ms < LONG_MAX:
            earliest_ms = earliest_dirty_timestamp_ms(log, found.first_dirty_offset)
        self._expires_with_lag(at, log, found, topic)
        return earliest_ms, found, log

    def _expires_with_lag(self, at: Moment, log: LogSummary | LoadedLog, found: Cleanable, topic: TopicConfig) -> None:
        """Judge again when the first segment that is now too young becomes old enough."""
        young = first_young_segment(log, found.first_dirty_offset, topic.min_compaction_lag_ms, at.now_ms)
        if young is not None:
            self._expires(at, young.largest_timestamp() + topic.min_compaction_lag_ms)

    def _with_last_stable(self, at: Moment, log: LogSummary, below: int) -> LogSummary:
        """Look for open transactions that begin below an offset, the end of the cleanable range without them."""
        # A log that is served grows during the look, and the walk goes on where it ended.
        end_offset = None if at.use is Use.SERVED else log.log_end_offset
        files = self._files
        by = (
            files.snapshots,
            files.segments[:-1],
            files.segments[-1].base_offset,
            at.use,
            log.log_start_offset,
            end_offset,
        )
        if self._open is None or by != self._open_by or log.high_watermark < self._open.high_watermark:
            self._open = OpenTransactions(at.fs, self.directory, files, at.use, log)
            self._open_by = by
        log = self._open.with_last_stable(log, below)
        if self._open.is_behind:
            self._expires(at, at.now_ms + 1)
        return log

    def _has_expired(self, at: Moment, log: LogSummary | LoadedLog, topic: TopicConfig, is_trusted: bool) -> bool:
        if find_expired(log, topic, at.now_ms, is_trusted=is_trusted, keeps_active=True).count:
            return True
        watches_age = Limit.TIME in daemon_limits(topic, is_trusted=is_trusted) and topic.retention_ms >= 0
        if watches_age and len(log.segments) > 1:
            self._expires(at, log.segments[0].largest_timestamp() + topic.retention_ms + 1)
        return False

    def _expires(self, at: Moment, moment_ms: int) -> None:
        """Judge again at a moment, if it lies in the future."""
        if moment_ms > at.now_ms:
            self._judged_until_ms = min(self._judged_until_ms, moment_ms)
