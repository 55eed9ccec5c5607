"""
A partition's log as a plan sees it: its segments, and from which offset to which it has records.

Only the `.log` files have to be there. What else there is makes it cheaper: indexes lead to offsets and times, a
producer snapshot to the transactions that are open at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cleaner.base.clock import SystemClock
from cleaner.base.model import TopicPartition
from cleaner.errors import CorruptBatchError
from cleaner.kernels.batch_header import LEAST_BATCH_BYTES, LOG_OVERHEAD_BYTES, size_of
from cleaner.log.open_segment import OpenSegment
from cleaner.log.partition_files import PartitionFiles
from cleaner.log.places import SegmentPlace
from cleaner.storage.files.checkpoint import read_offset_checkpoint
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.batch_source import batch_headers
from cleaner.storage.segment.names import CLEANER_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT

UNKNOWN_END = 2**63 - 1
"""Stands for the end of a log whose last segment is damaged: only reading it tells."""


@dataclass(frozen=True)
class PartitionLog:
    """
    Attributes:
        places: the segments, ascending.
        snapshots: offsets of producer snapshots, ascending.
        start_line: the partition's line of the log dir's `log-start-offset-checkpoint`, 0 without one.
        high_watermark: its line of `replication-offset-checkpoint`, None without one.
    """

    fs: FileSystem
    topic_partition: TopicPartition
    directory: Path
    places: tuple[SegmentPlace, ...]
    snapshots: tuple[int, ...]
    start_line: int
    high_watermark: int | None

    @property
    def start_offset(self) -> int:
        """First offset that a reader is shown."""
        return max(self.start_line, self.places[0].base_offset if self.places else 0)

    @cached_property
    def _end(self) -> tuple[int, int]:
        return _end_of(self.fs, self.places[-1]) if self.places else (0, 0)

    @property
    def end_offset(self) -> int:
        """The offset behind the last whole batch; `UNKNOWN_END` if damage hides it."""
        return max(self._end[0], self.start_line)

    @property
    def end_position(self) -> int:
        """Where the last whole batch of the last segment ends; behind damage the end of the file."""
        return self._end[1]

    def bounds(self, first_offset: int, end_offset: int) -> Iterator[tuple[SegmentPlace, int, int]]:
        """Give the segments that may hold offsets of a range, each with the part of the range that lies in it."""
        ends = [place.base_offset for place in self.places[1:]] + [end_offset]
        for place, end in zip(self.places, ends, strict=False):
            first, last = max(first_offset, place.base_offset), min(end, end_offset)
            if first < last:
                yield place, first, last


class LogLooker:
    """Looks at partitions; the log dirs' checkpoints are read once."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._lines: dict[Path, dict[TopicPartition, int]] = {}  # by checkpoint

    def look(self, topic_partition: TopicPartition, directory: Path) -> PartitionLog:
        """
        List a partition's segments as they are now, even in the middle of a swap.

        Raises:
            LogDirOfflineError: the directory is gone, or the disk refuses.
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
        return PartitionLog(
            self._fs, topic_partition, directory, listing.places, listing.snapshots, start or 0, high_watermark
        )

    def clean_end(self, log: PartitionLog) -> int:
        """Return the offset up to which a log was cleaned; raises CorruptCheckpointError."""
        return self._line(log.directory.parent / CLEANER_CHECKPOINT, log.topic_partition) or 0

    def _line(self, checkpoint: Path, topic_partition: TopicPartition) -> int | None:
        if checkpoint not in self._lines:
            self._lines[checkpoint] = read_offset_checkpoint(self._fs, checkpoint)
        return self._lines[checkpoint].get(topic_partition)


def _end_of(fs: FileSystem, place: SegmentPlace) -> tuple[int, int]:
    """Return the offset and the position behind the last whole batch of a log's last segment."""
    with OpenSegment(fs, place) as segment:
        size = segment.file.size()
        # An index may lead to a batch that is not there any more, or not yet.
        for start in dict.fromkeys((segment.position_at(2**62), 0)):
            offset, position = place.base_offset, start
            try:
                for chunk in batch_headers(segment.file, size=size, start=start, check_order_from=place.base_offset):
                    offset = int(chunk.batches[-1]["last_offset"]) + 1
                    position = chunk.position + chunk.length
            except CorruptBatchError as error:
                if not _is_cut_off(segment, error.position, size):
                    return UNKNOWN_END, size
            if offset > place.base_offset:
                break
    return offset, position


def _is_cut_off(segment: OpenSegment, position: int, size: int) -> bool:
    """Tell whether a segment's file ends within the batch at a position: an append under way, or one that never was."""
    head = segment.file.read(LOG_OVERHEAD_BYTES, position)
    if position + len(head) >= size and len(head) < LOG_OVERHEAD_BYTES:
        return True
    whole = size_of(head)
    return whole >= LEAST_BATCH_BYTES[0] and position + whole > size
