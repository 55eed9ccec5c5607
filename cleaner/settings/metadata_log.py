"""
Reads a KRaft metadata log from disk: the newest complete snapshot, then the log after it.

The directory is a controller's or broker's `__cluster_metadata-0`, perhaps a copy of a live one, so the last segment
may end in the middle of a batch: bytes after the last whole batch are ignored, as Kafka cuts them off on its next
start. Damage anywhere else is an error, because the settings after it would be missed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cleaner.errors import CorruptCheckpointError, LogDirOfflineError
from cleaner.format.metadata import MAX_BATCH_BYTES, MetadataBatch, MetadataImage, read_batch
from cleaner.kernels.batch_header import LOG_OVERHEAD_BYTES, size_of
from cleaner.storage.fs.file_system import File, FileSystem

METADATA_LOG = "__cluster_metadata-0"

_SEGMENT = re.compile(r"([0-9]{20})\.log\Z")
# End offset (exclusive) and epoch. An unfinished snapshot is named `.checkpoint.part`.
_SNAPSHOT = re.compile(r"([0-9]{20})-[0-9]{10}\.checkpoint\Z")


class MetadataReading(NamedTuple):
    """The content of a metadata log, its end offset (exclusive), and warnings for the operator."""

    image: MetadataImage
    end_offset: int
    warnings: list[str]


def find_metadata_log(fs: FileSystem, directory: Path) -> Path | None:
    """Return the metadata log that is `directory` or in it, or None. Raises LogDirOfflineError: cannot be listed."""
    for candidate in (directory / METADATA_LOG, directory):
        try:
            names = fs.list_dir(candidate)
        except FileNotFoundError:
            continue
        except LogDirOfflineError as error:
            if isinstance(error.cause, NotADirectoryError):
                continue
            raise
        if candidate.name == METADATA_LOG or any(_SNAPSHOT.match(name) for name in names):
            return candidate
    return None


def newest_segment(names: Iterable[str]) -> str | None:
    """Return the name of the newest segment; None without segments."""
    return max((name for name in names if _SEGMENT.match(name)), default=None)


def read_metadata_log(fs: FileSystem, directory: Path) -> MetadataReading:
    """
    Read a whole metadata log.

    Args:
        fs: the file system.
        directory: the `__cluster_metadata-0` directory.
    Raises:
        CorruptCheckpointError: damage before the last batch, or a log that begins after its snapshot ends.
    """
    names = fs.list_dir(directory)
    warnings: list[str] = []
    image, next_offset = _read_newest_snapshot(fs, directory, names, warnings)
    segments = sorted(name for name in names if _SEGMENT.match(name))
    for name, following in itertools.zip_longest(segments, segments[1:]):
        # If the next segment begins at or below the snapshot's end, this one has nothing new.
        if following is not None and int(following[:20]) <= next_offset:
            continue
        reader = _Reader(fs, directory / name, may_be_torn=following is None)
        next_offset = reader.replay(image, next_offset)
        warnings += reader.warnings
    image.drop_unfinished_transaction()
    return MetadataReading(image, next_offset, warnings)


def _read_newest_snapshot(
    fs: FileSystem, directory: Path, names: list[str], warnings: list[str]
) -> tuple[MetadataImage, int]:
    for name in sorted((name for name in names if _SNAPSHOT.match(name)), reverse=True):
        image = MetadataImage()
        try:
            _Reader(fs, directory / name, may_be_torn=False).load_snapshot(image)
        except CorruptCheckpointError as error:
            # An older snapshot and more of the log give the same result; a gap between them is found later.
            warnings.append(f"snapshot of the cluster metadata ignored: {error}")
        else:
            return image, int(name[:20])
    return MetadataImage(), 0


class _Reader:
    """Reads the batches of one file."""

    def __init__(self, fs: FileSystem, path: Path, *, may_be_torn: bool) -> None:
        self._fs = fs
        self._path = path
        self._may_be_torn = may_be_torn
        self.warnings: list[str] = []

    def replay(self, image: MetadataImage, next_offset: int) -> int:
        """Apply the batches from `next_offset` on; returns the offset after the last one."""
        # A metadata log is never compacted: offsets have no gaps, beginning with the offset in the segment's name.
        expected = int(self._path.name[:20])
        if expected > next_offset:
            reason = f"offset {expected} follows {next_offset - 1}: records are missing"
            raise CorruptCheckpointError(self._path, 0, reason)
        with self._fs.open(self._path) as file:
            window = _Window(file)
            while (batch := self._next_batch(window)) is not None:
                if batch.base_offset != expected or batch.last_offset < expected:
                    reason = f"offsets {batch.base_offset} to {batch.last_offset} instead of {expected}"
                    raise CorruptCheckpointError(self._path, window.position, reason)
                expected = batch.last_offset + 1
                if expected > next_offset:
                    self._apply(batch, image, window.position)
                    next_offset = expected
                window.position += batch.size
        return next_offset

    def load_snapshot(self, image: MetadataImage) -> None:
        """Apply all batches of a snapshot, which is complete if its last batch is the footer."""
        with self._fs.open(self._path) as file:
            window = _Window(file)
            last = None
            while (batch := self._next_batch(window)) is not None:
                self._apply(batch, image, window.position)
                window.position += batch.size
                last = batch
            if last is None or not last.is_control:
                raise CorruptCheckpointError(self._path, window.position, "the snapshot has no footer")

    def _next_batch(self, window: _Window) -> MetadataBatch | None:
        if window.is_at_end():
            return None
        reason = "the file ends within a batch"
        try:
            batch = read_batch(window.view(), 0)
            if batch is not None:
                return batch
            is_torn = True
        except ValueError as error:
            reason = str(error)
            is_torn = window.is_torn_here()
        if not (self._may_be_torn and is_torn):
            raise CorruptCheckpointError(self._path, window.position, reason)
        self.warnings.append(f"{self._path}: unfinished from byte {window.position} on, the rest is ignored: {reason}")
        return None

    def _apply(self, batch: MetadataBatch, image: MetadataImage, position: int) -> None:
        try:
            for value in batch.values:
                image.apply(value)
        except ValueError as error:
            raise CorruptCheckpointError(self._path, position, str(error)) from error


class _Window:
    """The bytes of a file from `position` on, read ahead by at least one whole batch."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._size = file.size()
        self._data = memoryview(b"")
        self._data_position = 0
        self.position = 0

    def is_at_end(self) -> bool:
        """Tell whether all bytes were read."""
        return self.position >= self._size

    def view(self) -> memoryview:
        """Return bytes from `position`: a whole batch if the file holds one there."""
        view = self._data[self.position - self._data_position :]
        is_short = len(view) < LOG_OVERHEAD_BYTES or len(view) < size_of(view)
        if is_short and self.position + len(view) < self._size:
            self._data = view = memoryview(self._file.read(MAX_BATCH_BYTES, self.position))
            self._data_position = self.position
        return view

    def is_torn_here(self) -> bool:
        """Tell whether the bytes at `position` can be a torn last write: they reach the end, or are zeros."""
        view = self.view()
        size = size_of(view)
        reaches_end = LOG_OVERHEAD_BYTES < size <= MAX_BATCH_BYTES and self.position + size >= self._size
        is_whole_rest = self.position + len(view) >= self._size
        return reaches_end or (is_whole_rest and not any(view))
