"""The keys that are looked for, as keys of records and as bytes anywhere."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cleaner.format.chunks import Bytes
from cleaner.format.layout import Layout
from cleaner.kernels import PAD_BYTES
from cleaner.kernels import key_search as kernel
from cleaner.kernels import proof as digest_kernel

Longs = npt.NDArray[np.int64]

SHORTEST_RAW = kernel.SHORTEST
"""Shorter keys are not looked for among mere bytes: they would be found by chance."""

_HITS = 4096
_BITS_A_KEY = 16


class Hit(NamedTuple):
    """A place of a key: in which part, at which position of the array, and the key's number."""

    part: int
    position: int
    number: int


class WantedKeys:
    """
    Args:
        keys: of records, whole.
        prefixes: every key that begins with one of them is wanted, too.

    Attributes:
        texts: prefixes and keys without those that are both; a key's *number* is its place here.
        first_prefix: the number of the first prefix.
        longest: bytes of the longest.
        has_raw: some can be looked for among mere bytes.
    """

    def __init__(self, keys: Collection[bytes], prefixes: Collection[bytes] = ()) -> None:
        beginnings = sorted(set(prefixes))
        whole = sorted(set(keys).difference(beginnings))
        self.texts = [*whole, *beginnings]
        self.first_prefix = len(whole)
        self._sizes: Longs = np.fromiter(map(len, self.texts), np.int64, len(self.texts))
        self._starts: Longs = np.cumsum(self._sizes) - self._sizes
        self._text: Bytes = np.frombuffer(b"".join(self.texts) + bytes(PAD_BYTES), np.uint8)
        self.longest = int(self._sizes.max(initial=0))
        self._secret = np.frombuffer(bytearray(os.urandom(16)), np.uint64)
        self._digests = np.zeros(digest_kernel.DIGEST_WORDS * len(self.texts), np.uint64)
        digest_kernel.digest_fields(self._text, self._starts, self._sizes, self._secret, self._digests)
        self._slots = np.full(_power_of_two(2 * len(self.texts) + 1), -1, np.int32)
        kernel.fill_slots(self._digests, self._slots)
        self._prepare_raw()

    def _prepare_raw(self) -> None:
        lengths = np.unique(self._sizes[self._sizes >= SHORTEST_RAW])
        self.has_raw = bool(len(lengths))
        self._lengths: Longs = lengths
        self._length_starts: Longs = np.searchsorted(lengths, [0, 8, 16, 32, 2**62]).astype(np.int64)
        bits = max(_power_of_two(_BITS_A_KEY * len(self.texts)), 1 << 10)
        self._shift = np.uint64(64 - (bits.bit_length() - 1))
        self._heads = np.zeros((1 << kernel.HEAD_BITS) // 64, np.uint64)
        self._begins = np.zeros((kernel.CLASSES, bits // 64), np.uint64)
        kernel.fill_filters(self._text, self._starts, self._sizes, self._heads, self._begins, self._shift)
        self._hits: Longs = np.zeros(kernel.HIT_CELLS * (_HITS + len(lengths)), np.int64)

    def of_records(self, layout: Layout) -> Longs:
        """Return for each record the number of its key, or -1."""
        digests = np.zeros(digest_kernel.DIGEST_WORDS * len(layout), np.uint64)
        starts, sizes = layout.key_starts, layout.key_sizes
        digest_kernel.digest_fields(layout.data, starts, sizes, self._secret, digests)
        numbers = np.empty(len(layout), np.int64)
        kernel.look_up(sizes, digests, self._digests, self._slots, numbers)
        if self.first_prefix < len(self.texts):
            some = slice(self.first_prefix, None)
            kernel.match_prefixes(
                *(layout.data, starts, sizes, self._text, self._starts[some], self._sizes[some]),
                *(self.first_prefix, numbers),
            )
        return numbers

    def number_of(self, key: bytes | None) -> int:
        """Return the number of one key, or -1."""
        if key is None:
            return -1
        data = np.frombuffer(key + bytes(PAD_BYTES), np.uint8)
        nothing = np.zeros(1, np.int64)
        size = np.array([len(key)], np.int64)
        layout = Layout(data, nothing, nothing, nothing, size, nothing, nothing, nothing)
        return int(self.of_records(layout)[0])

    def in_parts(self, data: Bytes, starts: Longs, sizes: Longs, spare: int = 0) -> Iterator[Hit]:
        """
        Yield every place of a key's bytes.

        Args:
            data: an array with the parts.
            starts, sizes: of the parts, in bytes.
            spare: so many bytes at the end of each part belong to the next: no key is looked for that begins there.
        """
        state = np.zeros(2, np.int64)
        while self.has_raw and state[0] < len(starts):
            count = kernel.find_in_parts(
                *(data, starts, sizes, spare, state, self._heads, self._begins, self._shift),
                *(self._lengths, self._length_starts, self._secret, self._digests, self._slots, self._hits),
            )
            for row in self._hits[: kernel.HIT_CELLS * int(count)].reshape(-1, kernel.HIT_CELLS).tolist():
                yield Hit(*row)

    def in_bytes(self, data: Bytes, size: int, spare: int = 0) -> Iterator[Hit]:
        """Yield every place of a key's bytes in the first `size` bytes; `spare` as in `in_parts`."""
        return self.in_parts(data, np.zeros(1, np.int64), np.array([size], np.int64), spare)


def header_sizes(layout: Layout) -> Longs:
    """Return the sizes of the records' headers, in bytes."""
    sizes = np.empty(len(layout), np.int64)
    kernel.measure_headers(layout.data, layout.header_starts, sizes)
    return sizes


def _power_of_two(least: int) -> int:
    return 1 << max(0, least - 1).bit_length()
