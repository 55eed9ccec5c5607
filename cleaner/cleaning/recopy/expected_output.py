"""
Estimates the size of a group's output from the map, before it is written (rule C-3).

Cleaning is most needed on a nearly full disk, so the estimate must be close: the size of the sources would refuse logs
that shrink to a tenth. The map gives the exact number of retained records; the estimate assumes that they have the
average size of their segment. If the disk fills up anyway, the write fails and the group stays unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cleaner.cleaning.offset_map import OffsetMap
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.space import require_room
from cleaner.storage.segment.segment import Segment


class ExpectedOutput:
    """
    The expected output of the groups of one round.

    Args:
        offset_map: complete.
        messages: records of each dirty segment that the map covers completely, by base offset.
    """

    def __init__(self, offset_map: OffsetMap, messages: Mapping[int, int]) -> None:
        self._map = offset_map
        self._messages = messages
        self._survivors: dict[int, int] | None = None

    def require_room(self, fs: FileSystem, group: Sequence[Segment]) -> None:
        """
        Check that a group's output fits on the disk; reads the map only if the sources might not fit.

        Raises:
            NoSpaceError: it does not fit, or only just.
        """
        directory = group[0].directory
        index_bytes = sum(segment.index_bytes + segment.time_index_bytes for segment in group)
        whole_bytes = sum(segment.size for segment in group)
        if whole_bytes + index_bytes < fs.free_bytes(directory) // 2:
            return
        require_room(fs, directory, sum(self._bytes_of(segment) for segment in group) + index_bytes)

    def _bytes_of(self, segment: Segment) -> int:
        messages = self._messages.get(segment.base_offset, 0)
        if not messages:
            return segment.size
        if self._survivors is None:
            self._survivors = self._count_survivors()
        return min(segment.size, segment.size * self._survivors.get(segment.base_offset, 0) // messages)

    def _count_survivors(self) -> dict[int, int]:
        bases = np.array(sorted(self._messages), np.int64)
        places = np.searchsorted(bases, self._map.offsets(), side="right") - 1
        counts = np.bincount(places[places >= 0], minlength=len(bases))
        return dict(zip(bases.tolist(), counts.tolist(), strict=True))
