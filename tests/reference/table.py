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


def table_of(directory: Path, start: int, end: int) -> Table:
    """Return the table of a partition's segments: committed records from `start` up to `end`, exclusive."""
    batches = [batch for path in sorted(directory.glob("*.log")) for batch in read_batches(path.read_bytes())]
    table: Table = {}
    open_from = [end]
    for number, batch in enumerate(batches):
        if batch.control:
            continue
        outcome = _outcome(batch, batches[number + 1 :], end) if batch.transactional else True
        if outcome is None:
            open_from.append(batch.base_offset)  # though it may begin below `start`: what follows is not stable
        if outcome is False:
            continue
        for record in read_records(batch):
            if record.key is None or not start <= record.offset < min(open_from):
                continue
            table.pop(record.key, None)
            if record.value is not None:
                time = batch.max_timestamp if batch.timestamp_type == _LOG_APPEND_TIME else record.timestamp
                headers = tuple((_text(name), value) for name, value in record.headers)
                table[record.key] = Row(record.value, record.offset, None if time < 0 else time, headers)
    return table


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
