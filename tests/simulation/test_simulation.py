"""The simulator in CI: some seeds find nothing, and a seed replays exactly. Planted defects: `test_teeth.py`."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.defects import DEFECTS
from tests.simulation.found import RoundBegun, Wrong, judge_cut_swap
from tests.simulation.many import coverage, told
from tests.simulation.plan import FOCUSES, Plan
from tests.simulation.run import remove_scratch, run_seed, scratch
from tests.simulation.shrinking import World, kind_of, shrink
from tests.simulation.topics import SETTINGS
from tests.support.power_cut import DiskState, FileState

_ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.long

_PLANS = sorted((Path(__file__).parent / "plans").glob("*.json"))
_SEEDS = range(40)
_REPLAYED = range(100, 104)


@pytest.fixture(autouse=True)
def _no_scratch_left() -> Iterator[None]:
    yield
    remove_scratch()


def trace_of(seed: int) -> int:
    """Return a number of all that happened in a seed's world."""
    report = run_seed(seed)
    told_all = repr((list(map(str, report.trace)), report.accidents, report.outcomes, report.failure))
    return zlib.crc32(told_all.replace(scratch().name, "scratch").encode())  # its name has this process's id


def _traces_elsewhere(seeds: range, hash_seed: str) -> list[int]:
    program = (
        "from tests.simulation.run import remove_scratch\n"
        "from tests.simulation.test_simulation import trace_of\n"
        f"print(*map(trace_of, {seeds!r}))\n"
        "remove_scratch()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=_ROOT,
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(word) for word in done.stdout.split()]


def test_worlds_of_some_seeds_break_no_promise(capsys: pytest.CaptureFixture[str]) -> None:
    """The short form of `make simulate`: the same seeds each time, so that a failure is one of what has changed."""
    reports = [run_seed(seed) for seed in _SEEDS]
    with capsys.disabled():
        met = {pair for report in reports for pair in report.met}
        print(f"\nseeds {_SEEDS.start} to {_SEEDS.stop - 1}: {coverage(met)}")
    assert [told(report) for report in reports if report.failure] == []
    assert sum(len(report.accidents) for report in reports) > len(reports)
    assert sum(report.outcomes.get("round", 0) for report in reports) >= len(reports)


def _has(plan: Plan, focus: str) -> bool:
    return focus in {
        *(rest.kind for rest in plan.rests),
        *(name for each in plan.accidents for name in (each.kind, each.place)),
        *(each.kind for each in plan.operations),
        "daemon" if plan.has_daemon else "",
        "index" if plan.has_index else "",
        "fetches" if plan.is_served else "",
        "topics" if len(plan.topics) == len(SETTINGS) else "",
    }


@pytest.mark.parametrize("focus", FOCUSES)
def test_world_with_a_focus_has_it_and_breaks_no_promise(focus: str) -> None:
    """What most worlds do not have is met at once where one looks for a fault of it."""
    assert [number for number in range(50) if not _has(Plan.of(f"{focus}/{number}"), focus)] == []
    report = run_seed(f"{focus}/0")
    assert not report.failure, told(report)


def test_unknown_focus_is_refused() -> None:
    """A slip would look for a fault where there is none."""
    with pytest.raises(ValueError, match="known are fence, topics"):
        Plan.of("earse/7")


def test_seed_replays_exactly_in_another_process() -> None:
    """Whatever order its sets have there."""
    assert [trace_of(seed) for seed in _REPLAYED] == _traces_elsewhere(_REPLAYED, "1")


@pytest.mark.slow
def test_fifty_seeds_replay_exactly_twice_and_in_another_process() -> None:
    """The long form of the test above."""
    seeds = range(100, 150)
    first = [trace_of(seed) for seed in seeds]
    assert [trace_of(seed) for seed in reversed(seeds)][::-1] == first
    assert _traces_elsewhere(seeds, "4711") == first


@pytest.mark.parametrize("path", _PLANS, ids=lambda path: path.stem)
def test_world_that_failed_once_fails_no_more(path: Path) -> None:
    """Each plan was shrunk from a seed that found something, and is named for what it found."""
    world = World.from_json(path.read_text())
    report = run_seed(world.seed, world.plan)
    assert not report.failure, told(report)


def test_failing_world_is_shrunk_to_one_that_fails_in_the_same_way() -> None:
    """Some accidents are left out, and at least half of the operations; the text of it replays it."""
    with DEFECTS["flush without fsync"]():
        found = next(report for report in map(run_seed, range(60)) if report.failure)
        assert len(found.plan.accidents) >= 3
        world = shrink(World(found.seed, found.plan), found.failure, seconds=600, worlds=80)
        again = World.from_json(world.to_json())
        report = run_seed(again.seed, again.plan)
    assert again == world
    assert kind_of(report.failure) == kind_of(found.failure)
    assert len(world.plan.accidents) < len(found.plan.accidents)
    assert len(world.plan.operations) <= len(found.plan.operations) // 2
    assert not run_seed(again.seed, again.plan).failure


def test_old_log_that_an_earlier_round_left_is_one_for_the_judge_of_a_cut_swap() -> None:
    """A new log beside retired indexes is no fault while the old one is there, whoever has retired it."""
    directory = Path("log-0")
    suffixes = (".log", ".log.deleted", ".index", ".timeindex.swap", ".txnindex.deleted", ".txnindex.swap")

    def judge(left_overs: set[str], gone: str = "") -> None:
        files = tuple((directory / f"{0:020}{each}", FileState(b"", 0)) for each in suffixes if each != gone)
        judge_cut_swap(DiskState(files, (directory,)), directory, RoundBegun(0, frozenset(left_overs), expires=False))

    judge(set())
    judge({f"{0:020}.log.deleted"})
    with pytest.raises(Wrong, match="its indexes are retired"):
        judge(set(), gone=".log.deleted")
