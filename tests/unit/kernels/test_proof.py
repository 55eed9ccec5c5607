"""The digest of a proof against SipHash's own vectors and a plain twin; batches and records side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.format.batch import Chunk, ReadBuffer, SegmentReader
from cleaner.format.layout import Layout, lay_out
from cleaner.format.records import Unpacker
from cleaner.kernels import proof
from tests.support.batch_builder import Record, data_batch
from tests.support.batch_reader import MemoryFile

pytestmark = pytest.mark.kernels
PATH = Path("0.log")
MASK = 2**64 - 1
# From the reference implementation: key 00 01 .. 0f, messages of 0 and 1 byte (00).
VECTORS = {b"": "a3817f04ba25a8e66df67214c7550293", b"\0": "da87c1d86b99af44347659119b22fc45"}


def digest(text: bytes, key: bytes = bytes(range(16))) -> str:
    """Digest a text with the kernel, at an odd position of an array that ends with it."""
    data = np.frombuffer(bytearray(b"???" + text), np.uint8)
    out = np.zeros(2, np.uint64)
    starts, sizes = np.array([3], np.int64), np.array([len(text)], np.int64)
    proof.digest_fields(data, starts, sizes, np.frombuffer(bytearray(key), np.uint64), out)
    return out.tobytes().hex()


def twin(text: bytes, key: bytes) -> str:
    """SipHash-2-4-128, written from its paper."""
    k0, k1 = (int.from_bytes(key[at : at + 8], "little") for at in (0, 8))
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotated(word: int, bits: int) -> int:
        return (word << bits | word >> (64 - bits)) & MASK

    def mix(rounds: int) -> None:
        for _ in range(rounds):
            v[0] = (v[0] + v[1]) & MASK
            v[1] = rotated(v[1], 13) ^ v[0]
            v[0] = rotated(v[0], 32)
            v[2] = (v[2] + v[3]) & MASK
            v[3] = rotated(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & MASK
            v[3] = rotated(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & MASK
            v[1] = rotated(v[1], 17) ^ v[2]
            v[2] = rotated(v[2], 32)

    padded = text + bytes(7 - len(text) % 8) + bytes([len(text) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        mix(2)
        v[0] ^= word
    v[2] ^= 0xEE
    mix(4)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    mix(4)
    return (first.to_bytes(8, "little") + (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")).hex()


@pytest.mark.parametrize("text", VECTORS, ids=["empty", "one-byte"])
def test_digest_of_a_published_vector_is_as_published(text: bytes) -> None:
    """It is SipHash-2-4 with 128 bits, not something like it."""
    assert digest(text) == VECTORS[text] == twin(text, bytes(range(16)))


@given(st.binary(max_size=70), st.binary(min_size=16, max_size=16))
def test_digest_agrees_with_its_twin(text: bytes, key: bytes) -> None:
    """Every length of the last word, any key."""
    assert digest(text, key) == twin(text, key)


def chunk_of(log: bytes) -> Chunk:
    """Return all batches of a short log."""
    chunk = SegmentReader(MemoryFile(log), size=len(log), check_order_from=0).next_chunk(ReadBuffer(1 << 16))
    assert chunk is not None
    return chunk


def test_batches_are_the_same_only_where_every_byte_is() -> None:
    """One bit anywhere makes two batches differ; a batch without a partner is never the same."""
    batch = data_batch([Record(b"key", b"value")], 0)
    mine, none = chunk_of(batch), np.array([-1], np.int64)
    same = np.ones(1, np.uint8)
    proof.find_same_batches(mine.data, mine.batches, mine.data, mine.batches, none, same)
    assert same[0] == 0
    for position in range(len(batch)):
        data = mine.data.copy()
        proof.find_same_batches(mine.data, mine.batches, data, mine.batches, np.zeros(1, np.int64), same)
        assert same[0] == 1
        data[position] ^= 1
        proof.find_same_batches(mine.data, mine.batches, data, mine.batches, np.zeros(1, np.int64), same)
        assert same[0] == 0, position


def layout_of(record: Record) -> Layout:
    """Lay a record out."""
    chunk = chunk_of(data_batch([record], 5, codec="lz4"))
    block = next(iter(Unpacker(1 << 20).blocks(PATH, chunk)))
    return lay_out(PATH, block, np.zeros(1, np.uint8), 0, 2**63 - 1)


def compare(left: Layout, right: Layout) -> int:
    """Return the kernel's verdict on the first records of two layouts."""
    verdicts = np.zeros(1, np.uint8)
    columns = [
        (a.data, a.timestamps_ms, a.key_starts, a.key_sizes, a.value_starts, a.value_sizes, a.header_starts)
        for a in (left, right)
    ]
    proof.compare_records(*columns[0], *columns[1], np.zeros(1, np.int64), verdicts)
    return int(verdicts[0])


RECORD = Record(b"a key of some length", b"value", timestamp_ms=7, headers=((b"h", b"x"), (b"i", None)))


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, proof.SAME),
        ({"key": b"a key of some lengtH"}, proof.KEY_DIFFERS),
        ({"key": None}, proof.KEY_DIFFERS),
        ({"value": b"valuE"}, proof.VALUE_DIFFERS),
        ({"value": None}, proof.VALUE_DIFFERS),
        ({"value": b""}, proof.VALUE_DIFFERS),
        ({"timestamp_ms": 8}, proof.TIMESTAMP_DIFFERS),
        ({"headers": ((b"h", b"x"),)}, proof.HEADERS_DIFFER),
        ({"headers": ((b"h", b"x"), (b"i", b""))}, proof.HEADERS_DIFFER),
    ],
    ids=["same", "key", "null-key", "value", "null-value", "empty-value", "timestamp", "a-header-less", "header-value"],
)
def test_comparison_names_what_differs(changed: dict[str, object], verdict: int) -> None:
    """Null and empty are not the same, and every part of a record counts."""
    assert compare(layout_of(RECORD), layout_of(RECORD._replace(**changed))) == verdict  # type: ignore[arg-type]
