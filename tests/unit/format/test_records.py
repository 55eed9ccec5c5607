"""Batches made readable: unpacked, converted, in blocks of bounded size, within the limits."""

from __future__ import annotations

import numpy as np
import pytest

from cleaner.errors import CorruptBatchError
from cleaner.format import records as records_module
from cleaner.format.records import Block, Unpacker, bad_record, leave_out
from cleaner.kernels import records as kernel
from tests.fuzz.change_records import sealed
from tests.support.batch_builder import Record, data_batch, encode_record, legacy_batch, with_offsets
from tests.support.codecs import CODEC_IDS, compress
from tests.unit.cleaning.retaining import PATH, only_chunk

LIMIT = 1 << 24
RECORDS = [Record(b"k%d" % i, b"value %d" % i) for i in range(5)]
CODECS = tuple(CODEC_IDS)


def blocks_of(log: bytes, limit: int = LIMIT, unwanted: list[bool] | None = None) -> list[tuple[Block, list[bytes]]]:
    """Return the blocks of a log with the record bytes of each of their batches, copied."""
    chunk = only_chunk(log)
    flags = None if unwanted is None else np.array(unwanted)
    found = []
    for block in Unpacker(limit).blocks(PATH, chunk, flags):
        bodies = [
            (block.unpacked if row["unpacked"] else block.data)[int(row["body_start"]) : int(row["body_end"])].tobytes()
            for row in block.batches
        ]
        found.append((block, bodies))
    return found


def body_of(records: list[Record], base_offset: int) -> bytes:
    """Return the records of a batch as `data_batch` encodes them."""
    placed = with_offsets(records, base_offset, 0)
    return b"".join(encode_record(record, (record.offset or 0) - base_offset, 0) for record in placed)


@pytest.mark.parametrize("codec", CODECS)
def test_batch_of_any_codec_becomes_its_records(codec: str) -> None:
    """Packed batches are unpacked into the buffer; plain ones are used in place."""
    ((block, bodies),) = blocks_of(data_batch(RECORDS, 40, codec=codec))
    assert bodies == [body_of(RECORDS, 40)]
    assert block.batches["unpacked"].tolist() == [int(codec != "none")]
    assert block.record_count(np.zeros(1, np.uint8)) == 5


def test_mixed_batches_keep_their_order_and_places() -> None:
    """All codecs next to each other, in one block."""
    log = b"".join(data_batch(RECORDS, 10 * i, codec=codec) for i, codec in enumerate(CODECS * 3))
    ((block, bodies),) = blocks_of(log)
    assert block.first == 0
    assert bodies == [body_of(RECORDS, 10 * i) for i in range(15)]


def test_well_compressed_chunk_comes_in_blocks_of_bounded_size() -> None:
    """However small the chunk, about 1 MiB is unpacked at a time, unless a batch is larger."""
    sizes = [256 << 10] * 10 + [3 << 19] + [100] * 3
    log = b"".join(
        data_batch([Record(b"k", bytes(size))], i, codec="zstd") for i, size in enumerate(sizes)
    )  # fmt: skip
    found = blocks_of(log)
    assert [block.first for block, _ in found] == [0, 4, 8, 11]
    assert [len(bodies) for _, bodies in found] == [4, 4, 3, 3]
    assert all(len(body) >= size for body, size in zip((b for _, bodies in found for b in bodies), sizes, strict=True))


@pytest.mark.parametrize(("codec", "calls"), [("none", 0), ("lz4", 0), ("snappy", 0), ("gzip", 3), ("zstd", 3)])
def test_batches_that_a_library_unpacks_are_counted(codec: str, calls: int) -> None:
    """Each call releases the GIL; their number decides whether parallel threads gain anything."""
    unpacker = Unpacker(LIMIT)
    log = b"".join(data_batch(RECORDS, 10 * i, codec=codec) for i in range(3))
    list(unpacker.blocks(PATH, only_chunk(log)))
    assert unpacker.library_calls == calls


def test_unwanted_batch_is_not_unpacked() -> None:
    """It is not read, so even damage in it is not noticed."""
    damaged = data_batch(RECORDS, 0, payload=b"no gzip at all", overrides={"attributes": CODEC_IDS["gzip"]})
    ((block, _),) = blocks_of(damaged + data_batch(RECORDS, 9, codec="gzip"), unwanted=[True, False])
    assert block.batches["unpacked"].tolist() == [0, 1]
    assert block.record_count(np.array([1, 0], np.uint8)) == 5


