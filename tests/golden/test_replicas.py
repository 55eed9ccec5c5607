"""A partition that Kafka's own cleaner has cleaned at different points in time: legal replicas, which must agree."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest

import cleaner
from cleaner import ReplicasReport
from tests.golden.random_rounds import PARTITION, random_rounds
from tests.support.log_builder import write_log_dir

SCENARIOS = (
    *("broker-transactions", "compact-delete", "consumer-offsets", "legacy-magic", "map-full", "open-transaction"),
    *("tombstones", "transactions"),
)

# Its first round was given a checkpoint beyond a key's tombstone and an older value of it, so no round has ever put the
# two into a map; when the tombstone's time comes, Kafka's cleaner removes it, and the value is there again.
COMES_BACK = "s6 round 3"


def compared(one: Path, other: Path) -> list[ReplicasReport]:
    """Compare all partitions of two log dirs."""
    found = cleaner.check_replicas([one, other])
    assert all(isinstance(each, ReplicasReport) for each in found), found
    return [each for each in found if isinstance(each, ReplicasReport)]


@pytest.mark.parametrize("name", SCENARIOS)
def test_stages_of_a_log_agree(name: str, unpacked: Callable[[str], Path]) -> None:
    """Before and after each round, and across rounds with records written in between; tombstones have expired."""
    stages = sorted(path for path in unpacked(name).iterdir() if path.is_dir())
    for one, other in combinations(stages, 2):
        for report in compared(one, other):
            assert report.agrees, (one.name, other.name, report.differences)
            assert report.parting is None
            marks = [each.high_watermark for each in report.replicas if each.high_watermark is not None]
            assert report.safe.safe_offset == min([report.end_offset, *marks])


def test_rounds_on_random_logs_leave_replicas_that_agree(random_logs: Path, tmp_path: Path) -> None:
    """Transactions that hang, legacy formats, holes."""
    seen: Counter[str] = Counter()
    for number, each in enumerate(random_rounds(random_logs)):
        if "end" not in each.got or not each.files("out"):
            continue
        places = []
        for stage in ("in", "out"):
            log_dir = tmp_path / f"{number}-{stage}"
            shutil.copytree(each.home / f"{stage}{each.number}", log_dir / str(PARTITION))
            starts = {PARTITION: each.got["log_start"]} if each.got["log_start"] else {}
            places.append(write_log_dir(log_dir, log_start_offsets=starts))
        (report,) = compared(*places)
        if str(each) == COMES_BACK:
            (found,) = report.differences
            assert (found.kind.name, found.offset, found.other_offset) == ("DELETED_STILL_ALIVE", 177, 83)
            continue
        assert report.agrees, (str(each), report.differences, report.parting)
        seen["agree"] += 1
        seen["keys"] += report.keys
    assert seen["agree"] > 10
    assert seen["keys"] > 100
