"""Who works on what: R-430 to R-434, R-452, and that every outcome leads where it should."""

from __future__ import annotations

import errno
import random
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.config.values import CleanerConfig
from cleaner.daemon.faults import Fault, judge_failure
from cleaner.daemon.log_status import LogStatus
from cleaner.daemon.manager import Assignment, CleanerManager
from cleaner.errors import (
    CleaningAborted,
    CorruptBatchError,
    LogDirLockedError,
    LogDirOfflineError,
    NoSpaceError,
    SteeringError,
)
from cleaner.policy.reasons import Reason
from cleaner.policy.selection_context import DirCondition
from cleaner.policy.states import InvalidTransitionError
from cleaner.state.quarantine import Quarantine
from cleaner.storage.fs.file_system import FileSystem
from tests.support.invariants import check_manager
from tests.support.manual_clock import ManualClock
from tests.unit.daemon.looks import LOG_DIR, log_status, look

A, B, C = (TopicPartition.parse(name) for name in ("a-0", "b-0", "b-1"))
UID = 1000


class ManagerByHand:
    """A manager with a clock set by hand; workers are names, and none ever waits."""

    def __init__(self, tmp_path: Path, config: CleanerConfig | None = None) -> None:
        self.clock = ManualClock()
        self.woken = 0
        self.said: list[str] = []
        self.quarantine = Quarantine(FileSystem(), tmp_path, self.said.append)
        self.manager = CleanerManager(
            self.clock, self.quarantine, config or CleanerConfig(), wake=self._wake, report=self.said.append
        )

    def _wake(self) -> None:
        self.woken += 1

    def see(self, *logs: LogStatus, condition: DirCondition = DirCondition.ONLINE) -> None:
        """Look at one log dir."""
        self.clock.move_on(0.001)
        self.manager.take_looks({LOG_DIR: look(*logs, condition=condition, begun_ns=self.clock.monotonic_ns())})

    def grab(self, worker: str = "w1") -> TopicPartition | None:
        """Return what a worker is given; None: it would wait."""
        assignment = self.take(worker)
        return None if assignment is None else assignment.log.partition

    def take(self, worker: str = "w1") -> Assignment | None:
        """Do what `wait_for_work` does, without waiting."""
        with self.manager._change:
            assignment = self.manager._assign(worker)
        check_manager(self.manager)
        return assignment

    def must_take(self, worker: str = "w1") -> Assignment:
        """Take something, and fail where there is nothing."""
        assignment = self.take(worker)
        assert assignment is not None
        return assignment

    def reasons(self) -> dict[str, Reason]:
        """Return what is said of each log."""
        self.clock.move_on(2)
        known = self.manager.snapshot()
        return {str(log.partition): verdict.reason for log, verdict in known.logs if verdict is not None}

    def fail(self, assignment: Assignment, error: Exception) -> Fault:
        """Give a log back after a failure."""
        fault = judge_failure(error, Path(LOG_DIR))
        self.manager.give_back(assignment, fault)
        check_manager(self.manager)
        return fault


@pytest.fixture
def by_hand(tmp_path: Path) -> ManagerByHand:
    return ManagerByHand(tmp_path)


def test_dirtiest_log_goes_to_the_first_worker_and_to_no_other(by_hand: ManagerByHand) -> None:
    """One partition on one worker (R-433)."""
    by_hand.see(log_status("a-0", 60), log_status("b-0", 90), log_status("b-1", 40))
    assert [by_hand.grab("w1"), by_hand.grab("w2"), by_hand.grab("w3")] == [B, A, None]


def test_log_given_back_is_looked_at_again_before_it_is_picked_again(by_hand: ManagerByHand) -> None:
    """What was known of it is no longer true."""
    by_hand.see(log_status("a-0"))
    by_hand.manager.give_back(by_hand.must_take(), None)
    assert by_hand.grab() is None
    assert by_hand.woken == 1
    by_hand.see(log_status("a-0", 80))
    assert by_hand.grab() == A


def test_look_that_began_before_a_log_was_given_back_does_not_count_for_it(by_hand: ManagerByHand) -> None:
    """It may have seen the log before the round."""
    by_hand.see(log_status("a-0"))
    assignment = by_hand.must_take()
    began_ns = by_hand.clock.monotonic_ns()
    by_hand.clock.move_on(1)
    by_hand.manager.give_back(assignment, None)
    by_hand.manager.take_looks({LOG_DIR: look(log_status("a-0", 90), begun_ns=began_ns)})
    assert by_hand.grab() is None


