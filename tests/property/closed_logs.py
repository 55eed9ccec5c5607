"""Logs by lot that were closed in order, with transactions, odd checkpoints and lost snapshots."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from cleaner.base.model import TopicPartition
from tests.reference.log_state import LogState, Settings, load
from tests.support.batch_builder import Producer
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir

PRODUCERS = 4


class Lines(NamedTuple):
    """A partition's lines in the checkpoints; None: there is none."""

    cleaner_offset: int | None
    high_watermark: int | None
    log_start_offset: int | None


def log_by_lot(lot: random.Random, partition: TopicPartition) -> LogBuilder:
    """Write a log: sometimes empty, sometimes beginning above 0, often with transactions over several segments."""
    log = LogBuilder(partition, base_offset=lot.choice([0, 0, 100]))
    is_open, sequences = set[int](), dict.fromkeys(range(PRODUCERS), 0)
    for step in range(lot.choice([0, 3, 30, 60, 60])):
        if step and log.next_offset > log.base_offsets[-1] and lot.random() < 0.12:
            log.roll()
        if lot.random() < 0.05:
            log.skip(lot.randrange(5))
        producer_id = lot.randrange(PRODUCERS)
        if producer_id in is_open and lot.random() < 0.6:
            log.end_transaction(producer_id, 0, commit=lot.random() < 0.5)
            is_open.discard(producer_id)
        elif lot.random() < 0.3:
            log.append((f"k{step % 7}", "v" * lot.randrange(90)), producer=Producer(producer_id, 0, 0, True))
            is_open.add(producer_id)
        else:
            log.append((f"k{step % 7}", "v" * lot.randrange(90)), producer=Producer(9, 0, sequences[producer_id]))
    return log


def lines_by_lot(lot: random.Random, log: LogBuilder) -> Lines:
    """Draw offsets in and around a log, near the bounds most often."""
    start, end, active = log.base_offsets[0], log.next_offset, log.base_offsets[-1]
    near = [start - 1, start, start + 1, active - 1, active, active + 1, end - 1, end, end + 1, end + 1000]
    anywhere = [lot.randint(start, end) for _ in range(len(near))]
    log_start = lot.choice([None, None, None, max(0, start - 1), lot.randint(start, end)])
    checkpoint = lot.choice([None, max(0, lot.choice(near)), lot.choice(anywhere), lot.choice(log.base_offsets)])
    high_watermark = lot.choice([None, end, end, end, max(0, lot.choice(near)), lot.choice(anywhere)])
    return Lines(checkpoint, high_watermark, log_start)


def write(
    path: Path, seed: int, count: int, *, lost_indexes: float = 0.0
) -> tuple[list[LogBuilder], dict[TopicPartition, Lines]]:
    """Write a log dir of so many partitions, a share of which has lost an offset index."""
    lot = random.Random(seed)
    logs = [log_by_lot(lot, TopicPartition("topic", number)) for number in range(count)]
    lines = {log.topic_partition: lines_by_lot(lot, log) for log in logs}
    write_log_dir(
        path,
        *logs,
        cleaner_offsets={tp: each.cleaner_offset for tp, each in lines.items() if each.cleaner_offset is not None},
        high_watermarks={tp: each.high_watermark for tp, each in lines.items() if each.high_watermark is not None},
        log_start_offsets={tp: each.log_start_offset for tp, each in lines.items() if each.log_start_offset},
    )
    for log in logs:
        snapshots = sorted((path / str(log.topic_partition)).glob("*.snapshot"))
        for snapshot in lot.choice([[], [], [], snapshots, snapshots[-1:], snapshots[::2], snapshots[:-1]]):
            snapshot.unlink()
        if lot.random() < lost_indexes:
            lot.choice(sorted((path / str(log.topic_partition)).glob("*.index"))).unlink()
    return logs, lines


def load_by_twin(directory: Path, lines: Lines, settings: Settings) -> LogState:
    """Load a log with the slow twin; without a high watermark nothing is replicated (D-03)."""
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    times = dict.fromkeys(files, START_MS) | {
        path.name: path.stat().st_mtime_ns // 10**6 for path in directory.glob("*.log")
    }
    watermark = 0 if lines.high_watermark is None else lines.high_watermark
    return load(files, times, settings, START_MS, lines.log_start_offset or 0, watermark)
