"""
zstd frames (R-253), read and written with contexts that a thread keeps for its next frame.

A context takes a megabyte and more to allocate and clear, several times the other costs of a usual batch; a kept one
holds about 6 MB. Contexts are freed with their thread.

    frame: magic 28 b5 2f fd | descriptor | window 1? | dictionary id 0, 1, 2, 4 | content size 0, 1, 2, 4, 8
        | blocks ... | checksum 4?
    descriptor: bits 7-6 width of the content size, 5 no window byte, 4 unused, 3 reserved, 2 checksum present,
        1-0 width of the dictionary id
    block: u24 little-endian | bytes
        bit 0 last, 2-1 type (0 raw, 1 one repeated byte, 2 compressed, 3 reserved), 23-3 size
"""

from __future__ import annotations

from typing import IO, cast

import zstandard

from cleaner.base import concurrency
from cleaner.format.buffers import GrowingBuffer

DEFAULT_LEVEL = 3
_MAGIC = b"\x28\xb5\x2f\xfd"
_DICTIONARY_ID, _CHECKSUM, _RESERVED, _NO_WINDOW = 0x03, 0x04, 0x08, 0x20
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_CONTENT_SIZE_SHIFT = 6
_BLOCK_REPEATED, _BLOCK_RESERVED = 1, 3
_MAX_BLOCKS = 1000  # of 128 KiB usually; more, smaller blocks are an attack on processor time
_LARGEST_WINDOW_BYTES = 8 << 20
_PIECE_BYTES = 1 << 17


class _Contexts(concurrency.local):
    """The contexts of one thread."""

    def __init__(self) -> None:
        self._compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW_BYTES)

    def compressor(self, level: int) -> zstandard.ZstdCompressor:
        """Return the one for a level: without the content size, which Kafka's streams do not have."""
        found = self._compressors.get(level)
        if found is None:
            found = self._compressors[level] = zstandard.ZstdCompressor(level=level, write_content_size=False)
        return found


class _Sink:
    """Writes pieces of a frame to a growing buffer."""

    def __init__(self, out: GrowingBuffer, at: int) -> None:
        self.out = out
        self.end = at

    def write(self, piece: bytes) -> int:
        end = self.end + len(piece)
        self.out.ensure(end, keep=self.end)
        self.out.view[self.end : end] = piece
        self.end = end
        return len(piece)


_contexts = _Contexts()


def is_one_frame(source: memoryview) -> bool:
    """
    Tell whether the bytes are exactly one frame of the usual kind, by the lengths in it.

    False does not mean damage: there may be several frames, a dictionary, or very many blocks.
    """
    if len(source) < 6 or source[:4] != _MAGIC:
        return False
    descriptor = source[4]
    if descriptor & (_DICTIONARY_ID | _RESERVED):
        return False
    has_window = not descriptor & _NO_WINDOW
    size_bytes = _CONTENT_SIZE_BYTES[descriptor >> _CONTENT_SIZE_SHIFT]
    at = 5 + has_window + (size_bytes or int(not has_window))
    for _ in range(_MAX_BLOCKS):
        if len(source) - at < 3:
            return False
        word = int.from_bytes(source[at : at + 3], "little")
        kind, size = word >> 1 & 3, word >> 3
        if kind == _BLOCK_RESERVED:
            return False
        at += 3 + (1 if kind == _BLOCK_REPEATED else size)
        if word & 1:
            return at + (4 if descriptor & _CHECKSUM else 0) == len(source)
    return False


def decompress_frame(source: memoryview, room: memoryview) -> int | None:
    """
    Unpack one frame to the head of `room`.

    Returns:
        The unpacked length in bytes; None if the frame is damaged, needs a large window, or leaves no byte of `room`
        free.
    """
    try:
        with _contexts.decompressor.stream_reader(source) as reader:
            length = reader.readinto(room)
    except zstandard.ZstdError:
        return None
    return length if length < len(room) else None


def compress(source: memoryview, out: GrowingBuffer, at: int, level: int = DEFAULT_LEVEL) -> int:
    """
    Pack `source` to the same bytes as Kafka's output stream: without the content size, and flushed before the end.

    Args:
        source: contiguous bytes, not part of `out`.
        out: takes the result from `at` on; earlier bytes are kept.
        level: Kafka's default, unless somebody asks for another.
    Returns:
        The packed length in bytes.
    """
    sink = _Sink(out, at)
    stream = _contexts.compressor(level).stream_writer(cast("IO[bytes]", sink), write_size=_PIECE_BYTES, closefd=False)
    stream.write(source)
    stream.flush(zstandard.FLUSH_BLOCK)
    stream.flush(zstandard.FLUSH_FRAME)
    return sink.end - at
