"""
The codecs of `kernels/codec_table.py` in Kafka's framings (R-250..R-254): a batch's records, or a legacy wrapper's
value, as one stream.

Reading accepts and refuses what Kafka's own readers do. A stream must be complete; bytes after the end of an lz4 frame
or of the last gzip member are ignored as Kafka ignores them, anything after a zstd frame must be another frame.

The writer decides what a stream unpacks to: 32 KB of zstd may hold 1 GiB. So everything here unpacks with a bound. The
output buffer grows by doubling up to the caller's limit, and a stream that needs more is refused after the work for one
buffer of that size.

Writing uses each codec's default level as Kafka does (R-254). With current libraries the result even has the bytes of
Kafka 4.3.1: zlib's level 6; for lz4 and snappy our own kernels, which choose matches like Kafka's libraries; and zstd's
stream, except for large batches, where newer versions cut blocks differently. Do not rely on it; but equal sizes let
later rounds group segments as Kafka's would.

Any number of threads may work at once: state that outlives a call belongs to its thread (`zstd_frame.py`). All codecs
release the GIL while they work. Rounds unpack most batches of lz4 and snappy in a kernel (`records.py`), and call this
module only for batches that the kernel refuses.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Final

import cramjam
import numpy as np

from cleaner.format import gzip_stream, lz4_frame, zstd_frame
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.codec_errors import DecompressedTooLargeError, DecompressionError
from cleaner.kernels import codecs as kernel
from cleaner.kernels.codec_table import CODECS, GZIP, LZ4, NONE, SNAPPY, ZSTD

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_MAGIC_WORD = 0x82534E41  # its first four bytes, in the place of a chunk length
_XERIAL_HEADER_BYTES = 16
_SNAPPY_LARGEST_RATIO = 64  # a copy element of 2 or 3 bytes makes at most 64

_OUTPUT_FULL = "failed to write whole buffer"  # cramjam's words for an output that is too small
_FIRST_GUESS_RATIO = 4

_Decompress = Callable[[memoryview, memoryview], int]
_Reader = Callable[[int, memoryview, GrowingBuffer, int, int], int]
_Writer = Callable[[memoryview, GrowingBuffer, int], int]


def decompress(codec: int, magic: int, source: memoryview, out: GrowingBuffer, at: int, limit_bytes: int) -> int:
    """
    Unpack one stream to `out.array[at:]`.

    Args:
        codec: the id, as in `CODECS`.
        magic: of the batch. Below the codec's `min_magic` it is refused (R-241); at 0 the check byte of lz4 is
            ignored (R-252).
        source: the whole stream, contiguous bytes. Borrowed for the call.
        out: takes the result; the bytes before `at` are kept when it grows. It never grows beyond `at + limit_bytes`.
        at: start of the result.
        limit_bytes: the most bytes it may unpack to.
    Returns:
        The unpacked length in bytes.
    Raises:
        DecompressedTooLargeError: more than `limit_bytes`.
        DecompressionError: unknown codec, or a stream that is damaged, cut short or not of that codec.
    """
    if codec not in _STREAMS:
        raise DecompressionError(f"codec {codec} is unknown")
    if magic < CODECS[codec].min_magic:
        raise DecompressionError(f"{CODECS[codec].name} in a batch of magic {magic}")
    read, _ = _STREAMS[codec]
    return read(magic, source, out, at, limit_bytes)


def compress(codec: int, source: memoryview, out: GrowingBuffer, at: int, level: int | None = None) -> int:
    """
    Pack `source` for a batch of magic 2 to `out.array[at:]`.

    Args:
        codec: the id, as in `CODECS`.
        source: contiguous bytes, not part of `out`. Borrowed for the call.
        out: takes the result; the bytes before `at` are kept when it grows.
        at: start of the result.
        level: of zstd; None: Kafka's default.
    Returns:
        The packed length in bytes.
    Raises:
        ValueError: unknown codec.
    """
    if codec not in _STREAMS:
        raise ValueError(f"codec {codec} is unknown")
    if codec == ZSTD and level is not None:
        return zstd_frame.compress(source, out, at, level)
    _, write = _STREAMS[codec]
    return write(source, out, at)


def _grow_until_it_fits(
    decompress_into: _Decompress, source: memoryview, out: GrowingBuffer, at: int, guess: int, limit_bytes: int
) -> int:
    """Unpack into all available room; if it is too small, double it and try again, up to the limit."""
    room = min(limit_bytes, max(guess, out.capacity - at))
    while True:
        out.ensure(at + room, keep=at, at_most=at + limit_bytes)
        try:
            return decompress_into(source, out.view[at : at + room])
        except cramjam.DecompressionError as error:
            if str(error) != _OUTPUT_FULL:
                raise DecompressionError(str(error)) from error
        if room >= limit_bytes:
            raise DecompressedTooLargeError(limit_bytes)
        room = min(limit_bytes, max(2 * room, 4096))


def _read_none(magic: int, source: memoryview, out: GrowingBuffer, at: int, limit_bytes: int) -> int:
    if len(source) > limit_bytes:
        raise DecompressedTooLargeError(limit_bytes)
    return out.put(source, at, at + limit_bytes)


def _write_none(source: memoryview, out: GrowingBuffer, at: int) -> int:
    return out.put(source, at)


def _read_gzip(magic: int, source: memoryview, out: GrowingBuffer, at: int, limit_bytes: int) -> int:
    return gzip_stream.decompress(source, out, at, limit_bytes)


def _read_snappy(magic: int, source: memoryview, out: GrowingBuffer, at: int, limit_bytes: int) -> int:
    """Unpack a xerial stream (R-251), or the bare block that librdkafka writes."""
    if len(source) < _XERIAL_HEADER_BYTES or source[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _read_snappy_block(source, out, at, limit_bytes)
    position, done = _XERIAL_HEADER_BYTES, 0
    while position + 4 <= len(source):
        length = int.from_bytes(source[position : position + 4], "big")
        if length == _XERIAL_MAGIC_WORD:
            # Joined streams: another header. Its first word cannot be the length of a chunk.
            _check_inner_xerial_header(source, position)
            position += _XERIAL_HEADER_BYTES
            continue
        position += 4
        if length > len(source) - position:
            raise DecompressionError(f"snappy: a chunk of {length} bytes, {len(source) - position} are left")
        done += _read_snappy_block(source[position : position + length], out, at + done, limit_bytes, done)
        position += length
    return done


def _check_inner_xerial_header(source: memoryview, position: int) -> None:
    """Check a header that is not the first; Kafka's library checks only the magic of the first."""
    header = bytes(source[position : position + _XERIAL_HEADER_BYTES])
    if len(header) < _XERIAL_HEADER_BYTES or not header.startswith(_XERIAL_MAGIC):
        raise DecompressionError("snappy: a damaged stream header")
    version = struct.unpack_from(">i", header, len(_XERIAL_MAGIC))[0]
    if version < 1:
        raise DecompressionError(f"snappy: stream version {version}")


