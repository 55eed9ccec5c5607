"""Producer snapshots: R-125, and the order in which Kafka writes the producers."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.errors import CorruptCheckpointError
from cleaner.kernels.checksums import crc32c
from cleaner.storage.files.producer_snapshot import (
    ProducerEntry,
    decode_rows,
    encode_snapshot,
    java_order,
    read_snapshot,
    write_snapshot,
)
from cleaner.storage.fs.file_system import FileSystem

FS = FileSystem()
PATH = Path("log/00000000000000000062.snapshot")

# Written by Kafka 4.3.1: an open transaction, an idempotent producer, one that only ever committed, and a finished one.
FROM_KAFKA = bytes.fromhex(
    "00016d8b5423000000080000000000000fa0000200000002000000000000003d00000002000001977420dd7100000000000000000000003b"
    "0000000000000fa1000100000003000000000000001f00000003000001977420dc9100000000000000000000001c0000000000000fa20000"
    "00000006000000000000001a00000003000001977420dc7cffffffff000000000000000a0000000000000fa3000000000002000000000000"
    "002100000001000001977420dcc2ffffffff000000000000000e00000000000023280006ffffffffffffffffffffffff0000000000000197"
    "7420dcca00000000ffffffffffffffff00000000000023290003ffffffffffffffffffffffff00000000000001977420dcca00000000ffff"
    "ffffffffffff000000000000232a000400000001000000000000000100000001000001977420dcca00000000ffffffffffffffff00000000"
    "0000232b000700000000000000000000000200000000000001977420dcca00000000ffffffffffffffff"
)


def entry(producer_id: int) -> ProducerEntry:
    """A producer of which only the id matters."""
    return ProducerEntry(producer_id, 0, -1, -1, 0, 1_750_000_000_000, -1, -1)


def decode_snapshot(data: bytes, path: Path) -> list[ProducerEntry]:
    """Return the entries of a file."""
    return [ProducerEntry._make(row) for row in decode_rows(data, path).tolist()]


def test_snapshot_of_kafka_is_read_and_written_alike() -> None:
    """R-125: eight fields of eight producers, and the same bytes back."""
    entries = decode_snapshot(FROM_KAFKA, PATH)
    assert [found.producer_id for found in entries] == [4000, 4001, 4002, 4003, 9000, 9001, 9002, 9003]
    assert entries[0] == ProducerEntry(4000, 2, 2, 61, 2, 1_750_000_000_369, 0, 59)
    assert entries[2] == ProducerEntry(4002, 0, 6, 26, 3, 1_750_000_000_124, -1, 10)
    assert entries[4] == ProducerEntry(9000, 6, -1, -1, 0, 1_750_000_000_202, 0, -1)
    assert encode_snapshot(entries) == FROM_KAFKA
    assert encode_snapshot(entries[::-1]) == FROM_KAFKA  # no two of them share a bucket


def test_snapshot_without_producers_is_ten_bytes() -> None:
    """R-127: Kafka writes this when it forgets all producers."""
    assert encode_snapshot([]).hex() == "000148674bc700000000"
    assert decode_snapshot(encode_snapshot([]), PATH) == []


@pytest.mark.parametrize(
    ("inserted", "walked"),
    [
        pytest.param(
            [*range(4000, 4014), 17, 33, 1, 65536, 2**32, 2**40 + 5, 999999999999],
            [4000, 4001, 33, 1, 65536, 2**32, 4002, 4003, 4004, 4005, 2**40 + 5, *range(4006, 4014), 17, 999999999999],
            id="high-bits-are-mixed-in",
        ),
        pytest.param(
            [0, 16, 32, 48, 64, 80, 96, 112, 128],
            [0, 32, 64, 96, 128, 16, 48, 80, 112],
            id="nine-in-a-bucket-double-a-small-table",
        ),
        pytest.param(
            [0, 64, 128, 192, 256, 320, 384, 448, 3, 2, 1],
            [0, 64, 128, 192, 256, 320, 384, 448, 1, 2, 3],
            id="eight-in-a-bucket-do-not",
        ),
        pytest.param(
            [2**33, 5, 2**50, 70000, 12, 131072, 65537, 2**62, 7, 1000, 2000, 3000, 4000, 5000],
            [65537, 2**62, 4000, 2**33, 131072, 2**50, 5, 7, 1000, 5000, 12, 2000, 70000, 3000],
            id="thirteenth-doubles-the-table",
        ),
    ],
)
def test_snapshot_order_is_a_java_maps(inserted: list[int], walked: list[int]) -> None:
    """The right column is the order of OpenJDK 17's `HashMap<Long, ...>` for the left one."""
    assert java_order(inserted) == walked
    assert [found.producer_id for found in decode_snapshot(encode_snapshot([*map(entry, inserted)]), PATH)] == walked


