"""
The most memory a command had resident, and commands with a limit of memory.

The kernel counts what a process had resident before its exec too, so a child of a large test process seems as large.
A small process in between starts the command and reports.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

# The first argument names a control group to enter, or is empty.
_BETWEEN = """
import os, sys
if sys.argv[1]:
    with open(sys.argv[1] + "/cgroup.procs", "w") as members:
        members.write("0")
process = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(process, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""

_GROUPS = Path("/sys/fs/cgroup")


class Finished(NamedTuple):
    """How a command ended, what it wrote to stderr, and the most memory it had resident."""

    status: int
    errors: str
    peak_bytes: int


def run_measured(command: list[str], group: Path | None = None) -> Finished:
    """Run a command, whose first word is a path, to its end; in a control group, if one is given."""
    between = [sys.executable, "-S", "-c", _BETWEEN, str(group or ""), *command]
    done = subprocess.run(between, capture_output=True, text=True)
    return Finished(done.returncode, done.stderr, int(done.stdout.splitlines()[-1]) * 1024)


@contextmanager
def limited_group(limit_bytes: int) -> Iterator[Path | None]:
    """Make a control group whose processes are killed above some memory, page cache included; None where we cannot."""
    group = _new_group()
    if group is None:
        yield None
        return
    try:
        for name, value in (("memory.swap.max", 0), ("memory.swappiness", 0)):
            if (group / name).exists():
                (group / name).write_text(str(value))
        limit = next(name for name in ("memory.max", "memory.limit_in_bytes") if (group / name).exists())
        (group / limit).write_text(str(limit_bytes))
        yield group
    finally:
        group.rmdir()


def _new_group() -> Path | None:
    """Make a group with a limit of memory: of version 2 at the top, else of version 1 below our own."""
    name = f"cleaner-test-{uuid.uuid4().hex[:12]}"
    own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    above = [
        _GROUPS / "memory" / path.lstrip("/") for _, controllers, path in own if "memory" in controllers.split(",")
    ]
    control = _GROUPS / "cgroup.subtree_control"
    if control.exists() and "memory" in control.read_text().split():
        above.append(_GROUPS)
    if os.geteuid() != 0 or not above or not os.access(above[0], os.W_OK):
        return None
    try:
        (above[0] / name).mkdir()
    except OSError:  # mounted read-only, as in most containers
        return None
    return above[0] / name
