"""Scanning a chunk for batches: which are listed, what stops the scan and where (R-201, R-202, R-210, R-212)."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.format.batch import BATCH_DTYPE, CONTROL_FLAG, NO_ORDER_CHECK, TRANSACTIONAL_FLAG
from cleaner.kernels.batches import (
    SCAN_BAD_CODEC,
    SCAN_BAD_COUNT,
    SCAN_BAD_CRC,
    SCAN_BAD_LAST_OFFSET,
    SCAN_BAD_MAGIC,
    SCAN_COUNT_ABOVE_BYTES,
    SCAN_COUNT_ABOVE_OFFSETS,
    SCAN_END,
    SCAN_OUT_OF_ORDER,
    SCAN_TABLE_FULL,
    SCAN_TOO_SHORT,
    count_good_checksums,
    count_records,
    scan_batches,
)
from cleaner.kernels.scan_status import KIND_LEGACY, KIND_PRODUCER
from tests.support.batch_builder import Producer, Record, data_batch, empty_batch, legacy_entry, marker_batch
from tests.unit.kernels.arrays import Scan, padded, scan

pytestmark = pytest.mark.kernels

GOOD = data_batch([Record(b"k", b"v"), Record(b"l", None)], 100)
NEXT = data_batch([Record(b"k", b"w")], 110)


def scan_bytes(data: bytes, previous_offset: int = -1, **options: int) -> Scan:
    """Scan some bytes; strictly by default."""
    return scan(padded(data), len(data), previous_offset, **options)


def test_scan_of_good_batches_lists_all_fields() -> None:
    """Every column of the table, for a batch that has something in every field."""
    batch = data_batch(
        [Record(b"k", b"v", timestamp_ms=50), Record(b"k", b"v", offset=105, timestamp_ms=70)],
        100,
        last_offset=108,
        producer=Producer(77, 5, 31, True),
        leader_epoch=9,
        codec="gzip",
    )
    row = scan_bytes(GOOD + batch, NO_ORDER_CHECK, file_position=1000).rows[1]
    start = len(GOOD)
    expected = {
        "position": 1000 + start,
        "start": start,
        "size": len(batch),
        "base_offset": 100,
        "last_offset": 108,
        "base_timestamp": 50,
        "max_timestamp": 70,
        "attributes": 1 | 16,
        "magic": 2,
        "count": 2,
        "producer_id": 77,
        "producer_epoch": 5,
        "base_sequence": 31,
        "leader_epoch": 9,
        "body_start": start + 61,
        "body_end": start + len(batch),
        "unpacked": 0,
    }
    assert {name: int(row[name]) for name in row.dtype.names} == expected


def test_scan_of_extreme_fields_keeps_their_signs() -> None:
    """All fields are two's complement of their own width."""
    batch = data_batch(
        [], 2**62, last_offset=2**62 + 2**31 - 1, producer=Producer(2**63 - 1, -(2**15), -(2**31)), leader_epoch=-1,
        overrides={"base_timestamp": -(2**63), "max_timestamp": -5},
    )  # fmt: skip
    row = scan_bytes(batch).rows[0]
    assert int(row["last_offset"]) == 2**62 + 2**31 - 1
    assert (int(row["producer_id"]), int(row["producer_epoch"]), int(row["base_sequence"])) == (
        2**63 - 1, -(2**15), -(2**31),
    )  # fmt: skip
    assert (int(row["base_timestamp"]), int(row["max_timestamp"]), int(row["leader_epoch"])) == (-(2**63), -5, -1)


def test_scan_takes_only_the_low_byte_of_the_attributes() -> None:
    """Bits 8 to 15 mean nothing (R-210)."""
    batch = data_batch([Record(b"k", b"v")], 0, overrides={"attributes": 0x7F00 | 0x10})
    assert scan_bytes(batch).rows[0]["attributes"] == 0x10


@pytest.mark.parametrize(("magic", "size", "timestamp"), [(0, 27, -1), (1, 35, 4321)])
def test_scan_of_legacy_entry_lists_what_its_header_says(magic: int, size: int, timestamp: int) -> None:
    """Count -1 until it is unpacked; no producer, no leader epoch (R-240, R-243)."""
    entry = legacy_entry(42, b"", b"v", magic, 4321, attributes=3)
    row = scan_bytes(entry).rows[0]
    assert (int(row["base_offset"]), int(row["last_offset"]), int(row["count"])) == (42, 42, -1)
    assert (int(row["size"]), int(row["base_timestamp"]), int(row["max_timestamp"])) == (size, timestamp, timestamp)
    assert int(row["attributes"]) == 3
    assert {int(row[name]) for name in ("producer_id", "producer_epoch", "base_sequence", "leader_epoch")} == {-1}