def test_snapshot_order_after_many_producers_left_is_the_large_maps() -> None:
    """A Java map never shrinks: one that once had thirteen entries has 32 buckets."""
    assert java_order([16, 1]) == [16, 1]
    assert java_order([16, 1], max_entries=12) == [16, 1]
    assert java_order([16, 1], max_entries=13) == [1, 16]
    assert decode_snapshot(encode_snapshot([entry(16), entry(1)], max_entries=13), PATH)[0] == entry(1)


def test_snapshot_of_one_producer_twice_is_refused() -> None:
    """A caller with this error is stopped before it writes."""
    with pytest.raises(ValueError, match="twice"):
        encode_snapshot([entry(1), entry(1)])


def with_crc(version: int, body: bytes) -> bytes:
    """A snapshot with a correct checksum, whatever its content."""
    return struct.pack(">hI", version, crc32c(body)) + body


@pytest.mark.parametrize(
    ("data", "position", "reason"),
    [
        pytest.param(b"", 0, "a snapshot of 0 bytes", id="empty"),
        pytest.param(FROM_KAFKA[:9], 9, "a snapshot of 9 bytes", id="torn-header"),
        pytest.param(b"\x00\x02" + FROM_KAFKA[2:], 0, "version 2", id="version"),
        pytest.param(FROM_KAFKA[:-1], 6, "8 producers announced in 377 bytes", id="torn"),
        pytest.param(FROM_KAFKA[:-1] + b"\x00", 2, "checksum 0x6d8b5423", id="last-byte"),
        pytest.param(FROM_KAFKA + b"\x00", 2, "checksum", id="trailing-byte"),
        pytest.param(with_crc(1, struct.pack(">i", -1)), 6, "-1 producers", id="negative-count"),
        pytest.param(with_crc(1, struct.pack(">i", 2**31 - 1)), 6, "2147483647 producers", id="absurd-count"),
    ],
)
def test_snapshot_damaged_is_refused_at_its_field(data: bytes, position: int, reason: str) -> None:
    """R-125: every snapshot that Kafka would delete is refused, with the position of the bad field."""
    with pytest.raises(CorruptCheckpointError) as caught:
        decode_snapshot(data, PATH)
    assert (caught.value.path, caught.value.position) == (PATH, position)
    assert reason in caught.value.reason


@given(st.integers(0, len(FROM_KAFKA) * 8 - 1))
def test_snapshot_with_any_flipped_bit_is_refused(bit: int) -> None:
    """No single flipped bit goes unnoticed."""
    data = bytearray(FROM_KAFKA)
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptCheckpointError):
        decode_snapshot(bytes(data), PATH)


I16, I32, I64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
ENTRIES = st.lists(
    st.builds(ProducerEntry, I64, I16, I32, I64, I32, I64, I32, I64), unique_by=lambda found: found.producer_id
)


@given(ENTRIES)
def test_snapshot_is_read_as_it_was_written(entries: list[ProducerEntry]) -> None:
    """Every value of every field is kept, and the bytes are the same after reading and writing again."""
    data = encode_snapshot(entries)
    found = decode_snapshot(data, PATH)
    assert sorted(found) == sorted(entries)
    assert len(data) == 10 + 46 * len(entries)


@given(st.binary(max_size=200))
def test_snapshot_of_any_bytes_is_read_or_refused(body: bytes) -> None:
    """Bytes with a correct checksum never raise anything except CorruptCheckpointError."""
    data = with_crc(1, body)
    try:
        found = decode_snapshot(data, PATH)
    except CorruptCheckpointError as error:
        assert 0 <= error.position <= len(data)
    else:
        assert 10 + 46 * len(found) <= len(data)


def test_snapshot_file_is_replaced_whole(tmp_path: Path) -> None:
    """A shorter snapshot contains nothing of a longer one that it replaces."""
    path = tmp_path / "00000000000000000062.snapshot"
    write_snapshot(FS, path, [entry(1), entry(2)])
    write_snapshot(FS, path, [entry(3)])
    assert read_snapshot(FS, path).tolist() == [entry(3)]
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_missing_and_absurdly_long_snapshots_are_distinguished(tmp_path: Path) -> None:
    """A missing file is not damage; a sparse terabyte is, and is not read."""
    with pytest.raises(FileNotFoundError):
        read_snapshot(FS, tmp_path / "none")
    with (tmp_path / "long").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CorruptCheckpointError, match="1099511627776 bytes"):
        read_snapshot(FS, tmp_path / "long")