def test_look_that_is_shown_again_does_not_count_for_a_log_given_back_since(by_hand: ManagerByHand) -> None:
    """A log dir whose look takes longer than a turn keeps its last one: nothing new is known of its logs."""
    here, there = log_status("a-0", 90), log_status("b-0", 80, log_dir="/other")
    slow, other = look(here, begun_ns=by_hand.clock.monotonic_ns()), look(there)
    by_hand.manager.take_looks({LOG_DIR: slow, "/other": other})
    given = [by_hand.must_take(), by_hand.must_take("w2")]
    by_hand.clock.move_on(1)
    for each in given:
        by_hand.manager.give_back(each, None)
    by_hand.clock.move_on(1)
    other = look(there, begun_ns=by_hand.clock.monotonic_ns())
    by_hand.manager.take_looks({LOG_DIR: slow, "/other": other})
    assert [by_hand.grab(), by_hand.grab("w2")] == [B, None]


def test_log_given_back_waits_until_it_is_judged_however_many_looks_that_takes(by_hand: ManagerByHand) -> None:
    """A look that had no time for it knows only what was true before its round."""
    by_hand.see(log_status("a-0"))
    by_hand.manager.give_back(by_hand.must_take(), None)
    for _ in range(3):
        by_hand.clock.move_on(1)
        seen = look(log_status("a-0"), begun_ns=by_hand.clock.monotonic_ns())
        by_hand.manager.take_looks({LOG_DIR: replace(seen, behind=frozenset({A}))})
        assert by_hand.grab() is None
        assert by_hand.reasons() == {"a-0": Reason.TO_BE_LOOKED_AT}
    by_hand.see(log_status("a-0", 80))
    assert by_hand.grab() == A


def test_job_does_not_end_by_what_was_known_before_its_log_changed(by_hand: ManagerByHand) -> None:
    """Nothing to clean is an answer only when the log was judged."""
    by_hand.see(log_status("a-0", 0))
    job = by_hand.manager.request(A, UID)
    by_hand.manager.take_looks({LOG_DIR: replace(look(log_status("a-0", 0)), behind=frozenset({A}))})
    assert by_hand.manager.snapshot().jobs[0].state == "queued"
    by_hand.see(log_status("a-0", 10))
    assert by_hand.grab() == job.partition


def test_other_logs_stay_in_the_queue_when_one_is_done(by_hand: ManagerByHand) -> None:
    """A worker does not wait for the next turn while others are due."""
    by_hand.see(log_status("a-0", 90), log_status("b-0", 80), log_status("b-1", 70))
    by_hand.manager.give_back(by_hand.must_take(), None)
    assert by_hand.grab() == B


def test_damaged_log_is_quarantined_and_the_others_are_cleaned(by_hand: ManagerByHand) -> None:
    """One bad log never stops the others (R-452), and the reason is kept with its position."""
    by_hand.see(log_status("a-0", 90), log_status("b-0", 80))
    by_hand.fail(by_hand.must_take(), CorruptBatchError(Path("/logs/a-0/0.log"), 77, "wrong CRC"))
    by_hand.see(log_status("a-0", 90), log_status("b-0", 80))
    assert by_hand.grab() == B
    assert by_hand.reasons()["a-0"] is Reason.QUARANTINED
    (entry,) = by_hand.quarantine.entries()
    assert (entry.topic_partition, entry.position, entry.reason) == (A, 77, "wrong CRC")


def test_quarantine_ends_when_the_topic_is_made_again(by_hand: ManagerByHand) -> None:
    """R-452: the log with the damage has left; the new one, which has another topic id, is cleaned."""
    before, after = (replace(log_status("a-0"), topic_id=uuid.uuid4()) for _ in range(2))
    by_hand.see(before)
    by_hand.fail(by_hand.must_take(), CorruptBatchError(Path("/logs/a-0/0.log"), 77, "wrong CRC"))
    by_hand.see(before)
    assert by_hand.grab() is None
    by_hand.see(after)
    assert by_hand.grab() == A
    assert by_hand.quarantine.entries() == []
    assert "made again" in by_hand.said[-1]


