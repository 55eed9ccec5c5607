"""The latest value of each key, and what changed, by walking all records: what `export` must write."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.reference.batches import Batch, read_batches, read_records

_COMMIT = 1
_LOG_APPEND_TIME = 1


class Row(NamedTuple):
    """A row of a table; `timestamp` is None where the producer gave none."""

    value: bytes
    offset: int
    timestamp: int | None
    headers: tuple[tuple[str, bytes | None], ...]


Table = dict[bytes, Row]


class Seen(NamedTuple):
    """Readers see offsets from `start` up to `stable`, exclusive; the markers of their transactions are below `end`."""

    start: int
    stable: int
    end: int


def seen_in(directory: Path, start: int, end: int) -> Seen:
    """Return what is seen of a log that was not cleaned: below its start a round may drop a marker before the data."""
    batches = _batches_in(directory)
    undecided = [
        batch.base_offset
        for number, batch in enumerate(batches)
        if batch.transactional and not batch.control and _outcome(batch, batches[number + 1 :], end) is None
    ]
    return Seen(start, min([end, *undecided]), end)


def table_of(directory: Path, seen: Seen) -> Table:
    """Return the table of a partition's segments: their committed records."""
    batches = _batches_in(directory)
    table: Table = {}
    for number, batch in enumerate(batches):
        if batch.control or (batch.transactional and _outcome(batch, batches[number + 1 :], seen.end) is False):
            continue
        for record in read_records(batch):
            if record.key is None or not seen.start <= record.offset < seen.stable:
                continue
            table.pop(record.key, None)
            if record.value is not None:
                time = batch.max_timestamp if batch.timestamp_type == _LOG_APPEND_TIME else record.timestamp
                headers = tuple((_text(name), value) for name, value in record.headers)
                table[record.key] = Row(record.value, record.offset, None if time < 0 else time, headers)
    return table


def _batches_in(directory: Path) -> list[Batch]:
    return [batch for path in sorted(directory.glob("*.log")) for batch in read_batches(path.read_bytes())]


def _outcome(batch: Batch, later: list[Batch], end: int) -> bool | None:
    """Tell whether a batch's transaction was committed; None: it is open at `end`."""
    for marker in later:
        if marker.control and marker.producer_id == batch.producer_id and marker.base_offset < end:
            records = read_records(marker)
            if records:
                return struct.unpack(">hh", (records[0].key or b"")[:4])[1] == _COMMIT
    return None


def _text(name: bytes) -> str:
    """Read a header's name as Java does: one replacement character for each byte that is not UTF-8."""
    return name.decode(errors="one-replacement")


def changes(old: Mapping[bytes, Row], new: Mapping[bytes, Row]) -> tuple[Table, set[bytes]]:
    """Return the rows to put and the keys to delete."""
    upserts = {key: row for key, row in new.items() if old.get(key) != row}
    return upserts, old.keys() - new.keys()
