"""Rounds with a shorter bitmap of latest offsets, and transactions around the first dirty offset."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from cleaner.cleaning import offset_map as offset_map_module
from cleaner.cleaning.round.round import RoundResult
from tests.property.logs import Append, Case, End, Operation, Roll, build
from tests.property.rounds import run_rounds
from tests.scratch import scratch_directory
from tests.unit.cleaning.test_lanes import LOGS, outcome

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("percent", [0, 40])
@pytest.mark.parametrize("most", [0, 1, 40, 1000])
def test_round_whose_bitmap_ends_anywhere_leaves_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, percent: int, most: int
) -> None:
    """Offsets beyond its end are looked up in the table."""
    log = LOGS[kind]()
    first, last = log.base_offsets[0], log.base_offsets[-1]
    checkpoint = first + (last - first) * percent // 100
    files, result = outcome(log, tmp_path / "whole", 2, checkpoint=checkpoint)
    assert isinstance(result, RoundResult)
    assert result.removed.superseded > 0
    monkeypatch.setattr(offset_map_module, "_MAX_BITS", most)
    bounded_files, bounded = outcome(log, tmp_path / "bounded", 2, checkpoint=checkpoint)
    assert isinstance(bounded, RoundResult)
    # Without their bits, segments in which nothing changes are read twice to find that out.
    assert bounded.bytes_read_once <= result.bytes_read_once
    assert (bounded_files, replace(bounded, bytes_read_once=0)) == (files, replace(result, bytes_read_once=0))


SETTINGS = {
    "cleanup.policy": "compact",
    "index.interval.bytes": "60",
    "segment.index.bytes": "10485760",
    "internal.segment.bytes": "1048576",
    "delete.retention.ms": "1000",
    "min.compaction.lag.ms": "0",
    "log.cleaner.dedupe.buffer.size": "24000",
    "log.cleaner.io.buffer.load.factor": "0.9",
    "producer.id.expiration.ms": "86400000",
}
ROLL = Roll(0)
ABORT, COMMIT = End(3, commit=False, new_epoch=False), End(3, commit=True, new_epoch=False)
OTHER_ABORT, OTHER_COMMIT = (end._replace(producer=4) for end in (ABORT, COMMIT))


def data(producer: int, *keys: str) -> Append:
    """Append a record for each key; producers 3 and 4 are transactional, 2 is not."""
    return Append(tuple((key.encode(), b"value") for key in keys), producer=producer)


PLAIN, MINE, OTHERS = data(2, "a", "b"), data(3, "a", "c"), data(4, "b", "c")

STORIES: dict[str, tuple[Operation, ...]] = {
    "data-below-marker-above": (PLAIN, MINE, PLAIN, ROLL, PLAIN, ABORT, PLAIN),
    "data-on-both-sides": (PLAIN, MINE, ROLL, MINE, PLAIN, ABORT, PLAIN),
    "committed-before-and-after": (MINE, COMMIT, MINE, ROLL, PLAIN, MINE, ABORT, MINE, PLAIN, COMMIT, PLAIN),
    "aborted-twice": (MINE, ABORT, MINE, ROLL, PLAIN, ABORT, MINE, COMMIT, MINE, ROLL, PLAIN, ABORT, PLAIN),
    "abort-then-commit-of-the-same-keys": (PLAIN, MINE, ROLL, ABORT, MINE, COMMIT, ROLL, MINE, ABORT, PLAIN),
    "one-inside-the-other": (MINE, OTHERS, PLAIN, ROLL, OTHERS, ABORT, MINE, PLAIN, OTHER_ABORT, OTHERS, ROLL, COMMIT,
                             OTHER_COMMIT, PLAIN),
    "across-three-segments": (MINE, PLAIN, ROLL, OTHERS, PLAIN, ROLL, MINE, OTHER_COMMIT, PLAIN, ROLL, ABORT, PLAIN),
    "marker-without-data": (PLAIN, ABORT, MINE, ROLL, ABORT, COMMIT, PLAIN, MINE, PLAIN, COMMIT),
}  # fmt: skip


def check(operations: tuple[Operation, ...], checkpoint_percent: int, segment_bytes: str) -> None:
    """Run three rounds of engine and twin from a given first dirty offset."""
    case = Case(
        operations=operations,
        settings=SETTINGS | {"internal.segment.bytes": segment_bytes},
        replicated_percent=(100, 100, 100),
        advances_ms=(0, 1, 2500),
        checkpoint_percent=checkpoint_percent,
    )
    with scratch_directory() as directory:
        for number, found in enumerate(run_rounds(case, directory), 1):
            assert found.found == [], f"round {number} from {checkpoint_percent} %"


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("segment_bytes", ["1", "1048576"])
def test_transaction_around_the_first_dirty_offset_is_cleaned_as_the_twin_does(story: str, segment_bytes: str) -> None:
    """From every offset: its data is in the clean section and its marker in the dirty one, or vice versa."""
    operations = STORIES[story]
    log = build(operations, SETTINGS)
    percents = {-(-100 * offset // log.next_offset) for offset in range(log.base_offsets[-1] + 1)}
    for percent in sorted(percents):
        check(operations, percent, segment_bytes)


def test_short_transactions_in_any_order_are_cleaned_as_the_twin_does() -> None:
    """Every order of four steps, each side of a roll, cleaned from the roll on."""
    for before in product((MINE, ABORT, COMMIT), repeat=2):
        for after in product((MINE, ABORT, PLAIN), repeat=2):
            operations = (PLAIN, *before, ROLL, *after, ABORT, PLAIN)
            log = build(operations, SETTINGS)
            percent = -(-100 * log.base_offsets[1] // log.next_offset)
            check(operations, percent, "1048576")
