"""Checksums of Python byte buffers, by the kernels for arrays."""

from __future__ import annotations

import numpy as np

from cleaner.kernels.crc32c import crc32c_range
from cleaner.kernels.xxhash32 import xxhash32_range


def crc32c(data: bytes | bytearray | memoryview | np.ndarray) -> int:
    """
    Return the CRC-32C of some bytes.

    Args:
        data: anything with a byte buffer.
    Returns:
        The checksum, 0 to 2**32 - 1.
    """
    array = np.frombuffer(data, np.uint8)
    return int(crc32c_range(array, 0, array.size))


def xxhash32(data: bytes | bytearray | memoryview) -> int:
    """
    Return the xxHash32 (seed 0) of some bytes.

    Args:
        data: anything with a byte buffer.
    Returns:
        The hash, 0 to 2**32 - 1.
    """
    array = np.frombuffer(data, np.uint8)
    return int(xxhash32_range(array, 0, array.size))