def _read_snappy_block(source: memoryview, out: GrowingBuffer, at: int, limit_bytes: int, done: int = 0) -> int:
    """Unpack one block at `at`; `done` bytes of the limit are used up. Its declared length is checked first."""
    if not len(source):
        raise DecompressionError("snappy: nothing to unpack")
    try:
        length = cramjam.snappy.decompress_raw_len(source)
        if length > _SNAPPY_LARGEST_RATIO * len(source):
            raise DecompressionError(f"snappy: {len(source)} bytes cannot hold {length}")
        if length > limit_bytes - done:
            raise DecompressedTooLargeError(limit_bytes)
        out.ensure(at + length, keep=at, at_most=at - done + limit_bytes)
        return int(cramjam.snappy.decompress_raw_into(source, out.view[at : at + length]))
    except cramjam.DecompressionError as error:
        raise DecompressionError(str(error)) from error


def _write_with_kernel(codec: int, source: memoryview, out: GrowingBuffer, at: int) -> int:
    data = np.frombuffer(source, np.uint8)
    table = np.empty(kernel.TABLE_WORDS, np.uint16)
    out.ensure(at + int(kernel.max_packed_bytes(data.size)), keep=at)
    return int(kernel.pack_stream(codec, data, 0, data.size, table, out.array, at)) - at


def _read_lz4(magic: int, source: memoryview, out: GrowingBuffer, at: int, limit_bytes: int) -> int:
    return lz4_frame.decompress(source, out, at, limit_bytes, check_header=magic > 0)


def _read_zstd(magic: int, source: memoryview, out: GrowingBuffer, at: int, limit_bytes: int) -> int:
    guess = _FIRST_GUESS_RATIO * len(source)
    if zstd_frame.is_one_frame(source):
        room = min(limit_bytes, max(guess, out.capacity - at))
        out.ensure(at + room, keep=at, at_most=at + limit_bytes)
        length = zstd_frame.decompress_frame(source, out.view[at : at + room])
        if length is not None:
            return length
    return _grow_until_it_fits(cramjam.zstd.decompress_into, source, out, at, guess, limit_bytes)


# The reader and the writer of each codec.
_STREAMS: Final[dict[int, tuple[_Reader, _Writer]]] = {
    NONE: (_read_none, _write_none),
    GZIP: (_read_gzip, gzip_stream.compress),
    SNAPPY: (_read_snappy, functools.partial(_write_with_kernel, SNAPPY)),
    LZ4: (_read_lz4, functools.partial(_write_with_kernel, LZ4)),
    ZSTD: (_read_zstd, zstd_frame.compress),
}
