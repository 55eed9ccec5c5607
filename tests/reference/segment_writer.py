"""The segment a group becomes: bytes of its four files (R-311..R-322)."""

from __future__ import annotations

import struct

from tests.reference.batches import read_batches
from tests.reference.log_state import Abort, Segment, Settings


class IndexFull(Exception):
    """The destination's offset or time index takes no more entries (R-311)."""


class OutOfRange(Exception):
    """An offset lies too far from the destination's base offset (R-304, R-594)."""


class SegmentWriter:
    """Appends whole batches and closes."""

    def __init__(self, base_offset: int, settings: Settings) -> None:
        self.base_offset = base_offset
        self.settings = settings
        self.log = b""
        self.index: list[tuple[int, int]] = []
        self.time_index: list[tuple[int, int]] = []
        self.maximum = (-1, -1)
        self.since_last_entry = 0

    def append(self, data: bytes) -> None:
        """Append one batch (R-320)."""
        (batch,) = read_batches(data)
        if batch.last_offset - self.base_offset > 2**31 - 1:
            raise OutOfRange(f"{batch.last_offset} from {self.base_offset}")
        if batch.max_timestamp > self.maximum[0]:
            self.maximum = (batch.max_timestamp, batch.last_offset)
        if self.since_last_entry > self.settings.index_interval_bytes:
            if len(self.index) >= self.settings.segment_index_bytes // 8:
                raise IndexFull("offset index")
            self.index.append((batch.last_offset - self.base_offset, len(self.log)))
            if len(self.time_index) >= self.settings.segment_index_bytes // 12 - 1:
                raise IndexFull("time index")
            self._add_time()
            self.since_last_entry = 0
        self.log += data
        self.since_last_entry += len(data)

    def _add_time(self) -> None:
        """R-313."""
        time, offset = self.maximum
        last = self.time_index[-1][0] if self.time_index else -1
        if time > last:
            self.time_index.append((time, offset - self.base_offset))

    def close(self, aborts: list[Abort], mtime_ms: int) -> Segment:
        """Write the closing time entry (R-322) and return the segment; without aborts it has no transaction index."""
        self._add_time()
        index = b"".join(struct.pack(">ii", *entry) for entry in self.index)
        time_index = b"".join(struct.pack(">qi", *entry) for entry in self.time_index)
        txn_index = b"".join(struct.pack(">hqqqq", 0, *abort) for abort in aborts)
        return Segment(self.base_offset, self.log, index, time_index, txn_index or None, mtime_ms)
