"""How many logs are like what: page, metrics, `cleaner status`, JSON and the dump say the same numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from cleaner.base.json_values import described, parse_json
from cleaner.base.model import TopicPartition
from cleaner.cli.status import show_status
from cleaner.daemon.control.verbs import answer
from cleaner.daemon.dump import summary
from cleaner.daemon.faults import judge_failure
from cleaner.daemon.log_dir_watch import DirLook
from cleaner.daemon.manager import Assignment, CleanerManager
from cleaner.daemon.snapshot import Counts, ServiceSnapshot
from cleaner.errors import CorruptBatchError, LogDirOfflineError, NoSpaceError
from cleaner.policy.reasons import Reason
from cleaner.policy.selection_context import DirCondition
from cleaner.present.html.page import overview
from cleaner.present.http.exposition import encode
from cleaner.present.metrics.metrics import SnapshotCollector
from tests.integration.daemons import RunningDaemon, made, settings_for
from tests.support.fake_steering import FakeSteering
from tests.support.sample_daemons import at_work, with_problems
from tests.support.snapshots import log, snapshot
from tests.unit.daemon.looks import log_status, look

A, B, C = (TopicPartition.parse(name) for name in ("a-0", "b-0", "c-0"))
LOGS = (log_status("a-0", 90), log_status("b-0", 80, expired=True), log_status("c-0", 70), log_status("d-0", 10))

Case = Callable[[CleanerManager], None]


def taken(manager: CleanerManager, worker: str = "cleaner-worker-1") -> Assignment:
    """Take the head of the queue, as a worker does."""
    assignment = manager.wait_for_work(worker)
    assert assignment is not None
    return assignment


def failed(manager: CleanerManager, error: Exception) -> None:
    assignment = taken(manager)
    manager.give_back(assignment, judge_failure(error, assignment.log.directory.parent))


def due(manager: CleanerManager) -> None:
    """Three wait."""


def running(manager: CleanerManager) -> None:
    manager.snapshot()  # what was surveyed before the log was taken is kept
    taken(manager)


def running_and_another_done(manager: CleanerManager) -> None:
    manager.snapshot()
    manager.give_back(taken(manager), None)
    manager.snapshot()
    taken(manager)


def surveyed_while_running_then_done(manager: CleanerManager) -> None:
    assignment = taken(manager)
    manager.pause("d")  # a new survey is made, while a worker has the log
    manager.snapshot()
    manager.give_back(assignment, None)
    taken(manager)


def paused(manager: CleanerManager) -> None:
    manager.pause(A)
    manager.pause("c")


def stopping(manager: CleanerManager) -> None:
    taken(manager)
    manager.pause(A)


def all_paused(manager: CleanerManager) -> None:
    manager.pause(None)


def quarantined(manager: CleanerManager) -> None:
    failed(manager, CorruptBatchError(Path("/logs/a-0/0.log"), 77, "wrong CRC"))


def offline(manager: CleanerManager) -> None:
    failed(manager, LogDirOfflineError(Path("/logs"), OSError(5, "Input/output error")))


def delayed(manager: CleanerManager) -> None:
    failed(manager, NoSpaceError(Path("/logs/a-0/0.log.cleaned"), 10))


def retention(manager: CleanerManager) -> None:
    manager.snapshot()
    assert manager.take_for_retention(LOGS[1:2]) == [B]
    taken(manager)


def retention_done(manager: CleanerManager) -> None:
    retention(manager)
    manager.give_back_from_retention(B)


def asked_for(manager: CleanerManager) -> None:
    manager.snapshot()
    manager.request(TopicPartition.parse("d-0"), 0)
    taken(manager)


CASES: tuple[Case, ...] = (
    *(due, running, running_and_another_done, surveyed_while_running_then_done, paused, stopping, all_paused),
    *(quarantined, offline, delayed, retention, retention_done, asked_for),
)


@pytest.fixture
def daemon(tmp_path: Path) -> RunningDaemon:
    logs = tmp_path / "logs"
    logs.mkdir()
    return made(settings_for(logs, state_dir=tmp_path / "state"))


def seen_by(daemon: RunningDaemon, found: DirLook) -> None:
    daemon.service.manager.take_looks({"/logs": found})


def metrics(shown: ServiceSnapshot) -> dict[str, float]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotCollector(lambda: shown))
    lines = [line for line in encode(registry, is_openmetrics=False).decode().splitlines() if line[0] != "#"]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def tile(page: str, name: str) -> str:
    found = re.search(f"<dt>{name}</dt><dd><b>(.*?)</b>", page)
    assert found is not None, name
    return found[1]


def held_against_each_other(shown: ServiceSnapshot, capsys: pytest.CaptureFixture[str]) -> None:
    """Compare everything that is shown of a daemon."""
    counts = shown.counts
    assert counts == Counts.of(shown.logs)
    page, scraped = overview(shown, {}).body.decode(), metrics(shown)
    told = described("snapshot", shown)
    reply = parse_json(answer(b'{"v": 1, "do": "status", "logs": 2}', FakeSteering(shown), 0, print).line)
    show_status(shown, "")
    printed = capsys.readouterr().out
    dumped = summary(shown)

    standings = {name: many for name, many in counts.standings.items() if many}
    assert sum(standings.values()) == counts.logs == len(shown.logs) == reply["log_count"] == dumped["counts"]["logs"]  # type: ignore[index,call-overload]
    assert {n[21:-2]: v for n, v in scraped.items() if n.startswith("cleaner_logs{")} == standings
    assert told["counts"]["standings"] == reply["standings"] == dumped["counts"]["standings"] == standings  # type: ignore[index,call-overload]
    for name, many in standings.items():
        assert f"{many} {Reason(name).words.label}" in printed

    due_and_free = [view for view in shown.logs if view.verdict and view.verdict.reason.is_due_and_free]
    places = sorted(view.verdict.place for view in due_and_free if view.verdict and view.verdict.place)
    assert places == list(range(1, counts.waiting + 1))
    assert counts.waiting == len(shown.queue) == scraped["cleaner_queue_logs"] == dumped["counts"]["waiting"]  # type: ignore[index,call-overload]
    assert tile(page, "Waiting for a worker") == str(counts.waiting)
    assert {view.partition for view in due_and_free} == set(shown.queue)
    assert ("queue  " in printed) == bool(counts.waiting)

    busy = [worker for worker in shown.workers if worker.partition is not None]
    assert counts.in_progress == len(busy) == scraped["cleaner_workers_busy"]
    assert tile(page, "In quarantine") == str(len(shown.quarantine))
    assert counts.standings.get("quarantined", 0) == len(shown.quarantine)
    assert tile(page, "Overdue") == str(counts.overdue) == str(int(scraped["cleaner_overdue_logs"]))
    assert told["overdue"] == counts.overdue
    assert counts.dirtiest_ratio == scraped["cleaner_max_dirty_ratio"] == told["dirtiest_ratio"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_counts_of_a_daemon_are_the_same_wherever_they_are_shown(
    daemon: RunningDaemon, case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one snapshot: page, `cleaner status`, metrics, JSON and the dump, whatever has moved since the last survey."""
    seen_by(daemon, look(*LOGS, log_status("e-0", compacted=False)))
    case(daemon.service.manager)
    held_against_each_other(daemon.service.snapshot(), capsys)


