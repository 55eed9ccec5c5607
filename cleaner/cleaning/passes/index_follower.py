"""Compares a log's offset index with its batches, with a kernel (R-333)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cleaner.format.chunks import Batches
from cleaner.kernels import index as kernel
from cleaner.storage.segment.indexes import Entries, OffsetIndexCheck


class IndexFollower(OffsetIndexCheck):
    """The same check, chunk by chunk; `OffsetIndexCheck` finds and words the error."""

    def __init__(self, entries: Entries, path: Path, base_offset: int) -> None:
        super().__init__(entries, path, base_offset)
        self._state = np.array([0, base_offset - 1], np.int64)

    def add_batches(self, batches: Batches) -> None:
        """
        Check the entries that point into the next batches of the log, given in file order from position 0 on.

        Raises:
            CorruptIndexError: an entry is bad.
        """
        if not kernel.follow_entries(self._positions, self._offsets, batches, self._state):
            self._catch_up()
            self.add(batches["position"], batches["base_offset"], batches["last_offset"])

    def finish(self) -> None:
        """Check what is known only at the log's end; see `OffsetIndexCheck`."""
        self._catch_up()
        super().finish()

    def _catch_up(self) -> None:
        self._next, self._last_offset = (int(cell) for cell in self._state)
