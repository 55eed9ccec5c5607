"""The simulator in CI: some seeds find nothing, a seed replays exactly, and planted defects are found."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation import run
from tests.simulation.defects import DEFECTS, found_by
from tests.simulation.found import RoundBegun, Wrong, judge_cut_swap
from tests.simulation.many import coverage, told
from tests.simulation.plan import FOCUSES, Plan
from tests.simulation.planting import breaks
from tests.simulation.run import remove_scratch, run_seed, scratch
from tests.simulation.shrinking import World, kind_of, shrink
from tests.simulation.topics import SETTINGS
from tests.support.power_cut import DiskState, FileState

_ROOT = Path(__file__).parents[2]
_PLANS = sorted((Path(__file__).parent / "plans").glob("*.json"))
_SEEDS = range(75)
_REPLAYED = range(100, 104)

# Each with a seed near one that finds it: where exactly changes with every change of the product.
_FOUND = {
    "flush without fsync": 0,
    "answered as durable before the fsync": 2,
    "after an error a reader goes on behind what it read": 0,
    "failed append is not undone": 0,
    "repeats are not recognised": 0,
    "flushes are not asked for again": 0,
    "aborts are not indexed": 0,
    "rounds leave a file open": 0,
    "retention removes a segment too many": 67,
    "checkpoints outlive a topic": 3,
    "recovery believes the page cache": 78,
    "openings cut what was on disk": 1800,
    "readers keep an end from before a cut": 915,
    "recover cuts what it refused": 25349,
    "topics are made without directory fsyncs": 45,
    "topics are deleted without directory fsyncs": 28,
    "readers end at damage": 204,
    "segments stay whatever becomes of them": 0,
    "chunks that lose no record count as equal": 0,
    "checkpoint does not wait for the last swap": 27,
    "digests are compared one bit off": 27,
    "quiet rounds find nothing": 71,
    "short writes count as whole": 0,
    "proofs lose keys at borders": 38,
    "proofs pass over old formats": 38,
    "packing lets tombstones go": 50,
    "who does not see the last part": 37,
    "who counts aborted records": 138,
    "erase passes over the last segment": 1000,
    "tables have aborted records": 31,
    "gaps explain every hole": 1086,
    "changes forget deletes": 54,
    "exports remove the one before first": 285,
    "replicas take what is gone for expired": 10,
    "views do not reach the map": 6,
    "expiry is forgotten by rounds": 9,
    "rules keep records that lose at once": 95,
    "resume forgets the sequence": 21,
    "decisions are not read at the opening": 21,
    "replays end at damage": 150,
    "replays ignore generations": 22,
    "replays compare names only": 150,
    "replays take aborts for commits": 68,
    "rounds drop the last offset of a group": 130,
    "rounds exchange generations": 660,
    "fetches do not tell aborted transactions": 17,
    "fetches begin one batch late": 500,
    "the last records that were gathered are not put": 80,
    "a run is put in front of those before it": 80,
    "room stays behind closed logs": 2,
    "records are put behind the room": 2,
    "room is cut off behind the fsync": 3,
    "undone records stay in the room": 230,
    "a segment that loses its room counts as cut": 300,
    "numbers of files are given again": 1640,
    "replays leave a member at its first epoch": 137,
    "rounds drop what a group wrote last": 137,
    "replays keep targets of streams groups": 21,
    "replays take a tombstone for that of another member": 35,
    "replays let the epoch of an assignment go back": 35,
    "replays lose topologies": 35,
    "replays pass over updates of share partitions": 35,
    "replays keep what was before a snapshot": 35,
    "replays let the lower delivery count win": 35,
    "rounds take a share group back": 35,
    "replays keep share partitions without a group": 166,
    "rounds forget producers": 2,
    "erase drops the first batch of a transaction": 9,
    "cuts leave the flushed offset": 27,
    "times of indexes are set behind the fsync": 45,
    "undone appends are not forced to disk": 237,
    "fetches keep an end from before a cut": 383,
    "lines are worked out too early": 2131,
}


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


def test_defect_that_does_not_fit_the_product_is_refused() -> None:
    """It would be found by its own error, or never, and prove nothing."""
    taken = "run_seed takes \\['seed', 'plan'\\]"
    with pytest.raises(AssertionError, match=taken):
        breaks(run, "run_seed")(lambda _real, _seed: None)
    with pytest.raises(AssertionError, match=taken):
        breaks(run, "run_seed")(lambda _real, _seed, _plan, *, other: other)
    with pytest.raises(AssertionError, match="no_such_function is gone"):
        breaks(run, "no_such_function")(lambda _real: None)


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


@pytest.mark.parametrize("name", _FOUND)
def test_planted_defect_is_found_within_sixty_seeds(name: str) -> None:
    """The simulator has teeth: each of these promises broken is noticed."""
    assert found_by(name, range(_FOUND[name], _FOUND[name] + 60)) is not None


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