def test_no_room_is_retried_with_growing_delay(tmp_path: Path) -> None:
    """Backoff first, then twice as long, at most the limit; one success forgets it."""
    by_hand = ManagerByHand(tmp_path, CleanerConfig(backoff_ms=1000, configured_retry_max_ms=4000))
    waits = []
    for _ in range(4):
        by_hand.see(log_status("a-0"))
        by_hand.fail(by_hand.must_take(), NoSpaceError(Path("/logs"), 10))
        waited = 0
        while True:
            by_hand.see(log_status("a-0"))
            if (assignment := by_hand.take()) is not None:
                break
            by_hand.clock.move_on(0.5)
            waited += 1
        waits.append(waited)
        by_hand.manager.give_back(assignment, judge_failure(CleaningAborted("stop"), Path(LOG_DIR)))
    assert waits == [2, 4, 8, 8]
    by_hand.see(log_status("a-0"))
    by_hand.manager.give_back(by_hand.must_take(), None)
    assert not by_hand.manager.snapshot().retries


def test_failing_disk_takes_its_log_dir_offline_and_leaves_the_others(tmp_path: Path) -> None:
    """A log dir on another disk is worked on as before; the failed one is tried again later."""
    by_hand = ManagerByHand(tmp_path, CleanerConfig(backoff_ms=10_000, configured_retry_max_ms=60_000))
    here, there = log_status("a-0", 90), log_status("b-0", 80, log_dir="/other")
    also_here = log_status("b-1", 85)

    def see() -> None:
        by_hand.clock.move_on(0.001)
        now_ns = by_hand.clock.monotonic_ns()
        by_hand.manager.take_looks(
            {LOG_DIR: look(here, also_here, begun_ns=now_ns), "/other": look(there, begun_ns=now_ns)}
        )

    see()
    by_hand.fail(by_hand.must_take(), LogDirOfflineError(Path("/logs/a-0"), OSError(errno.EIO, "I/O error")))
    see()
    assert by_hand.grab() == B
    assert by_hand.manager.snapshot().log_dirs[LOG_DIR].condition is DirCondition.OFFLINE
    assert by_hand.reasons()["b-1"] is Reason.LOG_DIR_OFFLINE
    by_hand.clock.move_on(10)
    see()
    assert by_hand.grab("w2") == A


def test_locked_log_dir_waits_a_backoff_and_delays_no_other(tmp_path: Path) -> None:
    """It is shown as in use by another process."""
    by_hand = ManagerByHand(tmp_path, CleanerConfig(backoff_ms=5000))
    by_hand.see(log_status("a-0"))
    by_hand.fail(by_hand.must_take(), LogDirLockedError("process 7"))
    by_hand.see(log_status("a-0"))
    assert by_hand.grab() is None
    assert by_hand.manager.snapshot().log_dirs[LOG_DIR].condition is DirCondition.LOCKED
    by_hand.clock.move_on(5.1)
    by_hand.see(log_status("a-0"))
    assert by_hand.grab() == A


@pytest.mark.parametrize("scope", [A, "a", None], ids=["partition", "topic", "all"])
def test_pause_stops_the_worker_and_nests(by_hand: ManagerByHand, scope: TopicPartition | str | None) -> None:
    """A worker notices at its next buffer (R-431); two pauses need two resumes (R-430)."""
    by_hand.see(log_status("a-0"))
    assignment = by_hand.must_take()
    by_hand.manager.check_done(assignment)
    assert by_hand.manager.pause(scope) == [A]
    with pytest.raises(CleaningAborted, match="paused"):
        by_hand.manager.check_done(assignment)
    by_hand.fail(assignment, CleaningAborted("paused"))
    by_hand.manager.pause(scope)
    for _ in range(2):
        by_hand.see(log_status("a-0"))
        assert by_hand.grab() is None
        by_hand.manager.resume(scope)
    by_hand.see(log_status("a-0"))
    assert by_hand.grab() == A


def test_topic_that_is_paused_holds_its_partitions_only(by_hand: ManagerByHand) -> None:
    """The others go on."""
    by_hand.see(log_status("a-0", 60), log_status("b-0", 90), log_status("b-1", 80))
    by_hand.manager.pause("b")
    assert by_hand.grab() == A
    assert by_hand.reasons()["b-0"] is Reason.PAUSED


