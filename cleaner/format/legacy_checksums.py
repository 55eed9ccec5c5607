"""The checksum of batches of magic 0 and 1: CRC-32 (IEEE) of bytes 16 to the end (R-240)."""

from __future__ import annotations

import zlib

import numpy as np

from cleaner.format.chunks import Batches, Bytes

BAD_LEGACY_CHECKSUM = "the CRC-32 does not match the bytes"


def first_bad_legacy_checksum(data: Bytes, batches: Batches) -> int | None:
    """Return the index of the first batch of magic 0 or 1 whose checksum does not fit; None when all do."""
    for index in np.flatnonzero(batches["magic"] < 2):
        start, size = int(batches["start"][index]), int(batches["size"][index])
        stored = int.from_bytes(data[start + 12 : start + 16].tobytes(), "big")
        if zlib.crc32(data[start + 16 : start + size].data) != stored:
            return int(index)
    return None
