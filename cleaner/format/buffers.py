"""Reusable byte buffers: no allocation for each batch, and room for kernels to read past the end."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cleaner.kernels import PAD_BYTES

_SMALLEST_BYTES = 64 * 1024  # a usual batch fits at once


class GrowingBuffer:
    """
    Bytes at a stable address until more are needed than fit; then a copy twice as large replaces them.

    Attributes:
        array: uint8, shape (capacity + 64,). The last 64 bytes are padding with any content: kernels may read words
            there and must not write. Do not keep it across `ensure`, which may replace it.
        view: the same memory as a memoryview, for codecs and files.
        capacity: bytes that may be used.
    """

    __slots__ = ("array", "capacity", "view")

    array: npt.NDArray[np.uint8]
    view: memoryview
    capacity: int

    def __init__(self, capacity: int = _SMALLEST_BYTES) -> None:
        self._take(capacity)

    def ensure(self, size: int, keep: int = 0, at_most: int | None = None) -> None:
        """
        Make room for `size` bytes.

        Args:
            size: wanted capacity, bytes.
            keep: how many bytes at the front to keep in a move; the rest is lost.
            at_most: doubling never goes beyond this many bytes. A larger `size` is still allocated.
        """
        if size <= self.capacity:
            return
        doubled = 2 * self.capacity
        if at_most is not None:
            doubled = min(doubled, at_most)
        kept = self.array[:keep]
        self._take(max(size, doubled))
        self.array[: len(kept)] = kept

    def put(self, data: memoryview | bytes | bytearray, at: int, at_most: int | None = None) -> int:
        """Copy `data` to `at` and keep what is before it; `at_most` as for `ensure`. Returns its length in bytes."""
        end = at + len(data)
        self.ensure(end, keep=at, at_most=at_most)
        self.view[at:end] = data
        return len(data)

    def shrink(self, capacity: int) -> None:
        """Free memory above `capacity` bytes; if there is any, the content is lost."""
        if self.capacity > capacity:
            self._take(capacity)

    def _take(self, capacity: int) -> None:
        self.array = np.empty(capacity + PAD_BYTES, np.uint8)
        self.view = self.array.data
        self.capacity = capacity