@pytest.mark.parametrize(
    ("scope", "words"),
    [(A, "a-0 is not paused"), ("a", "a is not paused"), (None, "the cleaner is not paused")],
)
def test_resume_without_a_pause_is_refused(
    by_hand: ManagerByHand, scope: TopicPartition | str | None, words: str
) -> None:
    """It says what it is instead."""
    by_hand.see(log_status("a-0"))
    with pytest.raises(SteeringError, match=words):
        by_hand.manager.resume(scope)


def test_request_is_first_whatever_its_ratio(by_hand: ManagerByHand) -> None:
    """A job is queued, runs, and ends with what its round said."""
    by_hand.see(log_status("a-0", 10), log_status("b-0", 90))
    job = by_hand.manager.request(A, UID)
    assert by_hand.manager.request(A, UID) == job
    assignment = by_hand.must_take()
    assert (assignment.log.partition, assignment.is_requested) == (A, True)
    assert by_hand.manager.snapshot().jobs[0].state == "running"
    by_hand.manager.give_back(assignment, None, "cleaned")
    (view,) = by_hand.manager.snapshot().jobs
    assert (view.id, view.state, view.detail, view.asked_by, view.progress) == (1, "done", "cleaned", UID, 1.0)


def test_request_for_a_log_without_anything_to_clean_ends_at_the_next_look(by_hand: ManagerByHand) -> None:
    """No caller waits forever."""
    by_hand.see(log_status("a-0", 0))
    by_hand.manager.request(A, UID)
    by_hand.see(log_status("a-0", 0))
    (view,) = by_hand.manager.snapshot().jobs
    assert view.state == "done"
    assert "nothing to clean" in view.detail


def test_request_for_what_may_not_be_cleaned_is_refused_with_the_reason(by_hand: ManagerByHand) -> None:
    """No such partition, no compact policy, or quarantine."""
    by_hand.see(log_status("a-0", compacted=False), log_status("b-0"))
    with pytest.raises(SteeringError, match="no partition c-7"):
        by_hand.manager.request(TopicPartition("c", 7), UID)
    with pytest.raises(SteeringError, match="policy is delete"):
        by_hand.manager.request(A, UID)
    by_hand.fail(by_hand.must_take(), CorruptBatchError(Path("/logs/b-0/0.log"), 7, "wrong CRC"))
    with pytest.raises(SteeringError, match="release it first"):
        by_hand.manager.request(B, UID)


def test_job_that_runs_is_stopped_by_cancel(by_hand: ManagerByHand) -> None:
    """At the next buffer; it ends as cancelled and its log is not quarantined."""
    by_hand.see(log_status("a-0"))
    job = by_hand.manager.request(A, UID)
    assignment = by_hand.must_take()
    by_hand.manager.cancel(job.id)
    with pytest.raises(CleaningAborted, match="cancelled"):
        by_hand.manager.check_done(assignment)
    by_hand.fail(assignment, CleaningAborted("its job was cancelled"))
    assert by_hand.manager.snapshot().jobs[0].state == "cancelled"
    with pytest.raises(SteeringError, match="has ended"):
        by_hand.manager.cancel(job.id)
    with pytest.raises(SteeringError, match="no job 99"):
        by_hand.manager.cancel(99)


def test_request_for_a_log_that_is_being_cleaned_has_its_round(by_hand: ManagerByHand) -> None:
    """It is as far as the round is, ends with it, and is not said to wait for a worker."""
    by_hand.see(log_status("a-0", 80))
    assignment = by_hand.must_take()
    job = by_hand.manager.request(assignment.log.partition, UID)
    assert (job.state, job.detail) == ("running", "joined the running round")
    by_hand.manager.note_progress(assignment, "copy", 50, 100)
    (seen,) = by_hand.manager.snapshot().jobs
    assert seen.progress > 0
    assert by_hand.manager.request(assignment.log.partition, UID) == seen
    by_hand.manager.give_back(assignment, None)
    (ended,) = by_hand.manager.snapshot().jobs
    assert (ended.state, ended.progress) == ("done", 1.0)


def test_queued_job_that_is_cancelled_leaves_the_log_to_its_ratio(by_hand: ManagerByHand) -> None:
    """A log under its ratio is then not cleaned."""
    by_hand.see(log_status("a-0", 10))
    job = by_hand.manager.request(A, UID)
    assert by_hand.manager.cancel(job.id).state == "cancelled"
    assert by_hand.grab() is None


