"""
The first reading: where each replica ends, and which markers it has. A marker decides all records of its producer
since the marker before it, so the markers of all replicas together say what became of a record, whichever of them is
asked.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cleaner.base.model import EpochEntry
from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import CONTROL_FLAG, TRANSACTIONAL_FLAG, Batches, Chunk
from cleaner.format.control import ControlType, control_type_of
from cleaner.storage.segment.aborted import AbortedRanges
from cleaner.storage.segment.indexes import LAST_OFFSET, Aborts
from cleaner.verification.proof.side import LogSide

_END = 2**63 - 1


class EndMarker(NamedTuple):
    """The end of a transaction, at an offset."""

    offset: int
    is_abort: bool


class Replica(NamedTuple):
    """
    One of the logs.

    Attributes:
        side: its files.
        epochs: its `leader-epoch-checkpoint`, ascending.
        may_be_torn: it was not closed in order, or is in use: what follows its last whole batch does not count.
    """

    side: LogSide
    epochs: Sequence[EpochEntry] = ()
    may_be_torn: bool = False


class Decided:
    """
    The first reading of one replica.

    Args:
        replica: its files.
        step: called with the bytes read since the last call; raises to stop.

    Attributes:
        start_offset, end_offset: of the log.
        is_torn: bytes behind the last whole batch were left out.
        bytes: of batches read.
        markers: of each producer, ascending.
        aborts: the entries of its transaction indexes.
    Raises:
        CorruptBatchError, CorruptIndexError: damage.
    """

    def __init__(self, replica: Replica, step: Callable[[int], None]) -> None:
        side = replica.side
        self.start_offset = side.log_start_offset
        self.end_offset = max(self.start_offset, side.segments[-1].base_offset)
        self.is_torn = False
        self.bytes = 0
        self.markers: dict[int, list[EndMarker]] = {}
        self.aborts: Aborts = side.aborted()
        for path, chunk in chunks_of(replica, step, self._note_torn):
            self.bytes += int(chunk.batches["size"].sum())
            self.end_offset = max(self.end_offset, int(chunk.batches["last_offset"][-1]) + 1)
            self._take_markers(path, chunk)
        self.ranges = AbortedRanges(self.aborts)

    def _note_torn(self) -> None:
        self.is_torn = True

    def _take_markers(self, path: Path, chunk: Chunk) -> None:
        rows = chunk.batches
        for row in rows[(rows["magic"] == 2) & (rows["attributes"] & CONTROL_FLAG != 0) & (rows["count"] > 0)]:
            kind = control_type_of(path, chunk.data, row)
            if kind in (ControlType.ABORT, ControlType.COMMIT):
                marker = EndMarker(int(row["base_offset"]), kind is ControlType.ABORT)
                self.markers.setdefault(int(row["producer_id"]), []).append(marker)

    def next_marker(self, producer: int, offset: int) -> EndMarker | None:
        """Return the first marker of a producer above an offset; None without one."""
        return _next(self.markers, producer, offset)


class AllMarkers:
    """
    The markers of all replicas below an offset.

    Args:
        readings: of the replicas.
        end_offset: markers from it on do not count: there the replicas do not agree.
    """

    def __init__(self, readings: Sequence[Decided], end_offset: int = _END) -> None:
        self._markers: dict[int, list[EndMarker]] = {}
        for reading in readings:
            for producer, markers in reading.markers.items():
                mine = self._markers.setdefault(producer, [])
                known = set(mine)
                for marker in markers:
                    if marker.offset < end_offset and marker not in known:
                        insort(mine, marker)
        aborts = np.concatenate([reading.aborts for reading in readings])
        self._ranges = AbortedRanges(aborts[aborts[:, LAST_OFFSET] < end_offset])

    def next_marker(self, producer: int, offset: int) -> EndMarker | None:
        """Return the first marker of a producer above an offset; None without one."""
        return _next(self._markers, producer, offset)

    def holder_of(self, readings: Sequence[Decided], producer: int, marker: EndMarker) -> int:
        """Return the number of the first replica that has a marker."""
        return next(i for i, each in enumerate(readings) if marker in each.markers.get(producer, ()))

    def aborted(self, batches: Batches) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """Tell for each batch whether some replica's transaction index names it as aborted."""
        return self._ranges.hidden(batches)


def _next(markers: dict[int, list[EndMarker]], producer: int, offset: int) -> EndMarker | None:
    mine = markers.get(producer, [])
    at = bisect_right(mine, offset, key=lambda marker: marker.offset)
    return mine[at] if at < len(mine) else None


def chunks_of(
    replica: Replica, step: Callable[[int], None], on_torn: Callable[[], None] = lambda: None
) -> Iterator[tuple[Path, Chunk]]:
    """
    Yield a log's batches from the first on; each chunk is valid until the next.

    Raises:
        CorruptBatchError: damage, except behind the last whole batch of a log that may be torn.
    """
    read, last = 0, replica.side.segments[-1].base_offset
    with replica.side.batches() as batches:
        while True:
            try:
                if not batches.fill():
                    return
                if batches.damage is not None:
                    raise batches.damage
            except CorruptBatchError:
                if replica.may_be_torn and batches.segment.base_offset == last:
                    on_torn()
                    return
                raise
            step(batches.read_bytes - read)
            read = batches.read_bytes
            yield batches.segment.log_path, batches.take(len(batches.rows))


def transactional(batches: Batches) -> Iterable[int]:
    """Return the numbers of the batches with records of transactions."""
    wanted = (batches["magic"] == 2) & (batches["count"] > 0) & (batches["attributes"] & TRANSACTIONAL_FLAG != 0)
    found: list[int] = np.flatnonzero(wanted & (batches["attributes"] & CONTROL_FLAG == 0)).tolist()
    return found
