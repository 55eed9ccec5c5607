"""
Reads Kafka's lz4 frames (R-252) block by block: accepts what Kafka accepts, and gives the reason for a refusal.

Most frames never come here: `kernels/codecs.py` unpacks them, many batches at a time; it also packs.

    magic 04 22 4d 18 | FLG | BD | content size 8? | check byte | blocks ... | end mark, 4 zeros | content checksum 4?
    block: length, u32 little-endian, top bit = stored as it is | bytes | checksum 4?

    FLG: bits 7-6 version (1), 5 independent blocks (must be set), 4 block checksums, 3 content size present,
         2 content checksum present, 1-0 reserved (0)
    BD:  bits 6-4 largest block (4: 64 KiB, 5: 256 KiB, 6: 1 MiB, 7: 4 MiB), the others reserved (0)

The check byte is bits 8-15 of xxHash32 over FLG, BD and content size. Producers before Kafka 0.10 hashed the frame's
magic too, so it is ignored for magic 0. Content size and content checksum are ignored, as in Kafka.
"""

from __future__ import annotations

import functools
import struct

import cramjam

from cleaner.format.buffers import GrowingBuffer
from cleaner.format.codec_errors import DecompressedTooLargeError, DecompressionError
from cleaner.kernels.checksums import xxhash32

_MAGIC = b"\x04\x22\x4d\x18"
_SHORTEST_HEADER = 7
_CONTENT_SIZE_BYTES = 8
_STORED = 1 << 31
_WORD = struct.Struct("<I")

_RESERVED_FLAGS, _CONTENT_CHECKSUM, _CONTENT_SIZE, _BLOCK_CHECKSUM, _INDEPENDENT = 0x03, 0x04, 0x08, 0x10, 0x20
_VERSION_SHIFT = 6


def decompress(source: memoryview, out: GrowingBuffer, at: int, limit_bytes: int, *, check_header: bool) -> int:
    """
    Unpack one frame to `out.array[at:]`; bytes after it are ignored.

    Args:
        source: the frame. Borrowed for the call.
        out: takes the result, never growing beyond `at + limit_bytes` bytes; bytes before `at` are kept.
        at: start of the result.
        limit_bytes: the most bytes it may unpack to.
        check_header: whether a wrong check byte is an error.
    Returns:
        The unpacked length in bytes.
    Raises:
        DecompressedTooLargeError: more than `limit_bytes`.
        DecompressionError: Kafka's reader would refuse the frame.
    """
    position, flags, largest_block = _read_header(source, check_header)
    has_checksums = bool(flags & _BLOCK_CHECKSUM)
    done = 0
    while True:
        if len(source) - position < 4:
            raise DecompressionError("lz4: the frame is cut short")
        (word,) = _WORD.unpack_from(source, position)
        position += 4
        length = word & ~_STORED
        if length == 0:
            if flags & _CONTENT_CHECKSUM and len(source) - position < 4:
                raise DecompressionError("lz4: the frame is cut short")
            return done
        if length > largest_block:
            raise DecompressionError(f"lz4: a block of {length} bytes, more than {largest_block}")
        if length > len(source) - position - 4 * has_checksums:
            raise DecompressionError("lz4: the frame is cut short")
        block = source[position : position + length]
        position += length
        if has_checksums:
            _check_block(block, source, position)
            position += 4
        if word & _STORED:
            if length > limit_bytes - done:
                raise DecompressedTooLargeError(limit_bytes)
            out.ensure(at + done + length, keep=at + done, at_most=at + limit_bytes)
            out.view[at + done : at + done + length] = block
            done += length
        else:
            done += _read_block(block, out, at + done, largest_block, limit_bytes - done, limit_bytes)


def _read_header(source: memoryview, check_header: bool) -> tuple[int, int, int]:
    """Return the position of the first block, the flags, and the largest block size in bytes."""
    if len(source) < _SHORTEST_HEADER:
        raise DecompressionError("lz4: the frame is cut short")
    if source[:4] != _MAGIC:
        raise DecompressionError("lz4: not an lz4 frame")
    flags, block_descriptor = source[4], source[5]
    largest_block = _read_descriptor(flags, block_descriptor)
    end = 6 + (_CONTENT_SIZE_BYTES if flags & _CONTENT_SIZE else 0)
    if end >= len(source):
        raise DecompressionError("lz4: the frame is cut short")
    if check_header and source[end] != _check_byte(bytes(source[4:end])):
        raise DecompressionError("lz4: the frame's header does not match its check byte")
    return end + 1, flags, largest_block


def _read_descriptor(flags: int, block_descriptor: int) -> int:
    if flags & _RESERVED_FLAGS or block_descriptor & 0x8F:
        raise DecompressionError("lz4: reserved bits of the frame's header are set")
    if flags >> _VERSION_SHIFT != 1:
        raise DecompressionError(f"lz4: frame version {flags >> _VERSION_SHIFT}")
    if not flags & _INDEPENDENT:
        raise DecompressionError("lz4: blocks that depend on each other")
    size_code = block_descriptor >> 4
    if size_code < 4:
        raise DecompressionError(f"lz4: block size code {size_code}")
    return 1 << (2 * size_code + 8)


@functools.lru_cache(maxsize=64)
def _check_byte(descriptor: bytes) -> int:
    return xxhash32(descriptor) >> 8 & 0xFF


def _check_block(block: memoryview, source: memoryview, position: int) -> None:
    (expected,) = _WORD.unpack_from(source, position)
    if xxhash32(block) != expected:
        raise DecompressionError("lz4: a block does not match its checksum")


def _read_block(
    block: memoryview, out: GrowingBuffer, at: int, largest_block: int, left_bytes: int, limit_bytes: int
) -> int:
    """Unpack one block at `at`; `left_bytes` of the limit are left."""
    # Every byte of lz4 makes at most 255, so a small block cannot ask for 4 MiB.
    room = min(largest_block, 255 * len(block), left_bytes)
    out.ensure(at + room, keep=at, at_most=at + left_bytes)
    try:
        done = int(cramjam.lz4.decompress_block_into(block, out.view[at : at + room], output_len=room))
    except cramjam.DecompressionError as error:
        # lz4 does not distinguish a damaged block from one that does not fit, either.
        if room == left_bytes < largest_block:
            raise DecompressedTooLargeError(limit_bytes) from error
        raise DecompressionError("lz4: a damaged block") from error
    if done == 0:
        # Kafka takes a block that unpacks to nothing as the end of the stream. No writer produces one.
        raise DecompressionError("lz4: an empty block")
    return done
