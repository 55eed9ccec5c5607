"""
What becomes of damage: an error, or a batch that is passed over and maybe told of.

A batch whose own bytes are damaged ends where its length says. Where that makes no sense either, the next batch is
looked for: a plausible header whose checksum fits what follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

import numpy as np

from cleaner.errors import CorruptBatchError
from cleaner.format.batch import SegmentReader
from cleaner.format.chunks import HEADER_BYTES, LOG_OVERHEAD_BYTES, Chunk, ReadBuffer
from cleaner.format.codec_errors import DecompressedTooLargeError
from cleaner.read.snapshot import ReadChunks
from cleaner.spark.source.options import BadBatches
from cleaner.storage.fs.readable import OpenedFile

_WINDOW_BYTES = 1 << 20
_SMALL_BYTES = 1 << 16
_SMALLEST_LENGTH = 14  # of a batch, behind offset and length
_MOST_OFFSETS = 2**31 - 1  # a segment's offsets are no further apart


class Damage:
    """
    Decides on damage, and remembers what is to be told.

    Args:
        mode: `fail` raises, `skip` goes on, `report` goes on and keeps what was wrong.
    """

    def __init__(self, mode: BadBatches) -> None:
        self.mode = mode
        self._met: list[CorruptBatchError] = []

    def meet(self, error: CorruptBatchError) -> None:
        """
        Take note of damage.

        Raises:
            CorruptBatchError: if damage is an error, saying how to read on all the same.
        """
        if self.mode == "fail":
            self._refuse(error)
        if self.mode == "report":
            self._met.append(error)

    def _refuse(self, error: CorruptBatchError) -> NoReturn:
        larger = "maxDecompressedBatch allows more, " if isinstance(error.__cause__, DecompressedTooLargeError) else ""
        advice = f"{larger}badBatches=skip reads on behind it, badBatches=report also tells of it"
        raise CorruptBatchError(error.path, error.position, f"{error.reason}; {advice}") from error

    def told(self) -> list[CorruptBatchError]:
        """Return what was met since the last call, if it is to be reported."""
        met, self._met = self._met, []
        return met


def sound_chunks(
    file: OpenedFile, base_offset: int, position: int, end_position: int, damage: Damage, buffer: ReadBuffer
) -> Iterator[Chunk]:
    """
    Read a segment's batches from one position to another, in chunks that borrow the buffer.

    Args:
        base_offset: of the segment.
        damage: decides what becomes of batches that are none.
    Raises:
        CorruptBatchError: as `damage` has it.
    """
    order_from = base_offset
    while position < end_position:
        reader = SegmentReader(file, size=end_position, start=position, check_order_from=order_from)
        try:
            while (chunk := reader.next_chunk(buffer)) is not None:
                order_from = int(chunk.batches[-1]["last_offset"]) + 1
                yield chunk
            return
        except CorruptBatchError as error:
            damage.meet(error)
            found = _behind(file, error.position, end_position, order_from)
            if found is None:
                return
            position = found
    buffer.shrink()


def passing(mode: BadBatches) -> ReadChunks:
    """Return what reads a log's batches for their transactions alone; damage is an error, or nothing is said of it."""
    buffer = ReadBuffer()

    def read(
        file: OpenedFile, base_offset: int, position: int, end_position: int, passed: Callable[[], None]
    ) -> Iterator[Chunk]:
        damage = _Gaps("fail" if mode == "fail" else "skip", passed)
        return sound_chunks(file, base_offset, position, end_position, damage, buffer)

    return read


class _Gaps(Damage):
    """Also tells of each gap where it is met."""

    def __init__(self, mode: BadBatches, passed: Callable[[], None]) -> None:
        super().__init__(mode)
        self._passed = passed

    def meet(self, error: CorruptBatchError) -> None:
        """Take note of damage; raises as `Damage.meet`."""
        super().meet(error)
        self._passed()


def _behind(file: OpenedFile, position: int, end_position: int, order_from: int) -> int | None:
    """Return where the next sound batch behind a damaged one begins; None when there is none."""
    head = file.read(LOG_OVERHEAD_BYTES, position)
    length = int.from_bytes(head[8:], "big", signed=True)
    following = position + LOG_OVERHEAD_BYTES + length
    if length >= _SMALLEST_LENGTH and following == end_position:
        return None
    if length >= _SMALLEST_LENGTH and _is_sound(file, following, end_position, order_from):
        return following
    return _search(file, position + 1, end_position, order_from)


def _is_sound(file: OpenedFile, position: int, end_position: int, order_from: int) -> bool:
    if position >= end_position:
        return False
    reader = SegmentReader(file, size=end_position, start=position, check_order_from=order_from)
    try:
        return reader.next_chunk(ReadBuffer(min(_SMALL_BYTES, end_position - position))) is not None
    except CorruptBatchError:
        return False


def _search(file: OpenedFile, position: int, end_position: int, order_from: int) -> int | None:
    """Look at every byte for the head of a batch: an offset that could be next, a length that fits, a known magic."""
    while position + HEADER_BYTES <= end_position:
        data = np.frombuffer(file.read(min(_WINDOW_BYTES, end_position - position), position), np.uint8)
        places = len(data) - LOG_OVERHEAD_BYTES - 5 + 1
        if places <= 0:
            return None
        for at in np.flatnonzero(data[16 : 16 + places] <= 2).tolist():
            head = data[at : at + LOG_OVERHEAD_BYTES].tobytes()
            offset = int.from_bytes(head[:8], "big", signed=True)
            length = int.from_bytes(head[8:], "big", signed=True)
            fits = _SMALLEST_LENGTH <= length <= end_position - position - at - LOG_OVERHEAD_BYTES
            is_next = order_from <= offset <= order_from + _MOST_OFFSETS
            if fits and is_next and _is_sound(file, position + at, end_position, order_from):
                return position + at
        position += places
    return None
