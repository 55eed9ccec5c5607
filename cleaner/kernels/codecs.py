"""
Kafka's framings of lz4 and snappy (R-251, R-252), and unpacking the records of many batches in one call.

`format/lz4_frame.py` and `format/compression.py` describe these framings. A kernel accepts only sound streams; it
leaves all others to those modules, which find the reason (or an oddity that Kafka accepts).
"""

from __future__ import annotations

from numba import int64, uint64

from cleaner.kernels import inflate, lz4, snappy, zstd
from cleaner.kernels.batch_header import COMPRESSION_MASK, HEADER_BYTES
from cleaner.kernels.codec_table import GZIP, LZ4, ZSTD
from cleaner.kernels.compile import jit
from cleaner.kernels.memory import copy_bytes, load_u32_be, load_u64_be, load_u64_le, store_u32_be, store_u64_be
from cleaner.kernels.scan_status import SMALLEST_RECORD_BYTES
from cleaner.kernels.xxhash32 import xxhash32_range

BAD_STREAM = -1

# Who unpacks a batch.
NOT_PACKED = 0
BY_KERNEL = 1  # of magic 2, with snappy, lz4 or zstd, or a little in gzip
BY_CALLER = 2

TABLE_WORDS = 1 << max(lz4.TABLE_BITS, snappy.TABLE_BITS)

_LZ4_MAGIC_AND_HEADER = 0x04224D18_604082  # version 1, independent blocks of 64 KiB, and the check byte of that
_LZ4_MAGIC = 0x04224D18
_LZ4_HEADER_BYTES = 7
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 1 << 31
_LZ4_CONTENT_CHECKSUM, _LZ4_CONTENT_SIZE, _LZ4_BLOCK_CHECKSUM = 0x04, 0x08, 0x10
_LZ4_FIXED_FLAGS, _LZ4_FIXED_VALUES = 0xE3, 0x60  # version 1, independent blocks, nothing reserved
_LARGEST_RATIO = 255  # of lz4

_XERIAL_MAGIC = 0x82534E41505059_00
_XERIAL_VERSIONS = 0x00000001_00000001
_XERIAL_HEADER_BYTES = 16
_XERIAL_CHUNK_BYTES = 32 * 1024
_SNAPPY_LARGEST_RATIO = 64


@jit
def max_packed_bytes(size):
    """Return the room that `pack_stream` needs for `size` bytes."""
    return size + size // 6 + 40 * (size // _XERIAL_CHUNK_BYTES + 1) + _XERIAL_HEADER_BYTES


@jit
def _store_u32_le(target, at, value):
    for i in range(4):
        target[at + i] = value >> (8 * i) & 255


@jit
def _pack_lz4(data, start, end, table, target, at):
    store_u64_be(target, at, uint64(_LZ4_MAGIC_AND_HEADER << 8))
    at += _LZ4_HEADER_BYTES
    while start < end:
        stop = min(start + _LZ4_BLOCK_BYTES, end)
        size = stop - start
        length = lz4.compress_block(data, start, stop, table[: 1 << lz4.TABLE_BITS], target, at + 4) - at - 4
        if length < size:
            _store_u32_le(target, at, length)
        else:
            length = size
            _store_u32_le(target, at, length | _LZ4_STORED)
            copy_bytes(target, at + 4, data, start, length)
        at += 4 + length
        start = stop
    _store_u32_le(target, at, int64(0))
    return at + 4


@jit
def _pack_snappy(data, start, end, table, target, at):
    store_u64_be(target, at, uint64(_XERIAL_MAGIC))
    store_u64_be(target, at + 8, uint64(_XERIAL_VERSIONS))
    at += _XERIAL_HEADER_BYTES
    while start < end:
        stop = min(start + _XERIAL_CHUNK_BYTES, end)
        length = snappy.compress_block(data, start, stop, table, target, at + 4) - at - 4
        store_u32_be(target, at, uint64(length))
        at += 4 + length
        start = stop
    return at


@jit
def pack_stream(codec, data, start, end, table, target, at):
    """
    Pack `data[start:end]` as Kafka does.

    Args:
        codec: SNAPPY or LZ4.
        data: uint8 array.
        table: uint16 array of TABLE_WORDS, with any content.
        target: uint8 array with room for `max_packed_bytes` from `at` on; not `data`.
    Returns:
        The position in `target` after the stream.
    """
    if codec == LZ4:
        return _pack_lz4(data, int64(start), int64(end), table, target, int64(at))
    return _pack_snappy(data, int64(start), int64(end), table, target, int64(at))


@jit
def _load_u32_le(data, at):
    return int64(load_u64_le(data, at) & uint64(0xFFFFFFFF))


@jit
def _lz4_blocks_at(data, source, end):
    """Return where a frame's first block begins or BAD_STREAM, the frame's flags, and its largest block in bytes."""
    if end - source < _LZ4_HEADER_BYTES or load_u32_be(data, source) != _LZ4_MAGIC:
        return int64(BAD_STREAM), int64(0), int64(0)
    flags, descriptor = int64(data[source + 4]), int64(data[source + 5])
    check_at = source + (14 if flags & _LZ4_CONTENT_SIZE else 6)
    if flags & _LZ4_FIXED_FLAGS != _LZ4_FIXED_VALUES or descriptor & 0x8F or descriptor < 0x40 or check_at >= end:
        return int64(BAD_STREAM), int64(0), int64(0)
    if int64(xxhash32_range(data, source + 4, check_at)) >> 8 & 0xFF != int64(data[check_at]):
        return int64(BAD_STREAM), int64(0), int64(0)
    return check_at + 1, flags, int64(1) << (2 * (descriptor >> 4) + 8)


