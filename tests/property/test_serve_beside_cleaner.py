"""
A cleaner at work in a directory that is served: rounds run in the middle of an answer, wherever a file is opened.

The judge knows what was written, by itself: which records there were, which of them were aborted, and which is the last
of its key. It must find every planted defect of the way from the directory to the client.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import cleaner
from cleaner.base.model import TopicPartition
from cleaner.read import aborted, extent
from cleaner.read.partition_files import PartitionFiles
from cleaner.serve import partition as served_partition
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.open_file import File
from tests.support.batch_builder import Producer
from tests.support.log_builder import HIGH_WATERMARKS, START_MS, LogBuilder, offset_checkpoint, write_log_dir
from tests.support.served import serving
from tests.support.wire_client import WireClient, records_of

TOPIC = TopicPartition("topic", 0)
SETTINGS = {"cleanup.policy": "compact", "internal.segment.bytes": "1500", "min.cleanable.dirty.ratio": "0"}
SETTINGS |= {"delete.retention.ms": "0"}
_SEGMENT_FILES = (".log", ".index", ".txnindex")


@dataclass
class Written:
    """
    What the judge knows: offsets of all records, of aborted ones, of the last of each key, and ends of batches.

    `records` has offset and key of each record, and for one of a transaction the offset behind its marker.
    """

    records: list[tuple[int, str, int]] = field(default_factory=list)
    all: set[int] = field(default_factory=set)
    ends: list[int] = field(default_factory=lambda: [0])
    aborted: set[int] = field(default_factory=set)
    last: dict[str, int] = field(default_factory=dict)


def written_log(chance: random.Random) -> tuple[LogBuilder, Written]:
    """Return a log of small batches, one transaction after the other, with few keys."""
    log, known = LogBuilder(TOPIC, segment_bytes=chance.choice((400, 1500)), index_interval_bytes=200), Written()
    sequence = 0
    for _ in range(chance.randint(30, 60)):
        producer, is_aborted = None, False
        begin = len(known.records)
        count = chance.randint(1, 3)
        if chance.random() < 0.4:
            producer, is_aborted = Producer(9, 0, sequence, transactional=True), chance.random() < 0.6
        for _ in range(chance.randint(1, 4) if producer else 1):
            keys = [f"k{chance.randrange(25)}" for _ in range(count)]
            values = ((key, "v" * chance.randrange(60)) for key in keys)
            if producer:
                first = log.append(*values, producer=Producer(9, 0, sequence, transactional=True))
                sequence += count
            else:
                first = log.append(*values)
            known.ends.append(log.next_offset)
            for offset, key in enumerate(keys, first):
                known.all.add(offset)
                known.records.append((offset, key, 0))
                if is_aborted:
                    known.aborted.add(offset)
                else:
                    known.last[key] = offset
        if producer:
            log.end_transaction(9, 0, commit=not is_aborted)
            known.ends.append(log.next_offset)
            known.records[begin:] = [(offset, key, log.next_offset) for offset, key, _ in known.records[begin:]]
    return log, known


class Interrupted(FileSystem):
    """The file system of the server: when it opens a segment's file, something else may happen first."""

    def __init__(self, happen: Callable[[], None]) -> None:
        self._happen = happen

    def open(self, path: Path, *, write: bool = False) -> File:
        if path.suffix in _SEGMENT_FILES:
            self._happen()
        return super().open(path, write=write)