def test_scan_cut_anywhere_in_last_batch_lists_those_before() -> None:
    """A batch cut by the end of the chunk is left for the next read; its size is returned once it is known."""
    data = padded(GOOD + NEXT)
    for length in range(len(GOOD), len(GOOD) + len(NEXT)):
        found = scan(data, length, -1)
        assert (len(found.rows), found.covered, found.status) == (1, len(GOOD), SCAN_END)
        assert found.size == (len(NEXT) if length >= len(GOOD) + 12 else 0)


def test_scan_of_nothing_ends() -> None:
    """An empty chunk has no batches and no damage."""
    found = scan_bytes(b"")
    assert (len(found.rows), found.covered, found.status, found.size) == (0, 0, SCAN_END, 0)


def test_scan_with_full_table_returns_that_status() -> None:
    """The caller scans again from where the table filled up."""
    found = scan_bytes(GOOD + NEXT, room=1)
    assert (len(found.rows), found.covered, found.status) == (1, len(GOOD), SCAN_TABLE_FULL)


def with_size(batch: bytes, size: int) -> bytes:
    """Return a batch with a false length."""
    return batch[:8] + struct.pack(">i", size) + batch[12:]


def overridden(**fields: int) -> bytes:
    """One record at offset 110 under a false header."""
    return data_batch([Record(b"k", b"v")], 110, overrides=fields)


DAMAGED = [
    pytest.param(with_size(NEXT, 13), SCAN_TOO_SHORT, id="length-13"),
    pytest.param(with_size(NEXT, 0), SCAN_TOO_SHORT, id="length-0"),
    pytest.param(with_size(NEXT, -1), SCAN_TOO_SHORT, id="length-negative"),
    pytest.param(with_size(NEXT, -(2**31)), SCAN_TOO_SHORT, id="length-lowest"),
    pytest.param(with_size(NEXT, 48), SCAN_TOO_SHORT, id="length-below-header"),
    pytest.param(with_size(legacy_entry(110, None, b"", 1), 21), SCAN_TOO_SHORT, id="length-below-magic-1"),
    pytest.param(with_size(b"\0" * 14, 5), SCAN_TOO_SHORT, id="length-too-small-in-the-tail"),
    pytest.param(NEXT[:16] + b"\3" + NEXT[17:], SCAN_BAD_MAGIC, id="magic-3"),
    pytest.param(NEXT[:16] + b"\xff" + NEXT[17:], SCAN_BAD_MAGIC, id="magic-negative"),
    pytest.param(bytes(64), SCAN_TOO_SHORT, id="zeros"),
    pytest.param(NEXT[:-1] + b"x", SCAN_BAD_CRC, id="crc"),
    pytest.param(overridden(crc=0), SCAN_BAD_CRC, id="crc-zero"),
]
DAMAGED_HEADERS = [
    pytest.param(overridden(count=-1), SCAN_BAD_COUNT, id="count-negative"),
    pytest.param(overridden(count=2), SCAN_COUNT_ABOVE_OFFSETS, id="count-above-offsets"),
    pytest.param(overridden(last_offset_delta=-1), SCAN_BAD_LAST_OFFSET, id="last-offset-below-base"),
    pytest.param(
        data_batch([Record(b"k", b"v")], 2**63 - 1, overrides={"last_offset_delta": 1, "count": 1}),
        SCAN_BAD_LAST_OFFSET,
        id="last-offset-wraps",
    ),
    pytest.param(overridden(count=2, last_offset_delta=9), SCAN_COUNT_ABOVE_BYTES, id="count-above-bytes"),
    pytest.param(
        overridden(count=2**31 - 1, last_offset_delta=2**31 - 1), SCAN_COUNT_ABOVE_BYTES, id="count-of-billions"
    ),
    pytest.param(overridden(attributes=5), SCAN_BAD_CODEC, id="codec-5"),
    pytest.param(overridden(attributes=7), SCAN_BAD_CODEC, id="codec-7"),
    pytest.param(legacy_entry(110, None, b"v", 1, attributes=4), SCAN_BAD_CODEC, id="zstd-in-magic-1"),
    pytest.param(data_batch([Record(b"k", b"v")], 101), SCAN_OUT_OF_ORDER, id="offset-not-above-the-last"),
    pytest.param(data_batch([Record(b"k", b"v")], -5), SCAN_OUT_OF_ORDER, id="offset-negative"),
]


