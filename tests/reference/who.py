"""Whose bytes a log holds, slowly: reads everything, from the definitions alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from tests.reference.batches import Batch, read_records
from tests.reference.log_state import LogState
from tests.support.batch_reader import read_varint
from tests.support.codecs import decompress

Sums = dict[str, int]


class Part(NamedTuple):
    """A record, or a batch without readable ones: its bytes, what a round does with them, and whose they are."""

    kind: str
    bytes: int
    records: int
    key: str
    producer: str
    time_ms: int


def parts_of(
    state: LogState, end: int, *, is_compacted: bool = True, by_time: bool = False, expired_ms: int = -1
) -> Iterator[Part]:
    """
    Take a log apart; of records below `end` the last of each key stays.

    Args:
        by_time: or the one with the latest timestamp, of equals the last.
        expired_ms: records with a timestamp up to it become tombstones.
    """
    aborts = [abort for segment in state.segments for abort in segment.aborts]

    def is_aborted(batch: Batch) -> bool:
        return batch.transactional and any(
            abort.producer_id == batch.producer_id and abort.first_offset <= batch.base_offset <= abort.last_offset
            for abort in aborts
        )

    batches = [batch for segment in state.segments for batch in segment.batches]
    last: dict[bytes, tuple[int, int]] = {}
    for batch in batches:
        if not batch.control and not is_aborted(batch):
            for record in read_records(batch):
                if record.key is not None and record.offset < end:
                    rank = (record.timestamp if by_time else 0, record.offset)
                    last[record.key] = max(rank, last.get(record.key, rank))
    for batch in batches:
        producer = "(no producer id)" if batch.producer_id < 0 else str(batch.producer_id)
        waits = is_compacted and batch.base_offset >= end
        records = [] if batch.control else read_records(batch)
        if not records or is_aborted(batch):
            kind = "waiting" if waits else "aborted" if records else "marker"
            key = "(aborted transactions)" if records else "(markers and empty batches)"
            yield Part(kind, len(batch.raw), len(records), key, producer, batch.max_timestamp)
            continue
        for record, size in zip(records, shares_of(batch), strict=True):
            kind = "live"
            if waits:
                kind = "waiting"
            elif is_compacted and (record.key is None or last[record.key][1] != record.offset):
                kind = "superseded"
            elif is_compacted and (record.value is None or 0 <= record.timestamp <= expired_ms):
                kind = "tombstone"
            name = "(no key)" if record.key is None else record.key.decode()
            yield Part(kind, size, 1, name, producer, record.timestamp)


def shares_of(batch: Batch) -> list[int]:
    """Divide a batch's bytes by the distances from one key to the next; the last record has what is left."""
    if batch.count == 1:
        return [len(batch.raw)]
    data = decompress(batch.codec, batch.raw[61:])
    keys, at = [], 0
    for _ in range(batch.count):
        length, body = read_varint(data, at)
        _, place = read_varint(data, body + 1)
        _, place = read_varint(data, place)
        _, place = read_varint(data, place)
        keys.append(place)
        at = body + length
    ends = [Fraction(key - keys[0], len(data)) for key in keys[1:]] + [Fraction(1)]
    places = [0, *(int(len(batch.raw) * end) for end in ends)]
    return [after - before for before, after in pairwise(places)]


def sums_by(parts: list[Part], what: str) -> dict[str, Sums]:
    """Add up parts by key or producer: bytes of each kind, and records."""
    found: dict[str, Sums] = defaultdict(lambda: defaultdict(int))
    for part in parts:
        sums = found[getattr(part, what)]
        sums[part.kind] += part.bytes
        sums["records"] += part.records
    return {name: {kind: count for kind, count in sums.items() if count} for name, sums in found.items()}


def sums_of(row: Mapping[str, int]) -> Sums:
    """Return the sums of a row of the product's report, as here."""
    kinds = ("live", "superseded", "tombstone", "aborted", "marker", "waiting", "unreadable")
    found = {kind: row[f"{kind}_bytes"] for kind in kinds} | {"records": row["records"]}
    return {kind: count for kind, count in found.items() if count}
