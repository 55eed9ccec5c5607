"""
CRC-32C of small files, without waiting for the kernels.

Loading numba and the kernel takes a third of a second; a table in Python checks some MiB in that time. So the table
checks a process's first bytes, and the kernel the rest, or all of them if it is already loaded.
"""

from __future__ import annotations

import sys

_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reversed
_KERNEL = "cleaner.kernels.checksums"
# About the time that loading the kernel takes.
_MAX_TABLE_BYTES = 4 << 20


def _make_table() -> list[int]:
    table = []
    for byte in range(256):
        state = byte
        for _ in range(8):
            state = (state >> 1) ^ _POLYNOMIAL if state & 1 else state >> 1
        table.append(state)
    return table


class _TableBytes:
    """How many bytes this process may still check by the table."""

    left = _MAX_TABLE_BYTES


_TABLE = _make_table()


def crc32c(data: bytes | memoryview) -> int:
    """
    Return the CRC-32C of some bytes.

    Args:
        data: anything with a byte buffer.
    Returns:
        The checksum, 0 to 2**32 - 1.
    """
    if _KERNEL in sys.modules or len(data) > _TableBytes.left:
        from cleaner.kernels import checksums as kernel

        return kernel.crc32c(data)
    _TableBytes.left -= len(data)
    return crc32c_by_table(data)


def crc32c_by_table(data: bytes | memoryview) -> int:
    """Return the CRC-32C of some bytes, byte by byte."""
    table = _TABLE
    state = 0xFFFFFFFF
    for byte in data:
        state = table[(state ^ byte) & 255] ^ state >> 8
    return state ^ 0xFFFFFFFF
