"""Partitions opened for writing, and the contents of their files afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cleaner.base.clock import Clock
from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.log.flusher import LogFlusher
from cleaner.log.log import Log
from cleaner.log.partition_writer import PartitionWriter, WriterOptions
from cleaner.log.record import Record
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.log_dir_lock import acquire_for_writing
from cleaner.storage.log_dir import LogDir
from tests.support.batch_reader import BatchInfo, batch_info, split_batches
from tests.support.manual_clock import ManualClock

PARTITION = TopicPartition("topic", 0)


class Writing:
    """A log dir with its lock held, and its one partition."""

    def __init__(self, path: Path, fs: FileSystem | None = None, clock: ManualClock | None = None) -> None:
        self.fs = fs or FileSystem()
        self.clock = clock or ManualClock()
        path.mkdir(exist_ok=True)
        self.log_dir = LogDir(self.fs, path)
        self.lock = acquire_for_writing(self.fs, path, self.clock, patience_ms=0)
        self.directory = path / str(PARTITION)

    def open(
        self, settings: Mapping[str, str] | None = None, *, was_closed: bool = False, batch_bytes: int | None = None
    ) -> PartitionWriter:
        """Open the partition for writing."""
        return PartitionWriter.open(
            self.log_dir,
            PARTITION,
            TopicConfig.from_mapping(dict(settings or {})),
            self.clock,
            was_closed=was_closed,
            options=WriterOptions(batch_bytes=batch_bytes),
        )

    def files(self) -> dict[str, bytes]:
        """Return the files in the partition's directory."""
        return {path.name: path.read_bytes() for path in sorted(self.directory.iterdir())}

    def batches(self) -> list[BatchInfo]:
        """Return the headers of all batches."""
        logs = [data for name, data in self.files().items() if name.endswith(".log")]
        return [batch_info(batch) for log in logs for batch in split_batches(log)]


def log_of(writer: PartitionWriter, clock: Clock) -> Log:
    """Return the public `Log` of a writer; the caller's own thread does each flush."""
    flusher = LogFlusher(
        writer,
        str(writer.directory),
        submit=lambda work: work(),
        call_back=lambda work: work(),
        wake=lambda: None,
        clock=clock,
        topic=TopicConfig(),
        flushed=lambda _seconds, _offset: None,
    )
    return Log(writer, flusher, clock)


@contextmanager
def writing(path: Path, fs: FileSystem | None = None) -> Iterator[Writing]:
    """Lock a log dir for a `with` block."""
    made = Writing(path, fs)
    try:
        yield made
    finally:
        made.lock.release()


def pair(key: str | None, value: str | None) -> Record:
    """Make a record of text."""
    return Record(None if key is None else key.encode(), None if value is None else value.encode())
