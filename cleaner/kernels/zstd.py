"""
zstd frames (R-253) of many batches in one call: libzstd does the work, and a kernel calls it by its address.

Only a single frame of the usual kind is unpacked; `format/zstd_frame.py` takes all else.

    frame: magic 28 b5 2f fd | descriptor | window 1? | dictionary id 0, 1, 2, 4 | content size 0, 1, 2, 4, 8
        | blocks ... | checksum 4?
    descriptor: bits 7-6 width of the content size, 5 no window byte, 4 unused, 3 reserved, 2 checksum present,
        1-0 width of the dictionary id
    block: u24 little-endian | bytes
        bit 0 last, 2-1 type (0 raw, 1 one repeated byte, 2 compressed, 3 reserved), 23-3 size
"""

from __future__ import annotations

from numba import int64, uint64

from cleaner.kernels.compile import jit
from cleaner.kernels.memory import address_of, call_at

NO_FRAME = -1

# Cells of an int64 array: the library's functions and a thread's contexts, by address, and the buffers of a call.
(
    DECOMPRESS,  # ZSTD_decompressStream; 0: the library cannot be called from here
    DECOMPRESSOR,
    RESET_DECOMPRESSOR,  # ZSTD_DCtx_reset
    COMPRESS,  # ZSTD_compressStream2
    COMPRESSOR,
    RESET_COMPRESSOR,  # ZSTD_CCtx_reset
    _OUT_ADDRESS,  # three of ZSTD_outBuffer
    _OUT_SIZE,
    _OUT_POSITION,
    _IN_ADDRESS,  # three of ZSTD_inBuffer
    _IN_SIZE,
    _IN_POSITION,
) = range(12)
CELLS = 12

MAX_BLOCKS = 1000  # of 128 KiB usually; more, smaller blocks are an attack on processor time
LARGEST_WINDOW_LOG = 23
_MAGIC = 0xFD2FB528
_DICTIONARY_ID, _CHECKSUM, _RESERVED, _NO_WINDOW = 0x03, 0x04, 0x08, 0x20
_BLOCK_REPEATED, _BLOCK_RESERVED = 1, 3
_SMALLEST_WINDOW_LOG = 10

_CONTINUE, _FLUSH, _END = range(3)  # of ZSTD_EndDirective
_RESET_SESSION = 1
_FIRST_ERROR = 2**64 - 4096  # codes of errors are the largest numbers of a size


@jit
def _load_little(data, at, count):
    word = int64(0)
    for i in range(count):
        word |= int64(data[at + i]) << (8 * i)
    return word


@jit
def is_one_frame(data, start, end):
    """Tell whether `data[start:end]` is exactly one frame of the usual kind, by the lengths in it."""
    if end - start < 6 or _load_little(data, start, 4) != _MAGIC:
        return False
    descriptor = int64(data[start + 4])
    if descriptor & (_DICTIONARY_ID | _RESERVED):
        return False
    size_bytes = (int64(1) << (descriptor >> 6)) & 14
    at = start + 5 + (max(size_bytes, 1) if descriptor & _NO_WINDOW else 1 + size_bytes)
    for _ in range(MAX_BLOCKS):
        if end - at < 3:
            return False
        word = _load_little(data, at, 3)
        kind, size = word >> 1 & 3, word >> 3
        if kind == _BLOCK_RESERVED:
            return False
        at += 3 + (1 if kind == _BLOCK_REPEATED else size)
        if word & 1:
            return at + (4 if descriptor & _CHECKSUM else 0) == end
    return False


@jit
def _lay_buffers(out, at, room, data, start, size, cells):
    cells[_OUT_ADDRESS], cells[_OUT_SIZE], cells[_OUT_POSITION] = address_of(out, at), room, 0
    cells[_IN_ADDRESS], cells[_IN_SIZE], cells[_IN_POSITION] = address_of(data, start), size, 0


@jit
def _buffers(cells):
    return address_of(cells, int64(_OUT_ADDRESS)), address_of(cells, int64(_IN_ADDRESS))


@jit
def _has_usual_window(data, start):
    """Tell whether a frame's window is at most the largest one that contexts keep."""
    if data[start + 4] & _NO_WINDOW:
        return True
    window = int64(data[start + 5])
    return (window >> 3) + _SMALLEST_WINDOW_LOG + (window & 7 != 0) <= LARGEST_WINDOW_LOG


@jit
def unpack_frame(data, start, end, out, at, room_end, cells):
    """
    Unpack the frame at `data[start:end]` to `out[at:room_end]`; all of that range may be overwritten.

    Args:
        data, out: uint8 arrays.
        cells: int64 array of CELLS of this thread.
    Returns:
        The unpacked length, or NO_FRAME: not one frame of the usual kind, damaged, or it does not fit.
    """
    if cells[DECOMPRESS] == 0 or start < 0 or end > data.size or at < 0 or at >= room_end or room_end > out.size:
        return int64(NO_FRAME)
    if not is_one_frame(data, start, end) or not _has_usual_window(data, start):
        return int64(NO_FRAME)
    call_at(cells[RESET_DECOMPRESSOR], (cells[DECOMPRESSOR], int64(_RESET_SESSION)))
    _lay_buffers(out, at, room_end - at, data, start, end - start, cells)
    # As a stream, as Kafka does: in one piece the library takes blocks and matches that are larger than the window.
    left = call_at(cells[DECOMPRESS], (cells[DECOMPRESSOR], *_buffers(cells)))
    if left != 0 or cells[_IN_POSITION] != end - start:
        return int64(NO_FRAME)
    return cells[_OUT_POSITION]


@jit
def max_packed_bytes(size):
    """Return the room that `pack_frame` needs for `size` bytes: libzstd's bound, and two more blocks without data."""
    return size + (size >> 8) + 128


@jit
def _compress(cells, directive):
    return call_at(cells[COMPRESS], (cells[COMPRESSOR], *_buffers(cells), int64(directive)))


@jit
def pack_frame(data, start, end, out, at, room_end, cells):
    """
    Pack `data[start:end]` to `out[at:room_end]`, the same bytes as Kafka's stream: all of it, a flush, the end.

    Args:
        data, out: uint8 arrays, not the same.
        cells: int64 array of CELLS of this thread.
    Returns:
        The position in `out` after the frame, or NO_FRAME: there is no room, or the library refuses.
    """
    room = room_end - at
    if cells[COMPRESS] == 0 or start < 0 or end > data.size or start >= end or at < 0 or room_end > out.size:
        return int64(NO_FRAME)
    if room < max_packed_bytes(end - start):
        return int64(NO_FRAME)
    call_at(cells[RESET_COMPRESSOR], (cells[COMPRESSOR], int64(_RESET_SESSION)))
    _lay_buffers(out, at, room, data, start, end - start, cells)
    if _compress(cells, _CONTINUE) >= uint64(_FIRST_ERROR) or cells[_IN_POSITION] != end - start:
        return int64(NO_FRAME)
    if _compress(cells, _FLUSH) != 0 or _compress(cells, _END) != 0:
        return int64(NO_FRAME)
    return at + cells[_OUT_POSITION]