@jit
def _unpack_lz4(data, source, end, out, at, room_end):
    begin = at
    source, flags, largest_block = _lz4_blocks_at(data, source, end)
    if source < 0:
        return int64(BAD_STREAM)
    check_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    while end - source >= 4:
        word = _load_u32_le(data, source)
        source += 4
        length = word & (_LZ4_STORED - 1)
        if length == 0:
            if flags & _LZ4_CONTENT_CHECKSUM and end - source < 4:
                return int64(BAD_STREAM)
            return at - begin
        if length > largest_block or length > end - source - check_bytes:
            return int64(BAD_STREAM)
        if check_bytes and int64(xxhash32_range(data, source, source + length)) != _load_u32_le(data, source + length):
            return int64(BAD_STREAM)
        if word & _LZ4_STORED:
            if length > room_end - at:
                return int64(BAD_STREAM)
            copy_bytes(out, at, data, source, length)
            at += length
        else:
            room = min(largest_block, _LARGEST_RATIO * length, room_end - at)
            after = lz4.decompress_block(data, source, source + length, out, at, at + room)
            if after <= at:
                return int64(BAD_STREAM)
            at = after
        source += length + check_bytes
    return int64(BAD_STREAM)


@jit
def _unpack_snappy_block(data, source, end, out, at, room_end):
    length, elements = snappy.read_length(data, source, end)
    if length < 0 or length > _SNAPPY_LARGEST_RATIO * (end - source) or length > room_end - at:
        return int64(BAD_STREAM)
    if not snappy.decompress_elements(data, elements, end, out, at, at + length):
        return int64(BAD_STREAM)
    return length


@jit
def _unpack_snappy(data, source, end, out, at, room_end):
    if end - source < _XERIAL_HEADER_BYTES or load_u64_be(data, source) != uint64(_XERIAL_MAGIC):
        return _unpack_snappy_block(data, source, end, out, at, room_end)
    begin = at
    source += _XERIAL_HEADER_BYTES
    while end - source >= 4:
        chunk = int64(load_u32_be(data, source))
        source += 4
        if chunk > end - source:
            return int64(BAD_STREAM)
        length = _unpack_snappy_block(data, source, source + chunk, out, at, room_end)
        if length < 0:
            return int64(BAD_STREAM)
        at += length
        source += chunk
    return at - begin


@jit
def unpack_stream(codec, data, source, end, out, at, room_end):
    """
    Unpack the stream at `data[source:end]` to `out[at:room_end]`; all of that range may be overwritten.

    Args:
        codec: SNAPPY or LZ4.
        data: uint8 array with 8 readable bytes after `end`.
        out: uint8 array, not `data`.
    Returns:
        The unpacked length, or BAD_STREAM: it is damaged, odd, or does not fit.
    """
    if codec == LZ4:
        return _unpack_lz4(data, int64(source), int64(end), out, int64(at), int64(room_end))
    return _unpack_snappy(data, int64(source), int64(end), out, int64(at), int64(room_end))


@jit
def unpack_batches(data, batches, ways, first, out, capacity, used, enough, limit_bytes, work, zstd_cells):
    """
    Unpack batches one after the other, and note in their rows where their records are.

    Args:
        data: uint8 array, padded.
        batches: rows of BATCH_DTYPE.
        ways: uint8 a batch, NOT_PACKED, BY_KERNEL or BY_CALLER.
        first: number of the first batch to unpack.
        out, capacity, used: the output, how many of its bytes may be used, and how many are used.
        enough: begin no batch once this many bytes are used.
        limit_bytes: the most a batch may unpack to.
        work: of `inflate.new_work`.
        zstd_cells: of `zstd.unpack_frame`.
    Returns:
        (the batch it stopped before, bytes used by then). That batch is left to the caller: BY_CALLER, damaged, odd,
        or without enough room; if all are done, it is the number of batches.
    """
    for b in range(first, batches.size):
        if ways[b] == NOT_PACKED:
            continue
        if ways[b] == BY_CALLER or used >= enough:
            return b, used
        row = batches[b]
        source, end = row.start + HEADER_BYTES, row.start + row.size
        room_end = used + min(capacity - used, limit_bytes)
        codec = row.attributes & COMPRESSION_MASK
        if codec == GZIP:
            length = inflate.unpack_small_gzip(data, int64(source), int64(end), out, int64(used), int64(room_end), work)
        elif codec == ZSTD:
            length = zstd.unpack_frame(data, int64(source), int64(end), out, int64(used), int64(room_end), zstd_cells)
        else:
            length = unpack_stream(codec, data, source, end, out, used, room_end)
        if length < 0 or row.count > length // SMALLEST_RECORD_BYTES:
            return b, used
        row.body_start, row.body_end, row.unpacked = used, used + length, 1
        used += length
    return batches.size, used
