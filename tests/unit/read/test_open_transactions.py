"""Transactions that end the cleanable section, found without loading the log: R-407, R-127, R-652, R-653."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from cleaner.read import open_transactions
from cleaner.read.open_transactions import OpenTransactions
from cleaner.read.summary import ListedFiles, LogSummary, list_log_files, summarize
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.log_dir import Use
from tests.reference.log_state import Settings
from tests.reference.log_state import load as load_by_twin
from tests.support.batch_builder import Producer
from tests.support.log_builder import START_MS, LogBuilder
from tests.unit.storage.logs import load

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


def lose_snapshots(directory: Path, kept: str) -> None:
    """Leave all producer snapshots, or only some: damage or remove every other one, keep the first, or not the last."""
    paths = sorted(directory.glob("*.snapshot"))
    gone = {"none": paths, "every-other": paths[1::2], "first": paths[1:], "no-last": paths[-1:]}.get(kept, [])
    for path in gone:
        path.unlink()
    for path in paths[1::2] if kept == "damaged" else []:
        path.write_bytes(path.read_bytes()[:-1] + b"?")


def seen(
    directory: Path, files: ListedFiles, high_watermark: int, log_end_offset: int | None, log_start_offset: int = 0
) -> LogSummary:
    """Put the log together from its listing."""
    return summarize(
        directory,
        files.segments,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        log_end_offset=log_end_offset,
    )


def stable_of(directory: Path, use: Use, high_watermark: int, log_end_offset: int, log_start_offset: int = 0) -> int:
    """Return the last stable offset as a look finds it, with no end to its patience."""
    files = list_log_files(FS, directory)
    log = seen(directory, files, high_watermark, log_end_offset, log_start_offset=log_start_offset)
    transactions = OpenTransactions(FS, directory, files, use, log)
    return transactions.with_last_stable(log, log.log_end_offset, walks=10**9).last_stable_offset


KEPT = ["all", "every-other", "damaged", "first", "no-last", "none"]


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("seed", range(6))
def test_last_stable_offset_of_a_closed_log_is_that_of_a_load(tmp_path: Path, seed: int, kept: str) -> None:
    """Whatever snapshots there are, wherever high watermark and log start are; and the slow twin says so too."""
    log, _ = random_log(seed)
    directory = log.write(tmp_path)
    lose_snapshots(directory, kept)
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    times = dict.fromkeys(files, START_MS)
    for log_start in (0, log.base_offsets[1], log.base_offsets[2] + 3):
        for high_watermark in range(log_start, log.next_offset + 2, 7):
            loaded = load(directory, high_watermark=high_watermark, log_start_offset=log_start, read_only=True)
            wanted = loaded.last_stable_offset
            assert stable_of(directory, Use.CLOSED, high_watermark, log.next_offset, log_start) == wanted
            if kept != "damaged":  # the twin reads no checksums
                twin = load_by_twin(files, times, Settings(slots=1), START_MS, log_start, high_watermark)
                assert twin.last_stable == wanted


@pytest.mark.parametrize("kept", ["all", "every-other", "damaged"])
@pytest.mark.parametrize("seed", range(6))
def test_last_stable_offset_of_a_torn_log_is_that_of_its_recovery(tmp_path: Path, seed: int, kept: str) -> None:
    """A recovery takes a snapshot at the log end, and so forgets what was decided and not replicated."""
    log, _ = random_log(seed)
    directory = log.write(tmp_path)
    lose_snapshots(directory, kept)
    for high_watermark in range(0, log.next_offset + 2, 11):
        loaded = load(directory, clean=False, recovery_point=0, high_watermark=high_watermark)
        assert stable_of(directory, Use.TORN, high_watermark, log.next_offset) == loaded.last_stable_offset


@pytest.mark.parametrize("kept", ["all", "every-other", "damaged"])
@pytest.mark.parametrize("seed", range(8))
def test_open_transactions_of_a_served_log_are_those_of_the_log(tmp_path: Path, seed: int, kept: str) -> None:
    """The broker knows every transaction, and uses the high watermark."""
    log, txns = random_log(seed)
    directory = log.write(tmp_path)
    lose_snapshots(directory, kept)
    files = list_log_files(FS, directory)
    for segment in files.segments[2:]:
        offset = segment.base_offset
        for high_watermark in range(offset, log.next_offset + 2, 3):
            summary = seen(directory, files, high_watermark, None)
            found = OpenTransactions(FS, directory, files, Use.SERVED, summary)
            assert found.first_offset(summary, offset) == expected(txns, offset, high_watermark)


@pytest.mark.parametrize("seed", range(4))
def test_open_transactions_followed_as_the_log_grows(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One object asked again and again, walking a few batches at a time, never says too little and ends up right."""
    monkeypatch.setattr(open_transactions, "MAX_BATCHES", 3)
    log, txns = random_log(seed)
    directory = log.write(tmp_path)
    files = list_log_files(FS, directory)
    offset = files.segments[3].base_offset
    found = OpenTransactions(FS, directory, files, Use.SERVED, seen(directory, files, offset, None))
    for high_watermark in range(offset, log.next_offset + 1, 2):
        answer = found.first_offset(seen(directory, files, high_watermark, None), offset)
        right = expected(txns, offset, high_watermark)
        assert answer == right or (found.is_behind and answer is not None and (right is None or answer <= right))
    for _ in range(100):
        answer = found.first_offset(seen(directory, files, log.next_offset, None), offset)
    assert (answer, found.is_behind) == (expected(txns, offset, log.next_offset), False)


