"""Checksums of bytes outside of a chunk, by the kernels that compute them inside of one."""

from __future__ import annotations

import numpy as np

from cleaner.kernels.ready import crc32c as _crc32c
from cleaner.kernels.ready import xxhash32 as _xxhash32


def crc32c(data: bytes | bytearray | memoryview | np.ndarray) -> int:
    """
    Return the CRC-32C of some bytes.

    Args:
        data: anything with a byte buffer.
    Returns:
        The checksum, 0 to 2**32 - 1.
    """
    array = np.frombuffer(data, np.uint8)
    return int(_crc32c.crc32c_range(array, 0, array.size))


def xxhash32(data: bytes | bytearray | memoryview) -> int:
    """
    Return the xxHash32 (seed 0) of some bytes.

    Args:
        data: anything with a byte buffer.
    Returns:
        The hash, 0 to 2**32 - 1.
    """
    array = np.frombuffer(data, np.uint8)
    return int(_xxhash32.xxhash32_range(array, 0, array.size))
