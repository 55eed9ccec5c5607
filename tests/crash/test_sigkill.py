"""SIGKILL at every system call of a round that changes something, by strace's fault injection."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.crash.rounds import Expected, recover, write_round

pytestmark = pytest.mark.root

REPOSITORY = Path(__file__).parents[2]
# Everything that can change a file, a name or an attribute; of `openat` only those that create.
CALLS = (
    "write,pwrite64,writev,pwritev,pwritev2,ftruncate,fallocate,fsync,fdatasync,sync_file_range,copy_file_range,sendfile,"
    "openat,rename,renameat,renameat2,unlink,unlinkat,link,linkat,symlinkat,mkdir,mkdirat,rmdir,"
    "chmod,fchmod,fchmodat,fchown,fchownat,utimensat,fsetxattr,fremovexattr"
)
_CALL = re.compile(r"^(?:\d+ +)?(\w+)\(")


@dataclass(frozen=True)
class KillPoint:
    """The `number`-th call (from 1) of a name since the round began."""

    call: str
    number: int
    text: str


class Victim:
    """The process that runs rounds in children, each held by strace."""

    def __init__(self, scratch: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.victim", str(write_round(scratch / "warm-up"))],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._read_line() == "ready"

    def run(self, log_dir: Path, *strace_options: str) -> int:
        """Run a round under strace; returns the exit code, negative for a signal."""
        assert self._process.stdin is not None
        print(log_dir, file=self._process.stdin, flush=True)
        child = int(self._read_line())
        tracer = subprocess.Popen(
            ["strace", "-qq", "-p", str(child), *strace_options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            self._wait_until_traced(child, tracer)
            os.kill(child, signal.SIGCONT)
            return int(self._read_line())
        except BaseException:
            os.kill(child, signal.SIGKILL)
            raise
        finally:
            tracer.wait(timeout=20)

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=20)

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    @staticmethod
    def _wait_until_traced(child: int, tracer: subprocess.Popen[bytes]) -> None:
        status = Path(f"/proc/{child}/status")
        until = time.monotonic() + 20
        while "TracerPid:\t0\n" in status.read_text():
            if tracer.poll() is not None or time.monotonic() > until:
                complaint = tracer.stderr.read().decode() if tracer.stderr and tracer.poll() is not None else ""
                raise AssertionError(f"strace does not take hold of the victim: {complaint}")
            os.sched_yield()


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """A victim; the tests are skipped without strace or the right to use it."""
    if shutil.which("strace") is None or os.geteuid() != 0:
        pytest.skip("SIGKILL sweep NOT RUN: it needs root and strace")
    found = Victim(tmp_path_factory.mktemp("victim"))
    yield found
    found.close()


def _kill_points(victim: Victim, scratch: Path) -> list[KillPoint]:
    """List the calls of a round that change something in the log dir."""
    log_dir, trace = write_round(scratch / "traced"), scratch / "trace"
    assert victim.run(log_dir, "-y", "-o", str(trace), "-e", f"trace={CALLS}") == 0
    seen: Counter[str] = Counter()
    points = []
    for line in trace.read_text().splitlines():
        found = _CALL.match(line)
        if found is None:
            continue
        call = found.group(1)
        seen[call] += 1
        if str(log_dir) in line and (call != "openat" or "O_CREAT" in line):
            points.append(KillPoint(call, seen[call], line.replace(str(log_dir), "")[:120]))
    return points


def test_sigkill_at_every_change_leaves_groups_old_or_new(victim: Victim, tmp_path: Path) -> None:
    """
    C-1: killed before any call that changes something, a round leaves groups old or new, in order.

    The kill comes before the call takes effect, so the later of two calls covers the code between them.
    """
    expected = Expected.of(tmp_path / "expected")
    points = _kill_points(victim, tmp_path)
    assert len(points) > 100
    words = []
    for number, point in enumerate(points):
        log_dir = write_round(tmp_path / "killed")
        inject = f"inject={point.call}:signal=KILL:when={point.number}"
        status = victim.run(log_dir, "-o", "/dev/null", "-e", f"trace={point.call}", "-e", inject)
        assert status == -signal.SIGKILL, f"kill point {number}, {point.text}: the round ended with {status}"
        try:
            recover(log_dir)
            words.append(expected.judge(log_dir))
        except Exception as error:
            raise AssertionError(f"killed before call {number}: {point.text}") from error
        shutil.rmtree(log_dir)
    # Not in order: a group ends in the background, so its calls come a little earlier or later in each run.
    swapped = {len(groups) - groups.count("old") for groups in words}
    assert swapped == set(range(len(words[0]) + 1)), "some number of swapped groups was never met"
    assert set(swapped) == set(range(len(expected.groups) + 1))
