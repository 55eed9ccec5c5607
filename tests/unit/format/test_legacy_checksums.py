"""The checksum of magic 0 and 1, which differs from that of magic 2 (R-240)."""

from __future__ import annotations

import pytest

from cleaner.format.chunks import Batches, Bytes
from cleaner.format.legacy_checksums import first_bad_legacy_checksum
from tests.support.batch_builder import Record, data_batch, legacy_batch
from tests.unit.kernels.arrays import padded, scan

pytestmark = pytest.mark.kernels

RECORDS = [Record(b"key", b"value", timestamp_ms=5), Record(b"key", None, timestamp_ms=6)]
OLDEST = legacy_batch(RECORDS, 0, 0)
OLD = legacy_batch(RECORDS, 2, 1, codec="gzip")
NEW = data_batch(RECORDS, 4)


def listed(log: bytes) -> tuple[Bytes, Batches]:
    """List the batches of some bytes by their headers, as they are held in a reader's memory."""
    data = padded(log)
    return data, scan(data, len(log)).rows


def flipped(log: bytes, position: int) -> bytes:
    """Flip a bit."""
    return log[:position] + bytes([log[position] ^ 4]) + log[position + 1 :]


@pytest.mark.parametrize("log", [b"", NEW, OLDEST, OLD, OLDEST + OLD + NEW + OLDEST], ids=len)
def test_good_checksums_are_accepted(log: bytes) -> None:
    """Entries, packed ones, and an empty log."""
    assert first_bad_legacy_checksum(*listed(log)) is None


def test_every_byte_from_the_checksum_on_counts() -> None:
    """CRC-32 of bytes 16 to the end, stored in bytes 12 to 15 (R-240)."""
    size = int(listed(NEW + OLDEST)[1][2]["size"])
    for position in range(12, size):
        data, rows = listed(NEW + OLDEST)
        data[int(rows[2]["start"]) + position] ^= 4
        assert first_bad_legacy_checksum(data, rows) == 2


def test_offset_lies_outside_of_the_checksum() -> None:
    """A broker sets it after the checksum was computed."""
    for position in range(8):
        assert first_bad_legacy_checksum(*listed(flipped(OLDEST, position))) is None


def test_first_of_several_bad_checksums_is_returned() -> None:
    """Counted among all batches, including those of magic 2."""
    bad = flipped(OLD, len(OLD) - 1)
    assert first_bad_legacy_checksum(*listed(NEW + OLD + NEW + bad + NEW + bad)) == 3


def test_batches_of_magic_2_are_ignored() -> None:
    """Their CRC-32C is verified elsewhere."""
    data, rows = listed(OLDEST + NEW)
    data[len(OLDEST) + len(NEW) - 1] ^= 4
    assert first_bad_legacy_checksum(data, rows) is None