class World:
    """One log that is served while its high watermark rises and rounds clean it."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.log, self.known = written_log(self.chance)
        self.log_dir = root
        self.high_watermark = self.chance.choice(self.known.ends[: len(self.known.ends) // 2])
        write_log_dir(root, self.log, high_watermarks={TOPIC: self.high_watermark})
        self.rounds, self.now_ms = 0, START_MS + 10**9
        self._is_busy = False

    def happen(self) -> None:
        """Raise the high watermark, clean, or do nothing."""
        if self._is_busy or self.chance.random() < 0.75:
            return
        self._is_busy = True
        try:
            self.raise_high_watermark(max(self.high_watermark, self.chance.choice(self.known.ends)))
            # The second round takes the markers of transactions of which the first has left nothing, and their entries.
            for later_ms in range(0, self.chance.choice((1, 2)) * 10, 10):
                cleaner.clean(self.log_dir, "topic-0", SETTINGS, now_ms=self.now_ms + later_ms, rounds="all")
                self.rounds += 1
            self.now_ms += 100
        finally:
            self._is_busy = False

    def raise_high_watermark(self, offset: int) -> None:
        """As a broker's checkpoint, replaced as a whole."""
        self.high_watermark = offset
        new = self.log_dir / "new"
        new.write_bytes(offset_checkpoint({TOPIC: offset}))
        new.replace(self.log_dir / HIGH_WATERMARKS)

    def consumed(self, client: WireClient, *, committed: bool) -> list[int]:
        """Return the offsets that a consumer gets from the beginning on, up to the end that all of it has at last."""
        offset, found, idle = 0, [], 0
        while True:
            before = self.high_watermark
            limit = self.chance.choice((1, 150, 700, 5000))
            answer = client.fetch("topic", offset, isolation_level=int(committed), one={"partition_max_bytes": limit})
            assert answer.error_code == 0, f"offset {offset}: error {answer.error_code}"
            records, offset_after = records_of(answer, offset, committed=committed)
            got = [at for at, _ in records]
            assert all(each < self.high_watermark for each in got), "behind the high watermark"
            found += got
            idle = idle + 1 if offset_after == offset else 0
            offset = offset_after
            if idle and before == self.log.next_offset:
                return found
            if idle > 3:
                self.raise_high_watermark(self.log.next_offset)

    def judge(self, found: list[int], *, committed: bool) -> None:
        """Fail if a consumer would have seen something that was not so."""
        assert found == sorted(set(found)), "out of order, or twice"
        assert set(found) <= self.known.all, "never written"
        lost = set(self.known.last.values()) - set(found)
        assert not lost, f"the last records of keys are missing: {sorted(lost)}"
        if committed:
            assert not set(found) & self.known.aborted, "aborted records"


def run_world(root: Path, seed: int) -> int:
    """Run a world and judge it; returns how many rounds there were in the middle of answers."""
    root.mkdir()
    world = World(root, seed)
    committed = seed % 2 == 0
    with serving(root, fs=Interrupted(world.happen)) as port, WireClient(port) as client:
        world.judge(world.consumed(client, committed=committed), committed=committed)
        # Once more, now that everything has been cleaned.
        world.judge(world.consumed(client, committed=committed), committed=committed)
    return world.rounds


