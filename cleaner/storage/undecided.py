"""The open transaction that ends what may be cleaned: whose it is and since when, read from one batch header."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cleaner.errors import CorruptBatchError, CorruptIndexError
from cleaner.format.chunks import CONTROL_FLAG, TRANSACTIONAL_FLAG
from cleaner.format.headers import HeaderReader
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.segment import Segment


@dataclass(frozen=True)
class Undecided:
    """
    A transaction that has neither committed nor aborted, as far as is replicated.

    Attributes:
        producer_id, producer_epoch: whose it is.
        first_offset: of its first record that is still there.
        since_ms: that record's time, which the producer has set.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    since_ms: int


class PlacedSegment(Protocol):
    """What is asked of a segment here."""

    @property
    def base_offset(self) -> int:
        """Lower bound of its offsets."""

    @property
    def size(self) -> int:
        """Bytes of its `.log`."""


def undecided_at(
    fs: FileSystem, directory: Path, segments: Sequence[PlacedSegment], last_stable_offset: int
) -> Undecided | None:
    """
    Return the transaction that begins at a last stable offset; None where no transactional batch is there.

    Raises:
        FileNotFoundError: a segment has gone.
    """
    row = bisect_right(segments, last_stable_offset, key=lambda segment: segment.base_offset) - 1
    for seen in segments[max(0, row) :]:
        segment = Segment(fs, directory, seen.base_offset, size=seen.size, mtime_ns=0)
        try:
            start = segment.position_at(last_stable_offset)
        except CorruptIndexError:
            start = 0  # that of an active segment is padded while it is written
        with segment.open_log() as file:
            try:
                for chunk in HeaderReader(file, size=seen.size, start=start):
                    rows = chunk.batches[chunk.batches["last_offset"] >= last_stable_offset]
                    for batch in rows[:1]:
                        kind = int(batch["attributes"]) & (TRANSACTIONAL_FLAG | CONTROL_FLAG)
                        whose = int(batch["producer_id"]), int(batch["producer_epoch"])
                        first_offset, since_ms = int(batch["base_offset"]), int(batch["base_timestamp"])
                        return Undecided(*whose, first_offset, since_ms) if kind == TRANSACTIONAL_FLAG else None
            except CorruptBatchError:
                return None
    return None
