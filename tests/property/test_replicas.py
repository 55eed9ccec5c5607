"""Replicas are found to agree, or not, as the slow twin says, whatever is missing in which of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cleaner
from cleaner import ReplicasReport
from tests.reference.replicas import Copy, Entry, Verdict, compare
from tests.scratch import scratch_directory
from tests.support.batch_builder import Producer
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir

KEYS = "abcde"
MOST_ENTRIES = 30


def history(rng: random.Random, entries: int, first: int = 0, epoch: int = 0) -> list[Entry]:
    """Return what a leader has written, from an offset on: with transactions, each of them ended but the last ones."""
    made: list[Entry] = []
    open_producers = set[int]()
    for offset in range(first, first + entries):
        if open_producers and rng.random() < 0.25:
            producer = rng.choice(sorted(open_producers))
            open_producers.discard(producer)
            how = "commit" if rng.random() < 0.5 else "abort"
            made.append(Entry(offset, "", how, producer, is_marker=True, epoch=epoch))
            continue
        producer_or_none = rng.choice([None, None, 1, 2])
        if producer_or_none is not None:
            open_producers.add(producer_or_none)
        value = None if rng.random() < 0.3 else f"value {rng.randrange(3)}"
        made.append(Entry(offset, rng.choice(KEYS), value, producer_or_none, epoch=epoch))
    return made


def cleaned(rng: random.Random, log: Sequence[Entry]) -> list[Entry]:
    """Return what a cleaner may leave of a log up to some offset: never less than it has to."""
    open_offsets = [
        entry.offset
        for entry in log
        if entry.producer is not None and not entry.is_marker and _marker(log, entry) is None
    ]
    end = rng.randint(0, min([len(log), *open_offsets]))
    last = {
        entry.key: entry.offset
        for entry in log
        if entry.offset < end and not entry.is_marker and not _is_aborted(log, entry)
    }
    expires = rng.random() < 0.5
    kept = [
        entry
        for entry in log
        if entry.offset >= end
        or entry.is_marker
        or (last.get(entry.key) == entry.offset and not (entry.value is None and expires))
    ]
    has_data = {_marker(log, entry) for entry in kept if not entry.is_marker and entry.producer is not None}
    return [entry for entry in kept if not entry.is_marker or entry.offset >= end or entry in has_data or not expires]


def _marker(log: Sequence[Entry], entry: Entry) -> Entry | None:
    return next(
        (each for each in log if each.is_marker and each.producer == entry.producer and each.offset > entry.offset),
        None,
    )


def _is_aborted(log: Sequence[Entry], entry: Entry) -> bool:
    marker = None if entry.producer is None else _marker(log, entry)
    return marker is not None and marker.is_abort


def replica(rng: random.Random, log: Sequence[Entry]) -> Copy:
    """Return a replica: a part of the log, cleaned or not, perhaps with something missing, or another end."""
    end = len(log) if rng.random() < 0.5 else rng.randint(1, len(log))
    mine = cleaned(rng, log[:end])
    kind = rng.random()
    if kind < 0.3:
        mine = [entry for entry in mine if rng.random() < 0.9]
    elif kind < 0.4:
        first = rng.randint(0, end)
        mine = [entry for entry in mine if entry.offset < first]
        mine += history(rng, rng.randint(1, 5), max(first, 1), epoch=rng.randint(0, 1))
        end = mine[-1].offset + 1
    # Retention: whole segments, but here of one record each.
    start = 0 if rng.random() < 0.8 else rng.randint(0, end - 1)
    return Copy(end, tuple(entry for entry in mine if entry.offset >= start), start)


def write(path: Path, copy: Copy) -> Path:
    """Write a replica as a log dir."""
    log = LogBuilder(base_offset=copy.start)
    for entry in copy.entries:
        log.skip(entry.offset - log.next_offset)
        log.leader_epoch, time = entry.epoch, START_MS + entry.offset
        if entry.is_marker:
            log.end_transaction(entry.producer or 0, 0, commit=not entry.is_abort, timestamp_ms=time)
        elif entry.producer is None:
            log.append((entry.key, entry.value), timestamp_ms=time)
        else:
            producer = Producer(entry.producer, 0, entry.offset, transactional=True)
            log.append((entry.key, entry.value), producer=producer, timestamp_ms=time)
    if copy.end > log.next_offset:
        log.skip(copy.end - 1 - log.next_offset)
        log.append_empty()
    return write_log_dir(path, log, high_watermarks={})


def as_verdict(report: ReplicasReport, paths: Sequence[Path]) -> Verdict:
    """Return a report in the twin's words."""
    number = {str(path / "topic-0"): at for at, path in enumerate(paths)}
    return Verdict(
        report.end_offset,
        None if report.parting is None else report.parting.offset,
        frozenset(
            (each.kind.name, each.offset, number[each.departs], each.other_offset) for each in report.differences
        ),
        {
            at: (each.needs_tombstones, each.first_needed_offset)
            for at, each in enumerate(report.replicas)
            if each.first_needed_offset is not None
        },
        None,
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False), st.integers(2, 4))
def test_what_is_found_is_what_the_twin_finds(rng: random.Random, count: int) -> None:
    log = history(rng, rng.randint(1, MOST_ENTRIES))
    copies = [replica(rng, log) for _ in range(count)]
    expected = compare(copies)
    with scratch_directory() as directory:
        paths = [write(directory / str(number), copy) for number, copy in enumerate(copies)]
        (report,) = cleaner.check_replicas(paths)
    assert isinstance(report, ReplicasReport)
    assert as_verdict(report, paths) == expected._replace(unseen=None)
    ends = [expected.end, *([] if expected.unseen is None else [expected.unseen])]
    assert report.safe.safe_offset == min(ends)
    for each in report.differences:
        if each.key is not None:
            assert any(
                entry.offset == each.offset and entry.key == each.key for copy in copies for entry in copy.entries
            )
    assert report.agrees == (not expected.findings and expected.parted is None)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False), st.integers(2, 3))
def test_replicas_of_one_end_agree_however_they_were_cleaned(rng: random.Random, count: int) -> None:
    log = history(rng, rng.randint(1, MOST_ENTRIES))
    copies = [Copy(len(log), tuple(cleaned(rng, log))) for _ in range(count)]
    with scratch_directory() as directory:
        paths = [write(directory / str(number), copy) for number, copy in enumerate(copies)]
        (report,) = cleaner.check_replicas(paths, memory_bytes=1)
    assert isinstance(report, ReplicasReport)
    assert report.agrees
    assert report.safe.safe_offset == len(log)
