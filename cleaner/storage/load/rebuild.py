"""
Rebuilds a segment's indexes from its batches, and the producer state from snapshots and batches.

Source: rules R-202, R-323, R-640, R-652, D-04; `LogSegment.java` (recover), `UnifiedLog.java` (rebuildProducerState).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cleaner.base.model import AbortedTxn, EpochEntry
from cleaner.base.segments import segments_between
from cleaner.config.values import TopicConfig
from cleaner.errors import CorruptBatchError, OffsetsOutOfOrderError, as_value
from cleaner.format.chunks import Chunk, ReadBuffer
from cleaner.kernels.batch_header import LOG_OVERHEAD_BYTES, base_offset_of
from cleaner.storage.files.leader_epochs import assign_epoch
from cleaner.storage.load.producer_state import ProducerState
from cleaner.storage.load.replay import replay
from cleaner.storage.segment.batch_source import checked_batches
from cleaner.storage.segment.segment import Segment, SegmentIndexes

if TYPE_CHECKING:
    from cleaner.storage.segment.index_builder import OffsetOverflowError

_SNAPSHOT_SEGMENTS = 2  # Kafka keeps snapshots at the last two base offsets


class SegmentOverflowError(ValueError):
    """
    A segment holds an offset too far from its base offset: it must be split (R-614).

    Attributes:
        segment: the segment.
        epochs: the leader epochs, including those of the batches before that offset.
    """

    def __init__(self, segment: Segment, cause: OffsetOverflowError, epochs: list[EpochEntry]) -> None:
        self.segment = segment
        self.epochs = epochs
        super().__init__(f"{segment.log_path}: {cause}")


class SoundChunks:
    """
    The batches of a segment up to the first one that is damaged, or whose offset is not above those before it.

    No checksum covers a batch's base offset: if a power cut has lost the sector that ended with it, or a write that
    ended there, it reads as zeros in a batch that is sound otherwise. If the segment's first batch has another offset
    below the segment's base, something else is wrong, and Kafka does not load the log either (R-612).

    Attributes:
        damage: after the walk, the damage that ended it; None if it reached the end of the file.
        end: position after the last sound batch.
    """

    def __init__(self, segment: Segment, buffer: ReadBuffer) -> None:
        self.damage: CorruptBatchError | None = None
        self.end = 0
        self._segment = segment
        self._buffer = buffer

    def __iter__(self) -> Iterator[Chunk]:
        if not self._segment.size:
            return
        with self._segment.open_log() as file:
            first_offset = base_offset_of(file.read(LOG_OVERHEAD_BYTES, 0)) or self._segment.base_offset
            try:
                for chunk in checked_batches(
                    file, size=self._segment.size, buffer=self._buffer, check_order_from=first_offset
                ):
                    self.end = chunk.position + chunk.length
                    yield chunk
            except CorruptBatchError as error:
                self.damage = as_value(error)


@dataclass(frozen=True)
class RebuiltSegment:
    """
    The result of reading a segment's batches.

    Attributes:
        indexes: offset, time and transaction index.
        valid_bytes: bytes up to the end of the last sound batch.
        next_offset: the offset after that batch; the base offset without one.
        epochs: the leader epochs, including those of the segment's batches.
        damage: why the segment ends there, None if it is sound to its end.
    """

    indexes: SegmentIndexes
    valid_bytes: int
    next_offset: int
    epochs: list[EpochEntry]
    damage: CorruptBatchError | None


def rebuild_segment(
    segment: Segment,
    state: ProducerState,
    epochs: Sequence[EpochEntry],
    topic: TopicConfig,
    buffer: ReadBuffer,
    check_done: Callable[[], None],
) -> RebuiltSegment:
    """
    Read a whole segment and rebuild its indexes in memory; nothing is written (R-323, R-640).

    Args:
        state: the producers as of the segment's base offset; its batches are added.
        epochs: the leader epochs known so far.
        check_done: called for each chunk; raises to stop.
    Raises:
        SegmentOverflowError: an offset does not fit the segment's indexes.
        UncleanableError: an index would be full: Kafka could not load the log either (R-311).
        CorruptBatchError: a batch that Kafka would fail on, without repairing it (`replay`).
    """
    # Imported here because it loads the kernels: inspecting a sound log rebuilds nothing.
    from cleaner.storage.segment.index_builder import IndexBuilder, OffsetOverflowError

    builder = IndexBuilder(
        segment.log_path,
        segment.base_offset,
        interval_bytes=topic.index_interval_bytes,
        max_index_bytes=topic.segment_index_bytes,
    )
    sound = SoundChunks(segment, buffer)
    txns: list[AbortedTxn] = []
    known_epochs = list(epochs)
    next_offset = segment.base_offset
    try:
        for chunk in sound:
            check_done()
            txns += replay(state, chunk, slice(None), segment.log_path, each_batch=True)
            batches = chunk.batches
            builder.append_checked(batches)
            known_epochs = _take_epochs(known_epochs, batches)
            next_offset = int(batches["last_offset"][-1]) + 1
            modern = batches["last_offset"][batches["magic"] >= 2]
            if len(modern):
                state.map_end_offset = int(modern[-1]) + 1
        offsets, times = builder.finish()
    except OffsetOverflowError as error:
        raise SegmentOverflowError(segment, error, _take_epochs(known_epochs, batches[: error.row])) from error
    except OffsetsOutOfOrderError as error:
        # Kafka empties the whole segment.
        damage = CorruptBatchError(segment.log_path, 0, error.reason)
        return RebuiltSegment(SegmentIndexes.empty(), 0, segment.base_offset, list(epochs), damage)
    return RebuiltSegment(SegmentIndexes(offsets, times, txns), sound.end, next_offset, known_epochs, sound.damage)


def _take_epochs(epochs: list[EpochEntry], batches: np.ndarray[tuple[int], np.dtype[np.void]]) -> list[EpochEntry]:
    """Note the leader epochs that begin in these batches; only those above the latest count."""
    modern = batches[batches["magic"] >= 2]
    latest = epochs[-1].epoch if epochs else -1
    maxima = np.maximum.accumulate(np.concatenate(([latest], modern["leader_epoch"])))
    for row in np.flatnonzero(maxima[1:] > maxima[:-1]).tolist():
        epochs = assign_epoch(epochs, int(modern["leader_epoch"][row]), int(modern["base_offset"][row]))
    return epochs


def rebuild_producer_state(
    state: ProducerState,
    segments: Sequence[Segment],
    *,
    log_start_offset: int,
    end_offset: int,
    was_clean: bool,
    buffer: ReadBuffer,
) -> None:
    """
    Bring a producer state to `end_offset`: from the newest snapshot, then batch by batch (R-652).

    Snapshots outside the log are removed and those at the last two base offsets and at `end_offset` are taken, in
    memory until `Snapshots.apply`.

    Args:
        state: new, without any batch.
        segments: ascending.
        was_clean: after a clean stop, a log without any snapshot counts as one without producers; it is not read
            (R-127).
    Raises:
        CorruptBatchError: damage in the batches after the snapshot.
    """
    wanted = [segment.base_offset for segment in segments[-_SNAPSHOT_SEGMENTS:]] + [end_offset]
    if was_clean and state.snapshots.latest() is None:
        state.take_empty_snapshots(wanted)
        return
    has_nothing_to_replay = state.is_empty() and state.map_end_offset >= end_offset
    state.reload(log_start_offset, end_offset)
    if end_offset > state.map_end_offset and not has_nothing_to_replay:
        for segment in segments_between(segments, state.map_end_offset, end_offset):
            state.map_end_offset = max(segment.base_offset, state.map_end_offset, log_start_offset)
            if segment.base_offset in wanted:
                state.take_snapshot()
            check_order_from = segment.base_offset if was_clean else None
            _replay_segment(state, segment, state.map_end_offset, end_offset, buffer, check_order_from)
    state.map_end_offset = end_offset
    state.take_snapshot()


def _replay_segment(
    state: ProducerState,
    segment: Segment,
    start_offset: int,
    end_offset: int,
    buffer: ReadBuffer,
    check_order_from: int | None,
) -> None:
    position = segment.position_at(start_offset)
    for chunk in segment.chunks(start=position, buffer=buffer, check_order_from=check_order_from):
        last_offsets = chunk.batches["last_offset"]
        rows = np.flatnonzero((last_offsets >= start_offset) & (last_offsets < end_offset))
        if len(rows):
            replay(state, chunk, slice(int(rows[0]), int(rows[-1]) + 1), segment.log_path, each_batch=False)
    state.commit()
