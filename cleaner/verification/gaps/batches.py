"""
Checks the batches of a chunk as far as the account of offsets needs: checksum, header, offsets; no record is read.

There are two exceptions. A batch of magic 0 or 1 is unpacked, because its header has neither its first offset nor its
count. And of the batch that holds the log's start, if records were removed from it, only those behind the start count.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import Chunk
from cleaner.format.key_digests import NO_OFFSET
from cleaner.format.layout import lay_out
from cleaner.format.parallel_reader import bad_checksums
from cleaner.format.records import Unpacker
from cleaner.kernels.scan_status import KIND_LEGACY
from cleaner.verification.check.batches import CheckedChunk, check_headers, kind_of, note
from cleaner.verification.check.findings import FindingKind


class GapChecker:
    """
    Checks the chunks of one lane.

    Args:
        limit_bytes: most bytes a batch may unpack to.

    Attributes:
        start_offset: the log's start; batches below it are left out, and one that holds it is cut there.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.start_offset = 0
        self._unpacker = Unpacker(limit_bytes)

    def check(self, path: Path, chunk: Chunk, digest_from: int = NO_OFFSET) -> CheckedChunk:
        """Check a chunk whose batches are listed; `digest_from` is not used, as no key is read."""
        checked = CheckedChunk(chunk, np.ones(len(chunk.batches), bool))
        for row, failure in bad_checksums(path, chunk):
            note(path, checked, row, FindingKind.BATCH_CHECKSUM, failure.reason)
        check_headers(path, checked)
        if chunk.kinds & KIND_LEGACY:
            for row in np.flatnonzero(checked.good & (chunk.batches["magic"] < 2)).tolist():
                self._unpack(path, checked, row)
        self._cut_at_start(path, checked)
        return checked

    def _unpack(self, path: Path, checked: CheckedChunk, row: int) -> None:
        """Find the first offset and the count of a batch of magic 0 or 1."""
        part = _alone(checked.chunk, row)
        try:
            for _ in self._unpacker.blocks(path, part):
                continue
        except CorruptBatchError as error:
            note(path, checked, row, kind_of(error), error.reason)

    def _cut_at_start(self, path: Path, checked: CheckedChunk) -> None:
        rows, start = checked.chunk.batches, self.start_offset
        for row in np.flatnonzero(checked.good & (rows["base_offset"] < start) & (rows["last_offset"] >= start)):
            batch = rows[row]
            count = int(batch["last_offset"]) - start + 1
            if 0 < batch["count"] < batch["last_offset"] - batch["base_offset"] + 1:
                try:
                    count = self._count_from(path, _alone(checked.chunk, int(row)))
                except CorruptBatchError as error:
                    note(path, checked, int(row), kind_of(error), error.reason)
                    continue
            rows["count"][row] = min(count, int(batch["count"]))
            rows["base_offset"][row] = start

    def _count_from(self, path: Path, part: Chunk) -> int:
        """Return how many records of a batch are at or above the start."""
        # A copy: unpacking changes the row.
        part = replace(part, batches=part.batches.copy())
        nothing_skipped = np.zeros(1, np.uint8)
        last = int(part.batches[0]["last_offset"])
        (block,) = self._unpacker.blocks(path, part)
        return len(lay_out(path, block, nothing_skipped, self.start_offset, last + 1))


def _alone(chunk: Chunk, row: int) -> Chunk:
    return replace(chunk, batches=chunk.batches[row : row + 1], failure=None)