@pytest.mark.parametrize("first", [0, pytest.param(100, marks=pytest.mark.slow)])
def test_rounds_in_the_middle_of_answers(tmp_path: Path, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No record comes twice or out of order, no last record of a key is missed, no aborted one is shown."""
    monkeypatch.setattr(served_partition, "_FRESH_NS", 0)
    seeds = range(first, first + (100 if first else 3))
    assert sum(run_world(tmp_path / str(seed), seed) for seed in seeds) >= 2 * len(seeds)


@pytest.mark.parametrize("is_spoilt", [False, True])
def test_aborts_are_of_the_batches_that_are_sent(
    tmp_path: Path, is_spoilt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Rounds take an aborted transaction, and its entry, while a fetch has its batches and not yet the entry.

    The fetch must begin anew. With the planted defect, an answer made of two listings, it shows aborted records.
    """
    log = LogBuilder(TOPIC)
    log.append(("k0", "aborted"), producer=Producer(9, 0, 0, transactional=True))
    log.end_transaction(9, 0, commit=False)
    log.append(("k1", "old"))
    for _ in range(4):
        log.roll()
        log.append(("k1", "new"), ("k2", "new"))
    write_log_dir(tmp_path, log, high_watermarks={TOPIC: 5})
    moments = iter([(START_MS + 10**9, 5), (START_MS + 2 * 10**9, log.next_offset)])

    class AtTheIndex(FileSystem):
        def open(self, path: Path, *, write: bool = False) -> File:
            if path.suffix == ".txnindex":
                for now_ms, high_watermark in moments:
                    (tmp_path / HIGH_WATERMARKS).write_bytes(offset_checkpoint({TOPIC: high_watermark}))
                    cleaner.clean(tmp_path, "topic-0", SETTINGS, now_ms=now_ms)
            return super().open(path, write=write)

    if is_spoilt:
        monkeypatch.setattr(PartitionFiles, "is_unchanged", lambda *_: True)
    with serving(tmp_path, fs=AtTheIndex()) as port, WireClient(port) as client:
        records, _ = records_of(client.fetch("topic", 0, isolation_level=1), 0, committed=True)
        found = [at for at, _ in records]
    assert next(moments, None) is None, "there was no round"
    assert (0 in found) == is_spoilt


def test_aborts_that_a_round_has_taken_are_told_no_more(tmp_path: Path) -> None:
    """Their marker has gone, too: a client would take all that the producer has committed since for aborted."""
    log, settings = LogBuilder(TOPIC), SETTINGS | {"internal.segment.bytes": "200"}  # each segment stays one
    log.append(("k0", "aborted"), producer=Producer(9, 0, 0, transactional=True))
    log.end_transaction(9, 0, commit=False)
    log.append(("k1", "committed"), producer=Producer(9, 0, 1, transactional=True))
    log.end_transaction(9, 0, commit=True)
    for key in ("k2", "k3", "k4"):
        log.roll()
        log.append((key, "v" * 150))
    write_log_dir(tmp_path, log, high_watermarks={TOPIC: 4})
    with serving(tmp_path) as port, WireClient(port) as client:

        def found() -> list[int]:
            return [at for at, _ in records_of(client.fetch("topic", 0, isolation_level=1), 0, committed=True)[0]]

        assert found() == [2]
        for number, high_watermark in enumerate((4, 5, 7), start=1):  # its data goes, it gets its horizon, and goes
            (tmp_path / HIGH_WATERMARKS).write_bytes(offset_checkpoint({TOPIC: high_watermark}))
            cleaner.clean(tmp_path, "topic-0", settings, now_ms=START_MS + number * 10**9)
        assert not list(tmp_path.glob("topic-0/*.txnindex"))
        assert found() == [2]


def _one_segment(original: Callable[..., Any]) -> Callable[..., Any]:
    def find(files: Any, listing: Any, first: int, *more: Any) -> Any:
        number = max(listing.holder_of(first), 0)
        if number + 1 < len(listing.places) and first > listing.places[number].base_offset:
            first = min(first, listing.places[number + 1].base_offset - 1)
            return original(files, listing, first, listing.places[number + 1].base_offset, *more[1:])
        return original(files, listing, first, *more)

    return find


DEFECTS: dict[str, tuple[object, str, Callable[[Any], Any]]] = {
    "aborts are not told": (served_partition.Partition, "_aborted_in", lambda _: lambda *_: []),
    "aborts of the first index only": (aborted, "found_below", lambda old: lambda each, end: [*old(each, end)][:1]),
    "the end of a range is the end of the file": (extent, "_end_of", lambda _: lambda _s, size, *_: size),
    "a segment without the offset is the end": (extent, "_find", _one_segment),
    "the listing is never renewed": (PartitionFiles, "_is_current", lambda _: lambda *_: True),
    "a range may begin within a batch": (
        extent,
        "_first_batch",
        lambda old: lambda s, size, offset: (f := old(s, size, offset)) and (f[0] + 1, f[1], f[2]),
    ),
    "the batch behind the wanted one": (
        extent,
        "_first_batch",
        lambda old: lambda s, size, offset: old(s, size, offset + 1),
    ),
}
FAST = ("aborts are not told", "the batch behind the wanted one")


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in DEFECTS]
)
def test_planted_defect_is_found(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one of the first seeds."""
    where, what, spoil = DEFECTS[name]
    monkeypatch.setattr(served_partition, "_FRESH_NS", 0)
    monkeypatch.setattr(where, what, spoil(getattr(where, what)))
    for seed in range(40):
        try:
            run_world(tmp_path / str(seed), seed)
        except (AssertionError, AttributeError):  # judged, or no batches to kafka-python
            return
    pytest.fail("no seed finds it")
