"""How a command's process ends: at once, with its exit code, and with all its output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.log_builder import CLEAN_SHUTDOWN, LogBuilder, write_log_dir

COMMAND = [sys.executable, "-m", "cleaner"]


def _log_dir(tmp_path: Path) -> Path:
    log = LogBuilder()
    log.append(("a", "v"), ("a", "w"))
    log.roll()
    return write_log_dir(tmp_path / "log-dir", log)


def test_command_that_is_not_read_line_by_line_says_everything(tmp_path: Path) -> None:
    """Output to a file or pipe is buffered: it is written out before the process ends."""
    done = subprocess.run([*COMMAND, "plan", _log_dir(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "topic-0" in done.stdout
    done = subprocess.run([*COMMAND, "plan", tmp_path / "nowhere"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "nowhere" in done.stderr


@pytest.mark.parametrize("words", [["plan", "LOG_DIR"], ["--version"]], ids=" ".join)
def test_command_whose_reader_has_gone_ends_without_a_traceback(tmp_path: Path, words: list[str]) -> None:
    """`cleaner plan DIR | true`, `cleaner --version | true`: exit code 1, nothing on standard error."""
    command = [*COMMAND, *(str(_log_dir(tmp_path)) if word == "LOG_DIR" else word for word in words)]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_version_that_cannot_be_written_is_one_line() -> None:
    """A full disk, met while the command line is read: exit code 1, and no traceback."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "--version"], stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"], ids=["output", "errors", "both"])
def test_command_whose_streams_are_closed_does_its_work(tmp_path: Path, closed: str) -> None:
    """And ends with its own exit code, whatever its output."""
    log_dir = _log_dir(tmp_path)
    (log_dir / CLEAN_SHUTDOWN).unlink()
    cases: tuple[tuple[list[str | Path], int], ...] = (
        (["recover", log_dir], 0),
        (["recover", tmp_path / "nowhere"], 2),
        (["plan", log_dir], 0),
    )
    for words, code in cases:
        done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, *words], check=False)
        assert done.returncode == code, words
    assert (log_dir / CLEAN_SHUTDOWN).exists()
