"""
zstd frames (R-253), read and written with contexts that a thread keeps for its next frame.

A context takes a megabyte and more to allocate and clear, several times the other costs of a usual batch; a kept one
holds about 6 MB. Contexts are freed with their thread.

Rounds call the same library from kernels (`kernels/zstd.py`), many batches without a step of Python between them; this
module gives them its functions and contexts, and takes what they refuse (docs/decisions/zstd-from-kernels.md).
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import weakref
from typing import IO, cast

import numpy as np
import numpy.typing as npt
import zstandard

from cleaner.base import concurrency
from cleaner.format.buffers import GrowingBuffer
from cleaner.kernels import zstd as kernel

DEFAULT_LEVEL = 3
_LARGEST_WINDOW_BYTES = 1 << kernel.LARGEST_WINDOW_LOG
_PIECE_BYTES = 1 << 17
_LEVEL, _CONTENT_SIZE_FLAG = 100, 200  # of ZSTD_cParameter


@functools.cache
def _library() -> ctypes.CDLL | None:
    """Return libzstd as the package `zstandard` brings it for cffi; None: it cannot be called from there."""
    found = importlib.util.find_spec("zstandard._cffi")
    if found is None or found.origin is None:
        return None
    try:
        library = ctypes.CDLL(found.origin)
        library.ZSTD_createDCtx.restype = library.ZSTD_createCCtx.restype = ctypes.c_void_p
        library.ZSTD_freeDCtx.argtypes = library.ZSTD_freeCCtx.argtypes = [ctypes.c_void_p]
        library.ZSTD_CCtx_setParameter.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
        major, minor, patch = zstandard.ZSTD_VERSION
        is_same = library.ZSTD_versionNumber() == 10_000 * major + 100 * minor + patch
        for name in ("ZSTD_decompressStream", "ZSTD_DCtx_reset", "ZSTD_compressStream2", "ZSTD_CCtx_reset"):
            getattr(library, name)
    except (OSError, AttributeError):
        return None
    return library if is_same else None


class _KernelContexts:
    """The cells of `kernels/zstd.py` with contexts that live as long as this object; zeros without the library."""

    def __init__(self) -> None:
        self.cells: npt.NDArray[np.int64] = np.zeros(kernel.CELLS, np.int64)
        library = _library()
        if library is None:
            return
        unpacks, packs = library.ZSTD_createDCtx(), library.ZSTD_createCCtx()
        weakref.finalize(self, library.ZSTD_freeDCtx, unpacks).atexit = False
        weakref.finalize(self, library.ZSTD_freeCCtx, packs).atexit = False
        if not unpacks or not packs:  # no memory: the other way says so
            return
        library.ZSTD_CCtx_setParameter(packs, _LEVEL, DEFAULT_LEVEL)
        library.ZSTD_CCtx_setParameter(packs, _CONTENT_SIZE_FLAG, 0)
        self.cells[kernel.DECOMPRESSOR], self.cells[kernel.COMPRESSOR] = unpacks, packs
        for cell, function in (
            (kernel.DECOMPRESS, library.ZSTD_decompressStream),
            (kernel.RESET_DECOMPRESSOR, library.ZSTD_DCtx_reset),
            (kernel.COMPRESS, library.ZSTD_compressStream2),
            (kernel.RESET_COMPRESSOR, library.ZSTD_CCtx_reset),
        ):
            self.cells[cell] = ctypes.cast(function, ctypes.c_void_p).value or 0


class _Contexts(concurrency.local):
    """The contexts of one thread."""

    def __init__(self) -> None:
        self._compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW_BYTES)
        self.for_kernels = _KernelContexts()

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


def kernel_cells() -> npt.NDArray[np.int64]:
    """Return the cells of `kernels/zstd.py` for this thread."""
    return _contexts.for_kernels.cells


def is_one_frame(source: memoryview) -> bool:
    """
    Tell whether the bytes are exactly one frame of the usual kind, by the lengths in it.

    False does not mean damage: there may be several frames, a dictionary, or very many blocks.
    """
    # A copy of bytes that cannot be written: for arrays of such bytes the kernel would be compiled a second time.
    data = np.frombuffer(bytearray(source) if source.readonly else source, np.uint8)
    return bool(kernel.is_one_frame(data, 0, len(source)))


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
