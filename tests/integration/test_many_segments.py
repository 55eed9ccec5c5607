"""Logs of very many segments: no command holds more files open than a handful, whatever the limit is."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cleaner.app.options import CallContext
from cleaner.app.plan_log_dir import plan_log_dir
from cleaner.base.model import TopicPartition
from cleaner.settings.sources import SetOption, Sources
from tests.integration.log_dirs import NOW, offsets
from tests.support.log_builder import CLEAN_SHUTDOWN, LogBuilder, write_log_dir

COMPACT = ("--set", "topic:cleanup.policy=compact")


def write_log(log_dir: Path, segments: int) -> None:
    """Write a log of so many segments, of three batches each."""
    log = LogBuilder(TopicPartition("topic", 0))
    for segment in range(segments):
        if segment:
            log.roll()
        for record in range(3):
            log.append((f"k{(segment + record) % 50}", f"v{segment}"))
    write_log_dir(log_dir, log)


def run(limit: int, *arguments: str | Path) -> None:
    """Run a command with a limit of open files."""
    subprocess.run(
        [sys.executable, "-m", "cleaner", *map(str, arguments), "--now", str(NOW)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
        check=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("segments", "limit"), [(500, 24), pytest.param(7000, 256, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_many_segments_are_planned_cleaned_and_recovered_with_few_open_files(
    segments: int, limit: int, tmp_path: Path
) -> None:
    """Each command opens thousands of files, one after the other."""
    write_log(tmp_path, segments)
    run(limit, "plan", tmp_path, *COMPACT, "--estimate")
    run(limit, "explain", tmp_path, "topic-0", *COMPACT)
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    run(limit, "plan", tmp_path, *COMPACT)
    run(limit, "recover", tmp_path)
    run(limit, "clean", tmp_path, "topic-0", *COMPACT)
    assert offsets(tmp_path, "cleaner") == {"topic-0": 3 * (segments - 1)}


@pytest.mark.slow
def test_log_of_a_hundred_thousand_segments_is_planned_in_seconds(tmp_path: Path) -> None:
    """Closed in order or not, and with the times of every segment asked for, each of which opens a file."""
    write_log(tmp_path, 100_000)
    lag = SetOption("topic", "min.compaction.lag.ms", "1000")
    sources = Sources(sets=(SetOption("topic", "cleanup.policy", "compact"), lag))
    for _ in range(2):
        began = time.process_time()
        (entry,) = plan_log_dir(tmp_path, sources, CallContext.of(now_ms=NOW))
        assert time.process_time() - began < 20
        assert (entry.segments, entry.is_due) == (100_000, True)
        (tmp_path / CLEAN_SHUTDOWN).unlink(missing_ok=True)
