"""
A log as `plan` sees it: loaded as a round would load it, or seen from outside.

A log that was closed in order and is not in use is loaded, except for its records: indexes, leader epochs and producers
are checked against each other. A log that is in use, was not closed in order or has very many segments is judged by
names, sizes, checkpoints and a few headers, as its recovery would leave it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cleaner.app import load_partition
from cleaner.app.options import HighWatermark
from cleaner.app.session import Session
from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.policy.cleanable import Cleanable, cleanable, may_hold_transactions
from cleaner.read.log_end import RecoveredEnd, recovered_end
from cleaner.read.open_transactions import OpenTransactions
from cleaner.read.summary import ListedFiles, LogSummary, summarize
from cleaner.storage.files.leader_epochs import read_leader_epochs
from cleaner.storage.load.leftovers import SwapState, find_leftovers
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.log_dir import Use
from cleaner.storage.segment.names import LEADER_EPOCHS

# A load opens three files per segment; this many segments take a third of a second.
MAX_LOADED_SEGMENTS = 1000
# A walk over open transactions reads 20 000 batches at a time; this many take about a second.
_MAX_WALKS = 16


@dataclass(frozen=True)
class PlanTarget:
    """
    The partition that is looked at, and how.

    Attributes:
        session: its log dir.
        topic_partition, directory: which, and where.
        topic: its settings.
        now_ms: the moment.
        high_watermark: the caller's choice.
        use: how the log dir is used.
        is_in_use: another process uses it in any way.
    """

    session: Session
    topic_partition: TopicPartition
    directory: Path
    topic: TopicConfig
    now_ms: int
    high_watermark: HighWatermark
    use: Use
    is_in_use: bool

    @property
    def is_closed(self) -> bool:
        """Tell whether the log dir was closed in order, and no process is at work in it."""
        return self.use is Use.CLOSED and not self.is_in_use


@dataclass(frozen=True)
class Inspection:
    """A log, its cleanable range, and how many bytes of it a recovery would cut."""

    log: LoadedLog | LogSummary
    found: Cleanable
    cut_bytes: int = 0


def inspect_log(place: PlanTarget, files: ListedFiles) -> Inspection:
    """
    Return a log's state and its cleanable range.

    Args:
        place: which log, and how to look at it.
        files: its files, as just listed.
    Raises:
        CorruptLogError, NotCleanlyShutDownError: the log's state cannot be determined.
        FileNotFoundError: a file was removed after it was listed.
    """
    is_known = not (place.is_closed and files.temporary_files.swap is SwapState.COMPLETED)
    if not is_known:
        fs = place.session.context.fs
        find_leftovers(place.directory, fs.list_files(place.directory))  # refuses what the next load would
    if is_known and place.is_closed and len(files.segments) <= MAX_LOADED_SEGMENTS:
        log = load_partition.load(
            place.session,
            place.topic_partition,
            place.directory,
            place.topic,
            now_ms=place.now_ms,
            clean_shutdown=True,
            high_watermark=place.high_watermark,
            read_only=True,
        )
        return Inspection(log, _found(place, log))
    return _from_outside(place, files, is_known)


def _from_outside(place: PlanTarget, files: ListedFiles, is_known: bool) -> Inspection:
    """Judge a log without a load; what is in one whose swap must be completed first is not known."""
    fs, log_dir = place.session.context.fs, place.session.log_dir
    read_leader_epochs(fs, place.directory / LEADER_EPOCHS)
    end = RecoveredEnd((), 0, 0)
    if files.segments:
        doubted_from = log_dir.recovery_points.get(place.topic_partition, 0)
        is_whole = place.is_in_use or place.is_closed
        end = recovered_end(fs, place.directory, files.segments, None if is_whole else doubted_from)
    log = summarize(
        place.directory,
        end.segments,
        log_start_offset=log_dir.log_start_offsets.get(place.topic_partition, 0),
        high_watermark=load_partition.high_watermark_of(place.session, place.topic_partition, place.high_watermark),
        log_end_offset=end.log_end_offset,
    )
    found = _found(place, log)
    if is_known and may_hold_transactions(log, found):
        # Transactions that begin after the range that is cleanable without them do not matter.
        transactions = OpenTransactions(fs, place.directory, files, place.use, log)
        log = transactions.with_last_stable(log, found.first_uncleanable_offset, _MAX_WALKS)
        found = _found(place, log)
    return Inspection(log, found, end.cut_bytes)


def _found(place: PlanTarget, log: LoadedLog | LogSummary) -> Cleanable:
    checkpoint = place.session.log_dir.cleaner_offsets.get(place.topic_partition)
    return cleanable(log, checkpoint, place.topic, place.now_ms)
