"""Walking a `.log` by its headers: the same batches and the same damage as the reader that checks everything."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise

import google_crc32c
import numpy as np
import pytest

from cleaner.errors import CorruptBatchError
from cleaner.format import headers
from cleaner.format.batch import SegmentReader
from cleaner.format.chunks import BATCH_DTYPE, CONTROL_FLAG, Chunk
from cleaner.format.headers import HeaderReader
from cleaner.kernels.batch_header import HEADER_FIELDS, HEADER_POSITIONS
from tests.support.batch_builder import Producer, Record, data_batch, legacy_batch
from tests.support.batch_reader import MemoryFile, split_batches
from tests.support.log_builder import LogBuilder

# Positions within a chunk, which differ as the chunks do.
COMPARED = [name for name in BATCH_DTYPE.names or () if name not in ("start", "body_start", "body_end", "unpacked")]
FIELDS = {name: (at, end - at) for (name, _), (at, end) in zip(HEADER_FIELDS, pairwise(HEADER_POSITIONS), strict=True)}
INTERESTING = (0, 1, 2, 3, 5, 7, 12, 14, 33, 60, 61, 0x7F, 0x80, 0xFF, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1)


def mixed_log() -> bytes:
    """Every kind of batch, some of them larger than the reader's read-ahead."""
    log = LogBuilder()
    log.append(("a", "1"), magic=0)
    log.append(("b", "1"), ("c", "1"), magic=1, codec="gzip")
    log.append(("d", "1"), ("e", None), codec="gzip", producer=Producer(5, 1, 7))
    log.append(("f", "1"), producer=Producer(6, 0, 0, True))
    log.leader_epoch = 4
    log.end_transaction(6, 0, commit=False, coordinator_epoch=3)
    log.append(("g", "x" * 100_000))
    log.append_empty(3, producer=Producer(5, 1, 9))
    log.skip(1000)
    log.append(("h", "1"), append_time_ms=5)
    log.append(("i", "x" * 65_500), producer=Producer(7, 2, 0, True))
    log.end_transaction(7, 2, commit=True)
    return b"".join(data for name, data in log.files().items() if name.endswith(".log"))


def walk(reader: Iterable[Chunk]) -> tuple[list[tuple[int, ...]], list[bytes], tuple[int, str] | None]:
    """Return the rows, the records of control batches, and position and reason of the damage."""
    rows: list[tuple[int, ...]] = []
    bodies: list[bytes] = []
    try:
        for chunk in reader:
            assert chunk.length == int(chunk.batches["size"].sum()) > 0
            assert chunk.position == int(chunk.batches["position"][0])
            rows += chunk.batches[COMPARED].tolist()
            for row in chunk.batches[(chunk.batches["attributes"] & CONTROL_FLAG) != 0]:
                if row["magic"] == 2:
                    bodies.append(chunk.data[int(row["body_start"]) : int(row["body_end"])].tobytes())
    except CorruptBatchError as damage:
        return rows, bodies, (damage.position, damage.reason)
    return rows, bodies, None


def assert_agree(log: bytes, start: int = 0, check_order_from: int | None = None, size: int | None = None) -> None:
    """Both readers return the same for a log."""
    size = len(log) if size is None else size
    found = walk(HeaderReader(MemoryFile(log), size=size, start=start, check_order_from=check_order_from))
    assert found == walk(SegmentReader(MemoryFile(log), size=size, start=start, check_order_from=check_order_from))


def sealed(batch: bytes) -> bytes:
    """Give a batch of magic 2 the checksum of its bytes."""
    return batch[:17] + int(google_crc32c.value(batch[21:])).to_bytes(4, "big") + batch[21:]


@pytest.mark.parametrize("check_order_from", [None, 0])
def test_walk_gives_the_rows_of_the_checking_reader(check_order_from: int | None) -> None:
    """Every field of every batch, from each batch on (R-201, R-210, R-240)."""
    log = mixed_log()
    start = 0
    for batch in split_batches(log):
        assert_agree(log, start, check_order_from)
        start += len(batch)


