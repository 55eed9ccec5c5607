"""Handles damage: raises an error, or skips the batch and maybe reports it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

from cleaner.errors import CorruptBatchError, as_value
from cleaner.format.batch import SegmentReader
from cleaner.format.chunks import Chunk, ReadBuffer
from cleaner.format.codec_errors import DecompressedTooLargeError
from cleaner.format.next_batch import next_batch
from cleaner.kernels.batch_header import LOG_OVERHEAD_BYTES, base_offset_of
from cleaner.read.snapshot import ReadChunks
from cleaner.spark.source.options import BadBatches
from cleaner.storage.fs.readable import OpenedFile


class Damage:
    """
    Handles damage, and remembers what to report.

    Args:
        mode: `fail` raises, `skip` goes on, `report` goes on and keeps the error.
    """

    def __init__(self, mode: BadBatches) -> None:
        self.mode = mode
        self._unreported: list[CorruptBatchError] = []

    def handle(self, error: CorruptBatchError) -> None:
        """
        Handle damage.

        Raises:
            CorruptBatchError: the mode is `fail`; the message says how to read on.
        """
        if self.mode == "fail":
            self._refuse(error)
        if self.mode == "report":
            self._unreported.append(as_value(error))

    def _refuse(self, error: CorruptBatchError) -> NoReturn:
        larger = "maxDecompressedBatch allows more, " if isinstance(error.__cause__, DecompressedTooLargeError) else ""
        advice = f"{larger}badBatches=skip reads on after it, badBatches=report also reports it"
        raise CorruptBatchError(error.path, error.position, f"{error.reason}; {advice}") from error

    def take_unreported(self) -> list[CorruptBatchError]:
        """Return the errors to report since the last call."""
        unreported, self._unreported = self._unreported, []
        return unreported


def sound_chunks(
    file: OpenedFile, base_offset: int, position: int, end_position: int, damage: Damage, buffer: ReadBuffer
) -> Iterator[Chunk]:
    """
    Read a segment's batches from one position to another, in chunks that borrow the buffer.

    Args:
        base_offset: of the segment.
        damage: handles damaged batches.
    Raises:
        CorruptBatchError: if `damage` raises it.
    """
    order_from = base_offset
    while position < end_position:
        reader = SegmentReader(file, size=end_position, start=position, check_order_from=order_from)
        try:
            while (chunk := reader.next_chunk(buffer)) is not None:
                order_from = int(chunk.batches[-1]["last_offset"]) + 1
                yield chunk
            break
        except CorruptBatchError as error:
            damage.handle(error)
            position = _next_in_order(file, error.position, end_position, base_offset, order_from)
    buffer.shrink()


def _next_in_order(file: OpenedFile, position: int, end_position: int, base_offset: int, order_from: int) -> int:
    """
    Return where reading goes on behind a damaged batch: the end, or a batch at or above `order_from`.

    No checksum covers a batch's offset. Where one bit of it made it too high, all that follow are below it: they are
    one gap, and not one for each.
    """
    while True:
        position = next_batch(file, position, end_position, base_offset).position
        if position >= end_position or base_offset_of(file.read(LOG_OVERHEAD_BYTES, position)) >= order_from:
            return position


def transactions_reader(mode: BadBatches) -> ReadChunks:
    """Return a function that reads a log's batches only for their transactions; damage is an error, or is skipped."""
    buffer = ReadBuffer()

    def read(
        file: OpenedFile, base_offset: int, position: int, end_position: int, passed: Callable[[], None]
    ) -> Iterator[Chunk]:
        damage = _Gaps("fail" if mode == "fail" else "skip", passed)
        return sound_chunks(file, base_offset, position, end_position, damage, buffer)

    return read


class _Gaps(Damage):
    """Also calls `passed` at each gap."""

    def __init__(self, mode: BadBatches, passed: Callable[[], None]) -> None:
        super().__init__(mode)
        self._passed = passed

    def handle(self, error: CorruptBatchError) -> None:
        """Handle damage; raises as `Damage.handle`."""
        super().handle(error)
        self._passed()