@pytest.mark.parametrize("magic", [0, 1])
def test_unwanted_legacy_batch_that_cannot_be_read_is_skipped(magic: int) -> None:
    """It keeps its header's values, without records; a wanted one is damage."""
    entry = legacy_batch(RECORDS[:1], 7, magic, timestamp_ms=7000)
    at = 18 if magic == 0 else 26
    entry = sealed(entry[:at] + (1000).to_bytes(4, "big") + entry[at + 4 :])
    log = entry + data_batch(RECORDS, 9)
    ((block, bodies),) = blocks_of(log, unwanted=[True, False])
    assert [tuple(row)[3:5] for row in block.batches[["position", "start", "size", "base_offset", "last_offset"]]] == [
        (7, 7),
        (9, 13),
    ]
    assert block.batches["count"].tolist() == [0, 5]
    assert bodies[1] == body_of(RECORDS, 9)
    with pytest.raises(CorruptBatchError, match="a key is longer"):
        blocks_of(log, unwanted=[False, True])


def test_leaving_out_a_batch_makes_progress_or_raises() -> None:
    """A second time, or where no batch begins, reading again would never end."""
    batches = only_chunk(data_batch(RECORDS, 0) + data_batch(RECORDS, 9)).batches
    unwanted = np.zeros(2, np.uint8)
    error = CorruptBatchError(PATH, int(batches["position"][1]), "x")
    assert leave_out(batches, unwanted, error) == 1
    assert unwanted.tolist() == [0, 1]
    with pytest.raises(CorruptBatchError) as raised:
        leave_out(batches, unwanted, error)
    assert raised.value is error
    with pytest.raises(CorruptBatchError, match="at byte 5"):
        leave_out(batches, unwanted, CorruptBatchError(PATH, 5, "y"))


@pytest.mark.parametrize(("count", "room"), [(-3, 0), (2**31 - 1, 1), (1, 1)])
def test_room_for_records_is_what_their_bytes_can_hold(count: int, room: int) -> None:
    """Whatever number an unchecked header claims."""
    log = data_batch(RECORDS[:1], 0, overrides={"count": count}) + data_batch(RECORDS, 9)
    block = Block(np.zeros(0, np.uint8), np.zeros(0, np.uint8), only_chunk(log).batches, 0)
    bytes_of_one = int(block.batches["body_end"][0] - block.batches["body_start"][0])
    assert block.record_count(np.array([0, 0], np.uint8)) == min(room * bytes_of_one // 7, max(count, 0)) + 5


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("unwanted", [False, True])
def test_legacy_batch_becomes_the_equivalent_batch_of_magic_2(magic: int, unwanted: bool) -> None:
    """Rows are rewritten, also for unwanted batches, as their count is known only then (R-577)."""
    log = legacy_batch(RECORDS, 40, magic, timestamp_ms=7000, codec="gzip")
    ((block, bodies),) = blocks_of(log, unwanted=[unwanted])
    row = block.batches[0]
    assert (int(row["base_offset"]), int(row["last_offset"]), int(row["count"])) == (40, 44, 5)
    assert bodies == [body_of(RECORDS, 40)]
    assert int(row["base_timestamp"]) == (7000 if magic else -1)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_batch_that_unpacks_to_more_than_the_limit_is_refused(codec: str) -> None:
    """A bomb is damage, named by its batch."""
    good = data_batch(RECORDS, 0, codec=codec)
    bomb = data_batch([Record(b"k", bytes(1 << 21))], 5, codec=codec)
    with pytest.raises(CorruptBatchError) as raised:
        blocks_of(good + bomb, limit=1 << 20)
    assert raised.value.position == len(good)
    assert len(blocks_of(good + bomb, limit=1 << 22)) == 1


@pytest.mark.parametrize("codec", CODECS[1:])
def test_packed_batch_that_claims_more_records_than_it_holds_is_refused(codec: str) -> None:
    """Before memory for billions of verdicts is allocated."""
    good = data_batch(RECORDS, 0, codec=codec)
    liar = data_batch(RECORDS, 5, codec=codec, overrides={"count": 2**31 - 1, "last_offset_delta": 2**31 - 2})
    with pytest.raises(CorruptBatchError, match="2147483647 records in") as raised:
        blocks_of(good + liar)
    assert raised.value.position == len(good)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_damaged_stream_is_refused_by_position(codec: str) -> None:
    """A stream that ends early, under a right checksum."""
    packed = compress(codec, body_of(RECORDS, 5))[:-3]
    bad = data_batch(RECORDS, 5, payload=packed, overrides={"attributes": CODEC_IDS[codec]})
    good = data_batch(RECORDS, 0)
    with pytest.raises(CorruptBatchError) as raised:
        blocks_of(good + bad)
    assert (raised.value.path, raised.value.position) == (PATH, len(good))


def test_every_status_of_a_record_has_words() -> None:
    """The message names batch, position and reason."""
    statuses = {v for n, v in vars(kernel).items() if n.startswith("RECORD_") and n != "RECORD_GOOD"}
    row = only_chunk(data_batch(RECORDS, 0)).batches[0]
    messages = {str(bad_record(PATH, row, status, 17)) for status in statuses}
    assert len(messages) == len(statuses) == len(records_module._REASONS)
    assert all("at byte 0: in the record 17 bytes into its records: " in message for message in messages)
