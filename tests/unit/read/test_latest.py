"""The last records of all keys, compared with a dict; with little memory, and offsets far apart."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cleaner.cleaning import offset_map
from cleaner.format.batch import SegmentReader
from cleaner.format.key_digests import OFFSET_PLUS_1, SECOND, Words
from cleaner.format.layout import lay_out
from cleaner.format.records import Block, Unpacker
from cleaner.read.latest import Digest, LatestByKey
from cleaner.storage.fs.file_system import FileSystem
from tests.support.log_builder import LogBuilder

pytestmark = pytest.mark.kernels


def blocks_of(path: Path) -> Iterator[Block]:
    """Read a `.log`."""
    with FileSystem().open(path) as file:
        for chunk in SegmentReader(file, size=file.size()):
            yield from Unpacker(1 << 20).blocks(path, chunk)


@pytest.mark.parametrize("bits", [64, 8 * (16 << 20)])
@pytest.mark.parametrize(("keys", "max_keys"), [(1000, 1000), (1, 1000), (9, 9)])
def test_last_records_are_those_a_dict_would_have(
    tmp_path: Path, bits: int, keys: int, max_keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, with a map that grows, in shares; tombstones count, keyless records and what is out of range do not."""
    monkeypatch.setattr(offset_map, "_MAX_BITS", bits)
    chooser = random.Random(keys)
    log = LogBuilder()
    records: list[str | None] = []
    for _ in range(60):
        batch = [chooser.choice((None, "", *(f"k{key}" for key in range(40)))) for _ in range(chooser.randrange(1, 6))]
        log.append(*((key, chooser.choice(("v", None))) for key in batch), codec=chooser.choice(("none", "lz4")))
        records += batch
    path = log.write(tmp_path) / f"{0:020d}.log"

    def digest_all(digest: Digest) -> Iterator[Words]:
        for block in blocks_of(path):
            yield digest(path, block, np.zeros(len(block.batches), np.uint8))

    for first, end in ((0, len(records)), (7, len(records) - 5), (11, 11), (0, 2**63 - 1)):
        last = {key: at for at, key in enumerate(records) if key is not None and first <= at < end}
        latest = LatestByKey(digest_all, first, end, keys, max_keys)
        offsets = np.concatenate(
            [
                lay_out(path, block, np.zeros(len(block.batches), np.uint8), 0, 2**62).offsets
                for block in blocks_of(path)
            ]
        )
        assert offsets[latest.has(offsets)].tolist() == sorted(last.values())
        found = []
        for block in blocks_of(path):
            hidden = (~latest.may_be_in(block.batches)).astype(np.uint8)
            found += lay_out(path, block, hidden, first, end, latest.bits).offsets.tolist()
        assert sorted(last.values()) == [offset for offset in found if latest.has(np.array([offset]))[0]]
        if bits > 64:
            assert len(found) == len(last)


def test_last_records_far_apart_take_no_memory_for_the_offsets_between() -> None:
    """A compacted log may have few keys and a range of offsets that no memory has a bit each for."""
    far = 4 * 10**13
    rows = np.zeros((3, 4), np.uint64)
    rows[:, SECOND] = 1, 2, 1
    rows[:, OFFSET_PLUS_1] = 1, 2, far + 1
    latest = LatestByKey(lambda _: iter([rows]), 0, far + 1, 10, 10)
    assert latest.has(np.array([0, 1, far - 1, far])).tolist() == [False, True, False, True]
