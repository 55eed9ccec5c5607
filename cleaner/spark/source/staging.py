"""
A task's part of a log that is being written: its own segments for each partition, named after the attempt.

The final offsets are known only when all tasks are done, so offsets count from the start of the segment. A batch's
offset is outside its checksum and is filled in later (`publish.py`); indexes are relative to the segment's base anyway.

Until then a partition is a directory `prices-0.<job>-delete`. If the job dies, a broker or a cleaner takes it for a
deleted partition and removes it.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.errors import UsageError
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.encode import NewBatch, RecordArrays, encode_batches, place
from cleaner.log.topics import check_topic_name
from cleaner.spark.source.incoming import groups_of
from cleaner.spark.source.write_options import WriteOptions
from cleaner.storage.fs.file_system import FileSystem, real_path
from cleaner.storage.fs.held import Hold
from cleaner.storage.segment.index_builder import WRITTEN_DTYPE, IndexBuilder
from cleaner.storage.segment.names import INDEX, LOG, TIME_INDEX, DirKind, partition_dir_name

if TYPE_CHECKING:
    import pyarrow as pa

BATCHES = ".batches"
"""A staged segment's list of its batches: position and first offset of each, int64."""

_TOPIC = TopicConfig()
_DIRECTORY_MODE = 0o755
_LEADER_EPOCH = 0


@dataclass(frozen=True)
class Staged:
    """
    A segment that a task has written.

    Attributes:
        stem: of its files' names, in the partition's unpublished directory.
        offset_count: how many offsets it covers.
    """

    topic_partition: TopicPartition
    stem: str
    offset_count: int


def unpublished_dir(log_dir: Path, topic_partition: TopicPartition, job: str) -> Path:
    """Return the directory in which a partition is built; `job` is 32 hex digits."""
    return log_dir / partition_dir_name(topic_partition, DirKind.DELETE, job)


class Stage:
    """
    Writes the segments of one attempt of one task.

    Args:
        fs: access to the file system.
        options: where to write, and how.
        job: 32 hex digits, the same for all tasks.
        attempt: name of this attempt, unique in the job.
        now_ms: the timestamp of rows without one.
    """

    def __init__(self, fs: FileSystem, options: WriteOptions, job: str, attempt: str, now_ms: int) -> None:
        self._fs = fs
        self._options = options
        self._job = job
        self._attempt = attempt
        self._now_ms = now_ms
        self._out, self._scratch = GrowingBuffer(), GrowingBuffer()
        self._open: dict[TopicPartition, _Segment] = {}
        self._done: list[Staged] = []
        self._log_dir = real_path(Path(options.path))
        self._hold: Hold | None = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[Staged]:
        """
        Write rows; returns the segments, which are on disk, in order for each partition.

        Raises:
            UsageError: a row that cannot be a record.
            InvalidTopicError: a topic's name that Kafka would refuse.
            NoSpaceError, LogDirOfflineError: the disk is full, or refuses.
        """
        try:
            for batch in batches:
                for topic_partition, columns in groups_of(batch, self._options, self._now_ms):
                    self._append(topic_partition, columns)
            for topic_partition in list(self._open):
                self._close(topic_partition)
        finally:
            for segment in self._open.values():
                segment.abandon()
            if self._hold is not None:
                self._hold.release()
        return self._done

    def _append(self, topic_partition: TopicPartition, columns: RecordArrays) -> None:
        batches = encode_batches(
            columns,
            self._out,
            codec=self._options.codec,
            batch_bytes=self._options.batch_bytes,
            scratch=self._scratch,
        )
        first = 0
        while first < len(batches):
            segment = self._segment(topic_partition)
            count = segment.fitting(batches[first:], self._options.segment_bytes)
            if count:
                segment.append(self._out, batches[first : first + count])
                first += count
            if first < len(batches):
                self._close(topic_partition)

    def _segment(self, topic_partition: TopicPartition) -> _Segment:
        found = self._open.get(topic_partition)
        if found is None:
            check_topic_name(topic_partition.topic)
            directory = unpublished_dir(self._log_dir, topic_partition, self._job)
            self._make_dirs(directory)
            stem = f"{self._attempt}-{len(self._done) + len(self._open)}"
            found = self._open[topic_partition] = _Segment(self._fs, directory, stem)
        return found

    def _make_dirs(self, directory: Path) -> None:
        log_dir = directory.parent
        if not log_dir.parent.is_dir():
            raise UsageError(f"{log_dir}: its parent directory does not exist here; executors need the driver's disks")
        with contextlib.suppress(FileExistsError):
            self._fs.make_dir(log_dir, _DIRECTORY_MODE)
        self._hold = self._hold or self._fs.hold(log_dir)
        with contextlib.suppress(FileExistsError):
            self._fs.make_dir(directory, stat.S_IMODE(self._fs.stat(log_dir).st_mode))

    def _close(self, topic_partition: TopicPartition) -> None:
        segment = self._open.pop(topic_partition)
        segment.close()
        self._done.append(Staged(topic_partition, segment.stem, segment.next_offset))


class _Segment:
    """A staged segment that is being written."""

    def __init__(self, fs: FileSystem, directory: Path, stem: str) -> None:
        self.stem = stem
        self.next_offset = 0
        self._fs = fs
        self._directory = directory
        self._size = 0
        self._places: list[tuple[int, int]] = []
        path = directory / (stem + LOG)
        self._indexes = IndexBuilder(
            path, 0, interval_bytes=_TOPIC.index_interval_bytes, max_index_bytes=_TOPIC.segment_index_bytes
        )
        self._file = fs.create(path, like=directory)

    def fitting(self, batches: Sequence[NewBatch], segment_bytes: int) -> int:
        """Return how many of the batches fit into the segment; an empty segment takes at least one."""
        end = self._size
        for number, batch in enumerate(batches):
            end += batch.size
            if end > segment_bytes and (number or self._size):
                return number
        return len(batches)

    def append(self, out: GrowingBuffer, batches: Sequence[NewBatch]) -> None:
        """Write batches that are contiguous in the buffer."""
        start, base = batches[0].start, self.next_offset - batches[0].first_record
        place(out.view, batches, base, _LEADER_EPOCH)
        written = np.zeros(len(batches), WRITTEN_DTYPE)
        for row, batch in zip(written, batches, strict=True):
            first = base + batch.first_record
            row["size"], row["max_timestamp"] = batch.size, batch.max_timestamp
            row["last_offset"] = first + batch.record_count - 1
            self._places.append((self._size + batch.start - start, first))
        self._indexes.append(written)
        end = batches[-1].start + batches[-1].size
        self._file.write(out.view[start:end], self._size)
        self._size += end - start
        self.next_offset = int(written[-1]["last_offset"]) + 1

    def close(self) -> None:
        """Finish all files and force them to disk."""
        self._indexes.close()
        self._file.fsync()
        self._file.close()
        places = np.array(self._places, np.int64).tobytes()
        contents = ((INDEX, self._indexes.offset_index), (TIME_INDEX, self._indexes.time_index), (BATCHES, places))
        for suffix, content in contents:
            with self._fs.create(self._directory / (self.stem + suffix), like=self._directory) as file:
                file.write(content, 0)
                file.fsync()

    def abandon(self) -> None:
        """Close the file; the end of the job removes it."""
        self._file.close()
