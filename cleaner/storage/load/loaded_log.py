"""
One partition's log as a cleaner sees it: its segments, its offsets and its producers.

`loader.load_log` returns a `LoadedLog`; `list_segments` returns only its segments (names and sizes). Loading changes
(almost) nothing on disk; `settle` makes the changes Kafka's loader would have made.

Source: rules R-401, R-407, R-535, R-545, R-641; `UnifiedLog.java`, `LocalLog.java`, `LogSegments.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from cleaner.base.model import LastRecord, TopicPartition
from cleaner.base.segments import segments_between
from cleaner.config.values import TopicConfig
from cleaner.errors import LogChangedError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.aborted_walk import AbortedWalk, replaced
from cleaner.storage.load.last_stable import last_stable_offset
from cleaner.storage.load.load_changes import LoadChanges
from cleaner.storage.load.producer_state import LastRecords, ProducerState
from cleaner.storage.segment import names
from cleaner.storage.segment.indexes import Aborts
from cleaner.storage.segment.segment import Segment


def list_segments(fs: FileSystem, directory: Path) -> list[Segment]:
    """List the segments of a partition directory by name and size, ascending; no file is opened."""
    return [Segment.open(fs, directory, base) for base in names.offsets_of(fs.list_files(directory), names.LOG)]


class LoadedLog:
    """
    A loaded log.

    Attributes:
        topic_partition: the log's partition.
        directory: the partition's directory.
        topic: the topic's settings at load.
        segments: ascending; the last is the active one.
        log_start_offset: first offset a reader may request.
        log_end_offset: the offset the next record will get.
        high_watermark: within [log start, log end].
        last_stable_offset: base offset of the first batch of a transaction that was not decided below the high
            watermark; at most the high watermark (R-407).
        truncated_bytes: how much recovery cut off.
        is_beside_writer: one of our writers uses the log. The log is then seen as it was when its active segment
            began, and never settled or closed: the writer does that.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        topic_partition: TopicPartition,
        topic: TopicConfig,
        *,
        segments: Sequence[Segment],
        log_start_offset: int,
        log_end_offset: int,
        producers: ProducerState,
        changes: LoadChanges,
        truncated_bytes: int = 0,
        is_beside_writer: bool = False,
    ) -> None:
        self.topic_partition = topic_partition
        self.directory = directory
        self.topic = topic
        self.segments = list(segments)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = log_start_offset
        self.last_stable_offset = log_start_offset
        self.truncated_bytes = truncated_bytes
        self.is_beside_writer = is_beside_writer
        self._fs = fs
        self._producers = producers
        self._changes = changes
        self._aborted = AbortedWalk()

    def __repr__(self) -> str:
        offsets = f"[{self.log_start_offset}, {self.log_end_offset})"
        return f"LoadedLog({self.directory}, {len(self.segments)} segments, {offsets})"

    @property
    def active_segment(self) -> Segment:
        """The segment that records are appended to; never cleaned."""
        return self.segments[-1]

    @property
    def size(self) -> int:
        """Bytes of all `.log` files."""
        return sum(segment.size for segment in self.segments)

    @property
    def producers(self) -> ProducerState:
        """The producers as of the log end."""
        return self._producers

    @property
    def active_producers(self) -> dict[int, LastRecord]:
        """Last data offset and epoch of each active producer (R-545)."""
        return self._producers.active_producers()

    @property
    def last_records(self) -> LastRecords:
        """The same as rows of producer id, last data offset (-1: none known) and epoch."""
        return self._producers.last_records()

    @property
    def log_start_checkpoint(self) -> int | None:
        """The offset for `log-start-offset-checkpoint`; None if the first segment begins there (R-118)."""
        return self.log_start_offset if self.log_start_offset > self.segments[0].base_offset else None

    def set_high_watermark(self, offset: int) -> None:
        """Set the high watermark, limited to the log's offsets (D-03)."""
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        self._producers.on_high_watermark(self.high_watermark)
        self._find_last_stable()

    def _find_last_stable(self) -> None:
        self.last_stable_offset = last_stable_offset(
            self.segments,
            self._producers.first_unstable_offset(),
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            high_watermark=self.high_watermark,
        )

    def raise_log_start(self, offset: int) -> None:
        """Move the log start offset up (R-913). Raises ValueError: the offset is above the high watermark."""
        if offset > self.high_watermark:
            raise ValueError(f"log start offset {offset} above the high watermark {self.high_watermark}")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._producers.on_log_start_raised(offset)
            self._find_last_stable()

    def segments_between(self, from_offset: int, to_offset: int) -> list[Segment]:
        """Return the segments from the one that holds `from_offset` to the last below `to_offset` (R-401)."""
        return segments_between(self.segments, from_offset, to_offset)

    def end_of(self, group: Sequence[Segment]) -> int:
        """Return the offset at which neighbouring segments end: the base offset of the next one, or the log end."""
        last = group[-1].base_offset
        following = (segment.base_offset for segment in self.segments if segment.base_offset > last)
        return next(following, self.log_end_offset)

    def collect_aborted(self, from_offset: int, upper_offset: int) -> Aborts:
        """
        Collect the aborted transactions that reach into [from, upper), from the transaction indexes (R-535).

        Some results may lie entirely below `from_offset`; see `AbortedWalk.collect`.

        Raises:
            CorruptIndexError: a transaction index is damaged.
        """
        return self._aborted.collect(self.segments, from_offset, upper_offset, self.log_start_offset)

    def require_unchanged(self, sources: Sequence[Segment]) -> None:
        """
        Make sure that a writer has not changed a round's input; the caller has the partition's lock.

        The round's sources and the last segment before the active one are compared. A writer that cuts the log below
        its active segment shortens or deletes that last one. So if it is the same, the log was not cut at all: neither
        in the sources, nor behind them, where the values and markers are that decide what a round keeps.

        Raises:
            LogChangedError: one of them is gone, or is another file. Only alongside a writer: no other process may.
        """
        if not self.is_beside_writer:
            return
        self.require_in_place()
        for segment in (*sources, *self.segments[-2:-1]):
            if not segment.is_unchanged():
                raise LogChangedError(f"{segment.log_path}: the writer has cut or deleted it since the round began")

    def require_in_place(self) -> None:
        """
        Make sure that the partition's directory, which the caller holds, has not been deleted, and perhaps made again:
        checkpoints know a log by its name alone. The caller has the partition's lock.

        Raises:
            LogChangedError: it has.
        """
        if not self._fs.is_in_place(self.directory):
            raise LogChangedError(f"{self.directory}: it was deleted since the work on it began")

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Note that a swap replaced `old` with one segment."""
        gone = {segment.base_offset for segment in old}
        for base in gone - {new.base_offset}:
            self._changes.snapshots.forget(base)
        self.segments = replaced(self.segments, gone, new)
        self._aborted.replace(gone, new)

    @property
    def changes(self) -> LoadChanges:
        """Changes of the load that are not on disk yet."""
        return self._changes

    def settle(self, fs: FileSystem, swapping: Callable[[], AbstractContextManager[object]]) -> None:
        """
        Make the changes of Kafka's loader on disk: remove left-over files, write missing indexes, leader epochs and
        snapshots. Durable on return; a second call does nothing. Alongside a writer it does nothing at all.

        Args:
            fs: the file system.
            swapping: entered while names change, as for a swap: holds the partition's lock and signals its readers;
                `nullcontext` if the caller has done both.
        """
        if self._changes.are_pending and not self.is_beside_writer:
            with swapping():
                self._changes.apply(fs)

    def close(self, fs: FileSystem, swapping: Callable[[], AbstractContextManager[object]]) -> None:
        """
        Leave the directory as a clean stop leaves it: settled, and with a snapshot at the log end (R-126).

        Alongside a writer it changes nothing on disk. `swapping`: as for `settle`.
        """
        self._producers.take_snapshot()
        self.settle(fs, swapping)
