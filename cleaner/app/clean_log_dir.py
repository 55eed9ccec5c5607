"""
`clean`: one or more rounds for the named partitions, or for all that are due.

Each partition by itself: load, find the cleanable range, rounds, retention, close, checkpoints. Until a round has read
the whole dirty section and found it sound, nothing on disk changes. A refused partition keeps the groups that were
swapped before the error, and the next one follows.

Next to one of our writers the cleaner only runs rounds; the writer does recovery, retention and closing. The writer may
cut a log or delete from it while it is cleaned: a failure that follows from this is tried again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from cleaner.app.each_partition import one_by_one, side_by_side
from cleaner.app.keep_old import check_outside
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.recover_log_dir import recover_partitions
from cleaner.app.reports import CleanReport, Refusal, Skipped
from cleaner.app.rounds import clean_and_close, open_work
from cleaner.app.safe_tombstones import SafeTombstones, read_safe_tombstones
from cleaner.app.session import Session, as_cleaner_errors, attempt, choose_partitions, open_session, parse_names
from cleaner.app.trust import replication_warning, standing
from cleaner.base.model import TopicPartition
from cleaner.errors import LogChangedError, NotCleanlyShutDownError, PolicyRefusedError
from cleaner.settings.sources import Sources
from cleaner.state.key_index_dir import INDEX_DIR_KEY, KeyIndexDir
from cleaner.storage.load.leftovers import swap_state
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.lock.log_dir_lock import LockMode
from cleaner.storage.log_dir import must_be_recovered

Outcome = CleanReport | Refusal | Skipped

_ATTEMPTS = 5
"""Attempts for a log that the writer keeps changing; each failure needs another cut or deletion during the round."""


def clean_log_dir(
    log_dir: Path,
    partitions: Sequence[str] | None,
    sources: Sources,
    options: CleanOptions,
    context: CallContext,
) -> Iterator[Outcome]:
    """
    Clean partitions of a log dir: one after another, or as many in parallel as the options say.

    Args:
        log_dir: the directory.
        partitions: names; cleaned if anything in them is cleanable. None: every partition that is due.
        sources: where settings come from.
        options: how to clean.
        context: the caller's file system, clock, progress and stop check.
    Yields:
        For each partition in turn a report, why it was refused, or (if not named) why it was skipped. The lock is held
        until the caller has taken the last one.
    Raises:
        UsageError: no such directory or partition.
        NotCleanlyShutDownError: no clean-shutdown marker, and `options.recover` is not set.
        LogDirLockedError: the log dir is in use, or the lock was lost during the work.
        WriterWaitingError: a writer wants the logs; otherwise like `CleaningAborted`.
        CorruptCheckpointError, UncleanableError: the directory as a whole is not sound; nothing was changed.
        CleaningAborted: raised by `context.check_done`; groups already swapped stay.
    """
    named = None if partitions is None else parse_names(partitions)
    file = options.safe_tombstones
    safe = None if file is None else read_safe_tombstones(context.fs, file)
    with as_cleaner_errors(log_dir), open_session(log_dir, sources, context, mode=LockMode.SHARED) as session:
        if options.keep_old is not None:
            check_outside(session, options.keep_old, "--keep-old")
        if options.use_index:
            session = with_key_indexes(session, options.index_dir)
        todo = choose_partitions(session, named)
        is_clean = not must_be_recovered(session.use, todo)
        if not is_clean and not options.recover:
            raise NotCleanlyShutDownError(
                f"{session.log_dir.path}: no clean-shutdown marker (.kafka_cleanshutdown), so its logs may be torn; "
                "recover them first (cleaner recover, or clean --recover)"
            )
        if not is_clean and named is None:
            recovered = recover_partitions(session, todo, allow_truncate=options.allow_truncate)
            if recovered.note:
                context.warn(recovered.note)
            yield from recovered.refused
            refused = {refusal.partition for refusal in recovered.refused}
            todo = {tp: path for tp, path in todo.items() if str(tp) not in refused}
            is_clean = True  # the logs left in `todo` were recovered and closed in order, with or without a marker
        elif not is_clean:
            context.warn(
                f"{session.log_dir.path}: only what is named is recovered: no clean-shutdown marker is written; "
                "`cleaner recover` recovers the rest, and writes it"
            )
        job = _Job(session, options, named is not None, is_clean, safe)
        yield from _clean_each(job, todo)


def with_key_indexes(session: Session, index_dir: Path | None) -> Session:
    """Add the directory of key indexes, if the caller or a setting names one."""
    named = session.settings.cleaner.index_dir
    directory = index_dir or (Path(named) if named else None)
    if directory is None:
        return session
    check_outside(session, directory, INDEX_DIR_KEY if index_dir is None else "--index-dir")
    context = session.context
    return replace(session, key_index_dir=KeyIndexDir(context.fs, directory, [session.log_dir.path], context.warn))


@dataclass(frozen=True)
class _Job:
    """The inputs that all partitions of one call share."""

    session: Session
    options: CleanOptions
    is_named: bool
    clean_shutdown: bool
    safe: SafeTombstones | None = None

    def held_from(self, log: LoadedLog, directory: Path) -> int | None:
        """Return the offset from which on a log's tombstones stay; refuse a log that the file does not cover."""
        if self.safe is None:
            return None
        return self.safe.offset_of(self.session.context.fs, log.topic_partition, directory, log.log_end_offset)


