"""Digests of keys, block by block; no other module makes any."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from cleaner.errors import CorruptBatchError
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.key_digests import (
    FIRST,
    MESSAGES_BEFORE,
    NO_OFFSET,
    OFFSET_PLUS_1,
    SECOND,
    KeyDigests,
    new_secret,
    secret_words,
)
from cleaner.format.records import Block, Unpacker
from cleaner.kernels.digest import SECRET_WORDS
from tests.fuzz.change_records import sealed
from tests.support.batch_builder import Record, data_batch
from tests.unit.cleaning.retaining import PATH, only_chunk
from tests.unit.kernels.digesting import slow_short_digest

CLEANER = Path(__file__).parents[3] / "cleaner"
KEYS = secret_words(bytes(16))
RECORDS = [Record(b"k%d" % i if i % 3 else None, b"value") for i in range(6)]


def block_of(*batches: bytes) -> Block:
    """Return the one block of some batches."""
    (block,) = Unpacker(1 << 20).blocks(PATH, only_chunk(b"".join(batches)))
    return block


def none_of(block: Block) -> np.ndarray:
    """Skip no batch."""
    return np.zeros(len(block.batches), np.uint8)


def test_row_names_key_offset_and_messages_before() -> None:
    """Records without a key, and those below the first offset, are counted and have no row."""
    block = block_of(data_batch(RECORDS, 10), data_batch(RECORDS, 20, codec="gzip"))
    digests = KeyDigests()
    rows = digests.of(PATH, block, none_of(block), KEYS, 12)
    assert (rows[:, OFFSET_PLUS_1] - 1).tolist() == [12, 14, 15, 21, 22, 24, 25]
    assert rows[:, MESSAGES_BEFORE].tolist() == [2, 4, 5, 7, 8, 10, 11]
    assert (rows[0, FIRST], rows[0, SECOND]) == slow_short_digest(b"k2", KEYS.tolist())
    assert len(np.unique(rows[:, FIRST])) == 4
    assert (digests.messages, digests.keyless) == (12, 3)


def test_secrets_are_drawn_and_made_of_all_of_their_seed() -> None:
    """The same seed gives the same words, in all processes of a job; any other bit gives others."""
    drawn = {tuple(new_secret().tolist()) for _ in range(4)}
    seeds = [bytes(16), *((1 << bit).to_bytes(16, "little") for bit in range(0, 128, 9))]
    made = {tuple(secret_words(seed).tolist()) for seed in seeds}
    assert (len(drawn), len(made)) == (4, len(seeds))
    assert {len(set(words)) for words in drawn | made} == {SECRET_WORDS}
    assert secret_words(seeds[1]).tolist() == secret_words(seeds[1]).tolist()


def test_rows_are_added_in_memory_that_grows() -> None:
    """They start again if one block's rows are requested."""
    block = block_of(data_batch(RECORDS, 10))
    digests = KeyDigests(GrowingBuffer(32))
    for _ in range(5):
        digests.add(PATH, block, none_of(block), KEYS)
    assert (digests.rows[:, OFFSET_PLUS_1] - 1).tolist() == [11, 12, 14, 15] * 5
    assert len(digests.of(PATH, block, none_of(block), KEYS)) == 4


def test_skipped_batch_has_no_rows() -> None:
    """Its records count as seen."""
    block = block_of(data_batch(RECORDS, 10), data_batch(RECORDS, 20))
    digests = KeyDigests()
    rows = digests.of(PATH, block, np.array([1, 0], np.uint8), KEYS)
    assert (rows[:, OFFSET_PLUS_1] - 1).tolist() == [21, 22, 24, 25]
    assert digests.messages == 12


@pytest.mark.parametrize("first_offset", [0, NO_OFFSET])
def test_damaged_record_is_named_and_rows_before_it_stay(first_offset: int) -> None:
    """Whether digests are wanted or not."""
    good, bad = data_batch(RECORDS, 10), bytearray(data_batch(RECORDS, 20))
    bad[61] ^= 2  # the first record's length
    block = block_of(good, sealed(bytes(bad)))
    digests = KeyDigests()
    with pytest.raises(CorruptBatchError, match="in the record 0 bytes into its records") as raised:
        digests.add(PATH, block, none_of(block), KEYS, first_offset)
    assert raised.value.position == len(good)
    assert len(digests.rows) == (4 if first_offset == 0 else 0)


def test_key_digests_are_made_in_one_place() -> None:
    """A second caller of the kernel would need its own array sizes and words for damage."""
    callers = set()
    for path in CLEANER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "name", None)
            if name == "digest_records":
                callers.add(path.relative_to(CLEANER).as_posix())
    assert callers == {"format/key_digests.py", "kernels/offset_map.py"}
