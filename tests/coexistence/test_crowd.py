"""A writer, a daemon and six readers, in four processes: every reader's view is right, all the time and at the end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cleaner import LogManager
from tests.cleaner_run import REPOSITORY, WAIT_SECONDS, cleaner_run
from tests.coexistence.crowd import MANAGER, SCRIPTS, TOPIC

READERS = (("plain", "committed", "restoring"), ("uncommitted", "late", "restarting"))
DAEMON = {
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.threads": "1",
    "cleaner.pipeline.threads": "1",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
}


def _start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.coexistence.crowd", *map(str, arguments)]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _run(root: Path, seconds: float, records_a_second: int) -> dict[str, Any]:
    """Let all of them work; returns what each has done, and how many rounds there were."""
    log_dir = root / "log-dir"
    with LogManager(log_dir, MANAGER, create=True, cleaner=False) as manager:
        for topic in SCRIPTS:
            manager.create_topic(topic, settings=TOPIC)
    done: dict[str, Any] = {}
    with cleaner_run(root, {"log.dirs": str(log_dir), **DAEMON}) as daemon:
        daemon.begin()
        processes = [
            _start("write", log_dir, seconds, records_a_second),
            *(_start("read", log_dir, seconds, *kinds) for kinds in READERS),
        ]
        try:
            for process in processes:
                output, errors = process.communicate(timeout=seconds + WAIT_SECONDS)
                assert process.returncode == 0, errors
                done |= json.loads(output)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        daemon.stop()
        done["rounds"] = len(daemon.events("cleaned"))
        assert [each for each in daemon.events() if each["level"] == "error"] == []
    return done


def test_readers_beside_writer_and_daemon_see_what_they_should(tmp_path: Path) -> None:
    """Offsets ascend, nothing is missing that was not superseded below the active segment, the state is right."""
    done = _run(tmp_path, seconds=8, records_a_second=25_000)
    assert done["rounds"] >= 4
    assert done["restarting"]["restarts"]
    assert done["restoring"]["passes"]


@pytest.mark.slow
def test_readers_beside_writer_and_daemon_for_a_minute(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same for a minute, at 50 000 records a second and a round a second."""
    done = _run(tmp_path, seconds=60, records_a_second=50_000)
    with capsys.disabled():
        print(f"\n{json.dumps(done)}")
    assert done["records"] / done["seconds"] >= 49_000
    assert done["rounds"] >= 60
