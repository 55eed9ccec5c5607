"""The daemon over HTTP, while it works on real files."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.app.configuration import load_settings
from cleaner.base.clock import SystemClock
from cleaner.base.model import TopicPartition
from cleaner.present.http.routes import status_server
from cleaner.storage.fs.file_system import FileSystem
from tests.integration.daemons import RunningDaemon, daemon, settings_for
from tests.integration.log_dirs import flip_bit
from tests.support.log_builder import LogBuilder, write_log_dir

WORD = "xyzzy"


def secret_log(name: str) -> LogBuilder:
    """A log of 60 records with 5 keys below its active segment; each key and value contains a word to search for."""
    log = LogBuilder(TopicPartition.parse(name))
    for segment in range(4):
        if segment:
            log.roll()
        for n in range(20):
            log.append((f"{WORD}-{n % 5}", f"{WORD}-{segment}.{n}"))
    return log


@contextlib.contextmanager
def shown(running: RunningDaemon) -> Iterator[int]:
    """Serve a daemon's state, by its own settings; yields the port."""
    config = load_settings(Path(running.settings["cleaner.state.dir"]) / "test.properties", (), {}).config
    told: list[object] = []
    server = status_server(
        config, running.service.snapshot, fs=FileSystem(), clock=SystemClock(), warn=told.append, failed=told.append
    )
    assert server is not None
    with server:
        yield server.address.port
    assert told == []


def get(port: int, path: str) -> tuple[int, str]:
    """Return status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningDaemon]:
    """A daemon that has cleaned `good-0` and quarantined `bad-0`."""
    logs = tmp_path / "logs"
    logs.mkdir()
    write_log_dir(logs, secret_log("good-0"), secret_log("bad-0"))
    flip_bit(logs / "bad-0" / f"{0:020}.log")
    others = {"cleaner_http_listen": "127.0.0.1:0", "cleaner_http_kafka_metrics": "true"}
    with daemon(settings_for(logs, state_dir=tmp_path / "state", **others)) as started:
        started.log.wait("cleaned", partition="good-0")
        started.log.wait("quarantined", partition="bad-0")
        yield started


def test_daemon_at_work_is_seen_everywhere(running: RunningDaemon) -> None:
    """Page, metrics, health and JSON agree: one log cleaned, one quarantined, no other problem."""
    with shown(running) as port:
        assert [get(port, path) for path in ("/livez", "/readyz")] == [(200, "OK\n")] * 2
        status, health = get(port, "/healthz")
        # A warning about memory comes too: the test process uses more than a daemon.
        warnings = [line for line in json.loads(health)["warnings"] if "memory" not in line]
        assert (status, len(warnings)) == (200, 1)
        assert warnings[0].startswith("bad-0 is in quarantine: ")
        metrics = get(port, "/metrics")[1]
        assert 'cleaner_rounds_total{result="done",topic="good"} 1.0' in metrics
        assert 'cleaner_removed_records_total{reason="superseded",topic="good"} 55.0' in metrics
        assert 'cleaner_logs{reason="quarantined"} 1.0' in metrics
        snapshot = json.loads(get(port, "/api/v1/snapshot")[1])
        assert [entry["topic_partition"] for entry in snapshot["quarantine"]] == ["bad-0"]
        page = get(port, "/")[1]
        assert "55 superseded" in page and ">bad-0</a>" in page
        assert get(port, "/log/good-0")[0] == 200
        assert get(port, "/nothing")[0] == 404


def test_promtool_has_nothing_to_say_of_a_daemon_at_work(running: RunningDaemon) -> None:
    """Except Kafka's own names, which we cannot choose."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is missing: apt-get install prometheus")
    with shown(running) as port:
        body = get(port, "/metrics")[1]
    checked = subprocess.run([promtool, "check", "metrics"], input=body, capture_output=True, text=True, timeout=60)
    complaints = (checked.stdout + checked.stderr).splitlines()
    assert [line for line in complaints if not line.startswith("kafka_log_logcleaner")] == []


def test_no_byte_of_a_record_is_shown(running: RunningDaemon) -> None:
    """Neither a key nor a value is in anything the daemon shows."""
    with shown(running) as port:
        everything = "".join(
            get(port, path)[1] for path in ("/", "/metrics", "/healthz", "/api/v1/snapshot", "/log/bad-0")
        )
    assert "good-0" in everything
    assert WORD not in everything
    assert WORD not in repr(running.log.events)