def test_released_log_is_cleaned_again(by_hand: ManagerByHand) -> None:
    """By command, when the cause is gone; a log that is not quarantined cannot be released."""
    by_hand.see(log_status("a-0"))
    by_hand.fail(by_hand.must_take(), CorruptBatchError(Path("/logs/a-0/0.log"), 7, "wrong CRC"))
    assert [entry.topic_partition for entry in by_hand.manager.release(A)] == [A]
    by_hand.see(log_status("a-0"))
    assert by_hand.grab() == A
    with pytest.raises(SteeringError, match=r"no partition aa-0 in any log dir; did you mean a-0\?"):
        by_hand.manager.release(TopicPartition("aa", 0))
    with pytest.raises(SteeringError, match=r"no partition or topic a-9 in any log dir; did you mean a-0\?"):
        by_hand.manager.pause("a-9")
    with pytest.raises(SteeringError, match="not in quarantine"):
        by_hand.manager.release(A)


def test_closed_window_begins_no_round_and_lets_the_running_one_finish(tmp_path: Path) -> None:
    """Unless cleaner.windows.hard is set."""
    # The clock starts at 22:13 UTC.
    for is_hard in (False, True):
        by_hand = ManagerByHand(
            tmp_path, CleanerConfig(windows="22:00-23:00", windows_time_zone="UTC", windows_hard=is_hard)
        )
        by_hand.see(log_status("a-0"), log_status("b-0"))
        assignment = by_hand.must_take()
        by_hand.clock.move_on(3600)
        assert by_hand.grab("w2") is None
        if is_hard:
            with pytest.raises(CleaningAborted, match="window"):
                by_hand.manager.check_done(assignment)
        else:
            by_hand.manager.check_done(assignment)
        assert by_hand.reasons()["b-0"] is Reason.WINDOW_CLOSED


def test_stop_sends_workers_home_and_stops_those_at_work(by_hand: ManagerByHand) -> None:
    """Nothing is begun any more."""
    by_hand.see(log_status("a-0"), log_status("b-0"))
    assignment = by_hand.must_take()
    by_hand.manager.stop()
    with pytest.raises(CleaningAborted, match="being stopped"):
        by_hand.manager.check_done(assignment)
    assert by_hand.manager.wait_for_work("w2") is None


def test_partition_in_two_log_dirs_is_left_alone_in_both(by_hand: ManagerByHand) -> None:
    """Nobody can tell which is the true one (D-14); a broker does not start on such log dirs."""
    there = log_status("a-0", 90, log_dir="/other", expired=True)
    by_hand.manager.take_looks({LOG_DIR: look(log_status("a-0", 80), log_status("b-0", 70)), "/other": look(there)})
    assert [by_hand.grab("w1"), by_hand.grab("w2")] == [B, None]
    words = [(log.why, log.error) for log, _ in by_hand.manager.snapshot().logs if log.partition == A]
    assert len(words) == 2
    assert all(f"a directory in {LOG_DIR} and /other: a broker" in error and error not in why for why, error in words)
    with pytest.raises(SteeringError, match="a broker would not start"):
        by_hand.manager.request(A, UID)


def test_worker_limit_of_a_log_dir_is_kept(tmp_path: Path) -> None:
    """Logs on different disks do not wait for each other, those on one do."""
    by_hand = ManagerByHand(tmp_path, CleanerConfig(log_dir_max_workers=1))
    logs = {
        LOG_DIR: look(log_status("a-0", 90), log_status("b-0", 80)),
        "/other": look(log_status("b-1", 70, log_dir="/other")),
    }
    by_hand.manager.take_looks(logs)
    assert [by_hand.grab("w1"), by_hand.grab("w2"), by_hand.grab("w3")] == [A, C, None]


def test_silent_worker_is_stuck(tmp_path: Path) -> None:
    """One that asks whether to go on, or tells how far it is, is not."""
    by_hand = ManagerByHand(tmp_path, CleanerConfig(stuck_ms=10_000))
    by_hand.see(log_status("a-0"))
    assignment = by_hand.must_take("w1")
    tell: list[Callable[[], None]] = [
        lambda: by_hand.manager.check_done(assignment),
        lambda: by_hand.manager.note_progress(assignment, "map", 1, 2),
    ]
    for move in tell:
        by_hand.clock.move_on(9)
        move()
        by_hand.clock.move_on(9)
        assert by_hand.manager.stuck() == []
    by_hand.clock.move_on(2)
    assert by_hand.manager.stuck() == ["w1: no progress for 11 s, at a-0"]


