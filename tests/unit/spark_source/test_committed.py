"""Committed reads by markers alone: without any index or snapshot, and with tasks that begin and end anywhere."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cleaner.log.reader import open_reader
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.unit.spark_source.reading import offsets_of

pytest.importorskip("pyarrow", reason="needs the extra `spark`")


def a_log(seed: int, *, ends_open: bool) -> LogBuilder:
    """Three producers' transactions, one inside the other, over several segments."""
    chooser = random.Random(seed)
    log = LogBuilder(index_interval_bytes=0, segment_bytes=900)
    open_now: set[int] = set()
    for _ in range(120):
        producer = chooser.choice([1, 2, 3])
        if producer in open_now and chooser.random() < 0.3:
            log.end_transaction(producer, 0, commit=chooser.random() < 0.5)
            open_now.remove(producer)
        elif chooser.random() < 0.2:
            log.append(("plain", "v"))
        else:
            log.append((f"k{producer}", "v"), ("l", "w"), producer=Producer(producer, 0, 0, transactional=True))
            open_now.add(producer)
    if not ends_open:
        for producer in sorted(open_now):
            log.end_transaction(producer, 0, commit=producer == 2)
    return log


@pytest.mark.parametrize("ends_open", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_committed_records_need_no_index(tmp_path: Path, seed: int, ends_open: bool) -> None:
    """They are those that a reader with all files sees, and nothing after the first open transaction."""
    write_log_dir(tmp_path, a_log(seed, ends_open=ends_open))
    with open_reader(tmp_path, "topic") as reader:
        expected = [record.offset for record in reader.read(0, isolation="read_committed")]
        end = reader.last_stable_offset
    assert offsets_of(tmp_path, isolationLevel="read_committed", maxPartitionBytes="200") == expected
    for path in [*tmp_path.glob("*/*index"), *tmp_path.glob("*/*.snapshot"), *tmp_path.glob("*checkpoint")]:
        path.unlink()
    assert offsets_of(tmp_path, isolationLevel="read_committed") == expected
    for first in range(0, end, 7):
        part = offsets_of(
            tmp_path, isolationLevel="read_committed", startingOffsets=str(first), endingOffsets=str(first + 9)
        )
        assert part == [offset for offset in expected if offset is not None and first <= offset < first + 9]


def test_records_above_the_high_watermark_are_not_committed(tmp_path: Path) -> None:
    """They could still be lost; uncommitted reads show all records."""
    log = LogBuilder()
    for _ in range(6):
        log.append(("k", "v"))
    write_log_dir(tmp_path, log, high_watermarks={log.topic_partition: 4})
    assert offsets_of(tmp_path, isolationLevel="read_committed") == [0, 1, 2, 3]
    assert offsets_of(tmp_path) == list(range(6))
