"""Batches made readable: unpacked, converted, in blocks of bounded size, within the limits."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cleaner.errors import CorruptBatchError, RecordAboveLimitError
from cleaner.format import records as records_module
from cleaner.format.key_digests import KeyDigests, new_secret
from cleaner.format.records import Block, Unpacker, bad_record, leave_out
from cleaner.kernels import records as kernel
from cleaner.kernels import zstd
from tests.fuzz.change_records import sealed
from tests.support.batch_builder import (
    Record,
    data_batch,
    encode_record,
    legacy_batch,
    legacy_entry,
    varint,
    with_offsets,
)
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


@pytest.mark.parametrize(
    ("codec", "value_bytes", "calls"),
    [("none", 1, 0), ("lz4", 1, 0), ("snappy", 1, 0), ("gzip", 1, 0), ("gzip", 2000, 3), ("zstd", 1, 0)],
)
def test_batches_that_a_library_unpacks_are_counted(codec: str, value_bytes: int, calls: int) -> None:
    """Each call releases the GIL; their number decides whether parallel threads gain anything."""
    unpacker = Unpacker(LIMIT)
    value = random.Random(1).randbytes(value_bytes)
    log = b"".join(data_batch([Record(b"k", value)], 10 * i, codec=codec) for i in range(3))
    list(unpacker.blocks(PATH, only_chunk(log)))
    assert unpacker.library_calls == calls


def test_zstd_is_unpacked_one_by_one_where_kernels_cannot_call_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the same records; a package of `zstandard` may come without what they call."""
    log = b"".join(data_batch(RECORDS, 10 * i, codec="zstd") for i in range(3))
    ((_, expected),) = blocks_of(log)
    monkeypatch.setattr(records_module, "kernel_cells", lambda: np.zeros(zstd.CELLS, np.int64))
    unpacker = Unpacker(LIMIT)
    assert len(list(unpacker.blocks(PATH, only_chunk(log)))) == 1
    assert unpacker.library_calls == 3
    ((_, bodies),) = blocks_of(log)
    assert bodies == expected


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


SMALL, LARGE = Record(b"k", b"v"), Record(b"key", b"value of a large record")
PACKED = tuple(CODEC_IDS)[1:]
LARGE_BYTES = len(encode_record(LARGE, 0, 0)) - 1  # without the length itself, which is one byte here


def records_before_refusal(log: bytes, limit: int, unwanted: list[bool] | None = None) -> tuple[list[int], str]:
    """Return the record counts of the batches handed out, and the refusal; empty if there is none."""
    counts: list[int] = []
    flags = None if unwanted is None else np.array(unwanted)
    try:
        for block in Unpacker(LIMIT).blocks(PATH, only_chunk(log), flags, limit):
            counts += block.batches["count"].tolist()
    except RecordAboveLimitError as error:
        return counts, error.reason
    return counts, ""


@pytest.mark.parametrize("codec", PACKED)
def test_record_of_a_packed_batch_may_have_the_limit_and_no_byte_more(codec: str) -> None:
    """Its length counts, not the batch's; what comes before it was handed out (R-511, R-560)."""
    log = data_batch([SMALL] * 3, 0, codec=codec) + data_batch([SMALL, SMALL, LARGE, SMALL], 3, codec=codec)
    log += data_batch([LARGE], 7, codec=codec)
    assert records_before_refusal(log, LARGE_BYTES) == ([3, 4, 1], "")
    counts, reason = records_before_refusal(log, LARGE_BYTES - 1)
    assert counts == [3, 2]
    at = 2 * len(encode_record(SMALL, 0, 0))
    assert reason.startswith(
        f"a compressed record of {LARGE_BYTES} bytes, {at} bytes into its unpacked batch, is above "
    )
    assert f"max.decompressed.message.bytes={LARGE_BYTES - 1}; Kafka 4.4 refuses" in reason


def test_limit_does_not_concern_unpacked_and_unwanted_batches_nor_what_they_add_up_to() -> None:
    """Only a record of a packed batch that is read (R-560)."""
    plain, packed = data_batch([LARGE], 0), data_batch([LARGE], 1, codec="lz4")
    many = data_batch([SMALL] * 50, 2, codec="gzip")
    entry = legacy_batch([LARGE], 60, 1)
    log = plain + packed + many + entry + legacy_batch([LARGE], 70, 0, codec="gzip")
    limit = len(encode_record(SMALL, 49, 0)) - 1
    assert records_before_refusal(log, limit, [False, True, False, False, True]) == ([1, 1, 50, 1, 1], "")


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_entry_of_a_legacy_wrapper_may_have_the_limit_and_no_byte_more(magic: int, codec: str) -> None:
    """The size field counts; Kafka reads all entries of a wrapper before it gives out the first (R-241, R-511)."""
    size = len(legacy_entry(0, LARGE.key, LARGE.value, magic)) - 12
    log = data_batch([SMALL] * 3, 0, codec="zstd") + legacy_batch([SMALL, LARGE, SMALL], 3, magic, codec=codec)
    assert records_before_refusal(log, size) == ([3, 3], "")
    counts, reason = records_before_refusal(log, size - 1)
    assert counts == [3]
    assert reason.startswith(f"a compressed record of {size} bytes")


@pytest.mark.parametrize("magic", [0, 1])
def test_cut_off_entry_at_the_end_of_a_wrapper_counts_for_the_limit(magic: int) -> None:
    """Kafka passes over it, but compares its size first (R-241, R-511)."""
    small, large = legacy_entry(0, b"k", b"v", magic), legacy_entry(1, LARGE.key, LARGE.value, magic)
    log = legacy_entry(0, None, compress("gzip", small + large[:20]), magic, attributes=CODEC_IDS["gzip"])
    assert records_before_refusal(log, len(large) - 12) == ([1], "")
    assert records_before_refusal(log, len(large) - 13)[0] == []


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("limit", [1, LIMIT])
def test_negative_length_of_a_packed_record_is_damage_with_and_without_a_limit(codec: str, limit: int) -> None:
    """It is refused before anything of that size is allocated."""
    body = encode_record(SMALL, 0, 0)
    log = data_batch([SMALL, SMALL], 0, codec=codec, payload=compress(codec, varint(-5) + 3 * body))
    (block,) = Unpacker(LIMIT).blocks(PATH, only_chunk(log), None, limit)
    with pytest.raises(CorruptBatchError, match="its length does not fit the batch"):
        KeyDigests().add(PATH, block, np.zeros(1, np.uint8), new_secret())


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
