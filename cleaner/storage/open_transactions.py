"""
The transactions of one log that reach over an offset and are not decided yet: they end the cleanable section (R-407).

A full load finds them by bringing the producers to the log end. Here a look at one small file is nearly always enough:
the producer snapshot at a segment's base offset, taken when the segment began, names the transactions that were open
then. Only for those the batch headers from there on are walked, up to the high watermark, and from where the last
look ended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from cleaner.errors import CorruptBatchError, CorruptCheckpointError
from cleaner.format.chunks import CONTROL_FLAG, TRANSACTIONAL_FLAG
from cleaner.format.headers import HeaderReader
from cleaner.storage.fs import FileSystem
from cleaner.storage.glance import SeenSegment
from cleaner.storage.names import LOG, segment_file_name, snapshot_file_name
from cleaner.storage.producer_snapshot import read_snapshot

# A walk in Python does some 300 000 headers a second; a look at thousands of logs must not wait for one of them.
MOST_BATCHES = 20_000
_EMPTY_SNAPSHOT_BYTES = 10  # a header and no producer
_COLUMNS = ("position", "size", "base_offset", "last_offset", "attributes", "count", "producer_id")


class OpenTransactions:
    """
    Transactions with offsets below a segment's base offset that may be undecided there.

    Until a walk has met its marker a transaction counts as open: what is said to be stable is.

    Attributes:
        offset: the one they are asked about.
        is_behind: the last walk ended early, having met very many batches; the next one goes on.

    Args:
        fs: the door to the file system.
        directory: the partition's.
        offset: the base offset of a segment.
        snapshots: offsets and sizes of the producer snapshots, ascending. A log without any has no producers (R-127).
    Raises:
        FileNotFoundError: a snapshot has gone since it was listed.
    """

    def __init__(self, fs: FileSystem, directory: Path, offset: int, snapshots: Sequence[tuple[int, int]]) -> None:
        self.offset = offset
        self.is_behind = False
        self._fs = fs
        self._directory = directory
        self._open: dict[int, int] = {}
        self._next_offset = offset if not snapshots else 0
        self._place = (offset, 0)  # base offset of the segment the walk is in, and the position there
        for snapshot, size in reversed(snapshots):
            if snapshot <= offset and self._read(snapshot, size):
                self._next_offset = snapshot
                break

    def _read(self, snapshot: int, size: int) -> bool:
        """Take over the transactions open at a snapshot; a damaged one is passed over, as in Kafka (R-125)."""
        if size == _EMPTY_SNAPSHOT_BYTES:
            return True
        try:
            rows = read_snapshot(self._fs, self._directory / snapshot_file_name(snapshot))
        except CorruptCheckpointError:
            return False
        is_open = rows["current_txn_first_offset"] >= 0
        ids, firsts = rows["producer_id"][is_open].tolist(), rows["current_txn_first_offset"][is_open].tolist()
        self._open = dict(zip(ids, firsts, strict=True))
        return True

    def first_offset(self, segments: Sequence[SeenSegment], high_watermark: int) -> int | None:
        """
        Return the lowest offset that is not stable; None when all below `offset` are.

        Args:
            segments: the log's, as last listed.
            high_watermark: markers below it decide.
        Raises:
            FileNotFoundError: a segment has gone.
        """
        if self._is_unsure() and self._next_offset < high_watermark:
            self._walk(segments, high_watermark)
        unseen = [self._next_offset] if self._next_offset < self.offset else []
        return min([*self._open.values(), *unseen], default=None)

    def _is_unsure(self) -> bool:
        return bool(self._open) or self._next_offset < self.offset

    def _walk(self, segments: Sequence[SeenSegment], high_watermark: int) -> None:
        """Walk on from where the last walk ended, until all is decided, the high watermark or the end is reached."""
        self.is_behind = False
        first = max(0, bisect_right(segments, self._next_offset, key=lambda segment: segment.base_offset) - 1)
        budget = MOST_BATCHES
        for row in range(first, len(segments)):
            if segments[row].base_offset >= high_watermark or not self._is_unsure():
                return
            budget = self._walk_segment(segments[row], high_watermark, budget)
            if not budget:
                return
            if row + 1 < len(segments):
                self._next_offset = max(self._next_offset, segments[row + 1].base_offset)

    def _walk_segment(self, segment: SeenSegment, high_watermark: int, budget: int) -> int:
        """Walk on in one segment; returns how many batches may still be walked, 0 where the walk ends for now."""
        base_offset, position = self._place
        if base_offset != segment.base_offset:
            position = 0
        with self._fs.open(self._directory / segment_file_name(segment.base_offset, LOG)) as file:
            try:
                for chunk in HeaderReader(file, size=segment.size, start=position):
                    for batch in chunk.batches[list(_COLUMNS)].tolist():
                        place, size, base_offset, last_offset, attributes, count, producer_id = batch
                        if base_offset >= high_watermark:
                            return 0
                        if not budget:
                            self.is_behind = True
                            return 0
                        if base_offset >= self._next_offset:  # else it is in the snapshot already
                            self._take(base_offset, attributes, count, producer_id)
                            self._next_offset = last_offset + 1
                        self._place = (segment.base_offset, place + size)
                        budget -= 1
            except CorruptBatchError:
                # The torn end of a log that is appended to; or damage, which a round will find and name.
                return 0
        return budget

    def _take(self, base_offset: int, attributes: int, count: int, producer_id: int) -> None:
        if attributes & CONTROL_FLAG:
            if count:  # a marker that was cleaned away says nothing any more
                self._open.pop(producer_id, None)
        elif attributes & TRANSACTIONAL_FLAG and base_offset < self.offset:
            self._open.setdefault(producer_id, base_offset)
