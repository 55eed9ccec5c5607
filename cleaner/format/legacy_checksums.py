"""The checksum of batches of magic 0 and 1: CRC-32 (IEEE) of bytes 16 to the end (R-240)."""

from __future__ import annotations

import zlib

import numpy as np

from cleaner.format.chunks import Batches, Bytes
from cleaner.kernels.batch_header import LEGACY_CRC_AT, LEGACY_CRC_FROM

BAD_LEGACY_CHECKSUM = "the CRC-32 does not match the bytes"


def legacy_checksum(entry: bytes | memoryview) -> tuple[bool, int]:
    """Return whether the checksum of an entry of magic 0 or 1 is right, and its value."""
    stored = int.from_bytes(entry[LEGACY_CRC_AT:LEGACY_CRC_FROM], "big")
    return zlib.crc32(entry[LEGACY_CRC_FROM:]) == stored, stored


def first_bad_legacy_checksum(data: Bytes, batches: Batches) -> int | None:
    """Return the index of the first batch of magic 0 or 1 with a wrong checksum; None if all are right."""
    for index in np.flatnonzero(batches["magic"] < 2):
        start, size = int(batches["start"][index]), int(batches["size"][index])
        if not legacy_checksum(data[start : start + size].data)[0]:
            return int(index)
    return None
