"""Runs a `RetainedWriter` over the bytes of a log in memory, with verdicts that a test chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cleaner.cleaning.recopy.retained import CopyCounts, RetainedWriter
from cleaner.cleaning.recopy.survivors import BlockRetention
from cleaner.format.batch import Chunk, ReadBuffer, SegmentReader
from cleaner.format.records import Unpacker
from cleaner.kernels.offset_map import KEEP, KEEP_TOMBSTONE, SUPERSEDED
from tests.reference.batches import Batch, Rec, read_batches, read_records, rebuild
from tests.reference.record_filter import BatchRetention
from tests.support.batch_reader import MemoryFile

NOW_MS = 1_700_000_900_000
PATH = Path("00000000000000000000.log")


def only_chunk(log: bytes, check_order_from: int | None = None) -> Chunk:
    """Read a log that fits one chunk."""
    reader = SegmentReader(
        MemoryFile(log), size=len(log), buffer=ReadBuffer(max(4096, len(log))), check_order_from=check_order_from
    )
    (chunk,) = reader
    return chunk


@dataclass(frozen=True)
class Retained:
    """The output: bytes, one row for each batch, the largest offset, and the counters."""

    data: bytes
    rows: list[tuple[int, int, int]]
    largest_offset: int
    counts: CopyCounts

    @property
    def batches(self) -> list[Batch]:
        """The batches, read by the slow twin."""
        return read_batches(self.data)


def retain(
    log: bytes,
    verdicts: Sequence[Sequence[int]],
    *,
    retention: Sequence[BatchRetention] | None = None,
    is_empty_marker: Sequence[int] | None = None,
    new_horizon_ms: int = NOW_MS,
) -> Retained:
    """
    Write the retained part of a log.

    Args:
        verdicts: for each batch one a record, as in `kernels/offset_map.py`; none for a batch to be dropped.
        retention: `KEEP_IF_NOT_EMPTY` unless given.
        is_empty_marker: 0 unless given.
    """
    chunk = only_chunk(log)
    count = len(chunk.batches)
    assert count == len(verdicts)
    writer = RetainedWriter(new_horizon_ms)
    kept_as = np.array([BatchRetention.KEEP_IF_NOT_EMPTY] * count if retention is None else list(retention), np.int8)
    flags = np.zeros(count, np.uint8)
    marker = flags if is_empty_marker is None else np.array(is_empty_marker, np.uint8)
    whole = BlockRetention(kept_as, flags, (kept_as == BatchRetention.DROP).astype(np.uint8), marker, True)
    writer.begin(count)
    for block in Unpacker(1 << 24).blocks(PATH, chunk):
        places = range(block.first, block.first + len(block.batches))
        mine = [verdict for i in places if kept_as[i] != BatchRetention.DROP for verdict in verdicts[i]]
        writer.write(PATH, block, whole.part(block.first, len(block.batches)), np.array(mine, np.uint8))
    output = writer.end()
    rows = [(int(r["size"]), int(r["last_offset"]), int(r["max_timestamp"])) for r in output.written]
    return Retained(bytes(output.data), rows, output.largest_offset, writer.counts)


def keeping(batch: bytes, *kept: int) -> list[int]:
    """Return the verdicts on a batch whose records at these places stay."""
    records = records_of(batch)
    stays = [KEEP if record.value is not None else KEEP_TOMBSTONE for record in records]
    return [stays[i] if i in kept else SUPERSEDED for i in range(len(records))]


def records_of(batch: bytes) -> list[Rec]:
    """Return a batch's records."""
    (read,) = read_batches(batch)
    return read_records(read)


def slow_rebuild(batch: bytes, kept: Sequence[int], horizon_ms: int = -1) -> bytes:
    """Rebuild a batch with the records at these places, by the slow twin."""
    (read,) = read_batches(batch)
    records = read_records(read)
    return rebuild(read, [records[i] for i in kept], horizon_ms)
