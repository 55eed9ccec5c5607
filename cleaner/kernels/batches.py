"""Finds and checks the record batches in a chunk of a `.log` file."""

from __future__ import annotations

from numba import int8, int16, int32, int64

from cleaner.kernels import batch_header as header
from cleaner.kernels.batch_header import HEADER_BYTES
from cleaner.kernels.codec_table import LAST_CODEC
from cleaner.kernels.compile import inlined_jit, jit
from cleaner.kernels.crc32c import crc32c_range
from cleaner.kernels.memory import load_u16_be, load_u32_be, load_u64_be
from cleaner.kernels.scan_status import (
    KIND_LEGACY,
    KIND_PRODUCER,
    SCAN_BAD_CODEC,
    SCAN_BAD_COUNT,
    SCAN_BAD_CRC,
    SCAN_BAD_LAST_OFFSET,
    SCAN_BAD_MAGIC,
    SCAN_COUNT_ABOVE_BYTES,
    SCAN_COUNT_ABOVE_OFFSETS,
    SCAN_END,
    SCAN_OUT_OF_ORDER,
    SCAN_TABLE_FULL,
    SCAN_TOO_SHORT,
    SMALLEST_RECORD_BYTES,
)

__all__ = [
    "SCAN_END",
    "SCAN_TABLE_FULL",
    "SMALLEST_RECORD_BYTES",
    "count_good_checksums",
    "count_records",
    "scan_batches",
]

_NO_CHECK = -(2**63)
_MAX_LONG = 2**63 - 1


@inlined_jit
def _read_header(data, at, row):
    """Copy the fields of a header of magic 2 to the row."""
    row.leader_epoch = int64(int32(load_u32_be(data, at + header.LEADER_EPOCH_AT)))
    row.attributes = int64(data[at + header.ATTRIBUTES_BYTE_AT])
    row.last_offset = row.base_offset + int64(int32(load_u32_be(data, at + header.LAST_OFFSET_DELTA_AT)))
    row.base_timestamp = int64(load_u64_be(data, at + header.BASE_TIMESTAMP_AT))
    row.max_timestamp = int64(load_u64_be(data, at + header.MAX_TIMESTAMP_AT))
    row.producer_id = int64(load_u64_be(data, at + header.PRODUCER_ID_AT))
    row.producer_epoch = int64(int16(load_u16_be(data, at + header.PRODUCER_EPOCH_AT)))
    row.base_sequence = int64(int32(load_u32_be(data, at + header.BASE_SEQUENCE_AT)))
    row.count = int64(int32(load_u32_be(data, at + header.COUNT_AT)))


@inlined_jit
def _check_header(data, at, row):
    """Make the checks that Kafka makes only when it reads records. Returns SCAN_END for a valid header."""
    last_delta = int64(int32(load_u32_be(data, at + header.LAST_OFFSET_DELTA_AT)))
    # Not "last < base": signed sums are compiled as if they never overflowed.
    # The offset after the last one must be valid too.
    if last_delta < 0 or row.base_offset >= _MAX_LONG - last_delta:
        return SCAN_BAD_LAST_OFFSET
    if row.count < 0:
        return SCAN_BAD_COUNT
    if row.count > last_delta + 1:
        return SCAN_COUNT_ABOVE_OFFSETS
    codec = row.attributes & header.COMPRESSION_MASK
    if codec > LAST_CODEC[2]:
        return SCAN_BAD_CODEC
    if codec == 0 and row.count > (row.size - HEADER_BYTES) // SMALLEST_RECORD_BYTES:
        return SCAN_COUNT_ABOVE_BYTES
    return SCAN_END


@inlined_jit
def _read_legacy_header(data, at, row, strict):
    """
    Copy the fields of an entry of magic 0 or 1 to the row. Returns SCAN_END for a valid one.

    Its checksum is a CRC-32, which `format/batch.py` checks.
    """
    row.leader_epoch = -1
    row.attributes = int64(data[at + header.LEGACY_ATTRIBUTES_AT])
    row.last_offset = row.base_offset
    row.base_timestamp = -1
    row.max_timestamp = -1
    row.producer_id = -1
    row.producer_epoch = -1
    row.base_sequence = -1
    row.count = -1
    if row.magic == 1:
        if row.size < header.MIN_BATCH_BYTES[1]:
            return SCAN_TOO_SHORT
        row.max_timestamp = int64(load_u64_be(data, at + header.LEGACY_TIMESTAMP_AT))
        row.base_timestamp = row.max_timestamp
    if strict and row.base_offset == _MAX_LONG:
        return SCAN_BAD_LAST_OFFSET
    if strict and row.attributes & header.COMPRESSION_MASK > LAST_CODEC[1]:
        return SCAN_BAD_CODEC
    return SCAN_END


