"""A daemon with a large log: cleaned by Spark in a child process, or by the engine with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

import cleaner
from tests.integration import daemons
from tests.integration.daemons import daemon, settings_for
from tests.integration.log_dirs import contents, keyed_log
from tests.support.log_builder import write_log_dir


def make_logs(tmp_path: Path) -> tuple[Path, Path]:
    """Write the same log in two log dirs."""
    made = []
    for name in ("logs", "other"):
        (tmp_path / name).mkdir()
        made.append(write_log_dir(tmp_path / name, keyed_log("a-0")))
    return made[0], made[1]


def test_large_log_without_java_is_cleaned_by_the_engine_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is kept with its round, where `cleaner explain` and `cleaner status` show it."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    logs, other = make_logs(tmp_path)
    cleaner.clean(other, "a-0", {"cleanup.policy": "compact"})
    settings = settings_for(logs, state_dir=tmp_path / "state", cleaner_bulk_min_bytes="0")
    with daemon(settings) as running:
        running.log.wait("cleaned", partition="a-0")
        (ended,) = running.service.snapshot().rounds
    assert ended.detail.startswith("without Spark: ")
    assert contents(logs) == contents(other)


@pytest.mark.slow
@pytest.mark.usefixtures("needs_spark")
def test_large_log_is_cleaned_by_spark_in_a_child_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are the engine's; the child ends with the daemon."""
    monkeypatch.setattr(daemons, "WAIT_SECONDS", 180.0)  # a JVM starts in ten seconds, or much later on a busy machine
    logs, other = make_logs(tmp_path)
    cleaner.clean(other, "a-0", {"cleanup.policy": "compact"})
    settings = settings_for(
        logs,
        state_dir=tmp_path / "state",
        cleaner_bulk_min_bytes="0",
        spark_master="local[1]",
        spark_sql_shuffle_partitions="1",
    )
    with daemon(settings) as running:
        running.log.wait("cleaned", partition="a-0")
        (ended,) = running.service.snapshot().rounds
        jobs = running.service._tools.large_logs._jobs
        assert jobs is not None
        child = jobs._child
    assert ended.detail == "with Spark"
    assert contents(logs) == contents(other)
    assert child is not None
    assert not child.is_alive
