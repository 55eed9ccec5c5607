"""
gzip streams (R-250), read as the JDK reads them and written with the same bytes as the JDK.

Incompressible data is in stored blocks, one for about 16 KB. A stream of only stored blocks is read here: a library
would take longer to allocate its result than to copy it.

    stream: members ...; fewer than 19 bytes after a member are ignored, whatever they are
    member: 1f 8b 08 | flags | time 4 | 2 more bytes | blocks ... | CRC-32 of the content | its length modulo 2**32
    stored block: 1 in the last block, else 0 | length u16 | its complement u16 | bytes
"""

from __future__ import annotations

import struct
import zlib
from typing import cast

from isal import isal_zlib

from cleaner.format.buffers import GrowingBuffer
from cleaner.format.codec_errors import DecompressedTooLargeError, DecompressionError

_IsalError = cast("type[Exception]", isal_zlib.IsalError)  # its stubs call the class an instance
_WINDOW_BITS = 31  # 15 bits of window, +16: gzip header and trailer
_LEVEL = 6  # what zlib's "default" (-1) means
_MEMBER = b"\x1f\x8b\x08"
_PLAIN_MEMBER = b"\x1f\x8b\x08\x00"  # no flags: the header ends with its tenth byte
_HEADER_BYTES, _TRAILER_BYTES = 10, 8
_OS_POSITION = 9
_OS_UNKNOWN = 0xFF  # what the JDK writes since 16
_LOOKS_AHEAD_BYTES = 19  # the JDK ignores fewer bytes than this after a member, whatever they are
_INPUT_BYTES = 8 * 1024
_STEP_BYTES = 1 << 20

_STORED_HEAD = struct.Struct("<BHH")
_TRAILER = struct.Struct("<II")
_SMALLEST_STORED_BYTES = 4096  # of a block that is not the last; smaller ones are an attack on processor time


def decompress(source: memoryview, out: GrowingBuffer, at: int, limit_bytes: int) -> int:
    """
    Unpack the members of a stream one after the other (isal takes half the time of zlib).

    Arguments, result and errors are those of `compression.decompress`.
    """
    length = _read_stored_member(source, out, at, limit_bytes)
    if length is not None:
        return length
    done, position = _read_member(source, len(source), out, at, 0, limit_bytes)
    while len(source) - position >= _LOOKS_AHEAD_BYTES and source[position : position + 3] == _MEMBER:
        # Small inputs: isal copies the bytes after a member, and there may be a member in every 20 bytes.
        done, used = _read_member(source[position:], _INPUT_BYTES, out, at, done, limit_bytes)
        position += used
    return done


def compress(source: memoryview, out: GrowingBuffer, at: int) -> int:
    """Pack `source` to `out` from `at` on; earlier bytes are kept. Returns the packed length in bytes."""
    length = out.put(zlib.compress(source, _LEVEL, _WINDOW_BITS), at)
    out.view[at + _OS_POSITION] = _OS_UNKNOWN
    return length


def _read_stored_member(source: memoryview, out: GrowingBuffer, at: int, limit_bytes: int) -> int | None:
    """Unpack one member of stored blocks; None if it is anything else, damaged, or above the limit."""
    end = len(source) - _TRAILER_BYTES
    if end <= _HEADER_BYTES or source[_HEADER_BYTES] > 1 or source[:4] != _PLAIN_MEMBER:
        return None
    blocks = _stored_blocks(source, end)
    if blocks is None:
        return None
    length = sum(size for _, size in blocks)
    crc, declared = _TRAILER.unpack_from(source, end)
    if length != declared or length > limit_bytes:
        return None
    out.ensure(at + length, keep=at, at_most=at + limit_bytes)
    room, done = out.view, at
    for position, size in blocks:
        room[done : done + size] = source[position : position + size]
        done += size
    return length if isal_zlib.crc32(room[at:done]) == crc else None


def _stored_blocks(source: memoryview, end: int) -> list[tuple[int, int]] | None:
    """Return the places of the stored blocks that fill a member up to `end`; None if there are other blocks."""
    blocks = []
    position, is_last = _HEADER_BYTES, 0
    while not is_last:
        if position + _STORED_HEAD.size > end:
            return None
        is_last, size, complement = _STORED_HEAD.unpack_from(source, position)
        if is_last > 1 or size ^ complement != 0xFFFF or (size < _SMALLEST_STORED_BYTES and not is_last):
            return None
        position += _STORED_HEAD.size
        blocks.append((position, size))
        position += size
    return blocks if position == end else None


def _read_member(
    source: memoryview, input_bytes: int, out: GrowingBuffer, at: int, done: int, limit_bytes: int
) -> tuple[int, int]:
    """Unpack the member at the head of `source` after the `done` bytes at `at`; returns bytes done, and bytes used."""
    member = isal_zlib.decompressobj(wbits=_WINDOW_BITS)
    fed = 0
    while not member.eof:
        waiting: memoryview | bytes = member.unconsumed_tail
        if not waiting:
            waiting = source[fed : fed + input_bytes]
            fed += len(waiting)
        try:
            piece = member.decompress(waiting, min(_STEP_BYTES, limit_bytes - done + 1))
        except _IsalError as error:
            raise DecompressionError(f"gzip: {error}") from error
        if done + len(piece) > limit_bytes:
            raise DecompressedTooLargeError(limit_bytes)
        if not (piece or waiting or member.eof):
            raise DecompressionError("gzip: the stream is cut short")
        done += out.put(piece, at + done, at + limit_bytes)
    return done, fed - len(member.unused_data)
