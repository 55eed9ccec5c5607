"""Runs many seeds on several processes, and tells what they came to."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from multiprocessing.util import Finalize
from typing import NamedTuple

from tests.simulation.defects import DEFECTS, Found, found_by, likely_seeds
from tests.simulation.report import Report
from tests.simulation.run import remove_scratch, run_seed
from tests.simulation.shrinking import World, shrink

_TRACE_STEPS = 60
_CHUNK = 20
_MOST_FAILURES = 10


def planted(name: str | None) -> contextlib.AbstractContextManager[object]:
    """Return a planted defect, or nothing."""
    return DEFECTS[name]() if name else contextlib.nullcontext()


def told(report: Report) -> str:
    """Return what a failure needs to be understood: seed, commit, accidents, the last steps, how."""
    lines = [f"seed {report.seed} at commit {_commit()}; accidents: {', '.join(report.accidents) or 'none'}"]
    if report.failure:
        lines += [f"  {step}" for step in report.trace[-_TRACE_STEPS:]]
        lines += [report.failure, f"replay: python -m tests.simulation --seed {report.seed}"]
    return "\n".join(lines)


def shrunk(report: Report) -> str:
    """Make the world of a failure smaller, and return it as text that replays it."""
    world = shrink(World(report.seed, report.plan), report.failure)
    accidents, rounds, operations = world.size()
    return (
        f"shrunk to {accidents} accidents, {rounds} rounds and {operations} operations; to replay it, put this into a "
        f"file: python -m tests.simulation --plan FILE\n{world.to_json()}"
    )


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


class Chunk(NamedTuple):
    """What some seeds came to; `sizes`: operations and accidents of each; `met`: see `Report`."""

    failures: list[str]
    outcomes: Counter[str]
    accidents: Counter[str]
    sizes: list[tuple[int, int]]
    met: set[tuple[str, str]]


def coverage(met: set[tuple[str, str]]) -> str:
    """Return at how many kinds of steps each kind of accident came."""
    counts = Counter(kind for kind, _ in met)
    steps = len({step for _, step in met})
    return f"{steps} kinds of steps; accidents came at so many of them: {dict(counts.most_common())}"


def run_chunk(seeds: Sequence[int | str], name: str | None) -> Chunk:
    """Run some seeds in this process."""
    failures, outcomes, accidents, sizes, met = [], Counter[str](), Counter[str](), [], set[tuple[str, str]]()
    with planted(name):
        for seed in seeds:
            report = run_seed(seed)
            outcomes.update(report.outcomes)
            accidents.update(each.partition(" at step")[0] for each in report.accidents)
            met |= report.met
            sizes.append((report.operations, len(report.accidents)))
            if report.failure:
                # A planted defect is known, and of several failures in a row most are the same.
                failures.append(told(report) + ("" if name or failures else f"\n{shrunk(report)}"))
    return Chunk(failures, outcomes, accidents, sizes, met)


def _begin(cores: list[int]) -> None:
    """Keep a process on one core: its threads only ever run one at a time. At its end its files go."""
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
    Finalize(None, remove_scratch, exitpriority=1)


def run_many(first: int, count: int, jobs: int, name: str | None, focus: str | None = None) -> int:
    """Run seeds, each with the same focus or without one, and print failures and figures; returns the exit code."""
    began = time.monotonic()
    failures: list[str] = []
    outcomes, accidents, sizes = Counter[str](), Counter[str](), list[tuple[int, int]]()
    met: set[tuple[str, str]] = set()
    seeds = [f"{focus}/{number}" if focus else number for number in range(first, first + count)]
    chunks = [seeds[at : at + _CHUNK] for at in range(0, count, _CHUNK)]
    cores = sorted(os.sched_getaffinity(0))
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin, initargs=(cores,)) as pool:
        for future in [pool.submit(run_chunk, chunk, name) for chunk in chunks]:
            if len(failures) >= _MOST_FAILURES:
                future.cancel()
                continue
            chunk = future.result()
            failures += chunk.failures
            outcomes += chunk.outcomes
            accidents += chunk.accidents
            sizes += chunk.sizes
            met |= chunk.met
            for told in chunk.failures:
                print(told, flush=True)
    seconds = time.monotonic() - began
    operations = sorted(size for size, _ in sizes)[len(sizes) // 2]
    happened = sorted(size for _, size in sizes)[len(sizes) // 2]
    print(f"{len(sizes)} seeds in {seconds:.0f} s: {len(sizes) * 60 / seconds:.0f} a minute on {jobs} processes")
    print(f"median: {operations} operations, {happened} accidents; {len(failures)} failures")
    print(f"accidents: {dict(accidents.most_common())}")
    print(coverage(met))
    print(f"outcomes: {dict(outcomes.most_common())}")
    return 1 if failures else 0


def run_teeth(most: int, jobs: int) -> int:
    """Look for the first likely seed that finds each planted defect, and tell; returns 1 if one is not found."""
    cores = sorted(os.sched_getaffinity(0))
    tries: dict[str, int | None] = {}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin, initargs=(cores,)) as pool:
        futures = {pool.submit(_first_seed, name, most): name for name in sorted(DEFECTS)}
        for future in as_completed(futures):
            name, tries[futures[future]] = futures[future], None
            try:
                found = future.result()
            except Exception as error:  # noqa: BLE001 - told, and it counts as not found
                print(f"{name}: {type(error).__name__}: {_short(str(error))}", flush=True)
                continue
            if found is None:
                print(f"{name}: not found in {most} seeds", flush=True)
                continue
            tries[name] = list(likely_seeds(name, most)).index(found.seed) + 1
            print(f"{name}: seed {found.seed}: {_short(found.failure)}", flush=True)
    found_after = sorted(number for number in tries.values() if number is not None)
    print(f"\n{len(found_after)} of {len(tries)} are found within {most} likely seeds each")
    for bound in (10, 25, 50, 100, 200, 500):
        print(f"within {bound:4}: {sum(number <= bound for number in found_after)}")
    print("not found: " + "; ".join(sorted(name for name, number in tries.items() if number is None)))
    return 0 if len(found_after) == len(tries) else 1


def _short(failure: str) -> str:
    return failure.partition("\n")[0][:160]


def _first_seed(name: str, most: int) -> Found | None:
    return found_by(name, likely_seeds(name, most))
