"""What `erase` leaves of a segment, one batch and one record at a time."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from tests.reference.batches import Batch, Rec, read_batches, read_records, rebuild, rebuild_empty
from tests.reference.log_state import Segment, Settings
from tests.reference.segment_writer import SegmentWriter
from tests.support.codecs import crc32c

_LAST_DELTA_AT, _CRC_AT, _CRC_FROM = 23, 17, 21


@dataclass(frozen=True)
class Wanted:
    """
    What is erased.

    Attributes:
        is_key: tells whether a key is erased.
        is_offset: tells whether an offset is.
        kept_ends, kept_starts: last and base offsets of batches that stay even if they are empty then.
    """

    is_key: Callable[[bytes], bool]
    is_offset: Callable[[int], bool]
    kept_ends: Collection[int]
    kept_starts: Collection[int]

    def has(self, record: Rec) -> bool:
        """Tell whether a record is erased."""
        return self.is_offset(record.offset) or (record.key is not None and self.is_key(record.key))


def erase_segment(segment: Segment, wanted: Wanted, settings: Settings) -> Segment | None:
    """Return a segment without the erased records; None if it has none."""
    batches = read_batches(segment.log)
    parts = [_erase(batch, wanted) for batch in batches]
    if parts == [batch.raw for batch in batches]:
        return None
    writer = SegmentWriter(segment.base_offset, settings)
    for part in filter(None, parts):
        writer.append(part)
    return replace(writer.close([], segment.mtime_ms), txn_index=segment.txn_index)


def _erase(batch: Batch, wanted: Wanted) -> bytes:
    """Return what stays of a batch."""
    if batch.control or not batch.count:
        return batch.raw
    records = read_records(batch)
    kept = [record for record in records if not wanted.has(record)]
    is_wrapper = batch.magic < 2 and batch.codec != "none"
    wrapper_key = _key_of(batch.raw) if is_wrapper else None
    if len(kept) == len(records) and (wrapper_key is None or not wanted.is_key(wrapper_key)):
        return batch.raw
    stays = batch.last_offset in wanted.kept_ends or batch.base_offset in wanted.kept_starts
    horizon = -1 if batch.delete_horizon is None else batch.delete_horizon
    if stays:
        return kept_end(batch, records, kept, horizon)
    return rebuild(batch, kept, horizon) if kept else b""


def kept_end(batch: Batch, records: list[Rec], kept: list[Rec], horizon: int) -> bytes:
    """Build what reaches as far as a batch, of what stays of its records, also of magic 0 and 1."""
    if kept:
        return _reaching(rebuild(batch, kept, horizon), batch.last_offset)
    if batch.magic == 2:
        return rebuild_empty(batch)
    last = max(records[-1].offset, batch.last_offset)
    largest = batch.max_timestamp if batch.timestamp_type else max(record.timestamp for record in records)
    modern = replace(batch, magic=2, base_offset=records[0].offset, last_offset=last, max_timestamp=largest)
    return rebuild_empty(modern)


def _reaching(batch: bytes, last_offset: int) -> bytes:
    """Return a batch with another last offset."""
    (base,) = struct.unpack_from(">q", batch)
    data = bytearray(batch)
    struct.pack_into(">i", data, _LAST_DELTA_AT, last_offset - base)
    struct.pack_into(">I", data, _CRC_AT, crc32c(bytes(data[_CRC_FROM:])))
    return bytes(data)


def _key_of(raw: bytes) -> bytes | None:
    at = 26 if raw[16] else 18
    (size,) = struct.unpack_from(">i", raw, at)
    return None if size < 0 else raw[at + 4 : at + 4 + size]
