"""
The most memory a command had resident.

The kernel counts what a process had resident before its exec too, so a child of a large test process seems as large.
A small process in between starts the command and reports.
"""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

_BETWEEN = """
import os, sys
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(process, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


class Finished(NamedTuple):
    """How a command ended, what it wrote to stderr, and the most memory it had resident."""

    status: int
    errors: str
    peak_bytes: int


def run_measured(command: list[str]) -> Finished:
    """Run a command, whose first word is a path, to its end."""
    between = [sys.executable, "-S", "-c", _BETWEEN, *command]
    done = subprocess.run(between, capture_output=True, text=True)
    return Finished(done.returncode, done.stderr, int(done.stdout.splitlines()[-1]) * 1024)
