"""`cleaner status --watch` as a process: piped and on a terminal, with a daemon that goes away, until Ctrl-C."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.cli.main import main
from cleaner.daemon.control.server import ControlServer
from cleaner.storage.fs.file_system import FileSystem
from tests.support import sample_daemons
from tests.support.fake_steering import FakeSteering
from tests.support.manual_clock import ManualClock

WAIT_SECONDS = 30.0  # only ever waited for in full by a test that fails


@contextlib.contextmanager
def daemon(state_dir: Path) -> Iterator[None]:
    def never(error: Exception) -> None:
        raise error

    steering = FakeSteering(sample_daemons.with_problems())
    with ControlServer(FileSystem(), state_dir / "control.sock", steering, ManualClock(), never):
        yield


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    tmp_path.chmod(0o750)
    return tmp_path


def started(state_dir: Path, *options: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    """Watch; the terminal decides the width."""
    command = [sys.executable, "-m", "cleaner", "status", "--watch", "0.1", "--state-dir", str(state_dir), *options]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    environment["PYTHONUNBUFFERED"] = "1"
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=environment)


def read_until(descriptor: int, wanted: bytes, count: int = 1) -> bytes:
    """Read until a text has come a number of times; returns everything read."""
    found, until = b"", time.monotonic() + WAIT_SECONDS
    while found.count(wanted) < count:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
        assert ready, f"no {wanted!r} in {found!r}"
        data = os.read(descriptor, 65536)
        assert data, f"the end, and no {wanted!r} in {found!r}"
        found += data
    return found


def end(process: subprocess.Popen[bytes]) -> int:
    """Press Ctrl-C."""
    process.send_signal(signal.SIGINT)
    with process:
        return process.wait(WAIT_SECONDS)


def test_watch_goes_on_when_the_daemon_comes_back_and_ends_with_ctrl_c(state_dir: Path) -> None:
    """Piped, one page follows the other; that no daemon answers is reported once."""
    with daemon(state_dir):
        process = started(state_dir)
        assert process.stdout is not None
        assert process.stderr is not None
        out = process.stdout.fileno()
        pages = read_until(out, b"last rounds", count=2)
        assert b"\x1b" not in pages
        assert pages.startswith(b"cleaner 0.1.0")
    told = read_until(process.stderr.fileno(), b"\n")
    assert b"no daemon is running" in told
    assert b"trying again every 0.1 s" in told
    with contextlib.suppress(BlockingIOError):
        os.set_blocking(out, False)
        while os.read(out, 65536):
            pass
    os.set_blocking(out, True)
    with daemon(state_dir):
        read_until(out, b"last rounds")
        assert end(process) == 0


@pytest.mark.parametrize("width", [60, 80])
def test_watch_is_no_wider_than_the_terminal(state_dir: Path, width: int) -> None:
    """As without --watch; so is the message while no daemon answers."""
    master, slave = pty.openpty()
    try:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 100, width, 0, 0))
        with daemon(state_dir):
            process = started(state_dir, stdout=slave)
            drawn = read_until(master, b"last rounds") + read_until(master, b"\x1b[J")
        drawn += read_until(master, b"again every")
        assert end(process) == 0
    finally:
        os.close(master)
        os.close(slave)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.decode()).splitlines()
    assert any("sessions-0 cannot be read" in line for line in lines)
    assert max(map(len, lines)) <= width


def test_watch_on_a_terminal_draws_in_the_same_place(state_dir: Path) -> None:
    """Each page begins at the top, and lines that are too long are cut by the terminal."""
    master, slave = pty.openpty()
    try:
        with daemon(state_dir):
            process = started(state_dir, stdout=slave)
            drawn = read_until(master, b"\x1b[?7l\x1b[Hcleaner 0.1.0", count=3)
            assert b"not well" in drawn
        assert b"no daemon is running" in read_until(master, b"trying again")
        assert end(process) == 0
    finally:
        os.close(master)
        os.close(slave)


def test_watch_prints_an_object_a_time_for_programs(state_dir: Path) -> None:
    """One a line."""
    with daemon(state_dir):
        process = started(state_dir, "--format", "json", "--logs", "1")
        assert process.stdout is not None
        lines = read_until(process.stdout.fileno(), b"\n", count=2).split(b"\n")
        assert json.loads(lines[0])["format"] == json.loads(lines[1])["format"] == "cleaner-snapshot"
        assert end(process) == 0


def test_watch_of_no_daemon_is_an_error(state_dir: Path) -> None:
    """The command line may set it; with an option that asks once, or a value that is no time, it is refused."""
    line = ["status", "--state-dir", str(state_dir), "--watch"]
    assert main(line) == 69
    assert main([*line, "--probe", "live"]) == 2
    for text in ("0", "nan", "soon"):
        with pytest.raises(SystemExit, match="2"):
            main([*line, text])
