"""
Prepares the records of a chunk's batches for the kernels: unpacks compressed batches, converts old formats.

An uncompressed batch of magic 2 is used in place. Everything else goes through one reusable buffer, some batches at a
time, so that memory stays bounded however well a chunk was compressed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.errors import CorruptBatchError, RecordAboveLimitError
from cleaner.format.batch import COMPRESSION_MASK, HEADER_BYTES, Batches, Bytes, Chunk
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.chunks import Flags, Mask
from cleaner.format.codec_errors import InnerEntryTooLargeError
from cleaner.format.compression import decompress
from cleaner.format.legacy import convert_legacy
from cleaner.format.zstd_frame import kernel_cells
from cleaner.kernels import batches as batch_kernel
from cleaner.kernels import codecs as kernel
from cleaner.kernels import inflate
from cleaner.kernels import records as record_kernel
from cleaner.kernels.codec_table import GZIP, KERNEL_CODECS, NONE
from cleaner.kernels.scan_status import KIND_LEGACY, LARGEST_RECORD_BYTES, SMALLEST_RECORD_BYTES

_USUAL_BYTES = 1 << 20  # unpacked at a time, unless one batch is larger

_REASONS = {
    record_kernel.RECORD_BAD_LENGTH: "its length does not fit the batch",
    record_kernel.RECORD_BAD_VARINT: "a varint that is too long or cut off",
    record_kernel.RECORD_BAD_KEY: "its key does not fit the record",
    record_kernel.RECORD_BAD_VALUE: "its value does not fit the record",
    record_kernel.RECORD_BAD_HEADERS: "its headers do not fit the record",
    record_kernel.RECORD_BAD_END: "it does not end where its length says",
    record_kernel.RECORD_BAD_OFFSET: "its offset does not ascend or lies beyond its batch",
    record_kernel.RECORD_LEFT_OVER: "bytes are left after the batch's last record",
    record_kernel.RECORD_MISSING: "the batch ends before its last record",
}


@dataclass(frozen=True)
class Block:
    """
    Some adjacent batches whose records can be read; valid until the unpacker's next step.

    Attributes:
        data, unpacked: uint8 arrays; `row["unpacked"]` tells which of them holds a batch's records.
        batches: rows of BATCH_DTYPE, a part of the chunk's.
        first: index of the first one in the chunk.
    """

    data: Bytes
    unpacked: Bytes
    batches: Batches
    first: int

    def record_count(self, unread: npt.NDArray[np.uint8]) -> int:
        """
        Return the number of records in the batches that are read (`unread` is 0), limited to what their bytes can hold.

        The counts of the other batches are not checked against their bytes.
        """
        return int(batch_kernel.count_records(self.batches, unread))


def bad_record(path: Path, row: np.void, status: int, record_position: int) -> CorruptBatchError:
    """Return the error for a damaged record, with its batch and its position in the batch's records."""
    where = f"in the record {record_position} bytes into its {'unpacked ' if row['unpacked'] else ''}records: "
    return CorruptBatchError(path, int(row["position"]), where + _REASONS[status])


def above_limit(path: Path, position: int, record_position: int, size: int, limit_bytes: int) -> RecordAboveLimitError:
    """Return the error for a compressed batch with a record larger than cleaning allows (R-511, R-560)."""
    reason = (
        f"a compressed record of {size} bytes, {record_position} bytes into its unpacked batch, is above "
        f"max.decompressed.message.bytes={limit_bytes}; Kafka 4.4 refuses it, too: raise the limit for the topic"
    )
    return RecordAboveLimitError(path, position, reason)


