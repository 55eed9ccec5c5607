"""Logs whose rounds end behind ABORT markers, so that the next first pass takes committed batches for aborted."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cleaner
from cleaner.app.options import CallContext
from cleaner.app.verify_log_dirs import VerifyOptions, VerifyReport, verify_log_dirs
from cleaner.errors import CleanerError
from cleaner.settings.sources import Sources
from tests.support.batch_builder import Producer
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir

NAME = "topic-0"
_PRODUCERS = 3


@dataclass(frozen=True)
class Round:
    """A round: the log dirs before and after, its moment, its settings, and whether it ended in mid-segment."""

    before: Path
    after: Path
    now_ms: int
    settings: dict[str, str]


def random_log(randomness: random.Random) -> LogBuilder:
    """Return a short log of interleaved transactions, most of which are aborted, over a few keys."""
    log = LogBuilder(index_interval_bytes=randomness.choice([0, 100, 4096]))
    sequences, epochs, is_open = [0] * _PRODUCERS, [0] * _PRODUCERS, [False] * _PRODUCERS
    keys = randomness.choice([2, 4, 12])
    for _ in range(randomness.randrange(10, 60)):
        what, producer = randomness.random(), randomness.randrange(_PRODUCERS)
        if what < 0.35:
            if is_open[producer] or what < 0.03:
                epochs[producer] += randomness.random() < 0.4
                log.end_transaction(7 + producer, epochs[producer], commit=randomness.random() < 0.4)
                is_open[producer] = False
                sequences[producer] = 0 if epochs[producer] else sequences[producer]
        elif what < 0.42:
            if log.next_offset > log.base_offsets[-1]:
                log.roll()
        else:
            values = [None if randomness.random() < 0.1 else "v" for _ in range(randomness.choice([1, 1, 3]))]
            pairs = [(f"k{randomness.randrange(keys)}", value) for value in values]
            if what < 0.8:
                sequence = sequences[producer]
                log.append(*pairs, producer=Producer(7 + producer, epochs[producer], sequence, transactional=True))
                sequences[producer] += len(pairs)
                is_open[producer] = True
            else:
                log.append(*pairs)
    for producer in range(_PRODUCERS):
        if is_open[producer]:
            log.end_transaction(7 + producer, epochs[producer], commit=randomness.random() < 0.5)
    if log.next_offset > log.base_offsets[-1]:
        log.roll()
    log.append(("z", "z"))
    return log


def random_rounds(work: Path, randomness: random.Random) -> Iterator[Round]:
    """Write a random log and clean it with maps for a key or a few, until it is clean; yields each round."""
    before = work / "0"
    before.mkdir(parents=True)
    write_log_dir(before, random_log(randomness))
    settings = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": str(randomness.choice([0, 1000, 86_400_000])),
        "producer.id.expiration.ms": str(randomness.choice([1, 86_400_000])),
        "internal.segment.bytes": str(randomness.choice([300, 2000, 1 << 20])),
        # Without entries in the index a first pass begins at the segment's first batch, and comes to all markers.
        "index.interval.bytes": str(randomness.choice([0, 0, 100, 4096])),
        "log.cleaner.io.buffer.load.factor": "0.9",
    }
    now_ms = START_MS + 100_000
    for number in range(1, 40):
        after = work / str(number)
        shutil.copytree(before, after)
        settings["log.cleaner.dedupe.buffer.size"] = str(24 * randomness.choice([2, 3, 5, 9]))
        try:
            report = cleaner.clean(after, NAME, settings, now_ms=now_ms)
        except CleanerError:
            return  # a log that no cleaner takes
        if report.rounds == 0:
            return
        yield Round(before, after, now_ms, dict(settings))
        before = after
        now_ms += randomness.choice([0, 0, 10, 1001, 100_000_000])


def prove(
    before: Path, after: Path, settings: dict[str, str], *, now_ms: int | None = None, since_ms: int | None = None
) -> VerifyReport:
    """Verify the partition."""
    sources = Sources.of_call("topic", {"cleaner.kafka.version": "4.3"} | settings, None, None)
    options = VerifyOptions(now_ms=now_ms, since_ms=since_ms)
    (report,) = verify_log_dirs(before, after, sources, CallContext.of(), options, [NAME])
    assert isinstance(report, VerifyReport), report
    return report
