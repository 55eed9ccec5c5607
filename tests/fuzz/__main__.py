"""
The long form: `python -m tests.fuzz --seed 1 --cases 5000`, or `--minutes 60`; `make fuzz` for short.

Findings are printed with their seed; `--seed N --cases 1 --only STEP` repeats one. A hang or a crash of the process is
reported by the process that started it.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_CASES_A_PROCESS = 200


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Hostile files for all commands.")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--cases", type=int, help="how many seeds")
    parser.add_argument("--minutes", type=float, help="or how long")
    parser.add_argument("--only", action="append", default=[], help="a step; may be repeated")
    parser.add_argument("--in-process", action="store_true", help="what the process that watches starts")
    return parser.parse_args()


def _run_here(given: argparse.Namespace) -> int:
    """Run cases in this process; returns how many were bad."""
    from tests.fuzz.campaign import Campaign

    bad = 0
    with tempfile.TemporaryDirectory(prefix="cleaner-fuzz-") as root:
        at = Path(root) / "at"
        campaign = Campaign(Path(root) / "work", lambda text: at.write_text(text, errors="backslashreplace") and None)
        for seed in range(given.seed, given.seed + given.cases):
            found = campaign.run(seed, given.only)
            bad += bool(found)
            for line in found:
                print(line, flush=True)
            print(f"done {seed}", file=sys.stderr)
    return bad


def _watch(given: argparse.Namespace) -> int:
    """Run processes one after the other until there were enough cases; returns how many cases were bad."""
    ends_at = time.monotonic() + 60 * given.minutes if given.minutes else None
    end_seed = None if given.cases is None else given.seed + given.cases
    bad, seed = 0, given.seed
    while (end_seed is None or seed < end_seed) and (ends_at is None or time.monotonic() < ends_at):
        count = _CASES_A_PROCESS if end_seed is None else min(_CASES_A_PROCESS, end_seed - seed)
        arguments = ["--seed", str(seed), "--cases", str(count), *itertools.chain(*(("--only", o) for o in given.only))]
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz", "--in-process", *arguments],
            stderr=subprocess.PIPE, text=True, check=False, errors="replace",
        )  # fmt: skip
        finished = [int(line.split()[1]) for line in done.stderr.splitlines() if line.startswith("done ")]
        last = max(finished, default=seed - 1)
        if last < seed + count - 1:
            output = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("done "))
            print(f"seed {last + 1}: the process ended with {done.returncode}:\n{output}", flush=True)
            bad += 1
            last += 1
        bad += max(0, done.returncode) if last == seed + count - 1 and not said_died(done) else 0
        seed = last + 1
        print(f"{seed - given.seed} cases, {bad} bad", file=sys.stderr, flush=True)
    return bad


def said_died(done: subprocess.CompletedProcess[str]) -> bool:
    """Tell whether a process ended otherwise than by counting."""
    return done.returncode < 0


def main() -> int:
    """Run what was asked for; returns the exit code."""
    given = _arguments()
    if given.in_process:
        return min(_run_here(given), 100)
    if given.cases is None and given.minutes is None:
        given.cases = 1000
    return 1 if _watch(given) else 0


if __name__ == "__main__":
    sys.exit(main())