def test_retention_takes_idle_logs_and_gives_them_back(by_hand: ManagerByHand) -> None:
    """Neither a round nor another pass gets the log in that time (R-433)."""
    logs = [log_status("a-0", 60), log_status("b-0", 90), log_status("b-1", compacted=False)]
    by_hand.see(*logs)
    at_work = by_hand.must_take()
    assert at_work.log.partition == B
    assert by_hand.manager.take_for_retention(logs) == [A, C]
    assert by_hand.manager.take_for_retention(logs) == []
    assert by_hand.grab("w2") is None
    by_hand.manager.give_back_from_retention(A)
    by_hand.manager.give_back_from_retention(C)
    assert by_hand.grab("w2") is None
    by_hand.see(*logs)
    assert by_hand.grab("w2") == A


def test_partition_given_back_by_another_worker_is_a_mistake(by_hand: ManagerByHand) -> None:
    """It raises with the partition's history, so that the worker dies and is counted."""
    by_hand.see(log_status("a-0"))
    assignment = by_hand.must_take("w1")
    with pytest.raises(InvalidTransitionError):
        by_hand.manager.give_back(Assignment(assignment.log, "w2", False), None)


def test_quarantine_that_cannot_be_written_still_counts(tmp_path: Path) -> None:
    """A full state directory must not let a damaged log through."""

    class Full(FileSystem):
        def write_atomically(self, path: Path, data: bytes) -> None:
            raise NoSpaceError(path, len(data))

    by_hand = ManagerByHand(tmp_path)
    quarantine = Quarantine(Full(), tmp_path, by_hand.said.append)
    by_hand.manager = CleanerManager(
        by_hand.clock, quarantine, CleanerConfig(), wake=by_hand._wake, report=by_hand.said.append
    )
    by_hand.see(log_status("a-0"))
    by_hand.fail(by_hand.must_take(), CorruptBatchError(Path("/logs/a-0/0.log"), 7, "wrong CRC"))
    by_hand.see(log_status("a-0"))
    assert by_hand.grab() is None
    assert "the quarantine cannot be written" in by_hand.said[0]


@pytest.mark.parametrize("seed", range(20))
def test_random_days_keep_what_must_hold(tmp_path: Path, seed: int) -> None:
    """For any events in any order: no log is held twice, none without a holder, the manager stays consistent."""
    chance = random.Random(seed)
    by_hand = ManagerByHand(tmp_path, CleanerConfig(backoff_ms=5, configured_retry_max_ms=10))
    names = ["a-0", "b-0", "b-1", "c-0"]
    held: dict[str, Assignment] = {}
    errors: list[Exception | None] = [
        None,
        CleaningAborted("paused"),
        NoSpaceError(Path("/logs"), 2),
        LogDirLockedError("x"),
        LogDirOfflineError(Path("/logs"), OSError(errno.EIO, "x")),
    ]

    def steer() -> None:
        partition = TopicPartition.parse(chance.choice(names))
        scope = chance.choice([partition, partition.topic, None])
        manager = by_hand.manager
        wishes: list[Callable[[], object]] = [
            lambda: manager.pause(scope),
            lambda: manager.resume(scope),
            lambda: manager.request(partition, UID),
            lambda: manager.cancel(chance.randrange(1, 9)),
            lambda: manager.release(partition),
        ]
        try:
            chance.choice(wishes)()
        except SteeringError as refused:
            assert str(refused)

    for _ in range(400):
        step = chance.randrange(4)
        worker = f"w{chance.randrange(3)}"
        if step == 0:
            by_hand.see(*(log_status(name, chance.randrange(101)) for name in names if chance.random() < 0.9))
        elif step == 1 and worker not in held:
            assignment = by_hand.take(worker)
            if assignment is not None:
                held[worker] = assignment
        elif step == 2 and worker in held:
            error = chance.choice(errors)
            fault = None if error is None else judge_failure(error, Path(LOG_DIR))
            by_hand.manager.give_back(held.pop(worker), fault)
        else:
            steer()
        by_hand.clock.move_on(chance.random() / 100)
        check_manager(by_hand.manager)
        partitions = [assignment.log.partition for assignment in held.values()]
        assert len(set(partitions)) == len(partitions)
        assert len(by_hand.manager.snapshot().workers) == len(held)
