"""The second reading: every record of a replica as a row of numbers, with what became of its transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.format.chunks import CONTROL_FLAG, Batches
from cleaner.format.layout import Layout, lay_out
from cleaner.format.records import Unpacker
from cleaner.kernels import proof as kernel
from cleaner.verification.replicas.decided import AllMarkers, Decided, Replica, chunks_of, transactional
from cleaner.verification.replicas.findings import Disagreement, ReplicaFinding

Rows = npt.NDArray[np.uint64]

# Columns of a row.
OFFSET, DIGEST, DIGEST_REST, CONTENT, EPOCH, FLAGS = range(6)
COLUMNS = 6
# Bits of FLAGS: the value is null; the record has a key; readers of committed records see it; its transaction has no
# marker yet; it is a marker.
TOMBSTONE, KEYED, VISIBLE, UNDECIDED, CONTROL = 1, 2, 4, 8, 16

_FIRST, _END = -(2**63), 2**63 - 1
_MIX_VALUE, _MIX_TIME = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_MIX_PRODUCER = np.uint64(0x165667B19E3779F9)


class ReplicaRows:
    """
    The records of one replica.

    Args:
        number: of the replica.
        replicas, readings: all of them, and what the first reading has found.
        markers: of all.
        secret: uint64, the two words under which keys are digested.
        limit_bytes: most bytes one batch may unpack to.
        on_finding: gets findings about transactions.

    Attributes:
        records: read, aborted ones too, markers not.
    """

    def __init__(
        self,
        number: int,
        replicas: Sequence[Replica],
        readings: Sequence[Decided],
        markers: AllMarkers,
        secret: Rows,
        limit_bytes: int,
        on_finding: Callable[[ReplicaFinding], None],
    ) -> None:
        self.records = 0
        self._number, self._replica, self._own = number, replicas[number], readings[number]
        self._readings, self._markers = readings, markers
        self._secret, self._unpacker, self._on_finding = secret, Unpacker(limit_bytes), on_finding
        # Of each transaction one finding.
        self._lost: set[int] = set()
        self._back: set[tuple[int, int]] = set()

    def read(self, step: Callable[[int], None]) -> Iterator[Rows]:
        """Yield the records from the log's start on, shape (n, COLUMNS), offsets ascending."""
        for path, chunk in chunks_of(self._replica, step):
            for block in self._unpacker.blocks(path, chunk):
                yield self._rows_of(path, block.batches, lay_out(path, block, _none(block.batches), _FIRST, _END))

    def _rows_of(self, path: Path, batches: Batches, layout: Layout) -> Rows:
        flags = self._flags_of(batches, layout)
        of = np.repeat(np.arange(len(batches)), batches["count"])
        rows: Rows = np.zeros((len(layout), COLUMNS), np.uint64)
        if not len(layout):
            return rows
        rows[:, OFFSET] = layout.offsets.astype(np.uint64)
        keys = self._digests(layout.data, layout.key_starts, layout.key_sizes)
        values = self._digests(layout.data, layout.value_starts, layout.value_sizes)
        is_control = flags[of] & np.uint64(CONTROL) != 0
        is_null = layout.value_sizes < 0
        rows[:, DIGEST : DIGEST_REST + 1] = keys
        # A marker's value holds its coordinator's epoch; the type in its key is what counts.
        values[is_control] = 0
        with np.errstate(over="ignore"):
            content = keys[:, 0] ^ (values[:, 0] * _MIX_VALUE) ^ (layout.timestamps_ms.astype(np.uint64) * _MIX_TIME)
            content ^= batches["producer_id"][of].astype(np.uint64) * _MIX_PRODUCER
        rows[:, CONTENT] = content + is_null.astype(np.uint64)
        rows[:, EPOCH] = batches["leader_epoch"][of].astype(np.uint64)
        rows[:, FLAGS] = flags[of]
        rows[is_null & ~is_control, FLAGS] |= np.uint64(TOMBSTONE)
        rows[(layout.key_sizes >= 0) & ~is_control, FLAGS] |= np.uint64(KEYED)
        rows = rows[layout.offsets >= self._own.start_offset]
        self.records += int((rows[:, FLAGS] & np.uint64(CONTROL) == 0).sum())
        return rows

    def _digests(
        self, data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
    ) -> Rows:
        digests: Rows = np.zeros(kernel.DIGEST_WORDS * len(starts), np.uint64)
        kernel.digest_fields(data, starts, sizes, self._secret, digests)
        return digests.reshape(-1, kernel.DIGEST_WORDS)

    def _flags_of(self, batches: Batches, layout: Layout) -> Rows:
        """Say of each batch whether its records are visible, and report what became of its transaction."""
        flags: Rows = np.full(len(batches), VISIBLE, np.uint64)
        flags[(batches["magic"] == 2) & (batches["attributes"] & CONTROL_FLAG != 0)] = CONTROL
        numbers = transactional(batches)
        if not numbers:
            return flags
        # A round may have removed a batch's first records; its base offset stays.
        first_rows = np.cumsum(batches["count"]) - batches["count"]
        hidden, aborted = self._own.ranges.hidden(batches), self._markers.aborted(batches)
        for number in numbers:
            flags[number] = self._flag_of(
                batches[number],
                int(layout.offsets[first_rows[number]]),
                is_hidden=bool(hidden[number]),
                is_named=bool(aborted[number]),
            )
        return flags

    def _flag_of(self, row: np.void, offset: int, *, is_hidden: bool, is_named: bool) -> int:
        producer = int(row["producer_id"])
        own = self._own.next_marker(producer, offset)
        true = self._markers.next_marker(producer, offset)
        # An index names more than the transaction where the marker of the one before is lost: markers come first.
        is_named &= true is None
        if true is not None and true.offset >= self._own.end_offset:
            true = None
        if true is not None and own != true and true.offset not in self._lost:
            self._lost.add(true.offset)
            has_it = self._markers.holder_of(self._readings, producer, true)
            self._report(Disagreement.MARKER_LOST, true.offset, has_it, offset)
        is_hidden |= own is not None and own.is_abort
        is_aborted = is_hidden or is_named if true is None else true.is_abort
        if is_aborted and not is_hidden and own is not None and (producer, own.offset) not in self._back:
            self._back.add((producer, own.offset))
            self._report(Disagreement.ABORTED_IS_BACK, offset, self._who_aborted(row, producer, true), None)
        if is_aborted or is_hidden:
            return 0
        return UNDECIDED if own is None else VISIBLE

    def _who_aborted(self, row: np.void, producer: int, true: object) -> int:
        for number, reading in enumerate(self._readings):
            if number != self._number and true in reading.markers.get(producer, ()):
                return number
        rows = np.array([row], row.dtype)
        return next(i for i, each in enumerate(self._readings) if each.ranges.hidden(rows)[0])

    def _report(self, kind: Disagreement, offset: int, has_it: int, other: int | None) -> None:
        self._on_finding(ReplicaFinding(kind, offset, has_it, self._number, other))


def _none(batches: Batches) -> npt.NDArray[np.uint8]:
    return np.zeros(len(batches), np.uint8)