def test_walk_hands_out_chunks_of_bounded_length() -> None:
    """However many batches there are."""
    log = b"".join(data_batch([Record(b"k", b"v")], offset) for offset in range(40))
    assert [len(chunk.batches) for chunk in HeaderReader(MemoryFile(log), size=len(log), max_rows=7)] == [
        7,
        7,
        7,
        7,
        7,
        5,
    ]
    assert_agree(log)


def test_walk_skips_the_records() -> None:
    """Only a window at each header is read."""
    log = b"".join(data_batch([Record(b"k", bytes(1 << 20))], offset) for offset in range(4))
    file = MemoryFile(log)
    assert sum(len(chunk.batches) for chunk in HeaderReader(file, size=len(log))) == 4
    assert file.bytes_read <= 4 * headers._WINDOW_BYTES


@pytest.mark.parametrize("check_order_from", [None, 0])
def test_walk_of_a_cut_log_ends_where_the_checking_reader_ends(check_order_from: int | None) -> None:
    """The same position and reason, wherever a file ends."""
    log = data_batch([Record(b"k", b"v")], 0) + legacy_batch([Record(b"k", b"v")], 1, 1) + data_batch([], 2)
    for size in range(len(log)):
        assert_agree(log, size=size, check_order_from=check_order_from)


@pytest.mark.parametrize("check_order_from", [None, 0, 11])
@pytest.mark.parametrize("name", [name for name in FIELDS if name != "crc"])
def test_invalid_header_is_the_same_error(name: str, check_order_from: int | None) -> None:
    """Each field with each extreme value and a right checksum: the checks are those of the kernel (R-202)."""
    before, batch = data_batch([Record(b"k", b"v")], 10), data_batch([Record(b"k", b"v"), Record(b"l", b"")], 11)
    offset, width = FIELDS[name]
    for value in INTERESTING:
        field = (value % (1 << 8 * width)).to_bytes(width, "big")
        changed = batch[:offset] + field + batch[offset + width :]
        if name == "magic" and field[0] < 2:
            continue  # its checksum is another one
        if name == "length":
            # What lies behind the length may still be whole, then it is the checksum that tells.
            size = int.from_bytes(field, "big") + 12
            if len(batch) > size >= 61:
                continue
        assert_agree(before + sealed(changed), check_order_from=check_order_from)


def test_random_bytes_are_damage_and_nothing_else() -> None:
    """Whatever the bytes: an error with a position, or rows."""
    chance = random.Random(1)
    sound = mixed_log()[:600]
    for _ in range(300):
        log = bytearray(sound)
        for _ in range(chance.randrange(1, 4)):
            log[chance.randrange(len(log))] = chance.randrange(256)
        rows, _, damage = walk(HeaderReader(MemoryFile(bytes(log)), size=len(log), check_order_from=0))
        assert damage is not None
        assert damage[0] == sum(row[COMPARED.index("size")] for row in rows) <= len(log)


def test_file_that_became_shorter_is_damage() -> None:
    """A broker may be writing it."""
    log = mixed_log()
    rows, _, damage = walk(HeaderReader(MemoryFile(log[:-40]), size=len(log)))
    assert len(rows) < len(split_batches(log))
    assert damage is not None
    assert "shorter" in damage[1]


def test_huge_control_batch_is_read_only_in_part() -> None:
    """Values that a producer controls do not decide how much memory is used."""
    batch = bytearray(data_batch([Record(b"k", bytes(1 << 20))], 0))
    batch[22] |= CONTROL_FLAG
    (chunk,) = HeaderReader(MemoryFile(bytes(batch)), size=len(batch))
    assert chunk.data.nbytes == headers._MAX_CONTROL_BYTES
    assert np.count_nonzero(chunk.batches["body_end"]) == 1
