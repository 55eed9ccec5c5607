"""Loads a partition for a command, and closes it as a clean stop would."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from cleaner.app.options import HighWatermark
from cleaner.app.session import Session
from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.policy.reasons import Reason
from cleaner.storage.load.load_changes import SaveCut
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.load.loader import load_log
from cleaner.storage.log_dir import OffsetKind
from cleaner.storage.swap.swap import fsync_sources

_LOG_END = 2**63 - 1
"""Used as high watermark: the loader lowers it to the log end offset (D-03)."""

NO_HIGH_WATERMARK = Reason.NO_HIGH_WATERMARK.words.line


def load(
    session: Session,
    topic_partition: TopicPartition,
    directory: Path,
    topic: TopicConfig,
    *,
    now_ms: int,
    clean_shutdown: bool,
    high_watermark: HighWatermark = "checkpoint",
    allow_truncate: bool = False,
    read_only: bool = False,
    save_cut: SaveCut | None = None,
    trust_recovery_point: bool = True,
) -> LoadedLog:
    """
    Load a log as a starting broker would. After a clean shutdown nothing on disk changes before `LoadedLog.settle`.

    Next to a writer the log is seen only up to its active segment, and no marker is required.

    Args:
        session: has the checkpoints and the settings of the process.
        topic_partition: which.
        directory: where.
        topic: its settings.
        now_ms: the moment of the load; idle producers expire by it.
        clean_shutdown: False recovers the log from its recovery point on (R-640).
        high_watermark: the caller's choice. Without a line in the checkpoint it is the log start offset: nothing is
            known to be replicated.
        allow_truncate: let recovery cut more than a torn tail.
        read_only: change nothing at all.
        save_cut: keeps the bytes that a recovery is about to cut.
        trust_recovery_point: False recovers from the first segment on, wherever the recovery point is.
    Raises:
        CorruptLogError: damage; nothing has changed.
        TruncationRefusedError: see `allow_truncate`.
    """
    log_dir = session.log_dir
    return load_log(
        session.context.fs,
        directory,
        topic_partition,
        topic=topic,
        log_start_offset=log_dir.log_start_offsets.get(topic_partition, 0),
        recovery_point=log_dir.recovery_points.get(topic_partition, 0) if trust_recovery_point else 0,
        high_watermark=high_watermark_of(session, topic_partition, high_watermark),
        clean_shutdown=clean_shutdown,
        producer_id_expiration_ms=session.settings.cleaner.producer_id_expiration_ms,
        now_ms=now_ms,
        allow_truncate=allow_truncate,
        read_only=read_only,
        beside_writer=session.beside_writer,
        exclusive=partial(session.partition_lock, topic_partition),
        save_cut=save_cut,
        check_done=session.check_done,
    )


def high_watermark_of(session: Session, topic_partition: TopicPartition, high_watermark: HighWatermark) -> int | None:
    """
    Return the high watermark the caller chose; None for a checkpoint without a line for the partition.

    Next to a writer it is at most the checkpoint's: the writer may lose or take back records it has not flushed.
    """
    checkpoint = session.log_dir.high_watermarks.get(topic_partition)
    if high_watermark == "checkpoint" or (session.beside_writer and checkpoint is None):
        return checkpoint
    chosen = _LOG_END if high_watermark == "end" else high_watermark
    return min(chosen, checkpoint) if session.beside_writer and checkpoint is not None else chosen


def lacks_high_watermark(
    session: Session, topic_partition: TopicPartition, high_watermark: HighWatermark = "checkpoint"
) -> bool:
    """Tell whether nothing can be cleaned because the checkpoint has no line for the partition (D-03)."""
    return high_watermark == "checkpoint" and topic_partition not in session.log_dir.high_watermarks


def close(session: Session, log: LoadedLog) -> None:
    """
    Close a log as a clean stop of a broker would, and write its lines in the log dir's checkpoints.

    The recovery point becomes the log end offset, so data above the old one is forced to disk first (R-116). The log
    start offset gets a line if it lies above the first segment's base offset (R-118). Next to a writer this does
    nothing: closing is the writer's work.
    """
    if session.beside_writer:
        return
    log_dir, tp, end = session.log_dir, log.topic_partition, log.log_end_offset
    log.close(session.context.fs, partial(session.swapping, tp))
    point = log_dir.recovery_points.get(tp, 0)
    if point != end:
        unflushed = log.segments_between(min(point, end), end)
        fsync_sources(session.context.fs, log.directory, [segment.base_offset for segment in unflushed])
        log_dir.put(OffsetKind.RECOVERY_POINT, tp, end)
    log_dir.put(OffsetKind.LOG_START, tp, log.log_start_checkpoint)
