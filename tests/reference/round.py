"""One cleaning round, Kafka's way, on a log held as bytes (R-501 to R-582)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.reference.batches import (
    AboveLimit,
    Batch,
    Rec,
    Unbuildable,
    read_records,
    rebuild,
    rebuild_empty,
    wrap_64,
)
from tests.reference.erasing import kept_end
from tests.reference.log_state import LogState, Segment, Settings, cleanable_range, load
from tests.reference.segment_writer import IndexFull, OutOfRange, SegmentWriter
from tests.reference.transactions import TransactionState
from tests.support.codecs import crc32c


@dataclass
class Stats:
    """Kafka's counters (R-718) and, of the records that went, why."""

    map_messages_read: int = 0
    messages_read: int = 0
    bytes_read: int = 0
    messages_written: int = 0
    bytes_written: int = 0
    invalid_messages: int = 0
    superseded: int = 0
    tombstones: int = 0
    aborted: int = 0
    markers: int = 0
    held_tombstones: int = 0
    held_markers: int = 0
    expired: int = 0


@dataclass(frozen=True)
class Result:
    """
    The partition's files after a round.

    `failed` names what stopped Kafka half-way: groups before the one it stopped in are swapped, the checkpoint stays.
    """

    files: dict[str, bytes]
    mtimes_ms: dict[str, int]
    cleaned: bool
    first_dirty: int
    first_uncleanable: int
    end_offset: int
    stats: Stats
    failed: str = ""


