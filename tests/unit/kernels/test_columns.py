"""Laying records out as columns, compared with the reference; damage is reported by kind and place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.errors import CorruptBatchError
from cleaner.format.batch import ReadBuffer, SegmentReader
from cleaner.format.layout import cut_out, lay_out
from cleaner.format.records import Unpacker
from cleaner.kernels import PAD_BYTES
from tests.reference.batches import read_batches, read_records
from tests.support.batch_builder import Record, data_batch, varint
from tests.support.batch_reader import MemoryFile

pytestmark = pytest.mark.kernels
PATH = Path("0.log")
fields = st.none() | st.binary(max_size=300)
records = st.builds(
    Record,
    fields,
    fields,
    offset=st.none(),
    timestamp_ms=st.integers(-1, 2**62),
    attributes=st.just(0),
    headers=st.lists(st.tuples(st.binary(max_size=4), fields), max_size=2).map(tuple),
)
batches = st.lists(
    st.tuples(st.lists(records, min_size=1, max_size=5), st.sampled_from(["none", "gzip", "lz4"]), st.booleans()),
    min_size=1,
    max_size=4,
)


def layouts(log: bytes, first: int = 0, end: int = 2**63 - 1, bits: bytes = b"") -> list[tuple[object, ...]]:
    """Return offset, time, key and value of each record within [first, end), and only those with a bit."""
    found: list[tuple[object, ...]] = []
    for chunk in SegmentReader(MemoryFile(log), size=len(log), buffer=ReadBuffer(4096), check_order_from=0):
        for block in Unpacker(1 << 20).blocks(PATH, chunk):
            skipped = np.zeros(len(block.batches), np.uint8)
            layout = lay_out(PATH, block, skipped, first, end, np.array(list(bits), np.uint8))
            keys = cut_out(layout.data, layout.key_starts, layout.key_sizes)
            values = cut_out(layout.data, layout.value_starts, layout.value_sizes)
            found += zip(layout.offsets.tolist(), layout.timestamps_ms.tolist(), keys, values, strict=True)
    return found


@given(batches, st.integers(0, 20), st.integers(0, 20), st.binary(max_size=2))
def test_layout_agrees_with_the_reference(
    chosen: list[tuple[list[Record], str, bool]], first: int, end: int, bits: bytes
) -> None:
    """Offsets, times, nulls and bytes, for packed and plain batches, any range and any bits."""
    log, offset = b"", 0
    for some, codec, appended in chosen:
        log += data_batch(some, offset, codec=codec, append_time_ms=12 if appended else None)
        offset += len(some) + 2
    expected = [tuple(rec[:4]) for batch in read_batches(log) for rec in read_records(batch)]
    assert layouts(log) == expected
    within = [record for record in expected if first <= record[0] < end]
    assert layouts(log, first, end) == within
    mask = int.from_bytes(bits, "little") | -1 << 8 * len(bits)  # all beyond the bits
    assert layouts(log, first, end, bits) == [record for record in within if mask >> record[0] - first & 1]


@pytest.mark.parametrize("codecs", [("none",), ("lz4",), ("none", "lz4")])
def test_spare_bytes_are_behind_the_last_record(codecs: tuple[str, ...]) -> None:
    """So that a key at the very end can be digested where it is, also one of a batch that was unpacked."""
    log = b"".join(
        data_batch([Record(b"key", b"v" * 50), Record(b"a key at the end", None)], 2 * number, codec=codec)
        for number, codec in enumerate(codecs)
    )
    for chunk in SegmentReader(MemoryFile(log), size=len(log), buffer=ReadBuffer(4096), check_order_from=0):
        for block in Unpacker(1 << 20).blocks(PATH, chunk):
            layout = lay_out(PATH, block, np.zeros(len(block.batches), np.uint8), 0, 2**63 - 1)
            # Behind the last key there are a length for the null value and the number of headers.
            assert len(layout.data) >= layout.key_starts[-1] + layout.key_sizes[-1] + 2 + PAD_BYTES
            assert cut_out(layout.data, layout.key_starts, layout.key_sizes)[-1] == b"a key at the end"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (varint(20) + bytes(9), "its length does not fit the batch"),
        (varint(6) + b"\0\0\0" + varint(50) + bytes(2), "its key does not fit the record"),
        (varint(6) + b"\0\0\0" + varint(-1) + varint(50) + b"\0", "its value does not fit the record"),
        (varint(6) + b"\0\0\0\1\1" + varint(9), "its headers do not fit the record"),
        (varint(6) + b"\0\0" + varint(3) + b"\1\1\0", "its offset does not ascend or lies beyond its batch"),
        (varint(6) + b"\0\0\0\1\1\0" + b"\0", "bytes are left after the batch's last record"),
    ],
)
def test_damaged_record_is_named(body: bytes, reason: str) -> None:
    """With its batch's position; the checksum is right, as its writer computed it."""
    good = data_batch([Record(b"k", b"v")], 0)
    log = good + data_batch([Record(b"k", b"v")], 1, payload=body)
    with pytest.raises(CorruptBatchError, match=rf"at byte {len(good)}: in the record 0? ?.*{reason}"):
        layouts(log)
