"""
Distinguishes a torn tail from damage in the middle, by searching for whole batches after the first damaged one.

A killed writer leaves the beginning of a batch, or zeros, or only some pages of a batch. Cutting that loses nothing
that was ever acknowledged as flushed. But if whole batches follow the damage, something else happened to the file, and
cutting would lose them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cleaner.format.checksums import crc32c
from cleaner.format.chunks import HEADER_BYTES, LOG_OVERHEAD_BYTES
from cleaner.storage.fs.file_system import File
from cleaner.storage.segment.segment import Segment

_SEARCH_BYTES = 1 << 20
_LENGTH_AT, _MAGIC_AT, _CRC_AT, _CRC_FROM = 8, 16, 17, 21
_MAGIC = 2
# Largest batch searched for. A broker's limit is 1 MiB by default and a few MiB in practice.
_LARGEST_BATCH_BYTES = 256 << 20


def holds_whole_batch(segment: Segment, position: int) -> bool:
    """Tell whether a whole batch begins anywhere from a position on; see `find_whole_batch`."""
    with segment.open_log() as file:
        return find_whole_batch(file, segment.size, position) is not None


def find_whole_batch(file: File, size: int, position: int) -> int | None:
    """
    Return where the next whole batch of magic 2 with a correct checksum begins, from a position on; None without one.

    Every byte position is tried, since after damage no batch boundary is known. Batches of magic 0 and 1 are not
    searched for: no broker has written any since 4.0.

    Args:
        file: the open `.log`.
        size: how many of its bytes to search.
    """
    while position + HEADER_BYTES <= size:
        data = np.frombuffer(file.read(min(_SEARCH_BYTES + HEADER_BYTES, size - position), position), np.uint8)
        for start in _candidates(data, size - position):
            if _is_sound(file, position + start, int.from_bytes(data[start + 8 : start + 12].tobytes(), "big")):
                return position + start
        position += _SEARCH_BYTES
    return None


def _candidates(data: npt.NDArray[np.uint8], left_bytes: int) -> list[int]:
    """Return the places where a header may begin: magic 2, a length that fits, an offset that is not negative."""
    places = np.flatnonzero(data[_MAGIC_AT:] == _MAGIC)
    places = places[(places < _SEARCH_BYTES) & (places + HEADER_BYTES <= len(data))]
    lengths = np.zeros(len(places), np.int64)
    for byte in range(4):
        lengths = lengths << 8 | data[places + _LENGTH_AT + byte]
    sizes = lengths + LOG_OVERHEAD_BYTES
    fits = (sizes >= HEADER_BYTES) & (sizes <= np.minimum(left_bytes - places, _LARGEST_BATCH_BYTES))
    return [int(place) for place in places[fits & (data[places] < 0x80)]]


def _is_sound(file: File, position: int, length: int) -> bool:
    batch = file.read(length + LOG_OVERHEAD_BYTES, position)
    return int.from_bytes(batch[_CRC_AT:_CRC_FROM], "big") == crc32c(batch[_CRC_FROM:])
