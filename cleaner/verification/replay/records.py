"""Reads a log for a replay: its records in order, with the markers of transactions between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cleaner.format.chunks import CONTROL_FLAG, Chunk, Flags
from cleaner.format.control import ControlType, control_type_of
from cleaner.format.key_digests import NO_OFFSET
from cleaner.format.layout import cut_out, lay_out
from cleaner.format.records import Block, Unpacker
from cleaner.read.transactions import Transactions
from cleaner.storage.segment.aborted import hidden_batches
from cleaner.storage.segment.indexes import abort_rows
from cleaner.verification.proof.side import LogSide

_MARKERS = (ControlType.ABORT, ControlType.COMMIT)


class LoggedRecord(NamedTuple):
    """A record; `producer_id` is that of its batch, -1 without one."""

    offset: int
    producer_id: int
    key: bytes | None
    value: bytes | None


class Marker(NamedTuple):
    """The end of a transaction."""

    offset: int
    producer_id: int
    is_commit: bool


def read_all(
    side: LogSide, limit_bytes: int, step: Callable[[int], None], *, committed: bool
) -> Iterator[LoggedRecord | Marker]:
    """
    Yield a log's records and markers from its start offset on.

    Args:
        side: the log.
        limit_bytes: the most a batch may unpack to.
        step: called with the bytes read since the last call; raises to stop.
        committed: as a consumer with `read_committed` reads: no aborted records, and nothing behind the last stable
            offset. Reads the log twice.
    Raises:
        CorruptBatchError: damage, which nobody who replays the log reads past either.
    """
    end, aborted = NO_OFFSET, None
    if committed:
        transactions = Transactions()
        for path, chunk in _chunks(side, lambda _bytes: step(0)):
            transactions.take(path, chunk)
        aborted, end = abort_rows(transactions.aborted), transactions.first_open(NO_OFFSET)
    unpacker = Unpacker(limit_bytes)
    for path, chunk in _chunks(side, step):
        for block in unpacker.blocks(path, chunk):
            hidden = None if aborted is None else hidden_batches(block.batches, aborted)
            for item in _items(path, block, hidden):
                if item.offset >= end:
                    return
                if item.offset >= side.log_start_offset:
                    yield item


def _chunks(side: LogSide, step: Callable[[int], None]) -> Iterator[tuple[Path, Chunk]]:
    read = 0
    with side.batches() as batches:
        while batches.fill():
            step(batches.read_bytes - read)
            read = batches.read_bytes
            if batches.damage is not None:
                raise batches.damage
            yield batches.segment.log_path, batches.take(len(batches.rows))


def _items(path: Path, block: Block, hidden: Flags | None) -> Iterator[LoggedRecord | Marker]:
    rows = block.batches
    is_control = rows["attributes"] & CONTROL_FLAG != 0
    is_control &= rows["magic"] == 2
    skipped = is_control.astype(np.uint8)
    if hidden is not None:
        skipped |= hidden
    layout = lay_out(path, block, skipped, -(2**63), NO_OFFSET)
    keys = cut_out(layout.data, layout.key_starts, layout.key_sizes) if len(layout) else []
    values = cut_out(layout.data, layout.value_starts, layout.value_sizes) if len(layout) else []
    offsets = layout.offsets.tolist()
    at = 0
    heads = zip(
        is_control.tolist(),
        rows["last_offset"].tolist(),
        rows["producer_id"].tolist(),
        rows["magic"].tolist(),
        strict=True,
    )
    for number, (control, last_offset, producer_id, magic) in enumerate(heads):
        if control:
            yield from _marker(path, block, number)
            continue
        while at < len(offsets) and offsets[at] <= last_offset:
            yield LoggedRecord(offsets[at], producer_id if magic == 2 else -1, keys[at], values[at])
            at += 1


def _marker(path: Path, block: Block, number: int) -> Iterator[Marker]:
    row = block.batches[number]
    kind = control_type_of(path, block.data, row)
    if kind in _MARKERS:
        yield Marker(int(row["base_offset"]), int(row["producer_id"]), kind is ControlType.COMMIT)