def _clean_each(job: _Job, todo: Mapping[TopicPartition, Path]) -> Iterator[Outcome]:
    """Clean all partitions, in the way the options say."""
    places = job.options.side_by_side
    work = partial(_attempt, job)
    return one_by_one(todo, work) if places is None else side_by_side(todo, work, places)


def _attempt(job: _Job, topic_partition: TopicPartition, directory: Path) -> Outcome:
    work = partial(_clean_while_it_changes, job, topic_partition, directory)
    return attempt(topic_partition, directory, work)


def _clean_while_it_changes(job: _Job, topic_partition: TopicPartition, directory: Path) -> CleanReport | Skipped:
    """Clean one partition; try again if a writer changed it during the attempt."""
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(LogChangedError):
            return _clean_partition(job, topic_partition, directory)
    return _clean_partition(job, topic_partition, directory)


def _clean_partition(job: _Job, topic_partition: TopicPartition, directory: Path) -> CleanReport | Skipped:
    """Clean one partition, step by step."""
    began = time.monotonic()
    session, options = job.session, job.options
    session.check_done()
    session.require_one_directory(topic_partition, directory)
    resolved = session.topic(topic_partition, directory)
    verdict = standing(resolved, is_named=job.is_named, trust_default=session.settings.trusts_default_policy)
    if not verdict.is_allowed:
        if job.is_named:
            raise PolicyRefusedError(f"{topic_partition}: {verdict.reason}", topic_partition.topic)
        return Skipped(str(topic_partition), verdict.reason, is_doubtful=resolved.config.compact)
    with open_work(
        session,
        topic_partition,
        directory,
        resolved.config,
        options,
        clean_shutdown=job.clean_shutdown,
        refuses_keyless=verdict.refuses_keyless,
    ) as work:
        if not job.is_named and not work.is_quiet and not (answer := work.due()).is_due:
            if swap_state(session.context.fs.list_files(directory)) is not None:
                work.settle()
            work.correct_checkpoint()
            return Skipped(str(topic_partition), answer.reason)
        report = clean_and_close(replace(work, held_from=job.held_from(work.log, directory)))
    replicas = "" if options.keep_tombstones or options.safe_tombstones else replication_warning(resolved)
    warnings = (*resolved.warnings, replicas) if replicas else tuple(resolved.warnings)
    return replace(report, elapsed_seconds=time.monotonic() - began, warnings=warnings)
