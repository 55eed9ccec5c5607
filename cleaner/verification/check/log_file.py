"""
Reads one `.log` file to its end, with several lanes in parallel, even if it is damaged.

After a damaged batch, reading continues at the position that `format/next_batch.py` returns; skipped bytes that do not
form a batch are one finding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cleaner.cleaning.passes.pipeline import OrderedPipeline
from cleaner.errors import CorruptBatchError, LogChangedError
from cleaner.format.chunks import HEADER_BYTES, Chunk
from cleaner.format.next_batch import next_batch
from cleaner.format.parallel_reader import ParallelSegmentReader, Window, WindowBuffer
from cleaner.kernels.batch_header import HEAD_BYTES, MAGIC, MAGIC_AT, MIN_BATCH_BYTES, base_offset_of, size_of
from cleaner.storage.fs.readable import OpenedFile, is_zero_from
from cleaner.storage.segment.indexes import ZEROS
from cleaner.verification.check.batches import CheckedChunk
from cleaner.verification.check.findings import Finding, FindingKind


class Checker(Protocol):
    """Checks the batches of a chunk; `BatchChecker` is one."""

    def check(self, path: Path, chunk: Chunk, digest_from: int) -> CheckedChunk:
        """Return the chunk with its findings."""


@dataclass
class CheckLaneMemory:
    """Memory of a lane, reused for every file."""

    buffer: WindowBuffer
    checker: Checker


class LogFileReader:
    """
    Reads one file.

    Args:
        file: the open `.log`.
        size: bytes of it to read.
        lanes: memory; as many as `lanes_for` returns.
        base_offset: of the segment; None if the file's name does not give it.
        digest_from: see `BatchChecker.check`.
        on_chunk: called with every chunk, in order.
        on_gap: called with start and end of bytes that cannot be read, in order, too.
        check_done: called before each chunk; raises CleaningAborted to stop.

    Attributes:
        findings: damaged batches and gaps, by position once `run` has returned.
    """

    def __init__(
        self,
        file: OpenedFile,
        size: int,
        lanes: Sequence[CheckLaneMemory],
        *,
        base_offset: int | None,
        digest_from: int,
        on_chunk: Callable[[CheckedChunk], None],
        on_gap: Callable[[int, int], None],
        check_done: Callable[[], None],
    ) -> None:
        self.findings: list[Finding] = []
        self.digest_from = digest_from
        self.check_done = check_done
        self._file = file
        self._size = size
        self._base_offset = base_offset
        self._lanes = lanes
        self._on_chunk = on_chunk
        self._on_gap = on_gap
        self._failure: CorruptBatchError | None = None

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self._file.path

    def run(self) -> None:
        """
        Read the whole file.

        Raises:
            LogChangedError: the file became shorter in the meantime.
            LogDirOfflineError: the disk refuses.
        """
        position = 0
        while position < self._size:
            self._failure = None
            self._read_from(position)
            if self._failure is None:
                break
            position = self._pass(self._failure)
        self.findings.sort(key=lambda finding: finding.position or 0)

    def _read_from(self, position: int) -> None:
        # A file of one window gains nothing from a second thread.
        window_bytes = self._lanes[0].buffer.window_bytes
        lanes = self._lanes if self._size - position > window_bytes else self._lanes[:1]
        reader = ParallelSegmentReader(
            self._file, size=self._size, start=position, window_bytes=window_bytes, check_order_from=None
        )
        try:
            OrderedPipeline([_Lane(self, reader, memory) for memory in lanes], "cleaner-check").run()
        except CorruptBatchError as error:
            raise LogChangedError(str(error)) from error

    def add(self, checked: CheckedChunk) -> None:
        """Add the next chunk."""
        self.findings += checked.findings
        if len(checked.chunk.batches):
            self._on_chunk(checked)
        self._failure = checked.chunk.failure or self._failure

    def _pass(self, failure: CorruptBatchError) -> int:
        """Report the damage where listing batches ended; returns the position to continue at."""
        start = failure.position
        head = self._file.read(HEADER_BYTES, start)
        kind = _kind_of(head, self._size - start)
        end, is_by_length = next_batch(self._file, start, self._size, self._base_offset)
        if end == self._size and is_zero_from(self._file, start):
            self.findings.append(Finding(kind, self.path, ZEROS, start))
        elif is_by_length:
            self.findings.append(Finding(kind, self.path, failure.reason, start, base_offset_of(head)))
        else:
            where = "nothing behind it can be read" if end == self._size else f"the next whole batch begins at {end}"
            reason = f"{failure.reason}; {where}, {end - start} bytes are lost"
            # No offset: the bytes in its place may be anything, even a part of a value.
            self.findings.append(Finding(kind, self.path, reason, start))
        self._on_gap(start, end)
        return end


class _Lane:
    """The steps of one chunk."""

    _window: Window
    _chunk: Chunk
    _checked: CheckedChunk

    def __init__(self, owner: LogFileReader, reader: ParallelSegmentReader, memory: CheckLaneMemory) -> None:
        self._owner = owner
        self._reader = reader
        self._memory = memory

    def take(self) -> bool:
        self._owner.check_done()
        window = self._reader.claim()
        if window is None:
            return False
        self._window = window
        return True

    def fill(self) -> None:
        self._reader.fill(self._window, self._memory.buffer)

    def arrange(self) -> None:
        self._chunk = self._reader.arrange(self._window, self._memory.buffer)

    def work(self) -> int:
        self._checked = self._memory.checker.check(self._owner.path, self._chunk, self._owner.digest_from)
        return 0

    def commit(self) -> None:
        self._owner.add(self._checked)

    def finish(self) -> None:
        """Do nothing: `commit` has added everything."""


def _kind_of(head: bytes, left: int) -> FindingKind:
    """Return, by a batch's head, why the listing ended there."""
    if len(head) < HEAD_BYTES:
        return FindingKind.BATCH_CUT_OFF
    size, magic = size_of(head), head[MAGIC_AT]
    if size < MIN_BATCH_BYTES[0]:
        return FindingKind.BATCH_LENGTH
    if magic > MAGIC:
        return FindingKind.BATCH_MAGIC
    if size < MIN_BATCH_BYTES[magic]:
        return FindingKind.BATCH_LENGTH
    return FindingKind.BATCH_CUT_OFF if size > left else FindingKind.BATCH_CHECKSUM
