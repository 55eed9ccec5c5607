"""The dump of SIGUSR1: stacks and one line of JSON, whatever the names in it are."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cleaner.base.model import TopicPartition
from cleaner.daemon.dump import dump, summary
from cleaner.daemon.snapshot import (
    ConfigView,
    Counts,
    Histogram,
    JobView,
    LogDirView,
    LogView,
    ServiceSnapshot,
    ThrottleView,
    WorkerView,
)
from cleaner.policy.retry import Retry
from cleaner.policy.selection_context import DirCondition
from cleaner.state.quarantine import QuarantinedLog

PRICES = TopicPartition("prices", 0)


def _snapshot(*, detail: str = "") -> ServiceSnapshot:
    logs = [
        LogView(TopicPartition("many", number), "/data", "compact", "default", 1, None, None, "damaged", "damaged")
        for number in range(50)
    ]
    directory = LogDirView("/data", DirCondition.OFFLINE, detail, 1, 50, 10, 100, 1, 0, 0, None)
    return ServiceSnapshot(
        version="1.2.3",
        now_ms=5,
        started_ms=1,
        state="running",
        is_ready=True,
        turn_ended_ms=4,
        turn_seconds=0.25,
        next_turn_ms=9,
        is_progressing=False,
        stuck=("worker cleaner-0",),
        config=ConfigView("/etc/cleaner/cleaner.properties", 1, is_last_reload_good=False, errors=("a=b: no",)),
        throttle=ThrottleView(1e6, 12, 0.5, {"/data": 5e5}),
        logs=tuple(logs),
        log_dirs=(directory,),
        workers=(WorkerView("cleaner-0", PRICES, "/data", "map", 10, 20, 3, None),),
        worker_deaths=1,
        queue=tuple(log.partition for log in logs),
        quarantine=(
            QuarantinedLog(
                topic_partition=PRICES, log_dir="/data", reason=detail, kind="CorruptBatchError", since_ms=2
            ),
        ),
        retries={PRICES: Retry(1, 2, 3, "no space")},
        jobs=(JobView(1, PRICES, "queued", 0, 1, None, 0.0, ""),),
        rounds=(),
        pauses=("all",),
        opens_at_ms=None,
        counts=replace(Counts.of(logs), waiting=len(logs)),
        topics={},
        round_seconds=Histogram((1.0,), (0, 0), 0.0),
        waiting_removals=0,
        open_files=17,
        anonymous_bytes=70_000_000,
        needed_bytes=400_000_000,
    )


def test_dump_is_stacks_then_one_line_of_json(tmp_path: Path) -> None:
    """The JSON is the last line; what looks like a line break or an escape sequence in it is escaped."""
    path = tmp_path / "stderr"
    with path.open("w") as stream:
        dump(lambda: _snapshot(detail="bad\n\x1b[2Jname"), stream)
    stacks, _, last = path.read_text().rstrip("\n").rpartition("\n")
    assert "test_dump_is_stacks_then_one_line_of_json" in stacks
    assert "\x1b" not in last
    found = json.loads(last)
    assert (found["format"], found["format_version"], found["version"]) == ("cleaner-snapshot", 1, "1.2.3")
    assert found["log_dirs"][0]["detail"] == "bad\n\x1b[2Jname"


def test_dump_writes_stacks_even_without_a_snapshot(tmp_path: Path) -> None:
    """A service that cannot say what it is like is the one whose stacks are wanted."""
    path = tmp_path / "stderr"

    def fail() -> ServiceSnapshot:
        raise RuntimeError(threading.current_thread().name)

    with path.open("w") as stream, pytest.raises(RuntimeError):
        dump(fail, stream)
    assert "in test_dump_writes_stacks_even_without_a_snapshot" in path.read_text()


def test_summary_counts_logs_and_names_running_rounds() -> None:
    """Thousands of logs become numbers; workers, pauses, failures and mistakes in the settings are named."""
    found: Any = summary(_snapshot())
    assert json.loads(json.dumps(found)) == found
    assert (found["logs"], found["counts"]["logs"], found["counts"]["waiting"]) == ([], 50, 50)
    assert found["counts"]["standings"] == {"unreadable": 50}
    assert found["queue"] == [f"many-{number}" for number in range(20)]
    (worker,) = found["workers"]
    assert (worker["name"], worker["partition"], worker["phase"]) == ("cleaner-0", "prices-0", "map")
    assert (worker["done_bytes"], worker["total_bytes"], worker["since_ms"]) == (10, 20, 3)
    assert worker["is_stopping"] is False
    assert found["throttle"] == {
        "bytes_per_second": 1e6, "bytes": 12, "waited_seconds": 0.5, "log_dirs": {"/data": 5e5}
    }  # fmt: skip
    assert (found["config"]["is_last_reload_good"], found["config"]["errors"]) == (False, ["a=b: no"])
    assert (found["stuck"], found["pauses"], list(found["retries"])) == (["worker cleaner-0"], ["all"], ["prices-0"])


def test_summary_fits_an_entry_of_the_journal_however_many_logs_there_are() -> None:
    """systemd cuts lines at 48 KiB; what there are thousands of is shortened."""
    one = _snapshot(detail="/var/lib/kafka/a-long-directory/prices-0: " + "x" * 200)
    many = replace(
        one,
        quarantine=one.quarantine * 5000,
        jobs=one.jobs * 5000,
        retries={TopicPartition("many", number): Retry(1, 2, 3, "no space") for number in range(5000)},
        config=replace(one.config, errors=one.config.errors * 5000, values=(("a", "b", "c"),) * 300),
    )
    assert len(json.dumps(summary(many))) < 48 << 10