def test_counts_of_a_log_dir_that_is_offline_are_those_of_its_last_look(
    daemon: RunningDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    """None of its logs waits for a worker."""
    seen_by(daemon, look(*LOGS, condition=DirCondition.OFFLINE, detail="no answer"))
    shown = daemon.service.snapshot()
    held_against_each_other(shown, capsys)
    assert shown.counts.standings == {"log_dir_offline": 4}
    assert (shown.counts.waiting, shown.counts.dirtiest) == (0, None)


@pytest.mark.parametrize("sample", [at_work, with_problems])
def test_counts_of_the_samples_are_the_same_wherever_they_are_shown(
    sample: Callable[[], ServiceSnapshot], capsys: pytest.CaptureFixture[str]
) -> None:
    """Page and status of one daemon in trouble, too."""
    shown = sample()
    assert sum(shown.counts.standings.values()) == len(shown.logs)
    assert tile(overview(shown, {}).body.decode(), "Waiting for a worker") == str(len(shown.queue))
    show_status(shown, "")
    assert capsys.readouterr().out


def standings_of(daemon: RunningDaemon) -> Mapping[str, int]:
    return daemon.service.snapshot().counts.standings


def test_log_that_was_taken_since_the_survey_no_longer_waits(daemon: RunningDaemon) -> None:
    """Nor does the one given back: it is looked at again first, and those behind it move up."""
    seen_by(daemon, look(*LOGS))
    manager = daemon.service.manager
    assert standings_of(daemon) == {"over_ratio": 3, "under_ratio": 1}
    first = taken(manager)
    assert standings_of(daemon) == {"in_progress": 1, "over_ratio": 2, "under_ratio": 1}
    manager.give_back(first, None)
    assert standings_of(daemon) == {"to_be_looked_at": 1, "over_ratio": 2, "under_ratio": 1}
    taken(manager)
    shown = daemon.service.snapshot()
    assert shown.counts.standings == {"to_be_looked_at": 1, "in_progress": 1, "over_ratio": 1, "under_ratio": 1}
    assert shown.queue == (C,)
    assert next(view.why for view in shown.logs if view.partition == C).startswith("next: ")


def test_log_that_retention_has_is_not_shown_as_paused(daemon: RunningDaemon) -> None:
    """No operator has paused it, and none can resume it."""
    seen_by(daemon, look(*LOGS))
    retention(daemon.service.manager)
    shown = daemon.service.snapshot()
    assert shown.pauses == ()
    assert shown.counts.standings["retention"] == 1
    with pytest.raises(Exception, match="b-0 is not paused"):
        daemon.service.manager.resume(B)
    daemon.service.manager.pause(B)
    assert daemon.service.snapshot().pauses == ("b-0 (1)",)


def test_dirtiest_log_is_one_that_could_be_cleaned() -> None:
    """R-422: not of logs in progress, quarantined or without compact, and with none the ratio is 0."""
    held = [log("a", 0, dirty_bytes=900 << 20, reason=reason) for reason in Reason if not reason.is_candidate]
    shown = snapshot([*held, log("b", 0, clean_bytes=6 << 20, dirty_bytes=4 << 20)])
    assert (shown.counts.dirtiest, shown.dirtiest_ratio) == (B, 0.4)
    assert snapshot(held).dirtiest_ratio == 0.0


def test_overdue_logs_are_counted_whatever_holds_them() -> None:
    """An overdue log behind a closed window is overdue still."""
    late = [log("a", number, reason=Reason.OVERDUE, verdict_fields={"overdue_ms": 5 + number}) for number in range(2)]
    counts = snapshot([*late, log("b", 0)]).counts
    assert (counts.overdue, counts.max_overdue_ms) == (2, 6)


def test_overdue_logs_are_shown_as_of_the_moment_of_the_snapshot(daemon: RunningDaemon) -> None:
    """Verdicts are kept from turn to turn; what is shown of them counts from now, in logs and in sums."""
    given = log_status("a-0", 90)
    assert given.facts is not None
    facts = replace(given.facts, earliest_dirty_timestamp_ms=1_000, max_compaction_lag_ms=500)
    seen_by(daemon, look(replace(given, facts=facts)))
    first = shown = daemon.service.snapshot()
    while shown.now_ms == first.now_ms:
        shown = daemon.service.snapshot()
    for each in (first, shown):
        assert each.max_overdue_ms == each.logs[0].overdue_ms == each.now_ms - 1_500