@pytest.mark.parametrize(("damaged", "status"), [*DAMAGED, *DAMAGED_HEADERS])
def test_scan_of_damaged_batch_stops_there_and_says_why(damaged: bytes, status: int) -> None:
    """The good batch before it is listed; the scan covers the bytes up to the bad one."""
    found = scan_bytes(GOOD + damaged)
    assert (len(found.rows), found.covered, found.status) == (1, len(GOOD), status)


@pytest.mark.parametrize(("damaged", "status"), DAMAGED)
def test_scan_without_order_check_still_finds_damaged_framing(damaged: bytes, status: int) -> None:
    """Checks of Kafka's recovery are always made."""
    assert scan_bytes(GOOD + damaged, NO_ORDER_CHECK).status == status


@pytest.mark.parametrize(("damaged", "status"), DAMAGED_HEADERS)
def test_scan_without_order_check_accepts_what_recovery_accepts(damaged: bytes, status: int) -> None:
    """Kafka's recovery ignores counts, codecs and order."""
    found = scan_bytes(GOOD + damaged, NO_ORDER_CHECK)
    assert (len(found.rows), found.status) == (2, SCAN_END), status


def test_scan_takes_as_many_records_as_the_bytes_can_hold() -> None:
    """Seven bytes are the smallest record; for a packed batch the number is not yet known."""
    smallest = data_batch([Record(None, None)] * 5, 110)
    assert len(smallest) == 61 + 5 * 7
    assert len(scan_bytes(GOOD + smallest).rows) == 2
    packed = data_batch(
        [Record(b"k", b"v")], 110, codec="zstd", overrides={"count": 2**31 - 1, "last_offset_delta": 2**31 - 1}
    )
    assert len(scan_bytes(GOOD + packed).rows) == 2


def test_scan_with_every_bit_flipped_never_lists_the_batch() -> None:
    """
    One bit anywhere in length, magic, checksum or what it covers is noticed; offset and epoch lie outside of it.

    Magic 2 flipped to 0 is listed: the reader checks the older checksum.
    """
    for position in range(len(NEXT)):
        for bit in range(8):
            flipped = bytearray(NEXT)
            flipped[position] ^= 1 << bit
            found = scan_bytes(GOOD + bytes(flipped), NO_ORDER_CHECK)
            if position < 8 or 12 <= position < 16:
                assert len(found.rows) == 2
            elif flipped[16] == 0:
                assert found.rows[1]["magic"] == 0
            else:
                assert len(found.rows) == 1, (position, bit)


def headers(data: bytes, previous_offset: int = -1) -> tuple[npt.NDArray[np.void], int, int, int]:
    """Scan without verifying checksums; returns rows, bytes covered, status and kinds."""
    table = np.zeros(64, BATCH_DTYPE)
    count, covered, status, _, kinds = scan_batches(padded(data), len(data), 0, previous_offset, False, table)
    return table[:count], int(covered), int(status), int(kinds)


def test_scan_of_headers_leaves_checksums_of_data_alone() -> None:
    """They are verified later, by any thread; the rest is the same."""
    bad = NEXT[:-1] + b"x"
    rows, covered, status, _ = headers(GOOD + bad)
    assert (len(rows), covered, status) == (2, len(GOOD + bad), SCAN_END)
    assert np.array_equal(rows, scan_bytes(GOOD + NEXT).rows)


@pytest.mark.parametrize(("damaged", "status"), DAMAGED)
def test_scan_of_headers_finds_damaged_framing(damaged: bytes, status: int) -> None:
    """Without a size there is no next batch."""
    found = headers(GOOD + damaged)
    if status == SCAN_BAD_CRC:
        assert (len(found[0]), found[2]) == (2, SCAN_END)
    else:
        assert (len(found[0]), found[1], found[2]) == (1, len(GOOD), status)


@pytest.mark.parametrize(("damaged", "status"), DAMAGED_HEADERS)
def test_scan_of_headers_tells_damage_from_a_bad_writer(damaged: bytes, status: int) -> None:
    """An invalid header with a bad checksum is damage to the bytes; with a good one it was written so."""
    assert headers(GOOD + damaged)[1:3] == (len(GOOD), status)
    if damaged[16] == 2:
        assert headers(GOOD + damaged[:-1] + bytes([damaged[-1] ^ 1]))[1:3] == (len(GOOD), SCAN_BAD_CRC)


