"""
A log at one moment: its segments, where it begins and ends, its transactions.

Only the `.log` files are required. Other files make reading cheaper: indexes lead to offsets and times, a producer
snapshot to the transactions that are open at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from cleaner.base.clock import SystemClock
from cleaner.base.model import TopicPartition
from cleaner.format.chunks import Chunk
from cleaner.read.log_end import LogEnd, end_of, is_torn
from cleaner.read.open_segment import OpenSegment, SegmentFiles
from cleaner.read.partition_files import PartitionFiles, topic_id_in
from cleaner.read.summary import until_still
from cleaner.read.transactions import Transactions
from cleaner.storage.files.checkpoint import read_offset_checkpoint
from cleaner.storage.fs.readable import OpenedFile, ReadableFiles
from cleaner.storage.segment.batch_source import batch_headers, checked_batches
from cleaner.storage.segment.indexes import Aborts, abort_rows
from cleaner.storage.segment.names import CLEANER_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT

Result = TypeVar("Result")

UNKNOWN_END = 2**63 - 1
"""The end of a log whose last segment is damaged: it is known only after reading."""

ReadChunks = Callable[[OpenedFile, int, int, int, Callable[[], None]], Iterator[Chunk]]
"""
Reads the batches of a `.log`. Arguments: the open file, the segment's base offset, first and end position in the file,
and a function to call when damage is skipped.
"""


def first_offset_of(places: tuple[SegmentFiles, ...], start_line: int | None) -> int:
    """Return the first offset visible to readers: the checkpoint's, or the first segment's."""
    return max(start_line or 0, places[0].base_offset if places else 0)


def stable_offset_within(first_unstable_offset: int | None, log_start_offset: int, high_watermark: int) -> int:
    """
    Return where readers of committed records stop, without a look into the log.

    A transaction may have begun below the log start, where retention has removed its first batches: it counts from the
    log start on.

    Args:
        first_unstable_offset: None: everything is stable.
        log_start_offset, high_watermark: the log's.
    """
    if first_unstable_offset is None:
        return high_watermark
    return min(high_watermark, max(first_unstable_offset, log_start_offset))


def high_watermark_within(line: int | None, start_offset: int, end_offset: int) -> int:
    """Return the high watermark for readers; without a line in the checkpoint, the whole log is valid."""
    return end_offset if line is None else min(max(line, start_offset), end_offset)


@dataclass(frozen=True)
class LogSnapshot:
    """
    Attributes:
        places: the segments, ascending, as they are after any decided swap is completed.
        snapshots: offsets of producer snapshots, ascending.
        start_line: the partition's line of the log dir's `log-start-offset-checkpoint`, 0 without one.
        watermark_line: its line of `replication-offset-checkpoint`, None without one.
        topic_id: content of `partition.metadata`; empty without the file.
    """

    fs: ReadableFiles
    topic_partition: TopicPartition
    directory: Path
    places: tuple[SegmentFiles, ...]
    snapshots: tuple[int, ...]
    start_line: int
    watermark_line: int | None
    topic_id: bytes = b""

    @property
    def start_offset(self) -> int:
        """First offset visible to readers."""
        return first_offset_of(self.places, self.start_line)

    @cached_property
    def _end(self) -> LogEnd:
        if not self.places:
            return LogEnd(0, 0)
        with OpenSegment(self.fs, self.places[-1]) as segment:
            size = segment.file.size()
            end = end_of(segment, size, batch_headers)
            if end.failure is None:
                return end
            if not is_torn(segment, end.failure.position, size):
                return LogEnd(UNKNOWN_END, size)
            # The last batch may be written in part into room, behind a header that is whole.
            checked = end_of(segment, size, checked_batches)
            is_last = checked.failure is None or is_torn(segment, checked.failure.position, size)
            is_on_disk = self.watermark_line is not None and checked.offset < self.watermark_line
            return checked if is_last and not is_on_disk else end  # else it is damage: its readers report it

    @property
    def end_offset(self) -> int:
        """The offset behind the last whole batch; `UNKNOWN_END` if damage hides it."""
        return max(self._end.offset, self.start_line)

    @property
    def end_position(self) -> int:
        """Where the last whole batch of the last segment ends; the end of the file if damage hides it."""
        return self._end.position

    @property
    def high_watermark(self) -> int:
        """Records below this offset are final; `UNKNOWN_END` if no checkpoint has it and damage hides the end."""
        return high_watermark_within(self.watermark_line, self.start_offset, self.end_offset)

    def bounds(self, first_offset: int, end_offset: int) -> Iterator[tuple[SegmentFiles, int, int]]:
        """Yield the segments that may hold offsets of a range, each with its part of the range."""
        ends = [place.base_offset for place in self.places[1:]] + [end_offset]
        for place, end in zip(self.places, ends, strict=False):
            first, last = max(first_offset, place.base_offset), min(end, end_offset)
            if first < last:
                yield place, first, last

    def last_stable_offset(self, read: ReadChunks) -> int:
        """
        Return the offset of the first transaction that is undecided at the high watermark, or that watermark.

        The last producer snapshot before it says which transactions were open; without one the whole log is read.
        """
        begin, end = self.start_offset, self.high_watermark
        transactions = Transactions.at_snapshot(self.fs, self.directory, self.snapshots, begin, end)
        for path, chunk in self._chunks(transactions.begin, end, read, transactions):
            transactions.take(path, chunk, end)
        return stable_offset_within(transactions.first_open(end), begin, end)

    def aborted_within(self, first_offset: int, end_offset: int, read: ReadChunks) -> Aborts:
        """
        Return the aborted transactions of a range of offsets, by their markers: archives lose transaction indexes, and
        a segment without an index looks like one without aborts.

        The next marker of a record's producer decides its transaction, so reading goes on behind the range, seldom far.
        Transactions that the log does not decide count as aborted: those behind the last stable offset, and those cut
        by damage.
        """
        transactions = Transactions()  # the batch with the first offset may begin below it
        for path, chunk in self._chunks(first_offset, self.end_offset, read, transactions):
            transactions.take(path, chunk)
            is_past = int(chunk.batches[-1]["last_offset"]) + 1 >= end_offset
            if is_past and transactions.first_open(end_offset) >= end_offset:
                break
        return abort_rows([*transactions.aborted, *transactions.open_until(UNKNOWN_END)])

    def _chunks(
        self, first_offset: int, end_offset: int, read: ReadChunks, transactions: Transactions
    ) -> Iterator[tuple[Path, Chunk]]:
        """Read the batches from one offset to another, and perhaps some before and behind them."""
        for place, first, _ in self.bounds(first_offset, end_offset):
            with OpenSegment(self.fs, place) as segment:
                size = self.end_position if place is self.places[-1] else segment.file.size()
                start = segment.position_at(first)
                for chunk in read(segment.file, place.base_offset, start, size, transactions.cut):
                    yield segment.file.path, chunk


class LogSnapshots:
    """Takes snapshots of logs; reads each checkpoint once."""

    def __init__(self, fs: ReadableFiles) -> None:
        self._fs = fs
        self._lines: dict[Path, dict[TopicPartition, int]] = {}  # by checkpoint

    def take(self, topic_partition: TopicPartition, directory: Path) -> LogSnapshot:
        """
        List a partition's segments as they are now, even in the middle of a swap.

        Raises:
            LogDirOfflineError: the directory is gone, or the disk failed.
            CorruptCheckpointError: a checkpoint of the log dir is damaged.
        """
        log_dir = directory.parent
        start = self._line(log_dir / LOG_START_CHECKPOINT, topic_partition)
        high_watermark = self._line(log_dir / HIGH_WATERMARK_CHECKPOINT, topic_partition)
        files = PartitionFiles(self._fs, log_dir, topic_partition, SystemClock())
        try:
            listing = files.listing()
        finally:
            files.close()
        return LogSnapshot(
            *(self._fs, topic_partition, directory, listing.places, listing.snapshots, start or 0, high_watermark),
            topic_id=listing.topic_id,
        )

    def look(
        self,
        topic_partition: TopicPartition,
        directory: Path,
        work: Callable[[LogSnapshot], Result],
        log: LogSnapshot | None = None,
    ) -> Result:
        """
        Call `work` with a snapshot and return its result; if files have gone, or are those of another log, repeat with
        a new snapshot.

        Args:
            work: raises FileNotFoundError if a segment is gone.
            log: the first snapshot to use; None: a new one.
        Raises:
            LogChangedError: too many repeats.
            others: as `take`.
        """

        def once() -> Result:
            nonlocal log
            found, log = log or self.take(topic_partition, directory), None
            try:
                result = work(found)
                if found.topic_id and topic_id_in(self._fs, directory) != found.topic_id:
                    raise FileNotFoundError(f"{directory}: the topic was deleted, and maybe created again")
            except FileNotFoundError:
                self._lines.clear()  # they may be of a log that was deleted
                raise
            return result

        return until_still(directory, once)

    def clean_end(self, log: LogSnapshot) -> int:
        """Return the offset up to which a log was cleaned; raises CorruptCheckpointError."""
        return self._line(log.directory.parent / CLEANER_CHECKPOINT, log.topic_partition) or 0

    def _line(self, checkpoint: Path, topic_partition: TopicPartition) -> int | None:
        if checkpoint not in self._lines:
            self._lines[checkpoint] = read_offset_checkpoint(self._fs, checkpoint)
        return self._lines[checkpoint].get(topic_partition)
