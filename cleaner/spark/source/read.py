"""
Reads the batches of spans, chunk by chunk: unpacks them and decides which ones the caller may see.

A span names a file and positions in it. If a cleaner or a broker has replaced the file since, the same offsets are
looked up again; if retention has removed them, that is an error unless the query says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from cleaner.errors import CorruptBatchError, LogChangedError, LogTruncatedError
from cleaner.format.chunks import TRANSACTIONAL_FLAG, Chunk, Flags, ReadBuffer, control_batches
from cleaner.format.records import Block, Unpacker, leave_out
from cleaner.read.snapshot import LogSnapshot, LogSnapshots
from cleaner.read.summary import MOST_LOOKS
from cleaner.spark.source.damage import Damage, sound_chunks, transactions_reader
from cleaner.spark.source.options import ReadOptions
from cleaner.spark.source.spans import Span, out_of_range, spans_of
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.segment.aborted import hidden_batches
from cleaner.storage.segment.indexes import Aborts

Result = TypeVar("Result")
Work = Callable[[Path, Block, Flags], Result]

_MODERN = 2


class _ReplacedError(Exception):
    """A span's file was replaced; `offset` is where to go on in the files that have taken its place."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class SpanReader:
    """
    Args:
        fs: access to the file system.
        options: isolation, and how to treat damage and missing offsets.
        damage: handles damage.
        min_timestamp_ms: batches whose records are all older are skipped.
    """

    def __init__(
        self, fs: FileSystem, options: ReadOptions, damage: Damage, min_timestamp_ms: int | None = None
    ) -> None:
        self._fs = fs
        self._options = options
        self._damage = damage
        self._min_timestamp_ms = min_timestamp_ms
        self._buffer = ReadBuffer()
        self._unpacker = Unpacker(options.batch_bytes)

    def each(self, span: Span, work: Work[Result]) -> Iterator[Result]:
        """
        Call `work` for every block of a span, in order, and yield its results.

        Args:
            work: gets the segment's path, a block, and for each of its batches 1 if its records are hidden. It raises
                CorruptBatchError for a damaged record, before it has done anything with the block.
        Raises:
            CorruptLogError: damage, unless the options skip it.
            OffsetOutOfRangeError: offsets are gone.
            LogTruncatedError: the topic was deleted and created again.
            LogChangedError: the files are replaced faster than they can be opened.
        """
        following, misses = span.first_offset, 0
        opened: tuple[Span | None, File | None] = (span, self._open(span))
        while following < span.end_offset:
            part, file = opened
            opened = None, None
            if file is None:  # another file has replaced it
                part, file = LogSnapshots(self._fs).look(
                    span.topic_partition, span.directory, partial(self._look_up, span, following)
                )
            if part is None or file is None:
                return
            with file:
                try:
                    yield from self.each_of(part, file, work, partial(self._aborts, part, file))
                    following = part.end_offset
                except _ReplacedError as replaced:
                    misses = misses + 1 if replaced.offset <= following else 0
                    following = max(following, replaced.offset)
                    if misses == MOST_LOOKS:
                        raise LogChangedError(f"{span.path}: it is replaced faster than it can be read") from None

    def each_of(
        self, span: Span, file: File, work: Work[Result], aborts_of: Callable[[int], Aborts]
    ) -> Iterator[Result]:
        """Do the same for a span whose file is open already; `aborts_of` is given the offset that is read up to."""
        aborts: Aborts | None = None
        reached = span.first_offset
        chunks = sound_chunks(file, span.base_offset, span.position, span.end_position, self._damage, self._buffer)
        for chunk in chunks:
            hidden = self._hidden(span, chunk)
            if self._options.committed and chunk.kinds & TRANSACTIONAL_FLAG:
                if aborts is None:
                    aborts = aborts_of(reached)
                hidden |= hidden_batches(chunk.batches, aborts)
            yield from self._blocks(file.path, chunk, hidden, work)
            last = chunk.batches[-1]
            reached = max(reached, int(last["last_offset"]) + 1)
            if last["magic"] == _MODERN and last["last_offset"] >= span.end_offset:
                return

    def _hidden(self, span: Span, chunk: Chunk) -> Flags:
        """Return 1 for each batch that holds no wanted record."""
        rows = chunk.batches
        is_modern = rows["magic"] == _MODERN
        hidden = control_batches(rows)
        hidden |= rows["last_offset"] < span.first_offset
        # The header of a wrapper of magic 0 or 1 has only the last offset.
        hidden |= is_modern & (rows["base_offset"] >= span.end_offset)
        if self._min_timestamp_ms is not None:
            hidden |= rows["max_timestamp"] < self._min_timestamp_ms
        return hidden.astype(np.uint8)

    def _blocks(self, path: Path, chunk: Chunk, hidden: Flags, work: Work[Result]) -> Iterator[Result]:
        while True:
            try:
                for block in self._unpacker.blocks(path, chunk, unwanted=hidden != 0):
                    mine = hidden[block.first : block.first + len(block.batches)]
                    if mine.all():
                        continue
                    result = work(path, block, mine)
                    done = block.first + len(mine)
                    yield result
                    hidden[:done] = 1  # should a later block of the chunk be damaged
                return
            except CorruptBatchError as error:
                leave_out(chunk.batches, hidden, error)
                self._damage.handle(error)

    def _aborts(self, span: Span, file: File, reached: int) -> Aborts:
        """
        Return the aborted transactions of a span.

        Raises:
            _ReplacedError: a round has replaced the file before all markers were read. It may have removed some: by the
                next marker of its producer, an aborted transaction that is still in the old file would look committed.
        """
        mode = self._options.bad_batches
        found = LogSnapshots(self._fs).look(
            span.topic_partition,
            span.directory,
            lambda log: log.aborted_within(span.first_offset, span.end_offset, transactions_reader(mode)),
        )
        try:
            is_in_place = self._fs.stat(span.path).st_ino == file.stat().st_ino
        except FileNotFoundError:
            is_in_place = False
        if not is_in_place:
            raise _ReplacedError(reached)
        return found

    # ---- files -----------------------------------------------------------------------------------------------------

    def _open(self, span: Span) -> File | None:
        try:
            file = self._fs.open(span.path)
        except FileNotFoundError:
            return None
        about = file.stat()
        if about.st_ino == span.inode and about.st_size >= span.end_position:
            return file
        file.close()
        return None

    def _look_up(self, span: Span, offset: int, log: LogSnapshot) -> tuple[Span | None, File | None]:
        """Return the span that now holds a span's offsets from `offset` on, and its file."""
        is_another = bool(span.topic_id and log.topic_id) and span.topic_id != log.topic_id
        if is_another and self._options.fail_on_data_loss:
            raise LogTruncatedError(log.directory, offset, is_another=True)
        if is_another:
            return None, None
        if offset < log.start_offset and self._options.fail_on_data_loss:
            raise out_of_range(log, offset)
        for part in spans_of(log, offset, min(span.end_offset, log.end_offset), self._options.task_bytes):
            file = self._open(part)
            if file is None:
                raise FileNotFoundError(part.path)
            return part, file
        self._require_end(log, span)
        return None, None

    def _require_end(self, log: LogSnapshot, span: Span) -> None:
        if log.end_offset < span.end_offset and self._options.fail_on_data_loss:
            raise out_of_range(log, span.end_offset)
