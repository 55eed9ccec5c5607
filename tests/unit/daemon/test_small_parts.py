"""Pauses, dir_backoff, activities and totals."""

from __future__ import annotations

import pytest

from cleaner.base.model import TopicPartition
from cleaner.daemon.activity import Activity, Effort
from cleaner.daemon.log_dir_backoff import LogDirBackoff
from cleaner.daemon.pauses import Pauses
from cleaner.daemon.snapshot import RoundView
from cleaner.daemon.status_history import ROUND_SECONDS, Totals
from cleaner.policy.retry import RetryDelays
from cleaner.policy.selection_context import DirCondition, LogDirFacts

A = TopicPartition("a", 0)
DELAYS = RetryDelays(1000, 8000)
SECOND_NS = 1_000_000_000


def test_pauses_of_everything_and_of_topics_are_counted_apart() -> None:
    """Each needs its own resume."""
    pauses = Pauses()
    pauses.pause(None)
    pauses.pause("a")
    pauses.pause("a")
    assert pauses.words() == ["all (1)", "a (2)"]
    assert pauses.resume(None)
    assert not pauses.resume(None)
    assert pauses.covers(A)
    assert not pauses.covers(TopicPartition("b", 0))
    assert pauses.resume("a")
    assert pauses.resume("a")
    assert not pauses.resume("a")
    assert not pauses.covers(A)


def test_failed_log_dir_is_tried_again_ever_later() -> None:
    """Two workers that run into one failure count once."""
    dir_backoff, seen = LogDirBackoff(), LogDirFacts()
    dir_backoff.fail("/a", 0, "I/O error", DELAYS)
    dir_backoff.fail("/a", 1, "I/O error", DELAYS)
    assert dir_backoff.over("/a", seen, 999).condition is DirCondition.OFFLINE
    assert dir_backoff.over("/a", seen, 1000) == seen
    dir_backoff.fail("/a", 1000, "I/O error", DELAYS)
    assert dir_backoff.over("/a", seen, 2999).condition is DirCondition.OFFLINE
    assert dir_backoff.over("/a", seen, 3000) == seen
    dir_backoff.fail("/a", 3000, "I/O error", DELAYS)
    dir_backoff.clear("/a")
    assert dir_backoff.over("/a", seen, 3001) == seen


def test_what_a_look_saw_wins_over_what_a_round_knew() -> None:
    """A log dir that is gone is gone, whatever failed in it before."""
    dir_backoff = LogDirBackoff()
    dir_backoff.lock("/a", 0, 1000, "process 7")
    seen = LogDirFacts(DirCondition.OFFLINE, "no such directory")
    assert dir_backoff.over("/a", seen, 10) == seen


@pytest.mark.parametrize(("now_ms", "is_locked"), [(499, False), (500, True), (1499, True), (1500, False)])
def test_locked_log_dir_is_free_after_its_delay(now_ms: int, is_locked: bool) -> None:
    """Also when the wall clock was set back in between."""
    dir_backoff = LogDirBackoff()
    dir_backoff.lock("/a", 500, 1000, "process 7")
    found = dir_backoff.over("/a", LogDirFacts(), now_ms)
    assert (found.condition is DirCondition.LOCKED) is is_locked


def test_activity_estimates_how_long_a_round_will_take() -> None:
    """Both passes count by their bytes; the first half second tells nothing."""
    activity = Activity("w", A, "/a", Effort(map_bytes=100, copy_bytes=300), now_ms=5, now_ns=0)
    assert activity.progress == 0
    activity.enter("map", 50, 100, SECOND_NS // 4)
    assert activity.view(SECOND_NS // 4, is_stopping=False).remaining_seconds is None
    activity.enter("copy", 100, 300, 10 * SECOND_NS)
    view = activity.view(10 * SECOND_NS, is_stopping=True)
    assert (view.phase, view.done_bytes, view.total_bytes, view.since_ms) == ("copy", 100, 300, 5)
    assert (activity.progress, view.remaining_seconds, view.is_stopping) == (0.5, 10.0, True)
    activity.enter("copy", 900, 300, 11 * SECOND_NS)
    assert activity.progress == 1.0


def test_totals_add_up_by_topic() -> None:
    """Rounds by result; durations of good ones only."""
    totals = Totals()
    common = {"partition": A, "log_dir": "/a", "worker": "w", "detail": ""}
    totals.add_round(
        RoundView(
            **common,
            result="done",
            ended_ms=7,
            seconds=0.1,
            bytes_read=10,
            bytes_written=4,
            map_bytes_read=6,
            removed={"superseded": 3},
        )
    )
    totals.add_round(RoundView(**common, result="retry", ended_ms=9, seconds=5000.0))
    totals.add_round(
        RoundView(**common, result="done", ended_ms=8, seconds=10**6, removed={"superseded": 1, "aborted": 2})
    )
    totals.add_retention("a", 2, 50)
    found = totals.topics()["a"]
    assert found.rounds == {"done": 2, "retry": 1}
    assert (found.bytes_read, found.bytes_written, found.map_bytes_read) == (10, 4, 6)
    assert found.removed == {"superseded": 4, "aborted": 2}
    assert (found.retention_segments, found.retention_bytes, found.last_success_ms) == (2, 50, 8)
    histogram = totals.round_seconds()
    assert histogram.counts[ROUND_SECONDS.index(0.1)] == 1
    assert (histogram.counts[-1], sum(histogram.counts), histogram.total) == (1, 2, 10**6 + 0.1)
    assert totals.ended_ms == 8
