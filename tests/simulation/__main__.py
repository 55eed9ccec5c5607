"""
`python -m tests.simulation`: runs seeds of the simulator, or replays one.

    --seed N              one seed, and what it came to; a failing one is made smaller and printed as a plan
    --plan FILE           a printed plan
    --seeds N --first M   N seeds from M on, on --jobs processes; stops after ten failures
    --focus WHAT          each of them with this for sure, such as erase: what most worlds do not have
    --defect NAME         with a planted defect; `--defects` lists their names
    --teeth               the first seed that finds each planted defect, of --seeds that are likely to
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.simulation.defects import DEFECTS
from tests.simulation.many import planted, run_many, run_teeth, shrunk, told
from tests.simulation.plan import FOCUSES, Plan
from tests.simulation.run import remove_scratch, run_seed
from tests.simulation.shrinking import World


def main() -> int:
    """Run; returns the exit code: 0 without a failure, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulated worlds from seeds.")
    parser.add_argument("--seed", help="replay one seed: 7, or erase/7")
    parser.add_argument("--plan", type=Path, help="replay a printed plan")
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    parser.add_argument("--focus", choices=FOCUSES, help="what all of them are to have")
    parser.add_argument("--defect", choices=sorted(DEFECTS), metavar="NAME", help="plant a defect: see --defects")
    parser.add_argument("--defects", action="store_true", help="list the planted defects")
    parser.add_argument("--teeth", action="store_true", help="find each planted defect")
    options = parser.parse_args()
    if options.defects:
        print("\n".join(sorted(DEFECTS)))
        return 0
    if options.teeth:
        return run_teeth(options.seeds, options.jobs)
    if options.plan is not None:
        return _replay(World.from_json(options.plan.read_text()), options.defect, shrinks=False)
    if options.seed is not None:
        seed = int(options.seed) if options.seed.isdecimal() else options.seed
        return _replay(World(seed, Plan.of(seed)), options.defect, shrinks=True)
    return run_many(options.first, options.seeds, options.jobs, options.defect, options.focus)


def _replay(world: World, name: str | None, *, shrinks: bool) -> int:
    with planted(name):
        report = run_seed(world.seed, world.plan)
        for key, value in report.plan.settings:
            print(f"{key}={value}")
        print(told(report))
        print(
            f"{report.operations} operations, {report.lives} lives, {report.steps} steps, outcomes: {report.outcomes}"
        )
        if report.failure and shrinks:
            print(shrunk(report))
    remove_scratch()
    return 1 if report.failure else 0


if __name__ == "__main__":
    sys.exit(main())