def leave_out(batches: Batches, unwanted: Mask | Flags, error: CorruptBatchError) -> int:
    """
    Mark the batch whose records cannot be read as unwanted, for a reader that tries the rest again; returns its row.

    Args:
        batches: of the chunk that was read.
        unwanted: bool or uint8, a flag for each; set for the row.
        error: of the read.
    Raises:
        CorruptBatchError: `error` itself, if no batch is at its position, or that batch was already unwanted: reading
            again would give the same error forever.
    """
    rows = np.flatnonzero(batches["position"] == error.position)
    if not len(rows) or unwanted[rows[0]]:
        raise error
    unwanted[rows[0]] = True
    return int(rows[0])


class Unpacker:
    """
    Makes the records of batches readable, block by block.

    Args:
        limit_bytes: most bytes one batch may unpack to; a batch above it is damage or an attack.

    Attributes:
        limit_bytes: as given.
        library_calls: number of batches that a library, not a kernel, has unpacked so far.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.library_calls = 0
        self._buffer = GrowingBuffer()
        self._scratch = GrowingBuffer()
        self._work = inflate.new_work()

    def blocks(
        self,
        path: Path,
        chunk: Chunk,
        unwanted: npt.NDArray[np.bool_] | None = None,
        record_limit_bytes: int = LARGEST_RECORD_BYTES,
    ) -> Iterator[Block]:
        """
        Yield a chunk's batches in blocks, in order, all of them.

        Args:
            path: the chunk's file, for errors.
            chunk: rows of magic 0 and 1 are replaced by those of the converted magic-2 batch.
            unwanted: batches whose records will not be read; those of magic 0 and 1 are read anyway, to find the base
                offset, but if such a batch cannot be read, its row keeps the values of the header.
            record_limit_bytes: the largest record that a wanted compressed batch may have; only cleaning sets it.
        Raises:
            CorruptBatchError: a wanted batch that cannot be unpacked, or would exceed the limit.
            RecordAboveLimitError: a record above `record_limit_bytes`. All records before it were in blocks, except
                those of the same batch of magic 0 or 1, which Kafka reads as a whole (R-241).
        """
        batches = chunk.batches
        if not chunk.kinds & (COMPRESSION_MASK | KIND_LEGACY):
            yield Block(chunk.data, self._buffer.array, batches, 0)
            return
        codecs = batches["attributes"] & COMPRESSION_MASK
        packed = (codecs != NONE) & (batches["count"] > 0)
        if unwanted is not None:
            packed &= ~unwanted
        packed |= batches["magic"] < 2
        is_small = (codecs == GZIP) & (batches["size"] <= HEADER_BYTES + inflate.MOST_PACKED_BYTES)
        by_kernel = (batches["magic"] == 2) & ((KERNEL_CODECS >> codecs & 1 == 1) | is_small)
        ways = np.zeros(len(batches), np.uint8)
        ways[packed] = kernel.BY_CALLER
        ways[packed & by_kernel] = kernel.BY_KERNEL
        if packed.any():
            # In one step: growing gradually would copy, and have the system clear, as much again.
            self._buffer.ensure(2 * _USUAL_BYTES)
        first = 0
        while True:
            end = self._unpack_from(path, chunk, ways, first, unwanted, record_limit_bytes)
            refused = None
            if record_limit_bytes < self.limit_bytes:  # else no batch can be large enough
                end, refused = self._cut_at_limit(path, batches, first, end, record_limit_bytes)
            yield Block(chunk.data, self._buffer.array, batches[first:end], first)
            if refused is not None:
                raise refused
            if end == len(batches):
                break
            first = end
        self.shrink()

    def shrink(self) -> None:
        """Shrink to the usual size after batches that unpacked to a lot."""
        self._buffer.shrink(2 * _USUAL_BYTES)
        self._scratch.shrink(_USUAL_BYTES)

    @property
    def arrays(self) -> tuple[Bytes, ...]:
        """Its memory, valid until the next step."""
        return self._buffer.array, self._scratch.array

    def _unpack_from(
        self,
        path: Path,
        chunk: Chunk,
        ways: npt.NDArray[np.uint8],
        first: int,
        unwanted: npt.NDArray[np.bool_] | None,
        record_limit_bytes: int,
    ) -> int:
        """Unpack batches from `first` on; returns where the block ends: before a batch that raises, if it can."""
        index, used = first, 0
        while True:
            index, used = self._unpack_with_kernel(chunk, ways, index, used)
            if index == len(ways) or used >= _USUAL_BYTES:
                return index
            while True:
                is_unwanted = unwanted is not None and bool(unwanted[index])
                limit_bytes = LARGEST_RECORD_BYTES if is_unwanted else record_limit_bytes
                try:
                    used += self._unpack(path, chunk.data, chunk.batches[index], used, limit_bytes)
                except (CorruptBatchError, RecordAboveLimitError):
                    if not is_unwanted:
                        # The batches before it count. They may have an earlier error, or fill the map.
                        if index > first:
                            return index
                        raise
                    chunk.batches[index]["count"] = 0
                self.library_calls += 1
                index += 1
                # The kernel would only refuse it.
                if index == len(ways) or used >= _USUAL_BYTES or ways[index] != kernel.BY_CALLER:
                    break

    def _unpack_with_kernel(self, chunk: Chunk, ways: npt.NDArray[np.uint8], first: int, used: int) -> tuple[int, int]:
        """Unpack with the kernel from `first` on, as far as it can; returns where it stopped, and the bytes used."""
        index, used = kernel.unpack_batches(
            chunk.data,
            chunk.batches,
            ways,
            first,
            self._buffer.array,
            self._buffer.capacity,
            used,
            _USUAL_BYTES,
            self.limit_bytes,
            self._work,
            kernel_cells(),
        )
        return int(index), int(used)

    def _cut_at_limit(
        self, path: Path, batches: Batches, first: int, end: int, limit_bytes: int
    ) -> tuple[int, RecordAboveLimitError | None]:
        """End a block before its first record above the limit; returns the number of batches, and the error if any."""
        index, ordinal, at, size = record_kernel.find_record_above(self._buffer.array, batches[first:end], limit_bytes)
        if index < 0:
            return end, None
        row = batches[first + int(index)]
        error = above_limit(path, int(row["position"]), int(at - row["body_start"]), int(size), limit_bytes)
        row["count"], row["body_end"] = ordinal, at
        return first + int(index) + 1, error

    def _unpack(self, path: Path, data: Bytes, row: np.void, at: int, record_limit_bytes: int) -> int:
        start, size = int(row["start"]), int(row["size"])
        try:
            if row["magic"] < 2:
                return self._convert(data[start : start + size].data, row, at, record_limit_bytes)
            codec = int(row["attributes"]) & COMPRESSION_MASK
            source = data.data[start + HEADER_BYTES : start + size]
            length = decompress(codec, 2, source, self._buffer, at, self.limit_bytes)
        except InnerEntryTooLargeError as error:
            raise above_limit(path, int(row["position"]), error.position, error.size, record_limit_bytes) from error
        except ValueError as error:
            raise CorruptBatchError(path, int(row["position"]), str(error)) from error
        if int(row["count"]) * SMALLEST_RECORD_BYTES > length:
            reason = f"{row['count']} records in {length} unpacked bytes, which cannot hold as many"
            raise CorruptBatchError(path, int(row["position"]), reason)
        row["body_start"], row["body_end"], row["unpacked"] = at, at + length, 1
        return length

    def _convert(self, entry: memoryview, row: np.void, at: int, record_limit_bytes: int) -> int:
        batch = convert_legacy(entry, self._buffer, at, self.limit_bytes, self._scratch, record_limit_bytes)
        row["base_offset"], row["last_offset"] = batch.base_offset, batch.last_offset
        row["base_timestamp"], row["max_timestamp"] = batch.base_timestamp, batch.max_timestamp
        row["attributes"] = batch.codec | (batch.timestamp_type << 3)
        row["count"] = batch.count
        row["body_start"], row["body_end"], row["unpacked"] = at, at + batch.length, 1
        return batch.length
