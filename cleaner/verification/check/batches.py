"""
Checks every batch of a chunk, also after a damaged one: checksum, header, compressed stream, records.

Rounds stop at the first damage, and so do readers and kernels; here they are called again for the batches after it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from cleaner.errors import CorruptBatchError, RecordAboveLimitError
from cleaner.format.chunks import COMPRESSION_MASK, HEADER_BYTES, REASONS, Batches, Chunk, Mask
from cleaner.format.codec_errors import DecompressedTooLargeError, DecompressionError
from cleaner.format.key_digests import NO_OFFSET, KeyDigests, Words
from cleaner.format.parallel_reader import bad_checksums
from cleaner.format.records import Unpacker
from cleaner.kernels import scan_status as status
from cleaner.kernels.codec_table import LAST_CODEC, NONE
from cleaner.kernels.digest import SECRET_WORDS
from cleaner.kernels.scan_status import LARGEST_RECORD_BYTES
from cleaner.verification.check.findings import Finding, FindingKind

_MAX_LONG = 2**63 - 1
_NO_KEYS: Words = np.zeros(SECRET_WORDS, np.uint64)


@dataclass
class CheckedChunk:
    """
    A chunk, and its findings.

    Attributes:
        chunk: all of its batches.
        good: for each batch, whether it is good.
        findings: at most one for each batch, in no order.
        digests: rows of `KeyDigests`, of records with a key; in the lane's memory.
    """

    chunk: Chunk
    good: Mask
    findings: list[Finding] = field(default_factory=list)
    digests: Words = field(default_factory=lambda: KeyDigests().rows)


class BatchChecker:
    """
    Checks the chunks of one lane.

    Args:
        limit_bytes: most bytes a batch may unpack to.
        keys: what keys are digested under.
        record_limit_bytes: a larger record of a compressed batch is no damage, but keeps its log from being cleaned.
    """

    def __init__(
        self, limit_bytes: int, keys: Words = _NO_KEYS, record_limit_bytes: int = LARGEST_RECORD_BYTES
    ) -> None:
        self._unpacker = Unpacker(limit_bytes)
        self._keys = keys
        self._record_limit_bytes = record_limit_bytes
        self._digests = KeyDigests()

    def check(self, path: Path, chunk: Chunk, digest_from: int = NO_OFFSET) -> CheckedChunk:
        """
        Check a chunk whose batches are listed.

        Args:
            path: of its file.
            digest_from: keys of records at this offset and above are digested.
        """
        checked = CheckedChunk(chunk, np.ones(len(chunk.batches), bool))
        self._digests.clear()
        for row, failure in bad_checksums(path, chunk):
            note(path, checked, row, FindingKind.BATCH_CHECKSUM, failure.reason)
        check_headers(path, checked)
        for first, end in runs(checked.good):
            self._check_records(path, checked, first, end, digest_from)
        if self._record_limit_bytes < self._unpacker.limit_bytes:
            for first, end in runs(checked.good):
                self._check_limit(path, checked, first, end)
        checked.digests = self._digests.rows
        return checked

    def _check_records(self, path: Path, checked: CheckedChunk, first: int, end: int, digest_from: int) -> None:
        while first < end:
            part = replace(checked.chunk, batches=checked.chunk.batches[first:end], failure=None)
            found = self._first_bad(path, part, digest_from)
            if found is None:
                return
            first += found[0]
            note(path, checked, first, kind_of(found[1]), found[1].reason)
            first += 1

    def _first_bad(self, path: Path, chunk: Chunk, digest_from: int) -> tuple[int, CorruptBatchError] | None:
        """Return the first batch whose records cannot be read, and why; all batches before it were read."""
        done = 0
        try:
            for block in self._unpacker.blocks(path, chunk):
                nothing_skipped = np.zeros(len(block.batches), np.uint8)
                try:
                    self._digests.add(path, block, nothing_skipped, self._keys, digest_from)
                except CorruptBatchError as error:
                    return _row_of(chunk, error), error
                done = block.first + len(block.batches)
        except CorruptBatchError as error:
            at = _row_of(chunk, error)
            # Earlier batches of the same block were unpacked, but not checked.
            earlier = self._first_bad(path, replace(chunk, batches=chunk.batches[done:at]), digest_from)
            return (at, error) if earlier is None else (done + earlier[0], earlier[1])
        return None

    def _check_limit(self, path: Path, checked: CheckedChunk, first: int, end: int) -> None:
        """Note sound batches that cleaning refuses (R-511)."""
        while first < end:
            # A copy: unpacking changes the rows, and a refused batch ends before its large record.
            part = replace(checked.chunk, batches=checked.chunk.batches[first:end].copy(), failure=None)
            try:
                for _ in self._unpacker.blocks(path, part, record_limit_bytes=self._record_limit_bytes):
                    continue
            except RecordAboveLimitError as error:
                first += int(np.searchsorted(part.batches["position"], error.position))
                offset = int(checked.chunk.batches[first]["base_offset"])
                checked.findings.append(
                    Finding(FindingKind.UNCLEANABLE, path, error.reason, error.position, offset, is_damage=False)
                )
                first += 1
            else:
                return


def runs(flags: Mask) -> list[tuple[int, int]]:
    """Return where runs of set flags begin and end."""
    if flags.all():
        return [(0, len(flags))] if len(flags) else []
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _row_of(chunk: Chunk, error: CorruptBatchError) -> int:
    return int(np.searchsorted(chunk.batches["position"], error.position))


def kind_of(error: CorruptBatchError) -> FindingKind:
    """Return the kind of damage that keeps records from being read."""
    cause = error.__cause__
    if isinstance(cause, DecompressedTooLargeError):
        return FindingKind.BATCH_TOO_LARGE
    return FindingKind.BATCH_STREAM if isinstance(cause, DecompressionError) else FindingKind.BATCH_RECORDS


def note(path: Path, checked: CheckedChunk, row: int, kind: FindingKind, reason: str) -> None:
    """Add a finding for a batch, which then counts as damaged."""
    batch = checked.chunk.batches[row]
    checked.good[row] = False
    checked.findings.append(Finding(kind, path, reason, int(batch["position"]), int(batch["base_offset"])))


def check_headers(path: Path, checked: CheckedChunk) -> None:
    """Check what a checksum does not cover: whether a header is consistent (R-210, R-240)."""
    rows = checked.chunk.batches
    for code, bad in _header_faults(rows):
        for row in np.flatnonzero(bad & checked.good).tolist():
            reason = f"{REASONS[code]} (batch of {rows[row]['size']} bytes)"
            note(path, checked, row, FindingKind.BATCH_HEADER, reason)


def _header_faults(rows: Batches) -> list[tuple[int, Mask]]:
    is_modern = rows["magic"] == 2
    base, count = rows["base_offset"], rows["count"]
    delta = rows["last_offset"] - base
    codec = rows["attributes"] & COMPRESSION_MASK
    fitting = (rows["size"] - HEADER_BYTES) // status.SMALLEST_RECORD_BYTES
    return [
        (status.SCAN_BAD_LAST_OFFSET, (is_modern & (delta < 0)) | (base >= _MAX_LONG - np.maximum(delta, 0))),
        (status.SCAN_BAD_COUNT, is_modern & (count < 0)),
        (status.SCAN_COUNT_ABOVE_OFFSETS, is_modern & (count > delta + 1)),
        (status.SCAN_BAD_CODEC, codec > np.take(LAST_CODEC, rows["magic"])),
        (status.SCAN_COUNT_ABOVE_BYTES, is_modern & (codec == NONE) & (count > fitting)),
    ]
