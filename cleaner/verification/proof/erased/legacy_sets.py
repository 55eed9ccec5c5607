"""
Reads compressed entries of magic 0 and 1 down to the last, one within the other.

Kafka refuses an entry that is compressed within another one, and so does `format/legacy.py`; very old producers may
have written some.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cleaner.format.buffers import GrowingBuffer
from cleaner.format.compression import decompress
from cleaner.kernels.batch_header import (
    COMPRESSION_MASK,
    LEGACY_ATTRIBUTES_AT,
    LEGACY_KEY_AT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    MIN_BATCH_BYTES,
    size_of,
)
from cleaner.kernels.codec_table import NONE

_DEEPEST = 8


class LegacyEntry(NamedTuple):
    """Key and value of an entry; the value of a compressed one is None, as its entries follow."""

    key: bytes | None
    value: bytes | None


def entries_of(entry: memoryview, limit_bytes: int, depth: int = 0) -> Iterator[LegacyEntry]:
    """
    Yield an entry and all entries within it.

    Args:
        entry: its bytes, from the offset field on.
        limit_bytes: the most bytes that one of them may unpack to.
        depth: in how many others it is.
    Raises:
        ValueError: lengths that do not fit, a stream that cannot be unpacked, or too many in each other.
    """
    magic = entry[MAGIC_AT] if len(entry) >= MIN_BATCH_BYTES[0] else MAGIC
    if magic >= MAGIC or size_of(entry) != len(entry):
        raise ValueError("an entry that is not of magic 0 or 1, or not as long as it says")
    key, at = _field(entry, LEGACY_KEY_AT[magic])
    value, end = _field(entry, at)
    if end != len(entry):
        raise ValueError("bytes are left behind an entry's value")
    codec = entry[LEGACY_ATTRIBUTES_AT] & COMPRESSION_MASK
    if codec == NONE or value is None:
        yield LegacyEntry(key, value)
        return
    if depth == _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} compressed entries in each other")
    yield LegacyEntry(key, None)
    unpacked = GrowingBuffer()
    length = decompress(codec, magic, memoryview(value), unpacked, 0, limit_bytes)
    left = unpacked.view[:length]
    while len(left):
        size = size_of(left) if len(left) >= LOG_OVERHEAD_BYTES else 0
        if not MIN_BATCH_BYTES[0] <= size <= len(left):
            raise ValueError(f"{len(left)} bytes behind the last whole entry")
        yield from entries_of(left[:size], limit_bytes, depth + 1)
        left = left[size:]


def _field(entry: memoryview, at: int) -> tuple[bytes | None, int]:
    """Return a key or a value, and where it ends."""
    size = int.from_bytes(entry[at : at + 4], "big", signed=True)
    end = at + 4 + max(0, size)
    if at + 4 > len(entry) or end > len(entry):
        raise ValueError("a key or a value is longer than its entry")
    return (None if size < 0 else bytes(entry[at + 4 : end])), end
