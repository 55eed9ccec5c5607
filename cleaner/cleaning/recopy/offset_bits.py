"""
A bit for each offset of a group: verdicts in a form that can be sent and stored.

Offsets of compacted logs leave gaps of up to 2**31, so the bits are in blocks, and only blocks with a set bit exist;
see `kernels/offset_bits.py`. As bytes:

    magic "KLOFBITS" | u64 base offset | u64 bits set | u64 blocks | u64 a block: its number, ascending | the blocks
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from cleaner.kernels import offset_bits as kernel

_MAGIC = b"KLOFBITS"
_HEAD = struct.Struct("<8sQQQ")
_MIN_BLOCKS = 64

Places = npt.NDArray[np.int64]


class OffsetBits:
    """
    Bits of offsets, initially all clear.

    Args:
        base_offset: the lowest offset that can have a bit.

    Attributes:
        base_offset: as given.
        count: bits set, if none was set twice.
        directory, blocks: arrays for the kernels. Replaced when they grow.
    """

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.count = 0
        self.directory: npt.NDArray[np.int32] = np.zeros(1, np.int32)
        self.blocks: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)
        self._used = 0

    def set(self, places: Places) -> None:
        """Set the bits of offsets, given as their distances from `base_offset`."""
        if not len(places):
            return
        last_block = int(places.max()) // kernel.BLOCK_BITS
        if last_block >= len(self.directory):
            # Zero pages that are never touched take no memory.
            larger = np.zeros(2 * last_block + 1, np.int32)
            larger[: len(self.directory)] = self.directory
            self.directory = larger
        # The new blocks: far fewer than places, so that memory grows only as needed.
        missing = np.unique(places // kernel.BLOCK_BITS)
        self._reserve(int(np.count_nonzero(self.directory[missing] == 0)))
        self._used = int(kernel.set_bits(self.directory, self.blocks, self._used, places))
        self.count += len(places)

    def _reserve(self, more: int) -> None:
        wanted = (self._used + more) * kernel.BLOCK_BYTES
        if wanted > len(self.blocks):
            larger = np.zeros(max(wanted, 2 * len(self.blocks), _MIN_BLOCKS * kernel.BLOCK_BYTES), np.uint8)
            larger[: len(self.blocks)] = self.blocks
            self.blocks = larger

    def to_bytes(self) -> bytes:
        """Return the bits as bytes; these do not depend on the order in which bits were set."""
        numbers = np.flatnonzero(self.directory)
        blocks = self.blocks.reshape(-1, kernel.BLOCK_BYTES)[self.directory[numbers] - 1]
        head = _HEAD.pack(_MAGIC, self.base_offset, self.count, len(numbers))
        return b"".join((head, numbers.astype("<u8").tobytes(), blocks.tobytes()))

    @staticmethod
    def from_bytes(data: bytes) -> OffsetBits:
        """
        Read the result of `to_bytes`.

        Raises:
            ValueError: the data is something else, or truncated.
        """
        if len(data) < _HEAD.size or not data.startswith(_MAGIC):
            raise ValueError("no bits of offsets")
        _, base_offset, count, block_count = _HEAD.unpack_from(data)
        if len(data) != _HEAD.size + block_count * (8 + kernel.BLOCK_BYTES):
            raise ValueError(f"{len(data)} bytes do not hold {block_count} blocks")
        bits = OffsetBits(base_offset)
        bits.count = count
        if block_count:
            numbers = np.frombuffer(data, "<u8", block_count, _HEAD.size).astype(np.int64)
            bits.directory = np.zeros(int(numbers.max()) + 1, np.int32)
            bits.directory[numbers] = np.arange(1, block_count + 1, dtype=np.int32)
            bits.blocks = np.frombuffer(bytearray(data[_HEAD.size + 8 * block_count :]), np.uint8)
            bits._used = block_count
        return bits
