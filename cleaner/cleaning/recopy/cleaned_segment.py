"""
Writes the new segment of a group: `.cleaned` files of a log and its indexes (R-590, R-591, R-320..R-322).

`finish` closes the indexes, forces everything to disk and gives the files the mtime of the last source. Until then the
files do not count, and `discard` removes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cleaner.base.model import AbortedTxn
from cleaner.base.segments import MAX_RELATIVE_OFFSET
from cleaner.errors import UncleanableError
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.segment.index_builder import IndexBuilder
from cleaner.storage.segment.indexes import LAST_OFFSET, Aborts, abort_rows, txn_index_bytes
from cleaner.storage.segment.names import cleaned_file_name
from cleaner.storage.swap.swap import discard_cleaned

_MAX_FILE_BYTES = 2**31 - 1  # Kafka's file positions are 32 bits
# The disk begins to write while later chunks are processed, so that the fsync at the end has little left to do.
_WRITEBACK_BYTES = 8 << 20


def add_offsets(offset_sum: int, batches: np.ndarray) -> int:
    """Add the last offsets of some batches to a sum of 64 bits."""
    return (offset_sum + int(batches["last_offset"].sum())) % 2**64


class CleanedSegment:
    """
    A group's output under construction.

    Args:
        fs: access to the disk.
        directory: of the partition.
        base_offset: of the group's first segment.
        like: the group's first `.log`, whose owner, mode and attributes the new files get; None if another process
            sets them.
        interval_bytes, max_index_bytes: `index.interval.bytes` and `segment.index.bytes`.
        attempt: if several processes may write the same segment, the part of the file names that identifies this one.

    Attributes:
        path: the `.log.cleaned` file.
        size, batch_count, offset_sum: bytes and batches appended, and the sum of their last offsets, to compare when
            the segment is read back: a batch's checksum does not cover its offset.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        base_offset: int,
        *,
        like: Path | None,
        interval_bytes: int,
        max_index_bytes: int,
        attempt: str = "",
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._like = like
        self._attempt = attempt
        self.base_offset = base_offset
        discard_cleaned(fs, directory, base_offset, attempt)
        self.path = self._name("log")
        self.size = 0
        self.batch_count = 0
        self.offset_sum = 0
        self.indexes = IndexBuilder(
            self.path, base_offset, interval_bytes=interval_bytes, max_index_bytes=max_index_bytes
        )
        self._file: File = fs.create(self.path, like=like)

    def _name(self, extension: str) -> Path:
        return self._directory / cleaned_file_name(self.base_offset, f".{extension}", self._attempt)

    def reserve(self, size: int, written: np.ndarray, largest_offset: int) -> int:
        """
        Reserve room for the next batches. Call in their order; their bytes may be written in any order.

        Args:
            size: of the batches, bytes.
            written: one row of WRITTEN_DTYPE a batch.
            largest_offset: highest last offset of a batch.
        Returns:
            The position for `write`.
        Raises:
            UncleanableError: the file would exceed 2**31 - 1 bytes (R-597), or an offset does not fit (R-320, D-15).
        """
        position = self.size
        if position + size > _MAX_FILE_BYTES:
            raise UncleanableError(self.path, f"the cleaned segment would exceed {_MAX_FILE_BYTES} bytes")
        if len(written) and largest_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            reason = f"offset {largest_offset} is more than 2**31 - 1 above base offset {self.base_offset}"
            raise UncleanableError(self.path, reason)
        self.indexes.append(written)
        self.size += size
        self.batch_count += len(written)
        self.offset_sum = add_offsets(self.offset_sum, written)
        return position

    def write(self, data: memoryview, position: int) -> None:
        """Write batches at their reserved position; several threads may write at once."""
        self._file.write(data, position)
        first, last = position // _WRITEBACK_BYTES, (position + len(data)) // _WRITEBACK_BYTES
        if last > first:
            self._file.begin_writeback(first * _WRITEBACK_BYTES, (last - first) * _WRITEBACK_BYTES)

    def finish(self, aborts: Aborts | Sequence[AbortedTxn], mtime_ns: int) -> None:
        """
        Finish all files and force them, then their names, to disk (step S0 of the swap).

        Args:
            aborts: the transaction index; without entries there is no file.
            mtime_ns: of the group's last source (R-591), in whole milliseconds as Kafka sets it.
        Raises:
            UncleanableError: transactions end in another order than their markers: transaction indexes and markers
                contradict each other. Kafka cannot write such an index either (R-303).
        """
        last_offsets = abort_rows(aborts)[:, LAST_OFFSET]
        if (last_offsets[1:] <= last_offsets[:-1]).any():
            reason = "its transaction indexes name aborted transactions that its markers do not end in that order"
            raise UncleanableError(self._directory, reason)
        self.indexes.close()
        self._fs.set_mtime_ns(self.path, mtime_ns)
        self._file.fsync()
        self._file.close()
        for extension, content in (("index", self.indexes.offset_index), ("timeindex", self.indexes.time_index)):
            self._write(extension, content, mtime_ns)
        if len(aborts):
            self._write("txnindex", txn_index_bytes(aborts), None)
        self._fs.fsync_dir(self._directory)

    def _write(self, extension: str, content: bytes | memoryview, mtime_ns: int | None) -> None:
        source = None if self._like is None else self._like.with_suffix("." + extension)
        like = source if source is not None and self._fs.exists(source) else self._like
        with self._fs.create(self._name(extension), like=like) as file:
            file.write(content, 0)
            if mtime_ns is not None:
                self._fs.set_mtime_ns(file.path, mtime_ns)
            file.fsync()

    def discard(self) -> None:
        """Remove everything written so far."""
        self._file.close()
        discard_cleaned(self._fs, self._directory, self.base_offset, self._attempt)
