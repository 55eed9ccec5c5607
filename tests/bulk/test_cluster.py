"""`cleaner bulk` on a standalone master with two workers, also if one of them dies during the job."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import cleaner
from cleaner.base.model import TopicPartition
from tests.bulk.cluster import Cluster, cluster, environment
from tests.golden.comparison import contents, differences
from tests.golden.scenario import Step, steps
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir

pytestmark = pytest.mark.slow

PARTITION = TopicPartition("topic", 0)
SETTINGS = {"cleanup.policy": "compact", "internal.segment.bytes": "3000", "index.interval.bytes": "200"}
NOW_MS = START_MS + 10**9
_SECONDS = 300
# Aborted and open transactions, expired tombstones, groups of many segments, active producers, codecs.
GOLDEN = ("transactions-1", "tombstones-2", "plain-grouping-1", "idempotent-producers-1", "consumer-offsets-1")


@pytest.fixture
def two_workers(needs_spark: None, tmp_path: Path) -> Iterator[Cluster]:
    """Give each test its own cluster."""
    scratch = tmp_path / "cluster"
    scratch.mkdir()
    with cluster(scratch, workers=2) as running:
        yield running


def bulk_command(
    log_dir: Path,
    work_dir: Path,
    master: str,
    *,
    partition: str = str(PARTITION),
    settings: Mapping[str, str] = SETTINGS,
    now_ms: int = NOW_MS,
    options: Sequence[str] = (),
) -> subprocess.Popen[str]:
    """Start the command."""
    words = [sys.executable, "-m", "cleaner", "bulk", str(log_dir), partition, "--now", str(now_ms), *options]
    words += ["--format", "json", "--master", master, "--work-dir", str(work_dir)]
    words += ["--conf", "spark.executor.memory=512m", "--conf", "spark.sql.shuffle.partitions=4"]
    words += ["--set", "cleaner.bulk.task.memory=4096"]  # too little for a single task
    words += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())


def write_log(directory: Path) -> Path:
    """Write a log of many segments."""
    log, draw = LogBuilder(PARTITION, index_interval_bytes=200), random.Random(5)
    for _ in range(40):
        for _ in range(12):
            log.append(*[(f"k{draw.randrange(600)}", f"v{draw.randrange(10**6)}") for _ in range(5)])
        log.roll()
    return write_log_dir(directory, log)


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for a condition while a process runs."""
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


MOMENTS = {
    "none": "",
    "while-keys-are-digested": "range-*.json",
    "while-groups-are-recopied": "progress.json",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_bulk_on_two_workers_leaves_the_engines_files(two_workers: Cluster, tmp_path: Path, moment: str) -> None:
    """At any moment a worker may be killed: its work is done again elsewhere and never shows."""
    source = write_log(tmp_path / "source")
    engine, log_dir, work_dir = (tmp_path / name for name in ("engine", "bulk", "work"))
    shutil.copytree(source, engine)
    shutil.copytree(source, log_dir)
    cleaner.clean(engine, str(PARTITION), SETTINGS, now_ms=NOW_MS)

    process = bulk_command(log_dir, work_dir, two_workers.url)
    if pattern := MOMENTS[moment]:
        wait_until(lambda: any(work_dir.glob(f"*/{pattern}")), process)
        two_workers.kill_worker()
    output, errors = process.communicate(timeout=_SECONDS)

    assert process.returncode == 0, errors
    assert json.loads(output)["rounds"] == 1
    assert differences(contents(engine), contents(log_dir)) == []
    assert list(work_dir.iterdir()) == []


@pytest.mark.parametrize("step", [pytest.param(step, id=str(step)) for step in steps() if str(step) in GOLDEN])
def test_bulk_on_two_workers_leaves_kafkas_files(
    two_workers: Cluster, unpacked: Callable[[str], Path], tmp_path: Path, step: Step
) -> None:
    """Files, checkpoint and times are those of Kafka's own cleaner."""
    home = unpacked(step.scenario)
    log_dir = step.prepare(home, tmp_path / "logs")
    process = bulk_command(
        log_dir,
        tmp_path / "work",
        two_workers.url,
        partition=step.partition,
        settings=step.settings,
        now_ms=step.now_ms,
        options=["--retention"] if step.retention else [],
    )
    _, errors = process.communicate(timeout=_SECONDS)

    assert process.returncode == 0, errors
    assert differences(contents(home / step.output), contents(log_dir)) == []


def test_golden_steps_are_there() -> None:
    """Every step named above exists."""
    assert set(GOLDEN) <= {str(step) for step in steps() if step.kind == "byte-identical"}
