"""
Packs the batches that stay with another codec, and joins small ones (`--recompress`, D-18).

It stands between the recopy and the new segment, and sees the batches that a round keeps, in their order: what it makes
of them depends on nothing else, such as the sizes of chunks. Adjacent batches that need no bounds of their own
(`kernels/join.py`) form a run, as long as their unpacked records fit the limit; a run becomes one batch. Every other
batch with records is a run of its own: its header stays, except for the codec. Markers, batches without records and
those of magic 0 and 1 stay as they are.

What a run becomes:

    its original batches   if they have the codec already, or none, and the packed batch would not be smaller; if it is
                           one batch of the codec, and no level is asked for; if the packed batch would exceed both the
                           limit and the original; if the segment would grow beyond what Kafka can address
    one batch              otherwise; uncompressed where packing makes it no smaller

So a second time nothing changes. What was packed is unpacked again and compared before it counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.cleaning.recopy.retained import Output
from cleaner.config.forms import Recompression
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.chunks import (
    ANY_KIND,
    BATCH_DTYPE,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER_BYTES,
    NO_ORDER_CHECK,
    Chunk,
    Flags,
)
from cleaner.format.compression import compress, decompress
from cleaner.format.records import Block, Unpacker, bad_record
from cleaner.kernels import batches as batch_kernel
from cleaner.kernels import join as kernel
from cleaner.kernels.batch_header import MAGIC
from cleaner.kernels.codec_table import CODEC_NAMES, NONE
from cleaner.kernels.memory import equal_bytes
from cleaner.storage.segment.index_builder import WRITTEN_DTYPE

_MAX_FILE_BYTES = 2**31 - 1  # Kafka's file positions are 32 bits


@dataclass
class RecompressCounts:
    """
    What was packed so far.

    Attributes:
        batches_packed: batches that were written with another codec, level or in a joined batch.
        batches_joined: of these, those that became part of another one: so many fewer there are.
        packed_bytes_before, packed_bytes_after: of all these batches.
    """

    batches_packed: int = 0
    batches_joined: int = 0
    packed_bytes_before: int = 0
    packed_bytes_after: int = 0


@dataclass(frozen=True)
class Packed:
    """
    Batches to write next, borrowed until the next call.

    Attributes:
        data, written, largest_offset: as in `Output`.
        is_equal: they are the next ones of the source, byte for byte.
    """

    data: memoryview
    written: npt.NDArray[np.void]
    largest_offset: int
    is_equal: bool


class Recompressor:
    """
    Packs the output of one group after the other. Call in the order of the batches, from one thread at a time.

    Args:
        target: codec and level.
        limit_bytes: `max.message.bytes`: of a joined batch, header and unpacked records.
        batch_limit_bytes: most bytes one batch may unpack to.
    Attributes:
        counts: of all groups so far.
    """

    def __init__(self, target: Recompression, limit_bytes: int, batch_limit_bytes: int) -> None:
        self.counts = RecompressCounts()
        self._target, self._limit_bytes = target, limit_bytes
        self._unpacker = Unpacker(batch_limit_bytes)
        self._raw, self._originals, self._packed, self._check = (GrowingBuffer() for _ in range(4))
        self._out = GrowingBuffer(1 << 20)
        self._run = np.zeros(kernel.RUN_CELLS, np.int64)
        self._run_written: list[npt.NDArray[np.void]] = []
        self._room = 0
        self._begin_output()
        self._run_is_equal = True

    def begin(self, source_bytes: int) -> None:
        """Begin a group whose segments have so many bytes."""
        self._room = max(0, _MAX_FILE_BYTES - source_bytes)
        self._run[:] = 0
        self._run_written = []

    def add(self, path: Path, output: Output, *, is_equal: bool) -> Packed:
        """
        Take the next batches of the group; returns those that are complete.

        Args:
            path: of their source, for errors.
            output: the batches.
            is_equal: they are the next ones of the source.
        Raises:
            CorruptBatchError: a batch cannot be read.
        """
        self._begin_output()
        size, count = len(output.data), len(output.written)
        rows = np.zeros(count, BATCH_DTYPE)
        found, covered, *_ = batch_kernel.scan_batches(output.array, size, 0, NO_ORDER_CHECK, False, rows)
        if (int(found), int(covered)) != (count, size):
            raise RuntimeError(f"{count} batches of {size} bytes were written, {found} of {covered} found")
        chunk = Chunk(output.array, size, 0, rows, ANY_KIND)
        copied = self._copied(chunk)
        for block in self._unpacker.blocks(path, chunk, copied != 0):
            mine = slice(block.first, block.first + len(block.batches))
            self._take(path, block, copied[mine], output.written[mine], is_equal)
        return self._end_output()

    def end(self) -> Packed:
        """Return the last batches of the group."""
        self._begin_output()
        self._close()
        return self._end_output()

    def _copied(self, chunk: Chunk) -> Flags:
        """Return which batches stay as they are whatever their records."""
        rows, target = chunk.batches, self._target
        attributes = rows["attributes"]
        copied = (rows["magic"] != MAGIC) | (rows["count"] <= 0) | (attributes & CONTROL_FLAG != 0)
        settled = attributes & COMPRESSION_MASK == target.codec
        if target.level is None and settled.any():
            # A batch that cannot be joined, and has the codec, need not even be unpacked.
            bound = np.zeros(len(rows), np.uint8)
            kernel.find_bound(chunk.data, rows, bound)
            copied |= settled & (bound != 0)
        flags: Flags = copied.astype(np.uint8)
        return flags

    def _take(self, path: Path, block: Block, copied: Flags, written: npt.NDArray[np.void], is_equal: bool) -> None:
        """Put the batches of a block into runs, and close those that are complete."""
        rows, first = block.batches, 0
        uncopied = np.append(np.flatnonzero(copied == 0), len(rows))
        while True:
            index, status = kernel.take_batches(
                block.data,
                block.unpacked,
                rows,
                copied,
                first,
                self._limit_bytes,
                self._raw.array,
                self._raw.capacity,
                self._originals.array,
                self._originals.capacity,
                self._run,
            )
            index = int(index)
            if index > first:
                self._run_is_equal = is_equal and (self._run_is_equal or not self._run_written)
                self._run_written.append(written[first:index].copy())
            first = index
            if status == kernel.TAKE_DONE:
                return
            if status == kernel.TAKE_CLOSE:
                self._close()
            elif status == kernel.TAKE_COPY:
                end = int(uncopied[np.searchsorted(uncopied, first)])
                data = block.data.data[int(rows[first]["start"]) : int(rows[end - 1]["start"] + rows[end - 1]["size"])]
                self._put(data, written[first:end], is_equal=is_equal)
                first = end
            elif status == kernel.TAKE_FULL:
                self._make_room(rows[first])
            else:
                at, reason = int(self._run[kernel.RUN_BAD_AT]), int(self._run[kernel.RUN_BAD_STATUS])
                raise bad_record(path, rows[first], reason, at)

    def _make_room(self, row: np.void) -> None:
        """Make room for a batch in the buffers of the run."""
        raw, originals = int(self._run[kernel.RUN_END]), int(self._run[kernel.RUN_ORIGINAL_BYTES])
        before = self._raw.capacity, self._originals.capacity
        most = int(row["body_end"] - row["body_start"]) + int(row["count"]) * kernel.GROWTH_PER_RECORD + HEADER_BYTES
        if not self._run[kernel.RUN_BATCHES]:
            raw = originals = 0
        self._raw.ensure(raw + most, keep=raw)
        self._originals.ensure(originals + int(row["size"]), keep=originals)
        # Calling again would loop forever.
        if (self._raw.capacity, self._originals.capacity) == before:
            raise RuntimeError("a batch needs more room than its records can take")

    def _close(self) -> None:
        """Write the open run, if there is one."""
        run, batches = self._run, int(self._run[kernel.RUN_BATCHES])
        if not batches:
            return
        original_bytes = int(run[kernel.RUN_ORIGINAL_BYTES])
        size = self._pack(batches, original_bytes)
        if size is None:
            written = np.concatenate(self._run_written)
            self._put(self._originals.view[:original_bytes], written, is_equal=self._run_is_equal)
        else:
            written = np.zeros(1, WRITTEN_DTYPE)
            written[0] = (size, run[kernel.RUN_LAST_OFFSET], run[kernel.RUN_MAX_TIMESTAMP])
            self._put(self._packed.view[:size], written, is_equal=False)
            self._room -= max(0, size - original_bytes)
            counts = self.counts
            counts.batches_packed += batches
            counts.batches_joined += batches - 1
            counts.packed_bytes_before += original_bytes
            counts.packed_bytes_after += size
        run[:] = 0
        self._run_written = []
        self._raw.shrink(2 * self._limit_bytes)
        self._originals.shrink(2 * self._limit_bytes)

    def _pack(self, batches: int, original_bytes: int) -> int | None:
        """Make one batch of the run in `_packed`; returns its size, None if the original batches stay."""
        run, target = self._run, self._target
        own, codecs = 1 << target.codec, int(run[kernel.RUN_CODECS])
        if batches == 1 and codecs == own and (target.level is None or target.codec == NONE):
            return None
        end = int(run[kernel.RUN_END])
        codec, size = NONE, end
        self._packed.ensure(end)
        if target.codec != NONE:
            packed = self._pack_records(end)
            if packed < end:
                codec, size = target.codec, packed
        stays_readable = not codecs & ~(own | 1 << NONE)
        if stays_readable and target.codec != NONE and size >= original_bytes:
            return None
        if size > max(self._limit_bytes, original_bytes) or size - original_bytes > self._room:
            return None
        head = HEADER_BYTES if codec != NONE else size
        self._packed.view[:head] = self._raw.view[:head]
        kernel.seal_run(self._packed.array, 0, size, codec, run)
        return size

    def _pack_records(self, end: int) -> int:
        """Pack the records of the run; returns the size of the batch, with the room for its header."""
        codec = self._target.codec
        records = self._raw.view[HEADER_BYTES:end]
        size = HEADER_BYTES + compress(codec, records, self._packed, HEADER_BYTES, self._target.level)
        # A wrong codec must show as long as the records are there: afterwards checksums are right.
        self._check.ensure(len(records))
        packed = self._packed.view[HEADER_BYTES:size]
        found = decompress(codec, MAGIC, packed, self._check, 0, max(1, len(records)))
        if found != len(records) or not equal_bytes(self._check.array, self._raw.array[HEADER_BYTES:], found):
            raise RuntimeError(f"{CODEC_NAMES[codec]} does not unpack to what was packed")
        self._check.shrink(2 * self._limit_bytes)
        return size

    def _begin_output(self) -> None:
        self._filled, self._is_equal, self._largest_offset = 0, True, -1
        self._written: list[npt.NDArray[np.void]] = []

    def _put(self, data: memoryview, written: npt.NDArray[np.void], *, is_equal: bool) -> None:
        end = self._filled + len(data)
        self._out.ensure(end, keep=self._filled)
        self._out.view[self._filled : end] = data
        self._filled = end
        self._written.append(written.copy())
        self._is_equal &= is_equal
        self._largest_offset = max(self._largest_offset, int(written["last_offset"].max(initial=-1)))

    def _end_output(self) -> Packed:
        written = np.concatenate(self._written) if self._written else np.zeros(0, WRITTEN_DTYPE)
        return Packed(self._out.view[: self._filled], written, self._largest_offset, self._is_equal)
