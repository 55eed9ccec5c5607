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

from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import TRANSACTIONAL_FLAG, Chunk, Flags, ReadBuffer, control_batches
from cleaner.format.records import Block, Unpacker, leave_out
from cleaner.read.snapshot import LogSnapshot, LogSnapshots
from cleaner.spark.source.damage import Damage, sound_chunks, transactions_reader
from cleaner.spark.source.options import ReadOptions
from cleaner.spark.source.spans import Span, out_of_range, spans_of
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.segment.aborted import hidden_batches
from cleaner.storage.segment.indexes import Aborts

Result = TypeVar("Result")
Work = Callable[[Path, Block, Flags], Result]

_MODERN = 2


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
            LogChangedError: the files are replaced faster than they can be opened.
        """
        for part, file in self._opened(span):
            with file:
                yield from self.each_of(part, file, work)

    def each_of(self, span: Span, file: File, work: Work[Result]) -> Iterator[Result]:
        """Do the same for a span whose file is open already."""
        aborts: Aborts | None = None
        chunks = sound_chunks(file, span.base_offset, span.position, span.end_position, self._damage, self._buffer)
        for chunk in chunks:
            hidden = self._hidden(span, chunk)
            if self._options.committed and chunk.kinds & TRANSACTIONAL_FLAG:
                if aborts is None:
                    aborts = self._aborts(span)
                hidden |= hidden_batches(chunk.batches, aborts)
            yield from self._blocks(file.path, chunk, hidden, work)
            last = chunk.batches[-1]
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

    def _aborts(self, span: Span) -> Aborts:
        mode = self._options.bad_batches
        return LogSnapshots(self._fs).look(
            span.topic_partition,
            span.directory,
            lambda log: log.aborted_within(span.first_offset, span.end_offset, transactions_reader(mode)),
        )

    # ---- files -----------------------------------------------------------------------------------------------------

    def _opened(self, span: Span) -> Iterator[tuple[Span, File]]:
        """Open the file of a span, or the files that have replaced it."""
        file = self._open(span)
        if file is not None:
            yield span, file
            return
        following = span.first_offset
        while following < span.end_offset:
            part, file = LogSnapshots(self._fs).look(
                span.topic_partition, span.directory, partial(self._look_up, span, following)
            )
            if part is None or file is None:
                return
            yield part, file
            following = part.end_offset

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
