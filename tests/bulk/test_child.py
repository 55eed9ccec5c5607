"""Spark in a child process: the same files, one session for several logs, and no process left without its parent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import cleaner
from cleaner.base.model import TopicPartition
from cleaner.errors import SparkJobError
from cleaner.spark.clean.child import LOG_NAME, ChildJobs
from tests.bulk.cluster import environment
from tests.bulk.conftest import LOCAL
from tests.bulk.local_jobs import bulk_clean
from tests.golden.comparison import contents, differences
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir

pytestmark = pytest.mark.usefixtures("needs_spark")

PARTITION = TopicPartition("topic", 0)
SETTINGS = {"cleanup.policy": "compact", "internal.segment.bytes": "2000"}
NOW_MS = START_MS + 10**9

ORPHAN = """
import sys, threading
from pathlib import Path
from cleaner.spark.clean.child import ChildJobs
jobs = ChildJobs({"spark.master": "local[1]"}, Path(sys.argv[1]))
threading.Thread(target=lambda: jobs.slots, daemon=True).start()
while jobs._child is None:
    pass
print(jobs._child._process.pid, flush=True)
sys.stdin.read()
"""


def write_log(directory: Path) -> Path:
    """Write a log of some groups."""
    log = LogBuilder(PARTITION)
    for i in range(200):
        log.append((f"k{i % 70}", f"v{i}"))
        if i % 40 == 39:
            log.roll()
    return write_log_dir(directory, log)


def is_alive(pid: int) -> bool:
    """Tell whether a process exists, and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_child_that_cannot_be_started_fails_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that is missing, or that this user may not run, is reported as the job's failure."""
    monkeypatch.setattr(sys, "executable", str(tmp_path))
    jobs = ChildJobs(LOCAL, tmp_path)
    with pytest.raises(SparkJobError, match=f"not started.*{tmp_path}"):
        _ = jobs.slots
    jobs.close()


def test_child_cleans_logs_one_after_the_other_in_one_session(tmp_path: Path) -> None:
    """The files are the engine's; Spark's output is kept; the error of a killed child names its log."""
    engine = write_log(tmp_path / "engine")
    cleaner.clean(engine, str(PARTITION), SETTINGS, now_ms=NOW_MS)
    jobs = ChildJobs(LOCAL, tmp_path)
    try:
        children = set()
        for name in ("first", "second"):
            log_dir = write_log(tmp_path / name)
            bulk_clean(log_dir, str(PARTITION), SETTINGS, work_dir=tmp_path / "work", now_ms=NOW_MS, jobs=jobs)
            assert differences(contents(engine), contents(log_dir)) == []
            assert jobs._child is not None
            children.add(jobs._child._process.pid)
        assert len(children) == 1
        assert (tmp_path / LOG_NAME).stat().st_size > 0
        os.kill(children.pop(), 9)
        jobs._child._reader.join()
        with pytest.raises(SparkJobError, match="gone"):
            jobs._child.begin("recopy")
    finally:
        jobs.close()


def test_child_is_gone_when_its_parent_is_killed(tmp_path: Path) -> None:
    """Even with SIGKILL: neither the process nor its JVM stays."""
    command = [sys.executable, "-c", ORPHAN, str(tmp_path)]
    parent = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(), cwd=tmp_path
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert is_alive(child)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 20
    while is_alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_modules_that_lie_about_where_it_was_started_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may be in another user's directory; neither the child nor Spark's workers import code from there."""
    directory = write_log(tmp_path / "logs")
    here, state = tmp_path / "here", tmp_path / "state"
    here.mkdir()
    state.mkdir()
    for name in ("json", "socket", "select", "numbers", "numpy"):
        (here / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nraise ImportError\n")
    monkeypatch.chdir(here)
    jobs = ChildJobs(LOCAL, state)
    try:
        bulk_clean(directory, str(PARTITION), SETTINGS, work_dir=tmp_path / "work", now_ms=NOW_MS, jobs=jobs)
    finally:
        jobs.close()
    assert not (tmp_path / "ran").exists()
