"""
Memory for the offset map's tables, kept from one round of a process to the next.

When a page of memory is first touched, the system must allocate and clear it, and so must a virtual machine's host:
for the map of a million keys that can take a tenth of a round. So a round passes its memory on to the next one. In
between, the system may take it back if it runs short (MADV_FREE).
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from bisect import bisect_left, insort
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cleaner.base import concurrency

_HUGE_PAGE_BYTES = 2 << 20
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)


def zero_pages(size: int, *, huge: bool = True) -> mmap.mmap:
    """
    Return memory that reads as zeros and is not allocated until it is touched.

    Args:
        size: bytes.
        huge: use pages of 2 MiB where possible: better for random access, wasteful if most of it is never touched.
    """
    # Private: for shared memory the system uses small pages only, whatever the advice.
    memory = mmap.mmap(-1, size, flags=_PRIVATE)
    if huge and size >= _HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)  # keys hit random pages: having fewer of them gives most of the speed
    return memory


class TableMemory:
    """
    A range of memory from which tables are allocated, one after the other, until `free_all`.

    Args:
        size: bytes of all tables of a round together.

    Attributes:
        size: as given.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._memory = zero_pages(size)
        self._used = 0
        # From here on no page was ever touched, or it was given back to the system.
        self._clean_from = 0

    def take(self, size: int) -> npt.NDArray[np.uint64]:
        """Allocate `size` zero bytes, a multiple of 8."""
        start = self._used
        self._used += -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        words: npt.NDArray[np.uint64] = np.frombuffer(self._memory, np.uint64, size // 8, start)
        dirty = max(0, min(self._clean_from, start + size) - start)
        # Twice as fast as numpy, because it does not read the memory first.
        ctypes.memset(words.ctypes.data, 0, min(-(-dirty // 8) * 8, words.nbytes))
        self._clean_from = max(self._clean_from, self._used)
        return words

    def forget(self, table: npt.NDArray[np.uint64], first: int, last: int) -> None:
        """Give the whole pages among bytes [first, last) of a table back to the system at once."""
        origin = table.ctypes.data - np.frombuffer(self._memory, np.uint8, 1).ctypes.data
        start = -(-(origin + first) // mmap.PAGESIZE) * mmap.PAGESIZE
        length = (origin + last) // mmap.PAGESIZE * mmap.PAGESIZE - start
        if length > 0:
            self._memory.madvise(mmap.MADV_DONTNEED, start, length)

    def free_all(self) -> None:
        """Free all tables."""
        self._used = 0

    def offer(self) -> None:
        """Let the system take the used pages back if it runs short of memory."""
        if self._clean_from and hasattr(mmap, "MADV_FREE"):
            self._memory.madvise(mmap.MADV_FREE, 0, self._clean_from)


def offer(array: npt.NDArray[Any]) -> None:
    """Let the system take back the whole pages of an array that is no longer needed, if it runs short of memory."""
    if not hasattr(mmap, "MADV_FREE"):
        return
    address = array.ctypes.data
    first = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (address + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if length > 0:
        # The result is ignored: a system may not support this advice.
        _libc().madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), mmap.MADV_FREE)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


_MAX_SPARE = 4  # this many workers can end their rounds at the same time and find memory for the next ones


class _Spare:
    """Memory of earlier rounds, the smallest piece first."""

    lock = concurrency.Lock()
    pieces: ClassVar[list[TableMemory]] = []


def borrow(size: int) -> TableMemory:
    """Return memory for `size` bytes: the smallest returned piece that is large enough, or a new one."""
    with _Spare.lock:
        number = bisect_left(_Spare.pieces, size, key=_size)
        if number < len(_Spare.pieces):
            memory = _Spare.pieces.pop(number)
            memory.free_all()
            return memory
        # All are too small: the largest is replaced by the new one.
        del _Spare.pieces[-1:]
    return TableMemory(size)


def give_back(memory: TableMemory) -> None:
    """Keep memory for a later round; its tables must no longer be used. Of too many pieces the smallest is dropped."""
    memory.offer()
    with _Spare.lock:
        insort(_Spare.pieces, memory, key=_size)
        del _Spare.pieces[:-_MAX_SPARE]


def _size(memory: TableMemory) -> int:
    return memory.size
