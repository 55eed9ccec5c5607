"""
The memory budget is a bound: a command never has more resident than computed, and lives with a limit a tenth above.

The tenth is for what a control group counts besides: memory of the kernel, and pages of files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks.generate import Shape, generate
from cleaner.base.model import TopicPartition
from cleaner.cleaning.round.memory_budget import BASE_BYTES, MemoryBudget
from cleaner.config.values import MIB, CleanerConfig
from tests.peak_memory import limited_group, run_measured
from tests.support.batch_builder import Producer, Record, data_batch, marker_batch
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir

PARTITION = TopicPartition("small", 0)
SMALL_MAP = {"log.cleaner.dedupe.buffer.size": "4000000"}
"""So that lanes are what counts."""


def write(path: Path, batches: Sequence[bytes], repeat: int, records: int, **settings: int) -> None:
    """Write a log of these batches again and again; each has so many records."""
    log = LogBuilder(PARTITION, **settings)
    for number in range(repeat * len(batches)):
        # A batch's checksum does not cover its base offset.
        log.append_raw((number * records).to_bytes(8, "big") + batches[number % len(batches)][8:])
    log.roll()
    log.append(("key", "value"))
    write_log_dir(path, log)


def tiny_batches(path: Path) -> None:
    """Batches of one record each, which need the largest tables for a window."""
    batches = [data_batch([Record(b"key-%05d" % n, b"value")], 0, timestamp_ms=START_MS) for n in range(50_000)]
    write(path, batches, 5, 1)


def full_indexes(path: Path) -> None:
    """An entry for each batch: a time index of 8 MiB; a broker lets none grow above 10."""
    batches = [data_batch([Record(b"key-%05d" % n, b"value")], 0, timestamp_ms=START_MS + n) for n in range(50_000)]
    write(path, batches, 14, 1, index_interval_bytes=0)


def many_keys(path: Path) -> None:
    """Many more than the map has room for, so that there are several rounds."""
    generate(path, PARTITION, Shape(100_000_000, 1_000_000, 64))


def usual(path: Path) -> None:
    """The shape that the speed is measured with."""
    generate(path, PARTITION, Shape(150_000_000, 200_000, 1024))


def packed(codec: str, value_bytes: int, batch_bytes: int = MIB, repeat: int = 40) -> Callable[[Path], None]:
    """Batches that unpack to about a mebibyte; a twentieth of their records is superseded in the batch itself."""

    def make(path: Path) -> None:
        count = batch_bytes // (value_bytes + 15)
        value = bytes(n * n % 251 for n in range(value_bytes))
        records = [Record(b"%08d" % (n - (n % 20 == 0)), value) for n in range(count)]
        write(path, [data_batch(records, 0, codec=codec, timestamp_ms=START_MS)], repeat, count)

    return make


def repetitive(path: Path) -> None:
    """Batches of one record again and again: a window of 2 MiB has 3.5 million records, and no batch is large."""
    batch = data_batch([Record(b"k", b"")] * 65_536, 0, codec="zstd", timestamp_ms=START_MS)
    write(path, [batch], 300, 65_536)


def aborted(path: Path) -> None:
    """Transactions of one record each, all aborted."""
    log = LogBuilder(PARTITION)
    for number in range(30_000):
        producer = Producer(number % 1000, 0, number // 1000, transactional=True)
        log.append_raw(data_batch([Record(b"k", b"v")], 2 * number, producer=producer, timestamp_ms=START_MS))
        marker = marker_batch(2 * number + 1, producer.producer_id, 0, commit=False, timestamp_ms=START_MS)
        log.append_raw(marker)
    log.roll()
    log.append(("key", "value"))
    write_log_dir(path, log)


SHAPES = {
    "tiny batches": (tiny_batches, SMALL_MAP),
    "full indexes": (full_indexes, SMALL_MAP),
    "many keys": (many_keys, SMALL_MAP),
    "zstd": (packed("zstd", 1), {}),
    "gzip": (packed("gzip", 100), SMALL_MAP),
    "repetitive": (repetitive, SMALL_MAP),
    "huge batches": (packed("none", 40, 20 * MIB, 5), {"message.max.bytes": str(24 * MIB)}),
    "aborted transactions": (aborted, SMALL_MAP),
    "usual": (usual, {}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_command_stays_within_its_budget(shape: str, tmp_path: Path) -> None:
    """With eight lanes; and where it can be limited, in a control group that would kill it."""
    make, settings = SHAPES[shape]
    make(tmp_path / "logs")
    stay_within(tmp_path / "logs", {**settings, "cleaner.pipeline.threads": "4"})


def test_command_with_one_lane_stays_within_its_budget(tmp_path: Path) -> None:
    """The smallest budget there is."""
    tiny_batches(tmp_path / "logs")
    stay_within(tmp_path / "logs", {**SMALL_MAP, "cleaner.pipeline.threads": "1"})


def test_command_above_its_limit_is_killed() -> None:
    """The limit of the tests above is one, where there can be one."""
    with limited_group(64 * MIB) as group:
        finished = run_measured([sys.executable, "-S", "-c", "bytearray(256 << 20)"], group)
    assert (finished.status == 0) is (group is None)


def stay_within(logs: Path, settings: dict[str, str]) -> None:
    """Clean a log, and compare the memory with the budget."""
    command = [sys.executable, "-m", "cleaner", "clean", str(logs), str(PARTITION), "--rounds", "3"]
    command += ["--set=cleanup.policy=compact", *(f"--set={key}={value}" for key, value in settings.items())]
    budget = MemoryBudget.of(CleanerConfig.from_mapping(settings))
    with limited_group(budget.total * 11 // 10) as group:
        finished = run_measured(command, group)
    print(f"{finished.peak_bytes / 1e6:.0f} MB resident of {budget.total / 1e6:.0f} MB; limited: {group is not None}")
    assert finished.status == 0, finished.errors
    assert 0.5 * BASE_BYTES < finished.peak_bytes <= budget.total
