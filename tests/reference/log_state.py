"""What Kafka knows of a log after a clean load: segments, log end, producers, the cleanable range (sections 3 to 6)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.reference.batches import Batch, read_batches, read_records

ABORT, COMMIT = 0, 1


@dataclass(frozen=True)
class Settings:
    """
    Settings of one round, by Kafka's names. The I/O buffer is not here: nothing on disk depends on it (R-321).

    Three are not Kafka's: `same_keys` has other writings of keys, each with the key it is (`cleaner.key.view`);
    `survivor` is `cleaner.survivor`; and `record_ttl_ms` is `cleaner.record.ttl.ms`, None without one.
    """

    slots: int
    load_factor: float = 0.9
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    producer_id_expiration_ms: int = 86_400_000
    max_decompressed_message_bytes: int = 2**31 - 9
    same_keys: Mapping[bytes, bytes] = field(default_factory=dict)
    survivor: str = "offset"
    record_ttl_ms: int | None = None


class Abort(NamedTuple):
    """One entry of a transaction index (R-303)."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True)
class Segment:
    """One segment's files and the `.log`'s modification time."""

    base_offset: int
    log: bytes
    index: bytes
    time_index: bytes
    txn_index: bytes | None
    mtime_ms: int

    @property
    def batches(self) -> list[Batch]:
        """The batches, in order."""
        return read_batches(self.log)

    @property
    def next_offset(self) -> int:
        """R-537."""
        batches = self.batches
        return batches[-1].last_offset + 1 if batches else self.base_offset

    @property
    def largest_timestamp(self) -> int:
        """R-324."""
        entries = len(self.time_index) // 12
        time = int(struct.unpack_from(">q", self.time_index, 12 * (entries - 1))[0]) if entries else -1
        return time if time >= 0 else self.mtime_ms

    @property
    def aborts(self) -> list[Abort]:
        """R-303."""
        data = self.txn_index or b""
        return [Abort(*struct.unpack_from(">qqqq", data, at + 2)) for at in range(0, len(data) - 33, 34)]

    def position_of(self, offset: int) -> int:
        """R-314."""
        position = 0
        for at in range(0, len(self.index) - 7, 8):
            relative, there = struct.unpack_from(">ii", self.index, at)
            if self.base_offset + relative <= offset:
                position = there
        return position


@dataclass(frozen=True)
class Producer:
    """What is known of one producer (R-125, R-653)."""

    epoch: int
    last_data_offset: int
    timestamp: int
    txn_first_offset: int


@dataclass
class LogState:
    """One loaded log."""

    segments: list[Segment]
    snapshots: dict[int, bytes]
    log_start: int
    high_watermark: int = 0
    producers: dict[int, Producer] = field(default_factory=dict)
    # Transactions completed while replaying: (first offset, offset of the marker).
    completed: list[tuple[int, int]] = field(default_factory=list)

    @property
    def log_end(self) -> int:
        """The offset the next record will get."""
        return self.segments[-1].next_offset

    @property
    def active(self) -> Segment:
        """The last segment."""
        return self.segments[-1]

    def between(self, start: int, end: int) -> list[Segment]:
        """R-401."""
        if start == end:
            return []
        if end < start:
            raise ValueError(f"segments from {start} to {end}")
        floor = max((s.base_offset for s in self.segments if s.base_offset <= start), default=None)
        return [s for s in self.segments if s.base_offset < end and (floor is None or s.base_offset >= floor)]

    def non_active_from(self, start: int) -> list[Segment]:
        """R-402."""
        return [] if start > self.active.base_offset else self.between(start, self.active.base_offset)

    def collect_aborts(self, start: int, upper: int) -> list[Abort]:
        """R-535."""
        floor = max((s.base_offset for s in self.segments if s.base_offset <= start), default=None)
        found: list[Abort] = []
        for segment in self.segments:
            if floor is None or segment.base_offset < floor:
                continue
            for abort in segment.aborts:
                if abort.last_offset >= self.log_start and abort.first_offset < upper:
                    found.append(abort)
                if abort.last_stable_offset >= upper:
                    return found
        return found

    @property
    def last_stable(self) -> int:
        """
        R-407, looked up in the log: the first unstable offset becomes the base offset of the batch that holds it or
        comes next, or the log end where no batch does [UnifiedLog.maybeIncrementFirstUnstableOffset, LocalLog.read].
        """
        unstable = [p.txn_first_offset for p in self.producers.values() if p.txn_first_offset >= 0]
        unstable += [first for first, marker in self.completed if marker >= self.high_watermark]
        if not unstable:
            return self.high_watermark
        wanted = max(min(unstable), self.log_start)
        later = (batch.base_offset for s in self.segments for batch in s.batches if batch.last_offset >= wanted)
        return min(next(later, self.log_end), self.high_watermark)