def test_scan_of_headers_verifies_control_batches() -> None:
    """Markers are needed in order, before other checksums are verified."""
    marker = marker_batch(110, 5, 0, commit=False)
    assert headers(GOOD + marker)[2] == SCAN_END
    assert headers(GOOD + marker[:-1] + b"x")[1:3] == (len(GOOD), SCAN_BAD_CRC)


@pytest.mark.parametrize(
    ("batch", "kinds"),
    [
        pytest.param(NEXT, 0, id="plain"),
        pytest.param(data_batch([Record(b"k", b"v")], 110, codec="zstd"), 4, id="zstd"),
        pytest.param(data_batch([Record(b"k", b"v")], 110, append_time_ms=7, delete_horizon_ms=5), 0x48, id="times"),
        pytest.param(empty_batch(110, 111, producer=Producer(0, 0, 0)), KIND_PRODUCER, id="producer-0"),
        pytest.param(
            data_batch([Record(b"k", b"v")], 110, producer=Producer(9, 0, 0, True)),
            KIND_PRODUCER | TRANSACTIONAL_FLAG,
            id="transactional",
        ),
        pytest.param(
            marker_batch(110, 9, 0, commit=True), KIND_PRODUCER | TRANSACTIONAL_FLAG | CONTROL_FLAG, id="marker"
        ),
        pytest.param(legacy_entry(110, b"k", b"v", 0), KIND_LEGACY, id="magic-0"),
        pytest.param(legacy_entry(110, b"k", b"v", 1, 5, 2), KIND_LEGACY | 2, id="magic-1-packed"),
    ],
)
def test_scan_joins_the_kinds_of_all_batches_listed(batch: bytes, kinds: int) -> None:
    """Those of one batch that stops the scan are not among them."""
    behind = data_batch([Record(b"k", b"v")], 120, codec="gzip")
    assert headers(batch)[3] == kinds
    assert headers(GOOD + batch + behind)[3] == kinds | 1
    assert headers(GOOD + batch + bytes(20))[3] == kinds
    assert headers(GOOD + batch[:-1])[3] == 0
    wrong = GOOD + batch + batch  # the second is out of order
    assert headers(wrong)[2:] == (SCAN_OUT_OF_ORDER, kinds)


def test_good_checksums_are_counted_up_to_the_first_bad_one() -> None:
    """Those of magic 0 and 1 have none of this kind."""
    entry = legacy_entry(105, b"k", b"v", 1)
    log = GOOD + entry[:-1] + b"x" + NEXT + data_batch([Record(b"k", b"v")], 120)
    rows, *_ = headers(log)
    data = padded(log)
    assert count_good_checksums(data, rows) == len(rows) == 4
    assert count_good_checksums(data, rows[:0]) == 0
    for index in (0, 2, 3):
        damaged = data.copy()
        damaged[int(rows[index]["start"]) + int(rows[index]["size"]) - 1] ^= 1
        assert count_good_checksums(damaged, rows) == index


def test_records_are_counted_within_what_their_batches_can_hold() -> None:
    """A wrong count neither takes room from other batches nor asks for more than the bytes can fill."""
    rows = np.zeros(4, BATCH_DTYPE)
    rows["body_end"], rows["count"] = [70, 70, 70, -5], [3, -8, 2**40, 4]
    unread = np.zeros(4, np.uint8)
    assert count_records(rows, unread) == 3 + 10
    unread[2] = 1
    assert count_records(rows, unread) == 3


@given(st.lists(st.integers(0, 90), min_size=1, max_size=6), st.integers(0, 2000), st.integers(1, 255))
def test_headers_and_checksums_later_find_what_one_scan_finds(sizes: list[int], position: int, value: int) -> None:
    """With any byte changed; what headers say about batches behind a bad checksum does not matter."""
    log = bytearray(b"".join(data_batch([Record(b"k", bytes(size))], i) for i, size in enumerate(sizes)))
    log[position % len(log)] ^= value
    expected = scan_bytes(bytes(log))
    rows, covered, status, _ = headers(bytes(log))
    good = int(count_good_checksums(padded(bytes(log)), rows))
    if good < len(rows):
        rows, covered, status = rows[:good], int(rows[good]["start"]), SCAN_BAD_CRC
    assert (covered, status) == (expected.covered, expected.status)
    assert np.array_equal(rows, expected.rows)
