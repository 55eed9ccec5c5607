"""The transaction state of a pass against its slow twin, on random sequences of batches (R-530 to R-536)."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from cleaner.base.model import AbortedTxn
from cleaner.cleaning.passes.transactions import CleanedTransactions
from cleaner.errors import CorruptBatchError
from cleaner.format.batch import BATCH_DTYPE, CONTROL_FLAG, HEADER_BYTES, TRANSACTIONAL_FLAG, Chunk
from cleaner.kernels import PAD_BYTES
from tests.support.batch_builder import Record, encode_record
from tests.unit.cleaning.slow_transactions import SlowTransactions

pytestmark = pytest.mark.kernels

PATH = Path("00000000000000000000.log")
ABORT, COMMIT, LEADER_CHANGE, UNKNOWN = 0, 1, 2, 99

# (attributes, count, control type): the kinds of batches for a transaction.
KINDS = {
    "plain": (0, 1, None),
    "data": (TRANSACTIONAL_FLAG, 1, None),
    "empty data": (TRANSACTIONAL_FLAG, 0, None),
    "abort": (TRANSACTIONAL_FLAG | CONTROL_FLAG, 1, ABORT),
    "commit": (TRANSACTIONAL_FLAG | CONTROL_FLAG, 1, COMMIT),
    "empty marker": (TRANSACTIONAL_FLAG | CONTROL_FLAG, 0, None),
    "leader change": (CONTROL_FLAG, 1, LEADER_CHANGE),
    "unknown": (CONTROL_FLAG, 1, UNKNOWN),
    "legacy": (0x38, -1, None),
}
USUAL = ["data"] * 6 + ["abort"] * 3 + ["commit"] * 2 + list(KINDS)


def marker(control_type: int) -> bytes:
    """Encode a control record."""
    key = (0).to_bytes(2, "big") + control_type.to_bytes(2, "big")
    return encode_record(Record(key, b"\0\0\0\0\0\1"), 0, 0)


def chunk_of(rows: list[tuple[str, int, int]], bodies: dict[int, bytes] | None = None) -> Chunk:
    """Make a chunk of (kind, producer id, last offset); `bodies` replaces the records of some of its batches."""
    batches = np.zeros(len(rows), BATCH_DTYPE)
    data = bytearray()
    for number, (row, (kind, producer_id, last_offset)) in enumerate(zip(batches, rows, strict=True)):
        attributes, count, control_type = KINDS[kind]
        body = b"" if control_type is None else marker(control_type)
        body = (bodies or {}).get(number, body)
        row["position"] = row["start"] = len(data)
        row["size"] = HEADER_BYTES + len(body)
        row["magic"] = 1 if kind == "legacy" else 2
        row["attributes"], row["count"] = attributes, count
        row["producer_id"], row["last_offset"] = producer_id, last_offset
        data += bytes(HEADER_BYTES) + body
    padded = np.frombuffer(data + bytes(PAD_BYTES), np.uint8)
    return Chunk(padded, len(data), 0, batches)


def assert_same(steps: list[tuple[list[AbortedTxn], Chunk]], new_segment_after: set[int]) -> int:
    """Run steps of a pass with both; returns how many batches could go."""
    quick, slow = CleanedTransactions(), SlowTransactions()
    gone = 0
    for number, (aborts, chunk) in enumerate(steps):
        quick.add_aborted(aborts)
        slow.add_aborted(aborts)
        found = quick.discardable(PATH, chunk)
        assert found.tolist() == slow.discardable(PATH, chunk).tolist()
        assert quick.retained_aborts.tolist() == [list(abort) for abort in slow.retained_aborts]
        gone += int(found.sum())
        if number in new_segment_after:
            quick.begin_segment()
            slow.retained_aborts = []
    return gone


@pytest.mark.parametrize("seed", range(8))
def test_random_sequences_go_as_with_the_twin(seed: int) -> None:
    """Any order of data, markers and entries, valid or not; entries are repeated with later chunks."""
    draw = random.Random(seed)
    gone = 0
    for _ in range(300):
        offset, steps = 0, []
        producers = draw.sample([0, 1, 2, 3, 2**63 - 1, -1, -5], draw.randint(1, 5))
        known: list[AbortedTxn] = []
        for _ in range(draw.randint(1, 6)):
            rows = []
            for _ in range(draw.randint(0, 12)):
                offset += draw.randint(1, 3)
                rows.append((draw.choice(USUAL), draw.choice(producers), offset))
            for _ in range(draw.randint(0, 5)):
                first = offset + draw.randint(-20, 12)
                known.append(AbortedTxn(draw.choice(producers), first, first + draw.randint(0, 20), first))
            steps.append((draw.choices(known, k=draw.randint(0, 6)) if known else [], chunk_of(rows)))
        gone += assert_same(steps, {i for i in range(6) if draw.random() < 0.3})
    assert gone > 1000


def test_very_many_producers_go_as_with_the_twin() -> None:
    """Tens of thousands at once, and many more one after the other: memory grows only with open transactions."""
    draw = random.Random(1)
    offset, steps = 0, []
    for round_ in range(6):
        rows: list[tuple[str, int, int]] = []
        aborts = []
        ids = range(round_ * 15_000, (round_ + 2) * 15_000)
        for producer_id in draw.sample(ids, 30_000):
            offset += 1
            rows.append(("data", producer_id, offset))
            if draw.random() < 0.5:
                aborts.append(AbortedTxn(producer_id, offset, offset + 30_000, offset + 30_000))
        for producer_id in draw.sample(ids, 20_000):
            offset += 1
            rows.append((draw.choice(["abort", "commit"]), producer_id, offset))
        steps.append((aborts, chunk_of(rows)))
    assert assert_same(steps, {2}) > 10_000


def test_producers_whose_transactions_ended_are_forgotten() -> None:
    """A new producer for every transaction, as in some clients, does not fill the memory."""
    state = CleanedTransactions()
    for number in range(200):
        ids = range(number * 100, number * 100 + 100)
        state.discardable(
            PATH, chunk_of([(kind, i, 2 * i + (kind == "commit")) for i in ids for kind in ("data", "commit")])
        )
    assert len(state._producers.rows) < 1000


@pytest.mark.parametrize("seed", range(4))
def test_damaged_markers_are_refused_in_the_same_words(seed: int) -> None:
    """Bytes of a control record changed, cut off or added: the same verdict or the same error as the twin's."""
    draw = random.Random(seed)
    refused = 0
    for _ in range(500):
        body = bytearray(marker(draw.choice([ABORT, COMMIT, UNKNOWN])))
        for _ in range(draw.randint(1, 3)):
            body[draw.randrange(len(body))] = draw.choice([0, 1, 2, 3, 8, 11, 0x7F, 0x80, 0xFF, draw.randrange(256)])
        body = body[: draw.randint(1, len(body))] if draw.random() < 0.3 else body + bytes(draw.randint(0, 3))
        chunk = chunk_of([("data", 1, 0), ("abort", 1, 1)], {1: bytes(body)})
        found = []
        for state in (CleanedTransactions(), SlowTransactions()):
            state.add_aborted([AbortedTxn(1, 0, 1, 2)])
            try:
                found.append(state.discardable(PATH, chunk).tolist())
            except CorruptBatchError as error:
                found.append((error.position, str(error)))
                refused += 1
        assert found[0] == found[1]
    assert 200 < refused < 1000