def load(
    files: Mapping[str, bytes],
    mtimes_ms: Mapping[str, int],
    settings: Settings,
    now_ms: int,
    log_start: int,
    high_watermark: int | None,
) -> LogState:
    """Load a cleanly stopped log; `high_watermark` None takes the log end."""
    bases = sorted(int(name[:20]) for name in files if name.endswith(".log"))
    segments = []
    for base in bases:
        name = f"{base:020d}"
        index, time_index = files.get(name + ".index", b""), files.get(name + ".timeindex", b"")
        mtime = mtimes_ms[name + ".log"]
        segments.append(Segment(base, files[name + ".log"], index, time_index, files.get(name + ".txnindex"), mtime))
    snapshots = {int(name[:20]): data for name, data in files.items() if name.endswith(".snapshot")}
    state = LogState(segments, snapshots, max(log_start, bases[0]))
    end = state.log_end
    state.high_watermark = min(max(end if high_watermark is None else high_watermark, state.log_start), end)
    _load_producers(state, settings, now_ms)
    return state


def _load_producers(state: LogState, settings: Settings, now_ms: int) -> None:
    """R-652; without any snapshot after a clean stop there are no producers (R-127)."""
    usable = [offset for offset in state.snapshots if state.log_start < offset <= state.log_end]
    if not usable:
        if not state.snapshots:
            return
        start = state.log_start
    else:
        start = max(usable)
        data = state.snapshots[start]
        (count,) = struct.unpack_from(">i", data, 6)
        for i in range(count):
            row = struct.unpack_from(">qhiqiqiq", data, 10 + 46 * i)
            known = Producer(epoch=row[1], last_data_offset=row[3], timestamp=row[5], txn_first_offset=row[7])
            expired = known.txn_first_offset < 0 and now_ms - known.timestamp >= settings.producer_id_expiration_ms
            if not expired:
                state.producers[row[0]] = known
    for segment in state.segments:
        for batch in segment.batches:
            if batch.last_offset >= start and batch.producer_id >= 0:
                _replay(state, batch)


def _replay(state: LogState, batch: Batch) -> None:
    """R-653."""
    known = state.producers.get(batch.producer_id, Producer(-1, -1, -1, -1))
    if batch.control:
        records = read_records(batch)
        if not records:
            return
        if known.txn_first_offset >= 0:
            state.completed.append((known.txn_first_offset, batch.base_offset))
        kept = known.last_data_offset if known.epoch == batch.producer_epoch else -1
        known = Producer(batch.producer_epoch, kept, records[0].timestamp, -1)
    else:
        known = replace(
            known, epoch=batch.producer_epoch, last_data_offset=batch.last_offset, timestamp=batch.max_timestamp
        )
        if batch.transactional and known.txn_first_offset < 0:
            known = replace(known, txn_first_offset=batch.base_offset)
    state.producers[batch.producer_id] = known


def cleanable_range(state: LogState, settings: Settings, checkpoint: int | None, now_ms: int) -> tuple[int, int, int]:
    """Return first dirty offset, first uncleanable offset (rounded down, R-408) and cleanable bytes (R-405..R-409)."""
    first = state.log_start if checkpoint is None else checkpoint
    if first < state.log_start or first > state.log_end:
        first = state.log_start
    bounds = [state.last_stable, state.active.base_offset]
    if settings.min_compaction_lag_ms > 0:
        limit = now_ms - settings.min_compaction_lag_ms
        young = [s.base_offset for s in state.non_active_from(first) if s.largest_timestamp > limit]
        bounds += young[:1]
    bound = max(first, min(bounds))
    uncleanable = (state.non_active_from(bound) or [state.active])[0].base_offset
    dirty = state.between(min(first, uncleanable), uncleanable)
    return first, uncleanable, sum(len(s.log) for s in dirty)
