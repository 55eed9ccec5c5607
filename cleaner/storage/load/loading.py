"""The state of a log while `loader.py` and `recovery.py` load it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cleaner.config.values import TopicConfig
from cleaner.format.chunks import ReadBuffer
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.load_changes import LoadChanges
from cleaner.storage.load.producer_state import ProducerState
from cleaner.storage.load.rebuild import (
    RebuiltSegment,
    SegmentOverflowError,
    rebuild_producer_state,
    rebuild_segment,
)
from cleaner.storage.lock.waiting import go_on
from cleaner.storage.segment.batch_source import BatchSource, checked_batches
from cleaner.storage.segment.segment import Segment

# Rebuilt indexes kept in memory before they are written: those of about 6 GiB of log at the default index interval.
KEPT_INDEX_BYTES = 32 << 20


@dataclass
class Loading:
    """
    The state of loading one log.

    Attributes:
        log_start_offset: the checkpointed one, 0 without a line in the checkpoint.
        recovery_point: the checkpointed one.
        segments: those loaded so far, ascending.
        last_base_offset: of the last segment in the directory, loaded or not.
        recovery_base_offset: base offset of the segment that holds the recovery point; it and later ones are recovered.
        truncated_bytes: how much recovery has cut off so far.
        buffer: shared by all readers.
        source: where the segments' batches come from.
        check_done: called while a segment is read to rebuild its indexes; raises to stop.
        is_beside_writer: a writer uses the log; the last segment is not read.
    """

    fs: FileSystem
    directory: Path
    topic: TopicConfig
    log_start_offset: int
    recovery_point: int
    is_clean: bool
    allow_truncate: bool
    allow_restart: bool
    now_ms: int
    expiration_ms: int
    changes: LoadChanges
    segments: list[Segment] = field(default_factory=list)
    last_base_offset: int = -1
    recovery_base_offset: int = 0
    truncated_bytes: int = 0
    buffer: ReadBuffer = field(default_factory=ReadBuffer)
    source: BatchSource = checked_batches
    check_done: Callable[[], None] = go_on
    is_beside_writer: bool = False

    def new_producer_state(self) -> ProducerState:
        """Return a producer state without any batch."""
        return ProducerState(self.changes.snapshots, now_ms=self.now_ms, expiration_ms=self.expiration_ms)

    def rebuild(self, segment: Segment) -> RebuiltSegment:
        """
        Rebuild a segment's indexes, with the producers as of its base offset; snapshots are taken at both ends.

        Raises:
            SegmentOverflowError, UncleanableError, CorruptBatchError: see `rebuild_segment`.
        """
        state = self.new_producer_state()
        rebuild_producer_state(
            state,
            self.segments,
            log_start_offset=self.log_start_offset,
            end_offset=segment.base_offset,
            was_clean=False,
            buffer=self.buffer,
        )
        try:
            rebuilt = rebuild_segment(segment, state, self.changes.epochs, self.topic, self.buffer, self.check_done)
        except SegmentOverflowError as overflow:
            self.changes.epochs = overflow.epochs
            raise
        self.changes.epochs = rebuilt.epochs
        if rebuilt.next_offset > segment.base_offset:
            state.take_snapshot()
        return rebuilt

    def keep_small(self) -> None:
        """
        Write the rebuilt indexes of a recovery once they take much memory.

        Before that nothing is changed, so a log that is refused later stays untouched. After that, only sound files are
        written that any recovery would write again: indexes and snapshots, and the end of a log is never cut.
        """
        if not self.is_clean and self.changes.rebuilt_bytes() > KEPT_INDEX_BYTES:
            self.changes.apply(self.fs)
