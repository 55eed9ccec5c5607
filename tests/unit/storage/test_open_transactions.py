"""Transactions that end the cleanable section, found without loading the log: R-407, R-127, R-653."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from cleaner.storage import open_transactions
from cleaner.storage.fs import FileSystem
from cleaner.storage.glance import look_through
from cleaner.storage.open_transactions import OpenTransactions
from cleaner.testing.batch_builder import Producer
from cleaner.testing.log_builder import LogBuilder

FS = FileSystem()


class Txn:
    """A transaction of a built log: its producer, its first offset, and its marker's offset once there is one."""

    def __init__(self, producer_id: int, first: int) -> None:
        self.producer_id = producer_id
        self.first = first
        self.marker = 2**62


def random_log(seed: int) -> tuple[LogBuilder, list[Txn]]:
    """Six segments of five producers, each with a transaction open most of the time, over several segments."""
    rng = random.Random(seed)
    log, txns = LogBuilder(), dict[int, Txn]()
    done: list[Txn] = []
    sequences = dict.fromkeys(range(5), 0)
    for step in range(90):
        if step and step % 15 == 0:
            log.roll()
        producer_id = rng.randrange(5)
        if producer_id in txns and rng.random() < 0.5:
            txn = txns.pop(producer_id)
            txn.marker = log.end_transaction(producer_id, 0, commit=rng.random() < 0.5)
            done.append(txn)
        elif rng.random() < 0.7:
            txns.setdefault(producer_id, Txn(producer_id, log.next_offset))
            log.append((f"k{step}", "v"), producer=Producer(producer_id, 0, sequences[producer_id], True))
            sequences[producer_id] += 1
        else:
            log.append((f"k{step}", "v"), (f"l{step}", "v"))
    return log, [*done, *txns.values()]


def expected(txns: Sequence[Txn], offset: int, high_watermark: int) -> int | None:
    """R-407 in its plainest form."""
    return min((t.first for t in txns if t.first < offset and t.marker >= high_watermark), default=None)


@pytest.mark.parametrize("kept", ["all-snapshots", "every-other", "damaged"])
@pytest.mark.parametrize("seed", range(8))
def test_open_transactions_are_those_of_the_log(tmp_path: Path, seed: int, kept: str) -> None:
    """Whatever snapshots there are, and wherever the high watermark is, as long as it has passed the offset."""
    log, txns = random_log(seed)
    directory = log.write(tmp_path)
    for number, path in enumerate(sorted(directory.glob("*.snapshot"))):
        if number % 2 and kept == "every-other":
            path.unlink()
        elif number % 2 and kept == "damaged":
            path.write_bytes(path.read_bytes()[:-1] + b"?")
    files = look_through(FS, directory)
    for segment in files.segments[2:]:
        offset = segment.base_offset
        for high_watermark in range(offset, log.next_offset + 2, 3):
            found = OpenTransactions(FS, directory, offset, files.snapshots)
            assert found.first_offset(files.segments, high_watermark) == expected(txns, offset, high_watermark)


@pytest.mark.parametrize("seed", range(4))
def test_open_transactions_followed_as_the_log_grows(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One object asked again and again, walking a few batches at a time, never says too little and ends up right."""
    monkeypatch.setattr(open_transactions, "MOST_BATCHES", 3)
    log, txns = random_log(seed)
    directory = log.write(tmp_path)
    files = look_through(FS, directory)
    offset = files.segments[3].base_offset
    found = OpenTransactions(FS, directory, offset, files.snapshots)
    for high_watermark in range(offset, log.next_offset + 1, 2):
        answer, right = found.first_offset(files.segments, high_watermark), expected(txns, offset, high_watermark)
        assert answer == right or (found.is_behind and answer is not None and (right is None or answer <= right))
    for _ in range(100):
        answer = found.first_offset(files.segments, log.next_offset)
    assert (answer, found.is_behind) == (expected(txns, offset, log.next_offset), False)


def test_open_transactions_of_a_log_without_snapshots_are_none(tmp_path: Path) -> None:
    """R-127: such a log is taken to have no producers."""
    log = LogBuilder()
    log.append(("k", "v"), producer=Producer(1, 0, 0, True))
    log.roll()
    directory = log.write(tmp_path)
    for path in directory.glob("*.snapshot"):
        path.unlink()
    files = look_through(FS, directory)
    assert files.snapshots == ()
    assert OpenTransactions(FS, directory, 1, ()).first_offset(files.segments, 1) is None


def test_open_transactions_beside_a_writer_stop_at_a_torn_end(tmp_path: Path) -> None:
    """What a writer is writing just now is no damage; with more of it there the walk goes on."""
    log = LogBuilder()
    log.append(("k", "v"), producer=Producer(1, 0, 0, True))
    log.roll()
    log.append(("l", "v"))
    log.end_transaction(1, 0, commit=True)
    directory = log.write(tmp_path)
    path = max(directory.glob("*.log"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    files = look_through(FS, directory)
    found = OpenTransactions(FS, directory, 1, files.snapshots)
    assert found.first_offset(files.segments, 3) == 0
    path.write_bytes(whole)
    assert found.first_offset(look_through(FS, directory, files).segments, 3) is None
