"""
`python -m tests.soak`: real processes and disks, and accidents, for as long as asked for; `make soak` for short.

    --hours H | --seconds S    how long, besides the beginning and the end
    --seed N                   the same choices again; not the same moments
    --first KIND               accidents that come first; may be repeated

Exit code 0: nothing was wrong; 1: something was, and the directory with notes, logs and disks is kept.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.soak.accidents import Plan
from tests.soak.director import soak
from tests.soak.gauges import ALLOCATOR


def _tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def main() -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Real processes, disks and accidents.")
    parser.add_argument("--hours", type=float, default=1.0, help="how long (default: %(default)s)")
    parser.add_argument("--seconds", type=float, help="instead of hours")
    parser.add_argument("--seed", type=int, default=1, help="of the choices (default: %(default)s)")
    parser.add_argument("--first", action="append", default=[], help="an accident that comes first")
    given = parser.parse_args()
    os.environ.update(ALLOCATOR)  # of all processes that it starts
    seconds = given.hours * 3600 if given.seconds is None else given.seconds
    plan = Plan(given.seed, seconds, first=tuple(kind.replace(" ", "_") for kind in given.first))
    root = Path(tempfile.mkdtemp(prefix="cleaner-soak-"))
    _tell(f"seed {plan.seed}, {seconds:.0f} s, in {root}")
    try:
        with soak(plan, root, _tell) as run:
            try:
                run.run()
            except BaseException:
                for site in run.sites:
                    site.keep()
                raise
            finally:
                run.tell_growth()
                _tell(run.summary())
    except Exception:  # noqa: BLE001  whatever it was, it is told
        traceback.print_exc()
        _tell(f"FAILED with seed {plan.seed}; what was there is kept in {root}")
        return 1
    shutil.rmtree(root)
    _tell("nothing was wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
