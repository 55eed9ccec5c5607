"""
Everything that is claimed of the cleaner's speed, from one run: `make bench`, or `python -m benchmarks`.

Sections run one after another; `--only` chooses some. Tables come last, all together.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.append import append_tables
from benchmarks.bulk import bulk_table
from benchmarks.check import check_table
from benchmarks.commit import commit_table, followed_table
from benchmarks.daemon import tables as daemon_tables
from benchmarks.erase import erase_table
from benchmarks.frames import frames_table
from benchmarks.inputs import INPUTS
from benchmarks.latency import latency_table
from benchmarks.limits import limits_table
from benchmarks.linear import linear_tables
from benchmarks.lives import lives_table, one_round_table
from benchmarks.look import PARTITIONS, look_table
from benchmarks.opening import opening_table
from benchmarks.processes import cold_table, memory_table
from benchmarks.read import read_tables
from benchmarks.restore import restore_table
from benchmarks.rounds import measure_all, tables
from benchmarks.serve import serve_table
from benchmarks.start import start_table
from benchmarks.status import status_table
from benchmarks.sweep import sweep_table
from benchmarks.table import many_keys_table, table_table
from tests.kafka.rig import VERSIONS, Rig

SECTIONS = (
    *("rounds", "limits", "processes", "memory", "start", "look", "check", "erase", "daemon", "status"),
    *("append", "commit", "read", "restore", "table", "opening", "latency", "serve"),
    *("frames", "linear", "lives", "bulk", "sweep"),
)


def _report(text: str) -> None:
    print(text, flush=True)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def sections(rig: Rig, options: argparse.Namespace) -> dict[str, Callable[[Path], str]]:
    """Return the sections by name: each measures in a scratch directory and returns its tables."""
    runs = options.runs

    chosen = [log.scaled(options.scale) for log in INPUTS if re.search(options.input, log.name)]
    return {
        "rounds": lambda scratch: tables(measure_all(rig, chosen, scratch, runs, _report)),
        "limits": lambda scratch: limits_table(rig, chosen, scratch, runs),
        "processes": lambda scratch: cold_table(rig, scratch, runs),
        "memory": lambda scratch: memory_table(rig, scratch),
        "start": lambda _: start_table(runs=2 * runs),
        "look": lambda scratch: "\n".join(look_table(partitions, runs, scratch) for partitions in PARTITIONS),
        "check": lambda scratch: check_table(rig, scratch, runs),
        "erase": lambda scratch: erase_table(rig, scratch, runs, large=options.large),
        "daemon": lambda scratch: "\n".join(daemon_tables(8, 200, runs, scratch)),
        "status": lambda _: status_table(runs=4 * runs),
        "append": lambda scratch: append_tables(runs, scratch),
        "commit": lambda scratch: "\n".join([commit_table(runs, scratch), followed_table(runs, scratch)]),
        "read": lambda scratch: read_tables(runs, scratch),
        "restore": lambda scratch: restore_table(runs, scratch),
        "table": lambda scratch: "\n".join(
            [table_table(runs, scratch), *([many_keys_table(scratch)] if options.large else [])]
        ),
        "opening": lambda scratch: opening_table(10, runs, scratch),
        "latency": lambda scratch: latency_table(3, scratch),
        "serve": lambda scratch: serve_table(rig, scratch, runs),
        "frames": lambda scratch: frames_table(scratch, runs),
        "linear": lambda scratch: linear_tables(scratch, large=options.large),
        "lives": lambda scratch: "\n".join(
            [one_round_table(rig, scratch, 10_000.0 if options.large else 1000.0), lives_table(scratch, 50, 40.0)]
        ),
        "bulk": lambda scratch: bulk_table(rig, scratch, large=options.large),
        "sweep": lambda scratch: sweep_table(rig, scratch, options.sweep, options.seed, _report),
    }


def arguments() -> argparse.ArgumentParser:
    """Declare the options."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=SECTIONS, help="default: all sections")
    parser.add_argument("--runs", type=int, default=5, help="measured runs of each input")
    parser.add_argument("--scale", type=float, default=1.0, help="of the inputs of rounds and limits")
    parser.add_argument("--input", default="", help="only inputs of rounds and limits whose names have this pattern")
    parser.add_argument(
        "--large",
        action="store_true",
        help="sections linear, erase, lives, bulk, table: 16 and 10 GB, 100 million keys too; takes 40 GB of disk",
    )
    parser.add_argument("--sweep", type=int, default=12, help="random shapes of section sweep")
    parser.add_argument("--seed", type=int, default=1, help="of the first random shape")
    parser.add_argument("--scratch", type=Path, default=None, help="a directory on the disk to be measured")
    return parser


def main() -> None:
    """Measure and print."""
    options = arguments().parse_args()
    rig = Rig.load(VERSIONS[0])
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    _report(f"{os.cpu_count()} processors ({_processor()}), Linux {platform.release()}, load {load}\n")
    known, done = sections(rig, options), []
    for name in options.only or SECTIONS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="cleaner-bench-", dir=options.scratch) as scratch:
            done.append(known[name](Path(scratch)))
        _report(f"{name}: {time.monotonic() - began:.0f} s\n")
    _report("\n".join(done))


if __name__ == "__main__":
    main()
