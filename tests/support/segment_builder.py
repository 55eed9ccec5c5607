"""Builds one segment, with the changes of each batch to its indexes and to a producer's state."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.support.batch_builder import ABORT, CONTROL
from tests.support.batch_reader import BatchInfo, read_marker
from tests.support.codecs import crc32c

_INT_MAX = 2**31 - 1


class ProducerState(NamedTuple):
    """One producer's line of a snapshot (R-125), in the order of the file."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    txn_first_offset: int


def offset_name(offset: int) -> str:
    """Return the 20 digits that begin a segment's file names (R-120)."""
    return f"{offset:020d}"


def encode_snapshot(producers: dict[int, ProducerState]) -> bytes:
    """Encode a producer snapshot (R-125), producers in ascending order."""
    rows = (struct.pack(">qhiqiqiq", *producers[producer_id]) for producer_id in sorted(producers))
    body = struct.pack(">i", len(producers)) + b"".join(rows)
    return struct.pack(">hI", 1, crc32c(body)) + body


@dataclass
class SegmentBuilder:
    """The bytes of one segment's files, growing batch by batch."""

    base_offset: int
    index_interval_bytes: int
    segment_index_bytes: int
    mtime_ms: int | None = None
    log: bytearray = field(default_factory=bytearray)
    index: bytearray = field(default_factory=bytearray)
    time_index: bytearray = field(default_factory=bytearray)
    txn_index: bytearray = field(default_factory=bytearray)
    since_last_entry: int = 0
    max_timestamp: tuple[int, int] = (-1, -1)
    last_indexed_timestamp_ms: int = -1

    def append(self, batch: bytes, info: BatchInfo) -> None:
        """
        Append one batch. R-320: first the maximum; then entries, if more than the interval was written since the last.

        Raises:
            ValueError: an index is full (R-311), or the offset is too far from the base offset.
        """
        if info.max_timestamp_ms > self.max_timestamp[0]:
            self.max_timestamp = (info.max_timestamp_ms, info.last_offset)
        if self.since_last_entry > self.index_interval_bytes:
            self._add_entries(info.last_offset - self.base_offset)
        self.since_last_entry += len(batch)
        self.log += batch

    @property
    def is_full(self) -> bool:
        """Tell whether an index has no room for another entry, so that a broker would roll (R-311)."""
        limits = (self.segment_index_bytes // 8 * 8, self.segment_index_bytes // 12 * 12 - 12)
        return len(self.index) >= limits[0] or len(self.time_index) >= limits[1]

    def _add_entries(self, relative_offset: int) -> None:
        if relative_offset > _INT_MAX:
            raise ValueError("too far from the segment's base offset: roll first")
        if self.is_full:
            raise ValueError("the index of the active segment is full: roll first")
        self.index += struct.pack(">ii", relative_offset, len(self.log))
        self.time_index += self.closing_entry()
        self.last_indexed_timestamp_ms = max(self.last_indexed_timestamp_ms, self.max_timestamp[0])
        self.since_last_entry = 0

    def closing_entry(self) -> bytes:
        """Return the time index entry of the maximum so far, or nothing if that time has one (R-313, R-322)."""
        time, offset = self.max_timestamp
        if time <= self.last_indexed_timestamp_ms:
            return b""
        return struct.pack(">qi", time, offset - self.base_offset)

    def files(self) -> dict[str, bytes]:
        """Return the segment's files by name, closed: indexes trimmed, the time index with its last entry."""
        name = offset_name(self.base_offset)
        found = {
            name + ".log": bytes(self.log),
            name + ".index": bytes(self.index),
            name + ".timeindex": bytes(self.time_index) + self.closing_entry(),
        }
        if self.txn_index:
            found[name + ".txnindex"] = bytes(self.txn_index)
        return found


def remember_producer(
    producers: dict[int, ProducerState], segment: SegmentBuilder, info: BatchInfo, batch: bytes
) -> None:
    """Update the producer's state by one batch (R-653), and add an abort to the segment's transaction index."""
    producer_id, epoch, base_sequence, transactional = info.producer
    known = producers.get(producer_id, ProducerState(producer_id, epoch, -1, -1, 0, -1, -1, -1))
    if info.attributes & CONTROL and not info.record_count:
        return
    if known.epoch != epoch:
        known = known._replace(epoch=epoch, last_sequence=-1, last_offset=-1, offset_delta=0)
    if info.attributes & CONTROL:
        kind, coordinator_epoch = read_marker(batch)
        if kind == ABORT and known.txn_first_offset >= 0:
            others = (p.txn_first_offset for p in producers.values() if p.producer_id != producer_id)
            stable = min((first for first in others if first >= 0), default=info.last_offset + 1)
            segment.txn_index += struct.pack(">hqqqq", 0, producer_id, known.txn_first_offset, info.last_offset, stable)
        known = known._replace(
            timestamp_ms=info.max_timestamp_ms, coordinator_epoch=coordinator_epoch, txn_first_offset=-1
        )
    else:
        delta = info.last_offset - info.base_offset
        opens = transactional and known.txn_first_offset < 0
        known = known._replace(
            last_sequence=-1 if base_sequence < 0 else (base_sequence + delta) & _INT_MAX,
            last_offset=info.last_offset,
            offset_delta=delta,
            timestamp_ms=info.max_timestamp_ms,
            txn_first_offset=info.base_offset if opens else known.txn_first_offset,
        )
    producers[producer_id] = known