def test_walk_that_ends_with_a_segment_is_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller relies on it: an offset below the right one is not the final answer."""
    monkeypatch.setattr(open_transactions, "MAX_BATCHES", 2)
    log = LogBuilder()
    log.append(("k", "v"), producer=Producer(1, 0, 0))
    log.roll()
    for _ in range(3):
        log.append(("k", "v"))
        log.append(("l", "v"))
        log.roll()
    log.append(("m", "v"))
    directory = log.write(tmp_path)
    for path in sorted(directory.glob("*.snapshot"))[1:]:
        path.unlink()
    files = list_log_files(FS, directory)
    summary = seen(directory, files, log.next_offset, None)
    found = OpenTransactions(FS, directory, files, Use.TORN, summary)
    answers = [(found.first_offset(summary, log.next_offset), found.is_behind) for _ in range(10)]
    assert answers[-1] == (None, False)
    assert all(is_behind for answer, is_behind in answers if answer is not None)
    assert answers[0][0] is not None


def test_open_transactions_of_a_log_without_snapshots_are_none(tmp_path: Path) -> None:
    """R-127: such a log is taken to have no producers; a torn one is walked through."""
    log = LogBuilder()
    log.append(("k", "v"), producer=Producer(1, 0, 0, True))
    log.roll()
    directory = log.write(tmp_path)
    for path in directory.glob("*.snapshot"):
        path.unlink()
    found = {use: stable_of(directory, use, 1, 1) for use in (Use.CLOSED, Use.SERVED, Use.WRITTEN, Use.TORN)}
    assert found == {Use.CLOSED: 1, Use.SERVED: 1, Use.WRITTEN: 1, Use.TORN: 0}


def test_open_transactions_of_a_served_log_stop_at_a_torn_end(tmp_path: Path) -> None:
    """A batch that a broker is writing is no damage; once it is complete, the walk goes on."""
    log = LogBuilder()
    log.append(("k", "v"), producer=Producer(1, 0, 0, True))
    log.roll()
    log.append(("l", "v"))
    log.end_transaction(1, 0, commit=True)
    directory = log.write(tmp_path)
    max(directory.glob("*.snapshot")).unlink()
    path = max(directory.glob("*.log"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    files = list_log_files(FS, directory)
    found = OpenTransactions(FS, directory, files, Use.SERVED, seen(directory, files, 3, None))
    assert found.first_offset(seen(directory, files, 3, None), 1) == 0
    path.write_bytes(whole)
    files = list_log_files(FS, directory, files)
    assert found.first_offset(seen(directory, files, 3, None), 1) is None
