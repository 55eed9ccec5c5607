"""A real systemd as process 1 of a machine made of namespaces, in which a test installs units and uses systemctl."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MACHINE = Path(__file__).with_name("machine.sh")
SYSTEMD = Path("/lib/systemd/systemd")
TOOLS = ("unshare", "nsenter", "pivot_root", "systemctl", "ip")


def skip_without_systemd() -> None:
    """Skip the test, loudly, where no systemd can be started."""
    if os.geteuid() != 0:
        pytest.skip("services under systemd NOT RUN: they need root")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or not SYSTEMD.exists():
        pytest.skip(f"services under systemd NOT RUN: no {', '.join(missing) or 'systemd'} (tools/prepare tests)")


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Wait for another process; fails the test when it takes longer than a busy machine excuses."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        threading.Event().wait(0.05)


class Machine:
    """
    The machine, started.

    Attributes:
        console: what systemd says.
    """

    def __init__(self, scratch: Path, prepare: str) -> None:
        self._scratch = scratch
        self.console = scratch.parent / "console"
        script = scratch.parent / "prepare.sh"
        script.write_text(prepare)
        command = ["unshare", "--mount", "/bin/sh", str(MACHINE), str(scratch), str(script)]
        with self.console.open("wb") as console:
            self._outer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
        self._init: int | None = None

    def wait_until_up(self) -> None:
        """Wait until systemctl is answered."""

        def is_up() -> bool:
            assert self._outer.poll() is None, self.console.read_text()
            children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text().split()
            try:
                if Path(f"/proc/{children[0]}/exe").readlink().name != "systemd":
                    return False
            except (IndexError, FileNotFoundError):  # not yet, or no more: the next look tells
                return False
            self._init = int(children[0])
            return self.systemctl("is-active", "test.target", check=False).strip() == "active"

        wait_until(is_up, "systemd")

    def run(self, *command: str, check: bool = True, timeout: float = 120) -> str:
        """Run a command in the machine, as root; returns its standard output."""
        enter = ["nsenter", "-t", str(self._init), "-C", "-m", "-u", "-i", "-n", "-p", "-r", "-w", "--"]
        done = subprocess.run([*enter, *command], capture_output=True, text=True, timeout=timeout, check=False)
        assert not check or done.returncode == 0, f"{shlex.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def systemctl(self, *arguments: str, check: bool = True) -> str:
        """Run systemctl; `start`, `reload` and `stop` return when the unit says it is done."""
        return self.run("systemctl", "--no-pager", *arguments, check=check)

    def show(self, unit: str, name: str) -> str:
        """Return one property of a unit."""
        return self.systemctl("show", "-P", name, unit).strip()

    def read(self, path: str) -> str:
        """Return a file of the machine's."""
        return self.run("cat", path)

    def power_off(self) -> None:
        """End it and all that runs in it."""
        self._outer.kill()
        self._outer.wait()
        if self._init is not None:
            wait_until(lambda: not Path(f"/proc/{self._init}").exists(), "the end of the machine")
        self._remove_groups()

    def _remove_groups(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            name = (self._scratch / "cgroup-name").read_text().strip()
            # Where this machine shows the hierarchy; elsewhere it vanishes with the last mount of it.
            root = Path("/sys/fs/cgroup/systemd") / name
            for directory in sorted(root.rglob("*/"), key=lambda path: -len(path.parts)):
                directory.rmdir()
            if root.exists():
                root.rmdir()


@contextlib.contextmanager
def machine(scratch: Path, prepare: str) -> Iterator[Machine]:
    """
    Start a machine for the length of a `with` block.

    Args:
        scratch: a directory of the test's own.
        prepare: a shell script that installs what is to be in it below `$R`, with absolute paths of this machine.
    """
    place = scratch / "machine"
    place.mkdir()
    started = Machine(place, prepare)
    try:
        started.wait_until_up()
        yield started
    finally:
        started.power_off()