@dataclass
class OffsetMap:
    """Key to last offset, with as many keys as fit (R-512, R-522); with the number that comes before the offset."""

    limit: int
    latest_offset: int = -1
    offsets: dict[bytes, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Round:
    """What stays the same through one round."""

    state: LogState
    settings: Settings
    now_ms: int
    first_uncleanable: int
    legacy_horizon_ms: int
    map: OffsetMap
    transactions: TransactionState
    stats: Stats
    held_from: int
    keep_damaged: bool
    kafka: str


def clean_round(
    files: Mapping[str, bytes],
    mtimes_ms: Mapping[str, int],
    settings: Settings,
    *,
    now_ms: int,
    checkpoint: int | None = None,
    log_start: int = 0,
    high_watermark: int | None = None,
    keep_tombstones: bool = False,
    held_from: int = 2**63 - 1,
    keep_damaged: bool = False,
    kafka: str = "4.3",
) -> Result:
    """
    Load, clean one round, close.

    Args:
        files: names and bytes of a partition directory after a clean stop; not changed.
        mtimes_ms: modification times of the `.log` files at least.
        checkpoint: first dirty offset, None without one.
        high_watermark: None takes the log end.
        keep_tombstones: not Kafka's: no tombstone and no marker goes for its age (D-13).
        held_from: not Kafka's: from this offset on none does (D-17).
        keep_damaged: not Kafka's: batches with wrong checksums, or records that cannot be read, stay as they are.
        kafka: the release line whose rules differ: `4.3` or `4.4`.
    """
    state = load(files, mtimes_ms, settings, now_ms, log_start, high_watermark)
    # Where keys have several writings, the clean part is not known to have each key once; and where numbers are
    # compared, one of its records may stay.
    checkpoint = None if settings.same_keys or settings.survivor != "offset" else checkpoint
    first, uncleanable, cleanable_bytes = cleanable_range(state, settings, checkpoint, now_ms)
    stats = Stats()
    files, mtimes_ms = dict(files), dict(mtimes_ms)
    if cleanable_bytes == 0:
        return Result(files, mtimes_ms, False, first, uncleanable, first, stats)
    try:
        offset_map = build_map(state, settings, first, uncleanable, stats, keep_damaged)
    except AboveLimit as error:
        return Result(files, mtimes_ms, False, first, uncleanable, first, stats, repr(error))
    end_offset = offset_map.latest_offset + 1
    clean_part = state.between(0, first)
    horizon = clean_part[-1].mtime_ms - settings.delete_retention_ms if clean_part else 0
    transactions = TransactionState()
    this = Round(
        state,
        settings,
        now_ms,
        uncleanable,
        horizon,
        offset_map,
        transactions,
        stats,
        0 if keep_tombstones else held_from,
        keep_damaged,
        kafka,
    )
    for group in group_segments(state.between(0, end_offset), settings, uncleanable):
        try:
            cleaned = clean_group(this, group)
        except (AboveLimit, IndexFull, OutOfRange, Unbuildable) as error:
            return Result(files, mtimes_ms, False, first, uncleanable, first, stats, repr(error))
        _swap(files, mtimes_ms, group, cleaned)
        # What the next group sees of the log: the swapped segment in place of the old ones.
        state.segments = [s for s in state.segments if s not in group] + [cleaned]
        state.segments.sort(key=lambda s: s.base_offset)
    return Result(files, mtimes_ms, True, first, uncleanable, end_offset, stats)


def build_map(
    state: LogState, settings: Settings, first: int, end: int, stats: Stats, keep_damaged: bool = False
) -> OffsetMap:
    """R-510..R-513."""
    offset_map = OffsetMap(int(settings.slots * settings.load_factor))
    transactions = TransactionState()
    transactions.add(state.collect_aborts(first, end))
    dirty = state.between(first, end)
    for i, segment in enumerate(dirty):
        following = dirty[i + 1].base_offset if i + 1 < len(dirty) else end
        if _map_segment(segment, first, settings, offset_map, transactions, stats, keep_damaged):
            break
        offset_map.latest_offset = following - 1
    return offset_map


def _map_segment(
    segment: Segment,
    first: int,
    settings: Settings,
    offset_map: OffsetMap,
    transactions: TransactionState,
    stats: Stats,
    keep_damaged: bool,
) -> bool:
    """Return True when the map is full."""
    start = segment.position_of(first)
    for batch in segment.batches:
        if batch.position < start:
            continue
        discard = transactions.can_discard(batch)
        if batch.control:
            stats.map_messages_read += 1
        elif discard or (keep_damaged and is_damaged(batch)):
            stats.map_messages_read += batch.count
        else:
            refused = None
            try:
                records = read_records(batch, settings.max_decompressed_message_bytes)
            except AboveLimit as error:
                records, refused = error.before, error
            for record in records:
                if record.key is not None and record.offset >= first:
                    if len(offset_map.offsets) >= offset_map.limit:
                        return True
                    key = settings.same_keys.get(record.key, record.key)
                    rank = rank_of(record, settings.survivor)
                    offset_map.offsets[key] = max(rank, offset_map.offsets.get(key, rank))
                    offset_map.latest_offset = record.offset
                stats.map_messages_read += 1
            if refused is not None:
                raise refused
        if batch.last_offset >= first:
            offset_map.latest_offset = batch.last_offset
    return False


def rank_of(record: Rec, survivor: str) -> tuple[int, int]:
    """Return what is compared of the records of a key (D-19): a number, and then the offset."""
    if survivor == "offset":
        return 0, record.offset
    if survivor == "timestamp":
        return record.timestamp, record.offset
    values = [value for name, value in record.headers if name == survivor.removeprefix("header:").encode()]
    return (number_in(values[-1] or b"") if values else -(2**63)), record.offset


def number_in(text: bytes) -> int:
    """Return the number in a header: decimal digits, or else 8 bytes; the smallest if it is neither."""
    digits = text[1:] if text[:1] == b"-" else text
    if 1 <= len(digits) <= 19 and all(0x30 <= digit <= 0x39 for digit in digits) and int(digits) < 2**63:
        return int(text)
    return int.from_bytes(text, "big", signed=True) if len(text) == 8 else -(2**63)


def group_segments(segments: list[Segment], settings: Settings, first_uncleanable: int) -> list[list[Segment]]:
    """R-580, R-581."""
    groups: list[list[Segment]] = []
    for i, segment in enumerate(segments):
        last = (segments[i + 1].base_offset if i + 1 < len(segments) else first_uncleanable) - 1
        group = groups[-1] if groups else []
        fits = (
            bool(group)
            and sum(len(s.log) for s in [*group, segment]) <= settings.segment_bytes
            and sum(len(s.index) // 8 * 8 for s in [*group, segment]) <= settings.segment_index_bytes
            and sum(len(s.time_index) // 12 * 12 for s in [*group, segment]) <= settings.segment_index_bytes
            and (len(segment.log) == 0 or last - group[0].base_offset <= 2**31 - 1)
        )
        if fits:
            group.append(segment)
        else:
            groups.append([segment])
    return groups


def clean_group(this: Round, group: list[Segment]) -> Segment:
    """R-590, R-591."""
    writer = SegmentWriter(group[0].base_offset, this.settings)
    this.transactions.output = []
    for i, segment in enumerate(group):
        upper = group[i + 1].base_offset if i + 1 < len(group) else segment.next_offset
        this.transactions.add(this.state.collect_aborts(segment.base_offset, upper))
        retain_legacy_tombstones = segment.mtime_ms > this.legacy_horizon_ms
        for batch in segment.batches:
            _clean_batch(this, batch, retain_legacy_tombstones, writer)
    return writer.close(this.transactions.output, group[-1].mtime_ms)


def _clean_batch(this: Round, batch: Batch, retain_legacy_tombstones: bool, writer: SegmentWriter) -> None:
    """R-540..R-564."""
    stats = this.stats
    stats.bytes_read += len(batch.raw)
    if this.keep_damaged and is_damaged(batch):
        stats.messages_read += batch.count
        stats.messages_written += batch.count
        stats.bytes_written += len(batch.raw)
        writer.append(batch.raw)
        return
    can_discard = this.transactions.can_discard(batch)
    discard = can_discard
    if batch.control:
        has_expired = batch.delete_horizon is not None and batch.delete_horizon <= this.now_ms
        discard = can_discard and has_expired and batch.last_offset < this.held_from
        stats.held_markers += can_discard and has_expired and not discard
    keep_even_empty = _is_last_record_of_producer(this.state, batch) or _ends_range(this, batch)
    if discard:
        stats.markers += batch.count if batch.control else 0
        stats.aborted += 0 if batch.control else batch.count
        if not keep_even_empty:
            return
    records = read_records(batch, this.settings.max_decompressed_message_bytes)
    stats.messages_read += len(records)
    kept = [r for r in records if not discard and _is_kept(this, batch, r, retain_legacy_tombstones)]
    expired = [r for r in kept if _has_expired(this, batch, r)]
    this.stats.expired += len(expired)
    kept = [r._replace(value=None) if r in expired else r for r in kept]
    output = b""
    # By a survivor rule the last record of all may go; Kafka cannot keep the place of one in an older batch.
    keeps_legacy_end = batch.magic < 2 and this.settings.survivor != "offset" and _ends_range(this, batch)
    if kept:
        empty_marker = can_discard and batch.control
        has_tombstone = any(record.value is None for record in kept)
        needs_horizon = ((has_tombstone or empty_marker) and batch.delete_horizon is None) or bool(expired)
        if batch.magic == 2 and len(kept) == len(records) and not needs_horizon:
            output = batch.raw
        else:
            horizon = -1 if batch.delete_horizon is None else batch.delete_horizon
            if needs_horizon:
                horizon = wrap_64(this.now_ms + this.settings.delete_retention_ms)
            output = rebuild(batch, kept, horizon)
            if keeps_legacy_end:
                output = kept_end(batch, records, kept, horizon)
    elif keep_even_empty:
        output = kept_end(batch, records, [], -1) if keeps_legacy_end else rebuild_empty(batch)
    if output:
        stats.messages_written += len(kept)
        stats.bytes_written += len(output)
        writer.append(output)


def is_damaged(batch: Batch) -> bool:
    """Tell whether a batch's checksum is wrong, or its records are not what they claim to be."""
    if batch.magic == 2 and crc32c(batch.raw[21:]) != int.from_bytes(batch.raw[17:21], "big"):
        return True
    try:
        offsets = [record.offset for record in read_records(batch)]
    except Exception:  # noqa: BLE001  whatever a codec or a wrong length makes of it
        return True
    return offsets != sorted(set(offsets)) or any(offset > batch.last_offset for offset in offsets)


def _is_last_record_of_producer(state: LogState, batch: Batch) -> bool:
    """R-545."""
    producer = state.producers.get(batch.producer_id)
    if batch.producer_id < 0 or producer is None:
        return False
    if producer.last_data_offset >= 0:
        return batch.last_offset == producer.last_data_offset
    return batch.control and batch.producer_epoch == producer.epoch


def _ends_range(this: Round, batch: Batch) -> bool:
    """R-541 (b): 4.3 keeps the batch at the end of the range, 4.4 the one at the high watermark."""
    kept_end = this.first_uncleanable if this.kafka == "4.3" else this.state.high_watermark
    return batch.last_offset + 1 == kept_end


def _is_kept(this: Round, batch: Batch, record: Rec, retain_legacy_tombstones: bool) -> bool:
    """R-550, R-551."""
    if batch.control or record.offset > this.map.latest_offset:
        return True
    if record.key is None:
        this.stats.invalid_messages += 1
        return False
    key = this.settings.same_keys.get(record.key, record.key)
    newest = this.map.offsets.get(key, (0, -1))
    is_other = record.offset < newest[1]
    if this.settings.survivor != "offset":
        # All of the log is in the map; what is below its start is not, and loses.
        is_other = key in this.map.offsets and record.offset != newest[1]
    if is_other:
        this.stats.superseded += 1
        return False
    if record.value is not None:
        return True
    if batch.magic == 2:
        kept = batch.delete_horizon is None or this.now_ms < batch.delete_horizon
    else:
        kept = retain_legacy_tombstones
    if not kept and record.offset >= this.held_from:
        this.stats.held_tombstones += 1
        return True
    this.stats.tombstones += not kept
    return kept


def _has_expired(this: Round, batch: Batch, record: Rec) -> bool:
    """D-19: what stays, has a value and is too old becomes a tombstone, with a horizon as if it were a new one."""
    ttl_ms = this.settings.record_ttl_ms
    if ttl_ms is None or batch.control or record.key is None or record.value is None:
        return False
    return record.offset <= this.map.latest_offset and 0 <= record.timestamp <= this.now_ms - ttl_ms


def _swap(files: dict[str, bytes], mtimes_ms: dict[str, int], group: list[Segment], cleaned: Segment) -> None:
    """R-601: the group's files go, the cleaned ones come; snapshots of absorbed segments go (S6)."""
    for segment in group:
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            files.pop(f"{segment.base_offset:020d}{suffix}", None)
            mtimes_ms.pop(f"{segment.base_offset:020d}{suffix}", None)
        if segment.base_offset != cleaned.base_offset:
            files.pop(f"{segment.base_offset:020d}.snapshot", None)
    name = f"{cleaned.base_offset:020d}"
    files |= {name + ".log": cleaned.log, name + ".index": cleaned.index, name + ".timeindex": cleaned.time_index}
    if cleaned.txn_index is not None:
        files[name + ".txnindex"] = cleaned.txn_index
    for suffix in (".log", ".index", ".timeindex"):
        mtimes_ms[name + suffix] = cleaned.mtime_ms
