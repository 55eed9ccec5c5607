"""
Retention: segments that have expired as a whole are renamed to `.deleted`, and removed later.

One pass over a log dir takes the free logs that have something to delete, all at once as Kafka does (R-433), so a pass
and a worker never wait for each other. The steps are in `storage/remove/expiry.py`: first the new log start offsets go
to disk, then files are renamed, and `file.delete.delay.ms` later they are removed.

A look (`log_watch.py`) only decides which logs a pass takes. What expires is judged by a listing made when they are
taken. The active segment stays, whatever its age: it belongs to its writer (unlike R-913). There is no pass next to a
writer, nor without a clean-shutdown marker: the state of the logs is unknown then.

After a restart the look finds `.deleted` files, and they are removed after a new full delay; a load of the log, for a
round, removes them at once (R-630). Either way their names are not used again: a log never again holds a segment that
begins below its start.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial

from cleaner.app.session import as_cleaner_errors
from cleaner.base.clock import Clock
from cleaner.base.json_values import JsonValue
from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.daemon.log_status import LogStatus
from cleaner.errors import CleanerError, CleaningAborted, LogDirLockedError
from cleaner.policy.retention import Expired, find_expired
from cleaner.read.summary import ListedSegment, list_log_files, summarize
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loader import load_log
from cleaner.storage.lock.lock_probe import probe
from cleaner.storage.lock.partition_lock import partition_lock
from cleaner.storage.log_dir import LogDir, OffsetKind, Use
from cleaner.storage.remove.expiry import cut_epochs, list_deleted, rename_to_deleted
from cleaner.storage.remove.removals import Removals
from cleaner.storage.segment.generation import raise_generation

Lines = Mapping[TopicPartition, int]
"""The lines of a checkpoint."""

Take = Callable[[Collection[LogStatus]], Iterable[TopicPartition]]
"""Given logs, reserves the free ones for the pass, and returns which these are (R-433)."""

GiveBack = Callable[[TopicPartition], None]
"""Takes back a partition that was given to a pass."""

Lock = Callable[[], AbstractContextManager[Callable[[], None]]]
"""Locks the log dir for a `with` block, which gets a call that raises LogDirLockedError when the lock was lost."""


@dataclass(frozen=True)
class RetentionReport:
    """
    What a pass did to one log.

    Attributes:
        partition, log_dir: which.
        segments, bytes: what was deleted; bytes are those of `.log` files.
        by_limit: how many segments each limit expired, in the order of checking, under the values of `Limit`.
        log_start_offset: where the log begins now.
        error: why nothing was deleted, or why the rest is left for the next pass; empty if all went well.
    """

    partition: TopicPartition
    log_dir: str
    segments: int = 0
    bytes: int = 0
    by_limit: Mapping[str, int] = field(default_factory=dict)
    log_start_offset: int | None = None
    error: str = ""

    def details(self) -> dict[str, JsonValue]:
        """Return what is logged and entered in the journal; the reason says which limits were reached."""
        return {
            "log_dir": self.log_dir,
            "segments": self.segments,
            "bytes": self.bytes,
            "reason": ", ".join(self.by_limit),
            "log_start_offset": self.log_start_offset,
        }


@dataclass(frozen=True)
class ExpiringLog:
    """One log of a pass, and its segments to delete."""

    log: LogStatus
    segments: Sequence[ListedSegment]
    expired: Expired
    first_kept_offset: int
    log_start_offset: int

    def report(self) -> RetentionReport:
        """Return the report for when the segments are renamed."""
        return RetentionReport(
            self.log.partition,
            self.log.log_dir,
            segments=len(self.segments),
            bytes=sum(segment.size for segment in self.segments),
            by_limit={limit.value: count for limit, count in self.expired.by_limit.items()},
            log_start_offset=self.log_start_offset,
        )


class RetentionPass:
    """
    Retention of log dirs, one pass after another. For one thread.

    Args:
        fs: the file system.
        clock: its wall clock gives ages, its monotonic clock delays.
        take, give_back: see `Take` and `GiveBack`; each partition taken is given back, whatever happens.
        report: called with each log something was deleted from, or should have been.
        check_done: called before each log; raises CleaningAborted to stop.
    """

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        *,
        take: Take,
        give_back: GiveBack,
        report: Callable[[RetentionReport], None],
        check_done: Callable[[], None],
    ) -> None:
        self._fs = fs
        self._clock = clock
        self._take = take
        self._give_back = give_back
        self._report = report
        self._check_done = check_done
        self._removals = Removals(fs, clock)

    @property
    def next_removal_ns(self) -> int | None:
        """When the next `.deleted` files may be removed, by the monotonic clock; None: none wait."""
        return self._removals.due_ns

    def run(
        self, log_dir: LogDir, logs: Sequence[LogStatus], lock: Lock, *, producer_id_expiration_ms: int = 86_400_000
    ) -> int:
        """
        Make one pass over a log dir.

        Args:
            log_dir: the object that workers use too: it keeps checkpoint lines of several threads apart.
            logs: as last looked at.
            lock: of the log dir; taken only if there is something to do.
            producer_id_expiration_ms: for a load, where an interrupted swap has to be settled first.
        Returns:
            How many segments were deleted.
        Raises:
            LogDirLockedError: it is in use, the lock was lost on the way, or a writer asks for the logs.
            CleaningAborted: asked to stop; a log is unchanged, or done.
            CleanerError: the checkpoint of log start offsets cannot be read or written.
        """
        wanted = [log for log in logs if log.topic is not None and self._is_wanted(log)]
        if not wanted:
            return 0
        with as_cleaner_errors(log_dir.path), lock() as still_held:
            if log_dir.use(has_writer=probe(self._fs, log_dir.path).has_writer) is not Use.CLOSED:
                return 0
            with self._taken(wanted) as taken:
                return self._delete(log_dir, taken, still_held, producer_id_expiration_ms)

    def remove_due(self, log_dir: LogDir, lock: Lock) -> int:
        """
        Remove the files of a log dir that are due; returns how many.

        Raises:
            LogDirLockedError: the log dir is in use; the files stay due.
            LogDirOfflineError: the disk failed; the files stay due.
        """
        due = self._removals.take_due(log_dir.path)
        if not due:
            return 0
        count = sum(len(removal.files or ()) for removal in due)
        try:
            with as_cleaner_errors(log_dir.path), lock() as still_held:
                while due:
                    still_held()
                    self._removals.carry_out(due[0])
                    del due[0]
        finally:
            self._removals.put_back(due)
        return count

    def _is_wanted(self, log: LogStatus) -> bool:
        """Tell whether there is something to delete, or `.deleted` files whose removal is not planned."""
        return log.has_segments_to_delete or (log.deleted_files > 0 and not self._removals.files_of(log.directory))

    @contextlib.contextmanager
    def _taken(self, wanted: Collection[LogStatus]) -> Iterator[list[LogStatus]]:
        by_partition = {log.partition: log for log in wanted}
        partitions = list(self._take(wanted))
        try:
            yield [by_partition[partition] for partition in partitions]
        finally:
            for partition in partitions:
                self._give_back(partition)

    def _delete(
        self, log_dir: LogDir, taken: Sequence[LogStatus], still_held: Callable[[], None], expiration_ms: int
    ) -> int:
        """Take the steps of `storage/remove/expiry.py`, step 1 and 5 for all logs together."""
        lines = (log_dir.log_start_offsets, log_dir.high_watermarks, log_dir.recovery_points)
        expiring = []
        for log in taken:
            self._require_lock(log_dir, still_held)
            with self._reporting(log):
                found = self._find(log_dir, log, lines, expiration_ms)
                if found.segments:
                    expiring.append(found)
        if not expiring:
            return 0
        self._require_lock(log_dir, still_held)
        log_dir.put_all(OffsetKind.LOG_START, {one.log.partition: one.log_start_offset for one in expiring})
        done: list[ExpiringLog] = []
        try:
            for one in expiring:
                self._require_lock(log_dir, still_held)
                with self._reporting(one.log):
                    self._mark_deleted(log_dir, one)
                    done.append(one)
                    self._report(one.report())
        finally:
            # In these logs the first segment gives the start: a line stays only for a start inside a segment.
            whole = [one for one in done if one.log_start_offset == one.first_kept_offset]
            log_dir.put_all(OffsetKind.LOG_START, {one.log.partition: None for one in whole})
        return sum(len(one.segments) for one in done)

    @contextlib.contextmanager
    def _reporting(self, log: LogStatus) -> Iterator[None]:
        """Report an error of one log, and go on with the next (unlike R-712)."""
        try:
            with as_cleaner_errors(log.directory), self._fs.hold(log.directory):
                yield
        except (LogDirLockedError, CleaningAborted):
            raise
        except CleanerError as error:
            self._report(RetentionReport(log.partition, log.log_dir, error=str(error)))

    def _find(self, log_dir: LogDir, log: LogStatus, lines: Sequence[Lines], expiration_ms: int) -> ExpiringLog:
        """Look at a log that has been taken, and find its expired segments."""
        topic = log.topic or TopicConfig()
        starts, watermarks, recovery_points = (line.get(log.partition) for line in lines)
        files = list_log_files(self._fs, log.directory)
        if files.temporary_files.swap is not None:
            # The log is free, so a process has crashed: the loader decides which files are old and which are new.
            loaded = load_log(
                self._fs,
                log.directory,
                log.partition,
                topic=topic,
                log_start_offset=starts or 0,
                recovery_point=recovery_points or 0,
                high_watermark=watermarks,
                clean_shutdown=True,
                producer_id_expiration_ms=expiration_ms,
                now_ms=self._clock.now_ms(),
                allow_truncate=False,
                exclusive=partial(self._partition_lock, log_dir, log),
                check_done=self._check_done,
            )
            loaded.settle(self._fs, partial(self._renaming, log_dir, log))
            files = list_log_files(self._fs, log.directory)
        if files.temporary_files.deleted:
            self._remove_later(log)
        seen = summarize(log.directory, files.segments, log_start_offset=starts or 0, high_watermark=watermarks)
        expired = find_expired(seen, topic, self._clock.now_ms(), is_trusted=log.is_policy_trusted, keeps_active=True)
        first_kept_offset = seen.segments[expired.count].base_offset
        return ExpiringLog(
            log,
            seen.segments[: expired.count],
            expired,
            first_kept_offset,
            max(seen.log_start_offset, first_kept_offset),
        )

    def _mark_deleted(self, log_dir: LogDir, expiring: ExpiringLog) -> None:
        directory = expiring.log.directory
        with self._renaming(log_dir, expiring.log):
            cut_epochs(self._fs, directory, expiring.log_start_offset)
            rename_to_deleted(self._fs, directory, [segment.base_offset for segment in expiring.segments])
        self._remove_later(expiring.log)

    @contextlib.contextmanager
    def _renaming(self, log_dir: LogDir, log: LogStatus) -> Iterator[None]:
        """Hold the lock of a partition while names change, and signal its readers to list it again."""
        with self._partition_lock(log_dir, log):
            raise_generation(self._fs, log_dir.path, log.partition)
            yield

    def _partition_lock(self, log_dir: LogDir, log: LogStatus) -> AbstractContextManager[object]:
        """Keep readers from listing and opening while names change; readers that have opened files go on reading."""
        return partition_lock(self._fs, log_dir.path, log.partition, self._clock, check_done=self._check_done)

    def _require_lock(self, log_dir: LogDir, still_held: Callable[[], None]) -> None:
        """Raise if the pass must end: it was asked to stop, the lock was lost, or a writer has opened the log dir."""
        self._check_done()
        still_held()
        if probe(self._fs, log_dir.path).has_writer:
            raise LogDirLockedError(
                f"{log_dir.path}: a writer has opened it; the rest of the retention is the writer's"
            )

    def _remove_later(self, log: LogStatus) -> None:
        """Have the `.deleted` files of a log removed after its `file.delete.delay.ms`."""
        known = self._removals.files_of(log.directory)
        files = tuple(name for name in list_deleted(self._fs, log.directory) if name not in known)
        if files:
            delay_ms = (log.topic or TopicConfig()).file_delete_delay_ms
            self._removals.add_files(log.directory, files, delay_ms)
