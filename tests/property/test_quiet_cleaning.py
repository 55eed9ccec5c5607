"""A round without anything dirty removes what Kafka's next round would remove for its age, and touches nothing else."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from random import Random

import pytest

import cleaner
from cleaner.log.record import Record
from cleaner.policy.reasons import Reason
from tests.reference.batches import read_batches, read_records
from tests.scratch import scratch_directory
from tests.support.growing_log import DAY_MS, GrowingLog

QUIET = {"cleaner.quiet.cleaning": "true"}


def grow(log: GrowingLog, rng: Random, next_key: int) -> int:
    """Append some segments: new keys, tombstones, transactions of records and tombstones; returns the next new key."""
    log.now_ms += rng.choice((1000, DAY_MS, 3 * DAY_MS))
    segments = []
    for _ in range(rng.choice((1, 2, 3))):
        segments.append(log.segment(next_key, rng.choice((3, 25, 32))))
        next_key += 40
    if rng.random() < 0.6:
        segments[-1] += [(f"k{rng.randrange(next_key)}", None) for _ in range(rng.choice((1, 3)))]
    log.append(*segments)
    for number in range(rng.choice((0, 0, 1, 2))):
        with log.manager() as manager:
            held = manager.log("prices", 0)
            producer = held.producer(f"mine-{number}")
            producer.begin()
            value = rng.choice((b"in a transaction", None))
            producer.append([Record(f"k{rng.randrange(next_key)}".encode(), value)])
            if rng.random() < 0.4:
                # The marker is in another segment than its data, beside what may be due; each fills a segment.
                for last in (Record(b"in a segment", b"of data"), Record(f"k{rng.randrange(next_key)}".encode(), None)):
                    held.append([Record(f"k{next_key + i}".encode(), bytes(100)) for i in range(25)] + [last])
                    held.roll()
                    next_key += 40
            (producer.commit() if rng.random() < 0.6 else producer.abort()).result()
            if rng.random() < 0.5:
                held.roll()
    with log.manager() as manager:
        manager.log("prices", 0).roll()  # so that the next record is all that is dirty
    return next_key


def records_below(directory: Path, end: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of each record below an offset, markers too, by the tests' own reader."""
    return [
        (record.offset, record.key, record.value)
        for path in sorted(directory.glob("*.log"))
        for batch in read_batches(path.read_bytes())
        for record in read_records(batch)
        if record.offset < end
    ]


def identities(directory: Path) -> dict[str, tuple[int, int]]:
    """Return what shows that a file is the same."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in directory.glob("*.log")}


def copy_of(log: GrowingLog, name: str) -> GrowingLog:
    """Return a copy of a log dir."""
    copy = GrowingLog.__new__(GrowingLog)
    vars(copy).update(vars(log))
    copy.log_dir = log.log_dir.with_name(name)
    copy.directory = copy.log_dir / log.directory.name
    shutil.rmtree(copy.log_dir, ignore_errors=True)
    shutil.copytree(log.log_dir, copy.log_dir)
    return copy


def proves(before: GrowingLog, after: GrowingLog, settings: dict[str, str]) -> bool:
    """Tell whether `verify` takes one log for what rounds up to now can have left of the other."""
    now_ms = before.now_ms
    partition = before.directory.name
    return cleaner.verify(before.log_dir, after.log_dir, partition, before.settings | settings, now_ms=now_ms).is_proven


def compare(log: GrowingLog, rng: Random, seen: Counter[str]) -> None:
    """Clean a log that is quiet, and a copy of it to which one record of a new key came."""
    log.now_ms += rng.choice((1, DAY_MS, 5 * DAY_MS, 11 * DAY_MS))
    busy = copy_of(log, "busy")
    busy.append([("a key of its own", "value")])
    usual = busy.clean(index=False)
    before, files = records_below(log.directory, usual.first_dirty_offset), identities(log.directory)
    old = copy_of(log, "old")
    [entry] = cleaner.plan(log.log_dir, log.settings | QUIET, now_ms=log.now_ms)
    report = log.clean(index=rng.random() < 0.3, settings=QUIET)
    after = records_below(log.directory, usual.first_dirty_offset)
    assert after == records_below(busy.directory, usual.first_dirty_offset)
    assert report.end_offset == usual.first_dirty_offset
    assert len(before) - len(after) == report.removed.tombstones + report.removed.markers
    assert report.removed.total == report.removed.tombstones + report.removed.markers
    assert entry.is_due == (entry.why is Reason.HORIZON_PASSED) == bool(report.rounds)
    assert entry.next_horizon_ms is not None
    assert entry.next_horizon_ms >= (report.next_horizon_ms or 0)
    assert proves(old, log, QUIET)
    assert proves(old, log, {}) == (identities(log.directory) == files)
    early = copy_of(old, "early")
    early.clean(index=False, settings=QUIET, now_ms=log.now_ms + 30 * DAY_MS)
    gone = len(after) - len(records_below(early.directory, usual.first_dirty_offset))
    assert not (gone and proves(old, early, QUIET))
    seen["too early"] += gone
    if not report.rounds:
        assert identities(log.directory) == files
    kept = {name for name, identity in identities(log.directory).items() if files[name] == identity}
    seen["tombstones"] += report.removed.tombstones
    seen["markers"] += report.removed.markers
    seen["untouched"] += len(kept)
    seen["nothing due"] += not report.rounds


@pytest.mark.parametrize("first", [2, 28])
def test_quiet_rounds_remove_what_the_next_round_would(first: int) -> None:
    """Tombstones and markers whose horizons have passed; in other segments nothing changes."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + 2):
        rng = Random(seed)
        with scratch_directory() as root:
            log, next_key = GrowingLog(root), 0
            for _ in range(5):
                next_key = grow(log, rng, next_key)
                log.clean(index=False)
                for _ in range(rng.choice((1, 2))):
                    compare(log, rng, seen)
    assert len(seen) == 5 and min(seen.values()) > 0, seen


@pytest.mark.parametrize("commits", [True, False])
def test_marker_whose_data_went_in_the_last_round_goes_in_the_end(commits: bool) -> None:
    """It gets a horizon although nothing is dirty and no horizon has passed, and goes after that; all looks agree."""
    with scratch_directory() as root:
        log = GrowingLog(root)
        with log.manager() as manager:
            held = manager.log("prices", 0)
            producer = held.producer("mine")
            for number in range(2):
                producer.begin()
                producer.append([Record(b"key", b"%d" % number)])
                (producer.commit() if commits else producer.abort()).result()
                held.append([Record(b"key", b"later")])
            held.roll()
        log.clean()
        found = []
        for _ in range(6):
            old = copy_of(log, "old")
            [entry] = cleaner.plan(log.log_dir, log.settings | QUIET, now_ms=log.now_ms)
            report = log.clean(settings=QUIET)
            assert entry.is_due == (entry.why is Reason.HORIZON_PASSED) == bool(report.rounds)
            assert proves(old, log, QUIET)
            found.append((report.rounds, report.removed.markers))
            log.now_ms += 3 * DAY_MS
        # First the older one; the younger is its producer's last, with data kept empty until the producer expires.
        assert found == [(1, 0), (1, 0), (1, 1), (0, 0), (1, 1), (0, 0)]
