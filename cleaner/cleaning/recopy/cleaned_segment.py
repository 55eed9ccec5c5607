"""
Writes the new segment of a group: `.cleaned` files of a log and its indexes (R-590, R-591, R-320..R-322).

As long as the output of a group of one segment equals that segment, nothing is written: the equal part is copied once a
difference comes. Without a difference it stays in place: what is on disk is what would be written.

`finish` closes the indexes, forces everything to disk, empty files too (R-660), and gives the files the mtime of the
last source. Until then the files do not count, and `discard` removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from cleaner.base.model import AbortedTxn
from cleaner.base.segments import MAX_RELATIVE_OFFSET
from cleaner.cleaning.context import do_nothing, no_throttle
from cleaner.errors import CorruptBatchError, UncleanableError
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.segment.index_builder import IndexBuilder
from cleaner.storage.segment.indexes import LAST_OFFSET, Aborts, abort_rows, txn_index_bytes
from cleaner.storage.segment.names import cleaned_file_name
from cleaner.storage.segment.segment import Segment
from cleaner.storage.swap.swap import discard_cleaned

_MAX_FILE_BYTES = 2**31 - 1  # Kafka's file positions are 32 bits
# The disk begins to write while later chunks are processed, so that the fsync at the end has little left to do.
_WRITEBACK_BYTES = 8 << 20


def add_offsets(offset_sum: int, batches: np.ndarray) -> int:
    """Add the last offsets of some batches to a sum of 64 bits."""
    return (offset_sum + int(batches["last_offset"].sum())) % 2**64


def has_indexes(fs: FileSystem, segment: Segment, indexes: IndexBuilder, txn_index: bytes | None) -> bool:
    """
    Tell whether a segment's index files have the content that a recopy gives them.

    Args:
        fs: access to the disk.
        segment: which.
        indexes: closed.
        txn_index: of its transaction index; None: there is no such file.
    """

    def content(path: Path) -> bytes | None:
        try:
            return fs.read_bytes(path)
        except FileNotFoundError:
            return None

    return (
        content(segment.index_path) == bytes(indexes.offset_index)
        and content(segment.time_index_path) == bytes(indexes.time_index)
        and content(segment.txn_index_path) == txn_index
    )


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
        source: the group's only segment, which the output may equal; None: everything is written. A group of several is
            merged in any case, and its lanes write faster in parallel than the system copies.
        before_write: called before the first file is created; may raise.
        after_copy: called with the bytes of each part copied from `source`.

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
        source: Segment | None = None,
        before_write: Callable[[], None] = do_nothing,
        after_copy: Callable[[int], None] = no_throttle,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._like = like
        self._attempt = attempt
        self._source = source
        self._before_write = before_write
        self._after_copy = after_copy
        self.base_offset = base_offset
        self.path = self._name("log")
        self.size = 0
        self.batch_count = 0
        self.offset_sum = 0
        self.indexes = IndexBuilder(
            self.path, base_offset, interval_bytes=interval_bytes, max_index_bytes=max_index_bytes
        )
        self._file: File | None = None
        if source is None:
            self._begin()

    def _name(self, extension: str) -> Path:
        return self._directory / cleaned_file_name(self.base_offset, f".{extension}", self._attempt)

    @property
    def may_stay(self) -> bool:
        """Whether all batches so far equal the source: nothing was written yet."""
        return self._file is None

    def _begin(self) -> File:
        """Create the `.log`, and copy the part of the source that the output equals."""
        self._before_write()
        discard_cleaned(self._fs, self._directory, self.base_offset, self._attempt)
        self._file = file = self._fs.create(self.path, like=self._like)
        if self.size and self._source is not None:
            with self._source.open_log() as source:
                for position in range(0, self.size, _WRITEBACK_BYTES):
                    size = min(_WRITEBACK_BYTES, self.size - position)
                    copied = file.copy_from(source, size, position)
                    if copied < size:
                        reason = "the file became shorter while it was copied"
                        raise CorruptBatchError(source.path, position + copied, reason)
                    file.begin_writeback(position, size)
                    self._after_copy(size)
        return file

    def reserve(self, size: int, written: np.ndarray, largest_offset: int, *, is_equal: bool = False) -> int | None:
        """
        Reserve room for the next batches. Call in their order; their bytes may be written in any order.

        Args:
            size: of the batches, bytes.
            written: one row of WRITTEN_DTYPE a batch.
            largest_offset: highest last offset of a batch.
            is_equal: they are the next ones of the source, byte for byte.
        Returns:
            The position for `write`; None if these bytes need not be written.
        Raises:
            UncleanableError: the file would exceed 2**31 - 1 bytes (R-597), or an offset does not fit (R-320, D-15).
        """
        position = self.size
        stays = self.may_stay and is_equal
        if not stays:
            self._open_file()
        if position + size > _MAX_FILE_BYTES:
            raise UncleanableError(self.path, f"the cleaned segment would exceed {_MAX_FILE_BYTES} bytes")
        if len(written) and largest_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            reason = f"offset {largest_offset} is more than 2**31 - 1 above base offset {self.base_offset}"
            raise UncleanableError(self.path, reason)
        self.indexes.append(written)
        self.size += size
        self.batch_count += len(written)
        self.offset_sum = add_offsets(self.offset_sum, written)
        return None if stays else position

    def write(self, data: memoryview, position: int) -> None:
        """Write batches at their reserved position; several threads may write at once."""
        file = self._open_file()
        file.write(data, position)
        first, last = position // _WRITEBACK_BYTES, (position + len(data)) // _WRITEBACK_BYTES
        if last > first:
            file.begin_writeback(first * _WRITEBACK_BYTES, (last - first) * _WRITEBACK_BYTES)

    def _open_file(self) -> File:
        return self._begin() if self._file is None else self._file

    def begin(self) -> None:
        """Write what was not written because it equals the source; after the last batch, if not all files do."""
        self._open_file()

    def equals_source(self, aborts: Aborts | Sequence[AbortedTxn]) -> bool:
        """
        Tell, after the last batch, whether every file would be what the source's already is: it can stay in place.

        Args:
            aborts: see `finish`.
        """
        self.indexes.close()
        source = self._source
        return (
            self.may_stay
            and source is not None
            and source.rebuilt is None
            and self.size == source.size
            and has_indexes(self._fs, source, self.indexes, txn_index_bytes(aborts) if len(aborts) else None)
        )

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
        file = self._open_file()
        self._fs.set_mtime_ns(self.path, mtime_ns)
        file.fsync()
        file.close()
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
        if self._file is None:
            return
        self._file.close()
        discard_cleaned(self._fs, self._directory, self.base_offset, self._attempt)
