"""A round's context: the disk, the time, and the means to watch, throttle and stop it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from cleaner.base.clock import Clock
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.passes.segment_chunks import any_size
from cleaner.config.forms import Recompression
from cleaner.policy.kafka_version import DEFAULT_KAFKA_VERSION, KafkaVersion
from cleaner.state.key_index_dir import LogKeyIndexes
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.segment import Segment


def do_nothing() -> None:
    """Default for `check_done` and `still_held`: go on."""


def no_throttle(_bytes: int) -> None:
    """Do not throttle."""


def _no_progress(_phase: str, _done: int, _total: int) -> None:
    """Report nothing."""


def _keep_nothing(_group: Sequence[Segment]) -> None:
    """Keep no old segments."""


def _no_checkpoint(_offset: int) -> None:
    """Write no checkpoint: the caller writes it."""


@dataclass(frozen=True)
class RoundContext:
    """
    The context of one round.

    Attributes:
        fs: access to the disk.
        clock: for durations; `now_ms` is the time of the whole round (R-501).
        now_ms: wall clock, read once.
        swapping: entered while a group is swapped: keeps a writer, readers and other threads out of the partition, and
            notifies readers.
        still_held: called before each group's first rename; raises LogDirLockedError when the lock is lost.
        check_done: called before each buffer; raises CleaningAborted to stop (R-431).
        throttle: called with bytes about to be processed and written; sleeps as long as needed (R-715).
        window_bytes: returns the most bytes to read between two calls of `throttle`, so that they come evenly.
        progress: called with (phase `map` or `copy`, bytes done, total bytes).
        keep_old: called before a group is swapped, when the `.cleaned` files are finished: keeps the old segments.
        write_checkpoint: stores the new first dirty offset, the round's last step.
        verify: re-read every cleaned segment before it is swapped in (rule C-6).
        refuse_keyless: stop, with nothing changed, when the dirty section holds records without a key, which cleaning
            would remove: the topic was hardly meant to be compacted.
        keep_tombstones: give tombstones and markers their horizons, but remove none whose horizon has passed.
        held_from: tombstones and markers from this offset on stay like that; None: none does.
        keep_damaged: copy batches with wrong checksums or unreadable records unchanged.
        max_dirty_bytes, max_seconds: end the map early, as a smaller map would; seconds since the map began.
        offset_map: the caller's map, cleared and used; None: create one for this round.
        kafka: the version of Kafka whose rules apply.
        key_indexes: of the log, to leave segments unread; None: all are read.
        full_read_days: how long a segment may stay unread.
        recompress: how to pack what is kept; None: as it is.
        removes_nothing: all batches are kept, and no horizon is set.
        only: base offsets of the segments to recopy, each by itself; None: all, in groups.
    """

    fs: FileSystem
    clock: Clock
    now_ms: int
    swapping: Callable[[], AbstractContextManager[object]] = nullcontext
    still_held: Callable[[], None] = do_nothing
    check_done: Callable[[], None] = do_nothing
    throttle: Callable[[int], None] = no_throttle
    window_bytes: Callable[[], int] = any_size
    progress: Callable[[str, int, int], None] = _no_progress
    keep_old: Callable[[Sequence[Segment]], None] = _keep_nothing
    write_checkpoint: Callable[[int], None] = _no_checkpoint
    verify: bool = True
    refuse_keyless: bool = False
    keep_tombstones: bool = False
    held_from: int | None = None
    keep_damaged: bool = False
    max_dirty_bytes: int | None = None
    max_seconds: float | None = None
    offset_map: OffsetMap | None = None
    kafka: KafkaVersion = DEFAULT_KAFKA_VERSION
    key_indexes: LogKeyIndexes | None = None
    full_read_days: int = 30
    recompress: Recompression | None = None
    removes_nothing: bool = False
    only: frozenset[int] | None = None
