"""Shows the batches of a `.log`, and their records on request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cleaner.dump.control import control_of
from cleaner.dump.dump_items import ShownBatch, ShownRecord, Viewer
from cleaner.errors import CorruptBatchError
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.chunks import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    Chunk,
)
from cleaner.format.compression import decompress
from cleaner.format.fields import FieldReader
from cleaner.format.key_digests import NO_OFFSET
from cleaner.format.layout import Layout, lay_out
from cleaner.format.legacy_checksums import legacy_checksum
from cleaner.format.parallel_reader import WindowBuffer, bad_checksums
from cleaner.format.records import Unpacker
from cleaner.kernels.batch_header import CRC_AT, LEGACY_CRC_AT, LEGACY_KEY_AT, LOG_OVERHEAD_BYTES, MAGIC, size_of
from cleaner.kernels.codec_table import CODEC_NAMES, NONE
from cleaner.storage.files.producer_snapshot import sequence_after
from cleaner.storage.fs.readable import OpenedFile
from cleaner.storage.segment.names import parse_file_name
from cleaner.verification.check.batches import CheckedChunk
from cleaner.verification.check.findings import Finding, FindingKind
from cleaner.verification.check.log_file import CheckLaneMemory, LogFileReader

_ONE_BATCH = np.zeros(1, np.uint8)


class _ChecksumChecker:
    """Checks only checksums: a dump also shows batches with other faults."""

    def check(self, path: Path, chunk: Chunk, _digest_from: int) -> CheckedChunk:
        checked = CheckedChunk(chunk, np.ones(len(chunk.batches), bool))
        for row, _ in bad_checksums(path, chunk):
            checked.good[row] = False
        return checked


@dataclass
class LogDump:
    """
    Shows one `.log`.

    Attributes:
        file: the open file.
        shown_path: its path as given.
        limit_bytes: the most a batch may unpack to.
        max_bytes: stop after the last whole batch within this many bytes; None: the whole file.
        with_records: show records too.
        viewer: called with every item.
    """

    file: OpenedFile
    shown_path: str
    limit_bytes: int
    max_bytes: int | None
    with_records: bool
    viewer: Viewer

    def __post_init__(self) -> None:
        self._unpacker = Unpacker(self.limit_bytes)
        self._next_offset = 0
        self._jumps: list[tuple[int, int]] = []

    def run(self) -> None:
        """Show the file."""
        size = self.file.size()
        self._size = size if self.max_bytes is None else min(size, self.max_bytes)
        name = parse_file_name(self.file.path.name)
        self._reader = LogFileReader(
            self.file,
            self._size,
            [CheckLaneMemory(WindowBuffer(), _ChecksumChecker())],
            base_offset=None if name is None else name.offset,
            digest_from=NO_OFFSET,
            on_chunk=self._show_chunk,
            on_gap=self._show_gap,
            check_done=lambda: None,
        )
        try:
            self._reader.run()
        finally:
            del self._reader  # breaks a reference cycle
        if self._jumps:
            lines = [f"  {before} is followed by {after}" for before, after in sorted(dict(self._jumps).items())]
            self.viewer.on_mistake(f"Non-consecutive offsets in {self.file.path.absolute()}", lines)

    def _show_gap(self, start: int, end: int) -> None:
        damage: Finding = self._reader.findings[-1]
        if end == self._size and damage.kind is not FindingKind.BATCH_CHECKSUM:
            if self.max_bytes is None:
                self.viewer.on_trailing_bytes(self.file.path.name, end - start)
            return
        self.viewer.on_damage(f"{self.shown_path}: at byte {start}: {damage.reason}")

    def _show_chunk(self, checked: CheckedChunk) -> None:
        chunk = checked.chunk
        for index, is_good in enumerate(checked.good.tolist()):
            part = replace(chunk, batches=chunk.batches[index : index + 1], failure=None)
            batch = _shown(part, is_good)
            self.viewer.on_batch(batch)
            if self.with_records:
                try:
                    for record in self._records(part, batch):
                        self._note_jump(record.offset)
                        self.viewer.on_record(record)
                except CorruptBatchError as error:
                    self.viewer.on_damage(f"{self.shown_path}: at byte {error.position}: {error.reason}")

    def _note_jump(self, offset: int) -> None:
        if offset != self._next_offset:
            self._jumps.append((self._next_offset - 1, offset))
        self._next_offset = offset + 1

    def _records(self, part: Chunk, batch: ShownBatch) -> Iterator[ShownRecord]:
        legacy = self._legacy_checksums(part, batch)
        for block in self._unpacker.blocks(self.file.path, part):
            layout = lay_out(self.file.path, block, _ONE_BATCH, -(2**63), NO_OFFSET)
            yield from _laid_out(layout, batch, legacy)

    def _legacy_checksums(self, part: Chunk, batch: ShownBatch) -> list[tuple[bool, int]]:
        """Return for each record of magic 0 or 1 whether its checksum is correct, and the checksum."""
        if batch.magic == MAGIC:
            return []
        start = int(part.batches[0]["start"])
        entry = part.data[start : start + batch.size].tobytes()
        if batch.codec == CODEC_NAMES[NONE]:
            return [legacy_checksum(entry)]
        key = FieldReader(entry[LEGACY_KEY_AT[batch.magic] :])
        key.take(max(0, key.integer(4)))
        packed = key.take(max(0, key.integer(4)))
        out = GrowingBuffer()
        codec = CODEC_NAMES.index(batch.codec)
        try:
            length = decompress(codec, batch.magic, memoryview(packed), out, 0, self.limit_bytes)
        except ValueError as error:
            raise CorruptBatchError(self.file.path, batch.position, str(error)) from error
        found, inner = [], FieldReader(out.view[:length].tobytes())
        while inner.left:
            head = inner.take(LOG_OVERHEAD_BYTES)
            found.append(legacy_checksum(head + inner.take(size_of(head) - len(head))))
        return found


def _shown(part: Chunk, is_valid: bool) -> ShownBatch:
    row = {name: int(part.batches[name][0]) for name in part.batches.dtype.names or ()}
    attributes, magic = row["attributes"], row["magic"]
    at = row["start"] + (CRC_AT if magic == MAGIC else LEGACY_CRC_AT)
    codec = attributes & COMPRESSION_MASK
    timestamp_type = "LogAppendTime" if attributes & TIMESTAMP_TYPE_FLAG else "CreateTime"
    return ShownBatch(
        base_offset=row["base_offset"],
        last_offset=row["last_offset"],
        count=row["count"],
        base_sequence=row["base_sequence"],
        last_sequence=sequence_after(row["base_sequence"], row["last_offset"] - row["base_offset"]),
        producer_id=row["producer_id"],
        producer_epoch=row["producer_epoch"],
        leader_epoch=row["leader_epoch"],
        is_transactional=magic == MAGIC and bool(attributes & TRANSACTIONAL_FLAG),
        is_control=magic == MAGIC and bool(attributes & CONTROL_FLAG),
        delete_horizon_ms=row["base_timestamp"] if magic == MAGIC and attributes & DELETE_HORIZON_FLAG else None,
        position=row["position"],
        timestamp_type=timestamp_type if magic else "NoTimestampType",
        max_timestamp=row["max_timestamp"],
        size=row["size"],
        magic=magic,
        codec=CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else f"unknown({codec})",
        crc=int.from_bytes(part.data[at : at + 4].tobytes(), "big"),
        is_valid=is_valid,
    )


def _laid_out(layout: Layout, batch: ShownBatch, legacy: Sequence[tuple[bool, int]]) -> Iterator[ShownRecord]:
    if not len(layout):  # a batch kept without records, for its producer or for the log's end
        return
    data = layout.data.data
    starts = [column.tolist() for column in (layout.key_starts, layout.value_starts, layout.header_starts)]
    sizes = [column.tolist() for column in (layout.key_sizes, layout.value_sizes)]
    # A record's headers end where the next record's key begins.
    ends = [*starts[0][1:], len(data)]
    base_sequence, base_offset = batch.base_sequence, batch.base_offset
    rows = zip(layout.offsets.tolist(), layout.timestamps_ms.tolist(), *starts, *sizes, ends, strict=True)
    for number, row in enumerate(rows):
        offset, timestamp, key_start, value_start, header_start, key_size, value_size, end = row
        key = None if key_size < 0 else bytes(data[key_start : key_start + key_size])
        value = None if value_size < 0 else bytes(data[value_start : value_start + value_size])
        yield ShownRecord(
            batch,
            offset,
            timestamp,
            key,
            value,
            -1 if base_sequence < 0 else sequence_after(base_sequence, offset - base_offset),
            () if data[header_start] == 0 else _header_names(bytes(data[header_start:end])),
            legacy[number] if number < len(legacy) else None,
            control_of(key, value) if batch.is_control else None,
        )


def _header_names(data: bytes) -> tuple[str, ...]:
    read, found = FieldReader(data), []
    for _ in range(read.zigzag()):
        found.append(read.take(read.zigzag()).decode("utf-8", "replace"))
        read.take(max(0, read.zigzag()))
    return tuple(found)
