"""SIGTERM and SIGINT end every command within a second, whatever it is doing; its logs are sound."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.integration.log_dirs import contents, keyed_log
from tests.support.log_builder import write_log_dir

COMMAND = [sys.executable, "-m", "cleaner"]
COMPACT = ("--set", "topic:cleanup.policy=compact")
# On an idle machine it is less than one. Compiling, or an endless wait, takes longer than this on any machine.
MAX_SECONDS = 8.0
PATIENCE_SECONDS = 120.0


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log dir with something to clean."""
    (tmp_path / "logs").mkdir()
    return write_log_dir(tmp_path / "logs", keyed_log())


class Started:
    """A command in its own process; killed at the end if it has not ended."""

    def __init__(self, *arguments: str | Path, stdout: int | IO[bytes] = subprocess.PIPE, **variables: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env={**os.environ, **variables},
        )
        self.said = b""

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def wait_for(self, words: bytes) -> None:
        """Wait until it has written to standard error."""
        assert self.process.stderr is not None
        until = time.monotonic() + PATIENCE_SECONDS
        while words not in self.said:
            assert time.monotonic() < until, self.said
            if select.select([self.process.stderr], [], [], 1.0)[0]:
                data = os.read(self.process.stderr.fileno(), 4096)
                assert data, (self.process.wait(), self.said)
                self.said += data

    def end(self, number: signal.Signals) -> int:
        """Send a signal; returns how the process ended, which it did in time."""
        assert self.process.poll() is None, "it has ended before"
        began = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_SECONDS)
        assert time.monotonic() - began < MAX_SECONDS
        return code


def _commands(log_dir: Path) -> dict[str, tuple[str | Path, ...]]:
    of_topic = ("--log-dir", log_dir, "--topic", "topic")
    return {
        "clean": ("clean", log_dir, "topic-0", *COMPACT),
        "check": ("check", log_dir),
        "gaps": ("gaps", log_dir),
        "verify": ("verify", log_dir, log_dir),
        "erase": ("erase", log_dir, "topic", "--key-prefix", "k"),
        "prove-erased": ("prove-erased", "--key-prefix", "k", log_dir),
        "dump": ("dump", "--print-data-log", log_dir / "topic-0" / f"{0:020d}.log"),
        "plan": ("plan", log_dir, "--estimate", *COMPACT),
        "who": ("plan", log_dir, "--who", *COMPACT),
        "recover": ("recover", log_dir),
        "consume": ("consume", *of_topic, "--from-beginning"),
        "produce": ("produce", *of_topic),
        "serve": ("serve", log_dir, "--listen", "127.0.0.1:0", "--compacted", *COMPACT),
        "run": ("run", "--as-root", "--set", f"log.dirs={log_dir}", "--set", f"cleaner.state.dir={log_dir}-state"),
    }


@pytest.mark.parametrize("name", sorted(_commands(Path())))
def test_command_that_compiles_ends_at_once(log_dir: Path, tmp_path: Path, name: str) -> None:
    """A compiler does not check for a stop; the log dir is unchanged, except the marker that a writer removes."""
    number = signal.SIGINT if name in ("check", "produce") else signal.SIGTERM
    if name == "recover":
        (log_dir / ".kafka_cleanshutdown").unlink()
    before = contents(log_dir)
    with Started(*_commands(log_dir)[name], NUMBA_CACHE_DIR=str(tmp_path / "kernels")) as command:
        command.wait_for(b"compiling kernels")
        # The first kernel of these is small: it may be done before patience ends, and then the command stops.
        assert command.end(number) in ((-number, 1) if name in ("who", "prove-erased") else (-number,))
    after = contents(log_dir)
    if name == "produce":
        before.pop(".kafka_cleanshutdown")
        after = {file: digest for file, digest in after.items() if file in before}
    assert after == before
    done = subprocess.run([*COMMAND, "check", log_dir], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_command_that_has_just_started_ends_at_once(log_dir: Path) -> None:
    """Whatever it is loading: no traceback, and nothing has changed."""
    before = contents(log_dir)
    for name in ("clean", "check", "topics"):
        arguments = _commands(log_dir).get(name, ("topics", "describe", "--log-dir", log_dir))
        with Started(*arguments) as command:
            assert command.end(signal.SIGTERM) == -signal.SIGTERM
            assert command.process.stderr is not None
            assert command.process.stderr.read() == b""
    assert contents(log_dir) == before


@pytest.fixture
def full_pipe() -> Iterator[int]:
    """A full pipe that no process reads."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, bytes(4096))
    except BlockingIOError:
        os.set_blocking(writer, True)
    yield writer
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("name", ["check", "consume", "dump", "gaps", "plan", "prove-erased", "verify", "who"])
def test_command_whose_output_is_not_read_ends_at_once(log_dir: Path, full_pipe: int, name: str) -> None:
    """It waits in a write that never ends."""
    with Started(*_commands(log_dir)[name], stdout=full_pipe) as command:
        _wait_until_it_sleeps(command.process.pid)
        assert command.end(signal.SIGTERM) == -signal.SIGTERM


def _wait_until_it_sleeps(pid: int) -> None:
    """Wait until one of a process's threads waits for a pipe, as the kernel has it."""
    until = time.monotonic() + PATIENCE_SECONDS
    pause = threading.Event()
    while time.monotonic() < until:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended since
                # "1 0x1 ...": the system call is write, to standard output.
                if task.joinpath("syscall").read_text().split()[:2] == ["1", "0x1"]:
                    return
        pause.wait(0.02)
    raise AssertionError("it did not come to write")


def test_writer_that_waits_for_input_closes_in_order(log_dir: Path) -> None:
    """`produce` with a silent pipe: exit code 1, and the log dir is marked as closed."""
    arguments = _commands(log_dir)["produce"]
    with Started(*arguments) as command:
        _wait_until(lambda: not (log_dir / ".kafka_cleanshutdown").exists())
        assert command.end(signal.SIGTERM) == 1
    assert (log_dir / ".kafka_cleanshutdown").exists()


def test_command_that_asks_a_daemon_that_does_not_answer_ends_at_once(tmp_path: Path) -> None:
    """`status`, at a socket that never answers."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        path.chmod(0o600)
        listening.listen()
        for number in (signal.SIGTERM, signal.SIGINT):
            with Started("status", "--socket", path) as command:
                caller, _ = listening.accept()
                with caller:
                    assert command.end(number) == -number


def test_second_signal_ends_at_once(log_dir: Path, tmp_path: Path) -> None:
    """Without waiting for the work that the first one asked to stop."""
    with Started(*_commands(log_dir)["clean"], NUMBA_CACHE_DIR=str(tmp_path / "kernels")) as command:
        command.wait_for(b"compiling kernels")
        command.process.send_signal(signal.SIGTERM)
        assert command.end(signal.SIGINT) in (-signal.SIGINT, -signal.SIGTERM)


def _wait_until(is_so: Callable[[], bool]) -> None:
    until, pause = time.monotonic() + PATIENCE_SECONDS, threading.Event()
    while not is_so():
        assert time.monotonic() < until
        pause.wait(0.02)
