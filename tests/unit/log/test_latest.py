"""The last value of every key, compared with the plain way to find it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import cleaner
from cleaner import Log, LogManager, Record

pytestmark = pytest.mark.kernels


def restored_plainly(log: Log, next_offset: int) -> dict[bytes, bytes]:
    """Return the state at an offset by reading every record: each replaces the one before."""
    found: dict[bytes, bytes] = {}
    for record in log.read(log.log_start_offset, isolation="read_committed"):
        if record.offset is None or record.offset >= next_offset or record.key is None:
            continue
        found.pop(record.key, None)
        if record.value is not None:
            found[record.key] = record.value
    return found


def write_anything(log: Log, rng: random.Random) -> None:
    """Append records of few keys, tombstones and records without a key among them; some in transactions."""
    producer = log.producer("writer")
    for _ in range(60):
        records = [
            Record(
                rng.choice((b"", None, *(b"k%d" % key for key in range(40)))),
                rng.choice((None, b"", b"v%d" % rng.randrange(1 << 20))),
            )
            for _ in range(rng.randrange(1, 30))
        ]
        kind = rng.random()
        if kind < 0.6:
            log.append(records)
        else:
            producer.begin()
            producer.append(records)
            (producer.commit if kind < 0.8 else producer.abort)()
        if rng.random() < 0.1:
            log.roll()


@pytest.mark.parametrize("seed", range(6))
def test_state_is_what_reading_every_record_gives(tmp_path: Path, seed: int) -> None:
    """As a dict, as records and as columns; compressed or not; before and after a round."""
    rng = random.Random(seed)
    settings = {"compression.type": rng.choice(("producer", "zstd", "lz4")), "segment.bytes": "4000"}
    with LogManager(tmp_path, create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("t", 1, {"cleanup.policy": "delete", **settings})
        log = manager.log("t")
        write_anything(log, rng)
        log.flush()
        manager.alter_topic("t", {"cleanup.policy": "compact"})
        for is_cleaned in (False, True):
            with log.latest() as latest:
                expected = restored_plainly(log, latest.next_offset)
                assert latest.to_dict() == expected, is_cleaned
                assert {record.key: record.value for record in latest} == expected
                rows = [
                    row for columns in latest.columns() for row in zip(columns.keys(), columns.values(), strict=True)
                ]
                assert len(rows) == len(expected)
                assert dict(rows) == expected
            if not is_cleaned:
                log.roll()
                manager.upkeep.note_high_watermarks()
                assert cleaner.clean(tmp_path, "t-0").removed.superseded > 0
