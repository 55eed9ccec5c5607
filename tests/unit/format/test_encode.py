"""Batches built in bulk are those of the slow builder, byte for byte."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.format.buffers import GrowingBuffer
from cleaner.format.compression import decompress
from cleaner.format.encode import (
    BatchProducer,
    NewBatch,
    encode_batches,
    join_columns,
    marker_batch,
    place,
    single_batch,
)
from cleaner.kernels.codec_table import CODEC_NAMES
from tests.support import batch_builder
from tests.support.batch_builder import HEADER_BYTES, Producer, data_batch
from tests.support.batch_reader import batch_info, split_batches
from tests.support.codecs import crc32c

pytestmark = pytest.mark.kernels

FIELDS = st.one_of(st.none(), st.binary(max_size=40), st.integers(60, 200).map(bytes))
HEADERS = st.lists(st.tuples(st.text(max_size=8), st.one_of(st.none(), st.binary(max_size=8))), max_size=3)
RECORDS = st.lists(st.tuples(FIELDS, FIELDS, st.integers(0, 2**48), HEADERS), min_size=1, max_size=30)


def build(
    records: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]],
    codec: str = "none",
    batch_bytes: int = 1 << 20,
    append_time_ms: int | None = None,
    producer: BatchProducer | None = None,
) -> tuple[list[NewBatch], list[bytes]]:
    """Build batches from offset 100 on; returns their descriptions and bytes."""
    keys, values, times, headers = (list(column) for column in zip(*records, strict=True))
    columns = join_columns(values, keys, times, headers)
    out = GrowingBuffer(64)
    batches = encode_batches(
        columns,
        out,
        codec=CODEC_NAMES.index(codec),
        batch_bytes=batch_bytes,
        append_time_ms=append_time_ms,
        producer=producer or BatchProducer(),
        scratch=GrowingBuffer(64),
    )
    place(out.view, batches, 100, 7)
    return batches, [bytes(out.view[batch.start : batch.start + batch.size]) for batch in batches]


@pytest.mark.parametrize("codec", CODEC_NAMES)
@given(records=RECORDS, batch_bytes=st.integers(0, 600), append_time_ms=st.one_of(st.none(), st.integers(0, 2**48)))
def test_batches_equal_those_of_the_slow_builder(
    codec: str,
    records: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]],
    batch_bytes: int,
    append_time_ms: int | None,
) -> None:
    """Nulls, headers, times that go back, every codec, cuts anywhere, numbers that wrap (R-210 to R-221)."""
    base_sequence = 2**31 - 3
    producer = BatchProducer(9, 2, base_sequence, is_transactional=True)
    batches, built = build(records, codec, batch_bytes, append_time_ms, producer)
    assert sum(batch.record_count for batch in batches) == len(records)
    for batch, data in zip(batches, built, strict=True):
        taken = records[batch.first_record : batch.first_record + batch.record_count]
        expected = data_batch(
            [
                batch_builder.Record(
                    key, value, None, time, tuple((name.encode(), content) for name, content in headers)
                )
                for key, value, time, headers in taken
            ],
            100 + batch.first_record,
            producer=Producer(9, 2, (base_sequence + batch.first_record) % 2**31, True),
            append_time_ms=append_time_ms,
            leader_epoch=7,
        )
        unpacked = GrowingBuffer()
        size = decompress(CODEC_NAMES.index(codec), 2, memoryview(data)[HEADER_BYTES:], unpacked, 0, 1 << 24)
        assert unpacked.view[:size] == expected[HEADER_BYTES:]
        # Length, checksum and codec aside, which other tests hold against Kafka's.
        assert (data[:8], data[12:17], data[23:HEADER_BYTES]) == (
            expected[:8],
            expected[12:17],
            expected[23:HEADER_BYTES],
        )
        assert batch_info(data).attributes == batch_info(expected).attributes | CODEC_NAMES.index(codec)
        assert split_batches(data) == [data]
        assert int.from_bytes(data[17:21], "big") == crc32c(data[21:])
        assert codec != "none" or data == expected
        assert batch.max_timestamp == struct.unpack_from(">q", data, 35)[0]


@given(
    record=st.tuples(FIELDS, FIELDS, st.integers(0, 2**63 - 1), HEADERS),
    append_time_ms=st.one_of(st.none(), st.integers(0, 2**48)),
    producer=st.builds(
        BatchProducer, st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1), st.booleans()
    ),
)
def test_batch_of_a_single_record_is_that_of_its_columns(
    record: tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]],
    append_time_ms: int | None,
    producer: BatchProducer,
) -> None:
    """The quicker way makes the same bytes, whatever the record and its producer."""
    data, batch = single_batch(*record, append_time_ms=append_time_ms, producer=producer)
    place(memoryview(data), [batch], 100, 7)
    assert ([batch], [bytes(data)]) == build([record], append_time_ms=append_time_ms, producer=producer)


@given(records=RECORDS, batch_bytes=st.integers(0, 600))
def test_batches_are_as_large_as_allowed_and_no_larger(
    records: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]], batch_bytes: int
) -> None:
    """A batch with several records keeps to the limit, and the next one's first record would not have fitted."""
    batches, built = build(records, batch_bytes=batch_bytes)
    for number, batch in enumerate(batches):
        assert batch.record_count == 1 or batch.size <= batch_bytes
        if number + 1 < len(batches):
            taken = records[batch.first_record : batches[number + 1].first_record + 1]
            assert len(build(taken)[1][0]) > batch_bytes
    assert len(built) == len(batches)


def test_columns_without_keys_and_headers_have_none() -> None:
    """A column that is left out costs nothing and is null in every record; one time counts for all."""
    out = GrowingBuffer()
    (batch,) = encode_batches(join_columns([b"a", None], None, 5), out, batch_bytes=1000)
    place(out.view, [batch], 0, 0)
    records = [batch_builder.Record(None, b"a"), batch_builder.Record(None, None)]
    assert bytes(out.view[: batch.size]) == data_batch(records, 0, timestamp_ms=5)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_marker_equals_the_slow_builders(commit: bool) -> None:
    """The end of a transaction is a control batch of one record (R-230, R-231)."""
    marker, batch = marker_batch(7, 3, commit=commit, timestamp_ms=1234)
    assert batch == NewBatch(0, len(marker), 0, 1, 1234)
    place(memoryview(marker), [batch], 55, 9)
    assert bytes(marker) == batch_builder.marker_batch(55, 7, 3, commit=commit, timestamp_ms=1234, leader_epoch=9)


@pytest.mark.parametrize(
    ("values", "keys", "times", "headers"),
    [
        ([b"a"], [b"a", b"b"], 0, None),
        ([b"a"], None, [1, 2], None),
        ([b"a"], None, -1, None),
        ([b"a"], None, 0, [[], []]),
        (["a"], None, 0, None),
        ([1], None, 0, None),
        ([memoryview(np.zeros(3, np.int32))], None, 0, None),
        ([b"a"], None, 0, [[(b"h", b"x")]]),
        ([b"a"], None, 0, [[("\ud800", b"x")]]),
    ],
    ids=["keys", "times", "negative", "headers", "text", "number", "words", "header-bytes", "surrogate"],
)
def test_columns_that_are_no_records_are_refused(
    values: list[object], keys: list[bytes] | None, times: int, headers: list[list[object]] | None
) -> None:
    """A kernel would read past their ends, or they have no form on disk."""
    with pytest.raises((ValueError, TypeError)):
        join_columns(values, keys, times, headers)  # type: ignore[arg-type]
