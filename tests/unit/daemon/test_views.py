"""What is shown of logs, log dirs and workers."""

from __future__ import annotations

from pathlib import Path

from cleaner.base.io_throttle import IoThrottle
from cleaner.base.model import TopicPartition
from cleaner.config.values import CleanerConfig
from cleaner.daemon.manager import CleanerManager
from cleaner.daemon.snapshot import WorkerView
from cleaner.daemon.views import LogDirHistory, LogViews, throttle_view, worker_views
from cleaner.policy.selection_context import DirCondition, LogDirFacts
from cleaner.state.quarantine import Quarantine
from cleaner.storage.fs.file_system import FileSystem
from tests.support.manual_clock import ManualClock
from tests.unit.daemon.looks import LOG_DIR, log_status, look


def test_only_views_of_logs_that_changed_are_made_again(tmp_path: Path) -> None:
    """Of thousands of logs a turn finds a few changed."""
    manager = CleanerManager(
        ManualClock(), Quarantine(FileSystem(), tmp_path, print), CleanerConfig(), wake=lambda: None, report=print
    )
    same, views = log_status("b-0", 10), LogViews()
    manager.take_looks({LOG_DIR: look(log_status("a-0", 10), same, log_status("c-0", compacted=False))})
    first = views.of(manager.snapshot())[0]
    assert [str(view.partition) for view in first] == ["a-0", "b-0", "c-0"]
    assert first[2].why == "cleanup.policy is delete"
    assert views.of(manager.snapshot())[0] is first
    manager.take_looks({LOG_DIR: look(log_status("a-0", 90), same)})
    second = views.of(manager.snapshot())[0]
    assert [view.ratio for view in second] == [0.9, 0.1]
    assert second[1] is first[1]


def test_log_dir_remembers_since_when_it_has_its_state() -> None:
    """And tells when that changes; being fine from the start is nothing to tell."""
    history = LogDirHistory()
    fine, gone = LogDirFacts(), LogDirFacts(DirCondition.OFFLINE, "gone")
    assert history.note({"/a": fine, "/b": gone}, 10) == ["/b"]
    assert history.note({"/a": fine, "/b": gone}, 20) == []
    assert history.note({"/a": gone, "/b": gone}, 30) == ["/a"]
    seen = [history.view(path, look(), gone, (), 40).since_ms for path in ("/a", "/b", "/never")]
    assert seen == [30, 10, 40]


def test_workers_that_wait_are_shown_too() -> None:
    """One name each."""
    busy = WorkerView("w2", TopicPartition("a", 0), "/a", "map", 1, 2, 3, None)
    shown = worker_views(["w1", "w2"], (busy,), 7)
    assert [(view.name, view.partition is None) for view in shown] == [("w2", False), ("w1", True)]


def test_throttle_without_limit_is_none() -> None:
    """Kafka's largest double is never shown."""
    throttle = IoThrottle(1.7976931348623157e308, ManualClock())
    assert throttle_view(throttle, {"/a": float("inf"), "/b": 5.0}).bytes_per_second is None
    assert dict(throttle_view(throttle, {"/a": float("inf"), "/b": 5.0}).log_dirs) == {"/b": 5.0}
    throttle.change_rate(100.0)
    assert throttle_view(throttle, {}).bytes_per_second == 100.0