@inlined_jit
def _checksum_fits(data, at, size):
    return load_u32_be(data, at + header.CRC_AT) == crc32c_range(data, at + header.CRC_FROM, at + size)


@jit
def scan_batches(data, length, file_position, previous_offset, verify_all, batches):
    """
    List the whole batches at the beginning of a chunk.

    Args:
        data: uint8 array, padded; `data[:length]` starts at a batch.
        file_position: byte position of `data[0]` in its file.
        previous_offset: last offset before the chunk, to check that offsets ascend and headers are valid;
            -2**63 leaves out all checks that Kafka's recovery does not make.
        verify_all: False leaves checksums to `count_good_checksums`, except for control batches and batches with an
            invalid header, so that damage is reported as a bad checksum.
        batches: array of BATCH_DTYPE to fill.
    Returns:
        (batches listed, bytes they cover, SCAN_ status, size in bytes of the batch that stopped the scan or 0, their
        KIND_ bits and attributes joined by OR).
    """
    strict = previous_offset != _NO_CHECK
    at = int64(0)
    count = 0
    kinds = int64(0)
    while length - at >= header.HEAD_BYTES:
        size = int64(int32(load_u32_be(data, at + header.LENGTH_AT))) + header.LOG_OVERHEAD_BYTES
        if size < header.MIN_BATCH_BYTES[0]:
            return count, at, SCAN_TOO_SHORT, size, kinds
        magic = int64(int8(data[at + header.MAGIC_AT]))
        if magic < 0 or magic > 2:
            return count, at, SCAN_BAD_MAGIC, size, kinds
        if magic == 2 and size < HEADER_BYTES:
            return count, at, SCAN_TOO_SHORT, size, kinds
        if size > length - at:
            return count, at, SCAN_END, size, kinds
        if count == batches.size:
            return count, at, SCAN_TABLE_FULL, size, kinds
        row = batches[count]
        row.position = file_position + at
        row.start = at
        row.size = size
        row.magic = magic
        row.base_offset = int64(load_u64_be(data, at + header.BASE_OFFSET_AT))
        row.body_start = at + HEADER_BYTES
        row.body_end = at + size
        row.unpacked = 0
        if magic == 2:
            _read_header(data, at, row)
            status = _check_header(data, at, row) if strict else SCAN_END
        else:
            status = _read_legacy_header(data, at, row, strict)
        if strict and status == SCAN_END and row.base_offset <= previous_offset:
            status = SCAN_OUT_OF_ORDER
        is_wanted = magic == 2 and (verify_all or status != SCAN_END or row.attributes & header.CONTROL_FLAG != 0)
        if is_wanted and not _checksum_fits(data, at, size):
            return count, at, SCAN_BAD_CRC, size, kinds
        if status != SCAN_END:
            return count, at, status, size, kinds
        if strict:
            previous_offset = row.last_offset
        kinds |= row.attributes
        if magic < 2:
            kinds |= KIND_LEGACY
        if row.producer_id >= 0:
            kinds |= KIND_PRODUCER
        at += size
        count += 1
    size = int64(0)
    if length - at >= header.LOG_OVERHEAD_BYTES:
        size = int64(int32(load_u32_be(data, at + header.LENGTH_AT))) + header.LOG_OVERHEAD_BYTES
        if size < header.MIN_BATCH_BYTES[0]:
            return count, at, SCAN_TOO_SHORT, size, kinds
    return count, at, SCAN_END, size, kinds


@jit
def count_good_checksums(data, batches):
    """Return how many batches at the beginning of a chunk fit their CRC-32C; those of magic 0 and 1 have none."""
    for b in range(batches.size):
        row = batches[b]
        if row.magic == 2 and not _checksum_fits(data, row.start, row.size):
            return b
    return batches.size


@jit
def count_records(batches, unread):
    """
    Return the number of records in the batches that are read (`unread` is 0), limited to what their bytes can hold.

    It sizes arrays. If headers were not checked, a count may be anything: a negative one would take room from other
    batches, and one of billions would need more memory than there is.
    """
    total = int64(0)
    for b in range(batches.size):
        row = batches[b]
        if not unread[b]:
            most = max(row.body_end - row.body_start, int64(0)) // SMALLEST_RECORD_BYTES
            total += min(max(row.count, int64(0)), most)
    return total
