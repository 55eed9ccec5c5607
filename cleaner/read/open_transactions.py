"""
Finds the transactions of one log that are undecided, or decided but not replicated, without loading it: the first of
them ends the cleanable range (R-407).

A load finds them by bringing the producer state from the newest snapshot to the log end (`rebuild_producer_state`).
This module does the same with the same code, but reads only headers, some batches at a time, and only as far as needed.
Reading one small file is nearly always enough: a log that was closed in order has a snapshot at its end.

Which transactions a load knows to be decided depends on how the log dir is used. A snapshot names only open
transactions: those decided before it stay decided, however low the high watermark. A transaction decided in the batches
behind the snapshot is unstable until its marker is replicated.
"""

from __future__ import annotations

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
from cleaner.storage.log_dir import Use
from cleaner.storage.segment.names import LOG, segment_file_name
from cleaner.storage.segment.segment import Segment

# Python walks about 100 000 batches a second; a look at thousands of logs must not wait for one of them.
MAX_BATCHES = 20_000


class OpenTransactions:
    """
    Transactions of a log that are open, or decided but not replicated.

    A transaction counts as open until a walk has read its marker, so an offset reported as stable is stable.

    Attributes:
        is_behind: the last walk ended early after very many batches; the next one goes on from there.
        high_watermark: the highest one so far. Replicated transactions are forgotten, so it must not fall.

    Args:
        fs: the file system.
        directory: the partition's.
        files: as listed.
        use: how the log dir is used.
        log: its summary; `log_end_offset` must be exact unless `use` is SERVED or WRITTEN.
    """

    def __init__(self, fs: FileSystem, directory: Path, files: ListedFiles, use: Use, log: LogSummary) -> None:
        self.is_behind = False
        self.high_watermark = log.high_watermark
        self._fs = fs
        self._directory = directory
        self._use = use
        snapshots = Snapshots(fs, directory, [offset for offset, _ in files.snapshots])
        # Open transactions do not expire, so the time does not matter.
        self._state = ProducerState(snapshots, now_ms=0, expiration_ms=0)
        end_offset = self._end_of(log)
        if use is not Use.SERVED:
            snapshots.remove_strays(segment.base_offset for segment in log.segments)
        # without any snapshot there are no producers.
        self._is_empty = use is not Use.TORN and snapshots.latest() is None
        if not self._is_empty:
            self._state.reload(log.log_start_offset, end_offset)
        self._place: tuple[int, int] | None = None  # base offset of the segment the walk is in, and the position there

    def with_last_stable(self, log: LogSummary, below: int, walks: int = 1) -> LogSummary:
        """
        Return a log with its last stable offset, if that is below an offset; arguments and errors as of `first_offset`.

        Args:
            walks: the most walks to make while there are more batches.
        """
        first_offset = self.first_offset(log, below)
        while self.is_behind and walks > 1:
            walks -= 1
            first_offset = self.first_offset(log, below)
        return log.unstable_from(first_offset)

    def first_offset(self, log: LogSummary, below: int) -> int | None:
        """
        Return the lowest unstable offset; None if all offsets below `below` are stable.

        Args:
            log: its current summary.
            below: transactions that begin there or later do not matter.
        Raises:
            FileNotFoundError: a segment has gone.
        """
        if self._is_empty:
            return None
        self.is_behind = False
        end_offset = self._end_of(log)
        if self._may_be_undecided(below):
            self._walk(log.segments, end_offset, below)
        self.high_watermark = log.high_watermark
        self._state.on_high_watermark(end_offset if self._use is Use.TORN else log.high_watermark)
        unstable = self._state.first_unstable_offset()
        found = [] if unstable is None else [unstable]
        if self._state.map_end_offset < min(below, end_offset):
            found.append(self._state.map_end_offset)  # the batches from there on were not read
        return min((offset for offset in found if offset < below), default=None)

    def _end_of(self, log: LogSummary) -> int:
        """Return the offset up to which a load would know the log."""
        if self._use is Use.WRITTEN:
            return max(log.segments[-1].base_offset, log.log_start_offset)
        return log.high_watermark if self._use is Use.SERVED else log.log_end_offset

    def _may_be_undecided(self, below: int) -> bool:
        unstable = self._state.first_unstable_offset()
        return self._state.map_end_offset < below or (unstable is not None and unstable < below)

    def _walk(self, segments: Sequence[ListedSegment], end_offset: int, below: int) -> None:
        """Walk on from where the last walk ended, until nothing below `below` is undecided, or to the end."""
        state = self._state
        first = max(0, bisect_right(segments, state.map_end_offset, key=lambda segment: segment.base_offset) - 1)
        budget = MAX_BATCHES
        for row in range(first, len(segments)):
            if segments[row].base_offset >= end_offset or not self._may_be_undecided(below):
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
        """Walk one segment to its end; returns how many more batches may be walked; None: the walk is over."""
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
                    if not self._may_be_undecided(below):
                        return None
                    budget = max(0, budget - len(last_offsets))
            except CorruptBatchError:
                # The torn end of a log that is being written, or damage, which a round will find and report.
                state.discard_pending()
                return None
        return budget


@dataclass(frozen=True)
class UndecidedTransaction:
    """
    A transaction that is neither committed nor aborted, by its replicated batches.

    Attributes:
        producer_id, producer_epoch: of its producer.
        first_offset: of its first remaining record.
        since_ms: that record's timestamp, set by the producer.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    since_ms: int


class PlacedSegment(Protocol):
    """The attributes of a segment that `undecided_at` needs."""

    @property
    def base_offset(self) -> int:
        """Lower bound of its offsets."""

    @property
    def size(self) -> int:
        """Bytes of its `.log`."""


def undecided_at(
    fs: FileSystem, directory: Path, segments: Sequence[PlacedSegment], last_stable_offset: int
) -> UndecidedTransaction | None:
    """
    Return the transaction that begins at a last stable offset; None if there is no transactional batch.

    Raises:
        FileNotFoundError: a segment has gone.
    """
    row = bisect_right(segments, last_stable_offset, key=lambda segment: segment.base_offset) - 1
    for seen in segments[max(0, row) :]:
        segment = Segment(fs, directory, seen.base_offset, size=seen.size, mtime_ns=0)
        try:
            start = segment.position_at(last_stable_offset)
        except CorruptIndexError:
            start = 0  # the index of an active segment is padded while it is written
        with segment.open_log() as file:
            try:
                for chunk in HeaderReader(file, size=seen.size, start=start):
                    rows = chunk.batches[chunk.batches["last_offset"] >= last_stable_offset]
                    for batch in rows[:1]:
                        kind = int(batch["attributes"]) & (TRANSACTIONAL_FLAG | CONTROL_FLAG)
                        whose = int(batch["producer_id"]), int(batch["producer_epoch"])
                        first_offset, since_ms = int(batch["base_offset"]), int(batch["base_timestamp"])
                        return (
                            UndecidedTransaction(*whose, first_offset, since_ms) if kind == TRANSACTIONAL_FLAG else None
                        )
            except CorruptBatchError:
                return None
    return None
