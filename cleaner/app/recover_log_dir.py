"""
`recover`: recovers logs that were not closed in order, with the same result as a broker's start.

A clean-shutdown marker promises that every log of the directory may be trusted. It is written only if every partition
directory was recovered in the same run; otherwise there is none, and a broker recovers by itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from cleaner.app import load_partition
from cleaner.app.keep_old import CutSaver, check_outside
from cleaner.app.options import CallContext
from cleaner.app.reports import RecoveredPartition, RecoverReport, Refusal
from cleaner.app.session import (
    Session,
    as_cleaner_errors,
    attempt,
    choose_partitions,
    log_bytes,
    open_session,
    parse_names,
    with_progress,
)
from cleaner.base.model import TopicPartition
from cleaner.errors import ZeroTailError
from cleaner.settings.sources import Sources
from cleaner.storage.load.load_changes import SaveCut
from cleaner.storage.lock.log_dir_lock import LockMode
from cleaner.storage.swap.swap import fsync_sources


def recover_log_dir(
    log_dir: Path,
    partitions: Sequence[str] | None,
    sources: Sources,
    context: CallContext,
    *,
    allow_truncate: bool = False,
    save_cut: Path | None = None,
    trust_marker: bool = True,
) -> RecoverReport:
    """
    Load, recover and close partitions in order.

    If there is a clean-shutdown marker, there is nothing to recover: logs are loaded and closed, and the marker stays.
    But a log whose `.log` ends in zeros (D-02) is recovered all the same: the marker is removed first, and written
    again at the end unless a log was refused.

    With `trust_marker=False` the directory is taken for one of an unclean stop: see `recover_partitions`.

    Args:
        log_dir: the directory.
        partitions: names; None or empty: all of them.
        sources: where settings come from.
        context: the caller's file system, clock, progress and stop check.
        allow_truncate: let recovery cut more than the torn end of a last segment.
        save_cut: a directory outside of all log dirs that keeps the bytes cut off.
        trust_marker: believe the marker and the recovery points; otherwise every segment is read.
    Raises:
        UsageError: no such directory or partition; `save_cut` is in a log dir.
        LogDirLockedError: the log dir is in use.
        CorruptCheckpointError, UncleanableError: the directory as a whole is not sound; nothing was changed.
        CleaningAborted: raised by `context.check_done`; no marker is written.
    """
    named = parse_names(partitions) if partitions else None
    with (
        as_cleaner_errors(log_dir),
        open_session(log_dir, sources, context, mode=LockMode.EXCLUSIVE) as session,
    ):
        if save_cut is not None:
            check_outside(session, save_cut, "--save-cut")
        return recover_partitions(
            session,
            choose_partitions(session, named),
            allow_truncate=allow_truncate,
            save_cut=save_cut,
            trust_marker=trust_marker,
        )


def recover_partitions(
    session: Session,
    partitions: Mapping[TopicPartition, Path],
    *,
    allow_truncate: bool,
    save_cut: Path | None = None,
    trust_marker: bool = True,
) -> RecoverReport:
    """
    Recover partitions of an open log dir, and write the marker if none was refused.

    If it had no marker before, these must also be all its partitions.

    With `trust_marker=False` a marker counts as none, and is removed first. The stop that wrote it wrote the recovery
    points too, so they are not believed either, with or without a marker: every segment is read and its indexes are
    rebuilt. The checkpoint's lines stay until a log is recovered: a broker that was started on a log that is refused
    here would read, and cut, from a lower line.
    """
    had_marker = trust_marker and session.log_dir.has_clean_shutdown_marker()
    if not trust_marker:
        # Before the first change, as in `_recover_one`.
        session.log_dir.remove_marker()
    recovered: list[RecoveredPartition] = []
    refused: list[Refusal] = []
    for topic_partition, directory in with_progress(session, partitions, "recover"):
        saver = None if save_cut is None else CutSaver(session.context.fs, save_cut / str(topic_partition)).save
        work = partial(
            _recover_one, session, topic_partition, directory, had_marker, allow_truncate, saver, trust_marker
        )
        outcome = attempt(topic_partition, directory, work)
        if isinstance(outcome, Refusal):
            refused.append(outcome)
        else:
            recovered.append(outcome)
    note = ""
    if not session.log_dir.has_clean_shutdown_marker():
        note = _why_no_marker(session, partitions, refused, was_closed=had_marker)
        if not note:
            session.still_held()
            session.log_dir.write_marker()
    return RecoverReport(tuple(recovered), tuple(refused), has_marker=not note, note=note)


def _recover_one(
    session: Session,
    topic_partition: TopicPartition,
    directory: Path,
    had_marker: bool,
    allow_truncate: bool,
    save_cut: SaveCut | None,
    trust_marker: bool,
) -> RecoveredPartition:
    began = time.monotonic()
    with session.context.fs.hold(directory):
        before = log_bytes(session, directory)
        load = partial(
            load_partition.load,
            session,
            topic_partition,
            directory,
            session.topic(topic_partition, directory).config,
            now_ms=session.context.clock.now_ms(),
            allow_truncate=allow_truncate,
            save_cut=save_cut,
            trust_recovery_point=trust_marker,
        )
        try:
            log = load(clean_shutdown=had_marker)
        except ZeroTailError:
            # Before the first change: a crash must not leave half-written indexes beside a marker.
            session.log_dir.remove_marker()
            log = load(clean_shutdown=False)
        # Also if all is flushed: Kafka up to 4.3 cuts the active segment's files after its last fsync (R-310, D-02).
        # And if the recovery point is not believed, nothing is known to be flushed.
        unflushed = [log.active_segment] if trust_marker else log.segments
        fsync_sources(session.context.fs, directory, [segment.base_offset for segment in unflushed])
        load_partition.close(session, log)
        return RecoveredPartition(
            partition=str(topic_partition),
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            bytes_before=before,
            bytes_after=log_bytes(session, directory),
            elapsed_seconds=time.monotonic() - began,
        )


def _why_no_marker(
    session: Session, partitions: Mapping[TopicPartition, Path], refused: Sequence[Refusal], *, was_closed: bool
) -> str:
    """Return why the log dir gets no marker; empty if it gets one. `was_closed`: it had one before this recovery."""
    found = session.log_dir.listing()
    rest = "no clean-shutdown marker is written and a broker will recover when it starts"
    if refused:
        return f"{len(refused)} of {len(partitions)} partitions were refused: {rest}"
    if was_closed:
        return ""
    left = [*(str(tp) for tp in found.current if tp not in partitions), *(str(tp) for tp in found.linked)]
    if left:
        return f"{_some(left)} not recovered in this run: {rest}"
    # A broker loads these too, and would trust them; the cleaner must not touch them (D-07).
    foreign = [
        *(path.name for path in found.future.values()),
        *(n for n in found.delete_or_stray if n.endswith("-stray")),
    ]
    return f"{_some(foreign)} is never touched by this command: {rest}" if foreign else ""


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
