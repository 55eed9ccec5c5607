"""
`python -m tests.simulation`: runs seeds of the simulator, or replays one.

    --seed N              one seed, with its plan and what it came to
    --seeds N --first M   N seeds from M on, on --jobs processes; stops after ten failures
    --defect NAME         with a planted defect; `--defects` lists their names
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.simulation.defects import DEFECTS
from tests.simulation.many import planted, run_many, told
from tests.simulation.run import remove_scratch, run_seed


def main() -> int:
    """Run; returns the exit code: 0 without a failure, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulated worlds from seeds.")
    parser.add_argument("--seed", type=int, help="replay one seed")
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    parser.add_argument("--defect", choices=sorted(DEFECTS), help="plant a defect")
    parser.add_argument("--defects", action="store_true", help="list the planted defects")
    options = parser.parse_args()
    if options.defects:
        print("\n".join(sorted(DEFECTS)))
        return 0
    if options.seed is not None:
        return _replay(options.seed, options.defect)
    return run_many(options.first, options.seeds, options.jobs, options.defect)


def _replay(seed: int, name: str | None) -> int:
    with planted(name):
        report = run_seed(seed)
    remove_scratch()
    for key, value in report.plan.settings:
        print(f"{key}={value}")
    print(told(report))
    print(f"{report.operations} operations, {report.lives} lives, {report.steps} steps, outcomes: {report.outcomes}")
    return 1 if report.failure else 0


if __name__ == "__main__":
    sys.exit(main())
