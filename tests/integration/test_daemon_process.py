"""`cleaner run` with closed or full standard streams: it cleans, answers, and stops all the same."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cleaner_run import REPOSITORY, WAIT_SECONDS, CleanerRun, wait_until
from tests.integration.daemons import settings_for
from tests.integration.log_dirs import keyed_log, offsets
from tests.support.log_builder import write_log_dir

LOGS = 30
_MIN_PIPE_BYTES = 4096


def _pipe_nobody_reads() -> int:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _MIN_PIPE_BYTES)
    _OPEN.append(reader)
    return writer


def _pipe_whose_reader_has_gone() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


_OPEN: list[int] = []


@pytest.mark.parametrize(
    "make", [_pipe_nobody_reads, _pipe_whose_reader_has_gone, None], ids=["full", "gone", "closed"]
)
def test_daemon_cleans_and_stops_whatever_becomes_of_its_logs(tmp_path: Path, make: Callable[[], int] | None) -> None:
    """No process needs to read them."""
    logs = tmp_path / "logs"
    logs.mkdir()
    names = [f"a-{number}" for number in range(LOGS)]
    write_log_dir(logs, *map(keyed_log, names))
    run = CleanerRun(tmp_path, settings_for(logs, state_dir=tmp_path / "unused"))
    command = [sys.executable, "-m", "cleaner", "run", "--as-root", "--config", str(run.config_file)]
    if make is None:
        command = ["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *command]
    stream = subprocess.DEVNULL if make is None else make()
    process = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
    try:
        wait_until(lambda: offsets(logs, "cleaner") == dict.fromkeys(names, 60), "all is clean")
        assert run.status()["state"] == "running"
        process.send_signal(signal.SIGUSR1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        for descriptor in (*_OPEN, *([stream] if make is not None else [])):
            os.close(descriptor)
        _OPEN.clear()


def test_missing_log_dir_is_refused_at_the_start_or_waited_for(tmp_path: Path) -> None:
    """A typing error in `log.dirs` must not run for months; a disk that comes late needs the operator's word."""
    there, late = write_log_dir(tmp_path / "disk1", keyed_log("a-0")), tmp_path / "disk2"
    (tmp_path / "run").mkdir()
    run = CleanerRun(tmp_path / "run", {"log.dirs": f"{there},{late}", "log.cleaner.backoff.ms": "50"})
    run.begin()
    assert run.wait() == 78
    assert f"log.dirs={late}: no such directory" in run.log_file.read_text()
    assert not offsets(there, "cleaner")

    run.write_settings({**run.settings, "cleaner.log.dirs.wait": "true", "cleanup.policy": "compact"})
    run.start()
    try:
        wait_until(lambda: bool(run.events("log dir is offline")), "the missing one is told of")
        write_log_dir(tmp_path / "mounting", keyed_log("b-0")).rename(late)
        wait_until(lambda: bool(run.events("log dir is online")), "it is there")
    finally:
        run.stop()
