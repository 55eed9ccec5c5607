"""
The transactions of one log that are not decided yet, or not replicated, without loading it: they end what may be
cleaned (R-407).

A load finds them by bringing the producers from the newest snapshot to the log end (`rebuild_producer_state`). The very
same is done here, by the same code, but by headers alone, some batches at a time, and only as far as it matters. A look
at one small file is nearly always enough: a log that was closed in order has a snapshot at its end.

What a load knows, and so what counts as decided, depends on how the log dir is used. A snapshot names open transactions
only: those decided before it are decided for good, however low the high watermark. One decided in the batches behind it
is unstable until its marker is replicated.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from cleaner.errors import CorruptBatchError, CorruptIndexError
from cleaner.format.chunks import CONTROL_FLAG, TRANSACTIONAL_FLAG
from cleaner.format.headers import HeaderReader
from cleaner.read.summary import ListedFiles, ListedSegment, LogSummary
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.producer_state import ProducerState
from cleaner.storage.load.replay import replay
from cleaner.storage.load.snapshots import Snapshots
from cleaner.storage.segment.names import LOG, segment_file_name
from cleaner.storage.segment.segment import Segment

# A walk in Python does some 100 000 batches a second; a look at thousands of logs must not wait for one of them.
MAX_BATCHES = 20_000


class Use(enum.Enum):
    """
    How a log dir is used, which says what of its logs a load would find.

    CLOSED: there is a clean-shutdown marker, so all is as it was left. WRITTEN: a writer of ours is at work; a log is
    loaded as it was when its active segment began. SERVED: somebody else has it open. TORN: nobody, and there is no
    marker; a recovery comes first, which takes a snapshot at the log end.
    """

    CLOSED = enum.auto()
    WRITTEN = enum.auto()
    SERVED = enum.auto()
    TORN = enum.auto()

    @staticmethod
    def of(*, is_marked: bool, has_writer: bool, is_held: bool) -> Use:
        """Tell from the marker, and from who holds the lock."""
        if has_writer:
            return Use.WRITTEN
        if is_marked:
            return Use.CLOSED
        return Use.SERVED if is_held else Use.TORN


class OpenTransactions:
    """
    Transactions of a log that are open, or decided and not replicated.

    Until a walk has met its marker a transaction counts as open: what is said to be stable is.

    Attributes:
        is_behind: the last walk ended early, having met very many batches; the next one goes on.
        high_watermark: the highest one asked for. What is replicated is forgotten, so it must not fall.

    Args:
        fs: the door to the file system.
        directory: the partition's.
        files: as listed.
        use: how the log dir is used.
        log: as it was seen; `log_end_offset` has to be the true one unless `use` is SERVED or WRITTEN.
    """

    def __init__(self, fs: FileSystem, directory: Path, files: ListedFiles, use: Use, log: LogSummary) -> None:
        self.is_behind = False
        self.high_watermark = log.high_watermark
        self._fs = fs
        self._directory = directory
        self._use = use
        snapshots = Snapshots(fs, directory, [offset for offset, _ in files.snapshots])
        # No open transaction expires, so the moment does not matter.
        self._state = ProducerState(snapshots, now_ms=0, expiration_ms=0)
        end_offset = self._end_of(log)
        if use is not Use.SERVED:
            snapshots.remove_strays(segment.base_offset for segment in log.segments)
        # without any snapshot there are no producers.
        self._is_empty = use is not Use.TORN and snapshots.latest() is None
        if not self._is_empty:
            self._state.reload(log.log_start_offset, end_offset)
        self._place: tuple[int, int] | None = None  # base offset of the segment the walk is in, and the position there

    def settled(self, log: LogSummary, below: int, walks: int = 1) -> LogSummary:
        """
        Return a log with what is stable of it below an offset; arguments and errors as of `first_offset`.

        Args:
            walks: how many to make at most while there is more to walk over.
        """
        first_offset = self.first_offset(log, below)
        while self.is_behind and walks > 1:
            walks -= 1
            first_offset = self.first_offset(log, below)
        return log.unstable_from(first_offset)

    def first_offset(self, log: LogSummary, below: int) -> int | None:
        """
        Return the lowest offset that is not stable; None when all below an offset are.

        Args:
            log: as it is seen now.
            below: transactions that begin there or later do not matter.
        Raises:
            FileNotFoundError: a segment has gone.
        """
        if self._is_empty:
            return None
        self.is_behind = False
        end_offset = self._end_of(log)
        if self._is_unsure(below):
            self._walk(log.segments, end_offset, below)
        self.high_watermark = log.high_watermark
        self._state.on_high_watermark(end_offset if self._use is Use.TORN else log.high_watermark)
        unstable = self._state.first_unstable_offset()
        found = [] if unstable is None else [unstable]
        if self._state.map_end_offset < min(below, end_offset):
            found.append(self._state.map_end_offset)  # what comes there is not known
        return min((offset for offset in found if offset < below), default=None)

    def _end_of(self, log: LogSummary) -> int:
        """Return the offset up to which a load would know the log."""
        if self._use is Use.WRITTEN:
            return max(log.segments[-1].base_offset, log.log_start_offset)
        return log.high_watermark if self._use is Use.SERVED else log.log_end_offset

    def _is_unsure(self, below: int) -> bool:
        unstable = self._state.first_unstable_offset()
        return self._state.map_end_offset < below or (unstable is not None and unstable < below)

    def _walk(self, segments: Sequence[ListedSegment], end_offset: int, below: int) -> None:
        """Walk on from where the last walk ended, until all is decided, or the end is reached."""
        state = self._state
        first = max(0, bisect_right(segments, state.map_end_offset, key=lambda segment: segment.base_offset) - 1)
        budget = MAX_BATCHES
        for row in range(first, len(segments)):
            if segments[row].base_offset >= end_offset or not self._is_unsure(below):
                return
            if not budget:
                self.is_behind = True
                return
            left = self._walk_segment(segments[row], end_offset, below, budget)
            if left is None:
                return
            budget = left
            next_base = segments[row + 1].base_offset if row + 1 < len(segments) else end_offset
            state.map_end_offset = max(state.map_end_offset, min(next_base, end_offset))

    def _walk_segment(self, segment: ListedSegment, end_offset: int, below: int, budget: int) -> int | None:
        """Walk on in one segment to its end; returns how many batches may still be walked, None: the walk is over."""
        state, path = self._state, self._directory / segment_file_name(segment.base_offset, LOG)
        if self._place is None or self._place[0] != segment.base_offset:
            self._place = (segment.base_offset, segment.position_at(state.map_end_offset))
        with self._fs.open(path) as file:
            try:
                for chunk in HeaderReader(file, size=segment.size, start=self._place[1]):
                    if not budget:
                        self.is_behind = True
                        return None
                    last_offsets = chunk.batches["last_offset"]
                    rows = np.flatnonzero((last_offsets >= state.map_end_offset) & (last_offsets < end_offset))
                    if len(rows):
                        replay(state, chunk, slice(int(rows[0]), int(rows[-1]) + 1), path, each_batch=False)
                        state.commit()
                        state.map_end_offset = int(last_offsets[rows[-1]]) + 1
                    if int(last_offsets[-1]) >= end_offset:
                        return None
                    self._place = (segment.base_offset, chunk.position + chunk.length)
                    if not self._is_unsure(below):
                        return None
                    budget = max(0, budget - len(last_offsets))
            except CorruptBatchError:
                # The torn end of a log that is appended to; or damage, which a round will find and name.
                state.discard_pending()
                return None
        return budget


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
    """What `undecided_at` asks of a segment."""

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
