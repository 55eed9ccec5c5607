"""Worker threads: a log is always given back, and a worker that dies is reported, counted and replaced."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cleaner.config.values import CleanerConfig
from cleaner.daemon.faults import Ending
from cleaner.daemon.manager import Assignment, CleanerManager
from cleaner.daemon.pool import WorkerPool
from cleaner.daemon.round_task import RoundOutcome
from cleaner.daemon.snapshot import RoundView
from cleaner.errors import OutOfThreadsError
from cleaner.state.quarantine import Quarantine
from cleaner.storage.fs.file_system import FileSystem
from tests.support.invariants import check_manager
from tests.support.manual_clock import ManualClock
from tests.support.no_threads import start_no_more_threads
from tests.unit.daemon.looks import LOG_DIR, log_status, look

WAIT_SECONDS = 20  # only ever waited for in full by a test that fails


def good(assignment: Assignment) -> RoundOutcome:
    """A round that does nothing."""
    view = RoundView(assignment.log.partition, LOG_DIR, assignment.worker, Ending.DONE.value, "", 0, 0.0)
    return RoundOutcome(view, None)


class Hall:
    """A manager, a pool, and an event for each round that was given back."""

    def __init__(
        self,
        tmp_path: Path,
        run_round: Callable[[Assignment], RoundOutcome],
        ended: Callable[[RoundOutcome], None] = lambda _: None,
    ) -> None:
        self.clock = ManualClock()
        self.given_back = threading.Semaphore(0)
        self.deaths: list[tuple[str, BaseException]] = []
        quarantine = Quarantine(FileSystem(), tmp_path, print)
        self.manager = CleanerManager(
            self.clock, quarantine, CleanerConfig(), wake=self.given_back.release, report=lambda _: None
        )
        self.pool = WorkerPool(self.manager, run_round, ended, lambda name, error: self.deaths.append((name, error)))

    def see(self, *names: str) -> None:
        self.clock.move_on(1)
        self.manager.take_looks({LOG_DIR: look(*map(log_status, names), begun_ns=self.clock.monotonic_ns())})

    def wait(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            assert self.given_back.acquire(timeout=WAIT_SECONDS)

    def close(self) -> None:
        self.manager.stop()
        assert self.pool.join(WAIT_SECONDS)
        check_manager(self.manager)
        assert self.manager.is_idle


def test_workers_clean_everything_that_is_due(tmp_path: Path) -> None:
    """Each log once, by as many threads as there are."""
    cleaned = []
    hall = Hall(tmp_path, good, ended=lambda outcome: cleaned.append(str(outcome.view.partition)))
    hall.see("a-0", "b-0", "c-0", "d-0")
    hall.pool.resize(2)
    hall.wait(4)
    hall.close()
    assert sorted(cleaned) == ["a-0", "b-0", "c-0", "d-0"]
    assert hall.deaths == []


def test_round_without_work_asks_for_no_turn(tmp_path: Path) -> None:
    """A log that looks due and is not would otherwise be looked at and loaded without end."""
    ended = threading.Event()

    def nothing(assignment: Assignment) -> RoundOutcome:
        outcome = good(assignment)
        return replace(outcome, view=replace(outcome.view, result=Ending.NOTHING.value))

    hall = Hall(tmp_path, nothing, ended=lambda _: ended.set())
    hall.see("a-0")
    hall.pool.resize(1)
    assert ended.wait(WAIT_SECONDS)
    hall.close()
    assert not hall.given_back.acquire(blocking=False)


@pytest.mark.parametrize("where", ["in the round", "after the round"])
def test_dead_worker_is_replaced_and_its_log_given_back(tmp_path: Path, where: str) -> None:
    """It is reported with its error; a log whose round was lost is tried again later, the others at once."""
    fatal = RuntimeError("an internal error")
    killed = []

    def die_once(assignment: Assignment) -> RoundOutcome:
        if str(assignment.log.partition) == "a-0" and where == "in the round":
            killed.append(assignment.worker)
            raise fatal
        return good(assignment)

    def ended(outcome: RoundOutcome) -> None:
        if str(outcome.view.partition) == "a-0":
            killed.append(outcome.view.worker)
            raise fatal

    hall = Hall(tmp_path, die_once, ended)
    hall.see("a-0", "b-0")
    hall.pool.resize(1)
    hall.wait(2)
    hall.close()
    assert hall.deaths == [(killed[0], fatal)]
    assert hall.pool.deaths == 1
    assert killed[0] not in hall.pool.names
    assert [str(partition) for partition in hall.manager.snapshot().retries] == ["a-0"]


def test_worker_that_nothing_can_replace_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system has no thread left: without it nothing would be cleaned any more."""

    def die_once(assignment: Assignment) -> RoundOutcome:
        if not hall.pool.deaths:
            raise RuntimeError("an internal error")
        return good(assignment)

    hall = Hall(tmp_path, die_once)
    hall.pool.resize(1)
    start_no_more_threads(monkeypatch)
    hall.see("a-0", "b-0")
    hall.wait(2)
    assert (len(hall.deaths), hall.pool.deaths, len(hall.pool.names)) == (1, 1, 1)
    with pytest.raises(OutOfThreadsError, match="no thread is left"):
        hall.pool.resize(2)
    hall.close()


def test_even_the_end_of_the_interpreter_gives_a_log_back(tmp_path: Path) -> None:
    """SystemExit is no Exception, and ends a thread silently unless it is caught."""

    def leave(_: Assignment) -> RoundOutcome:
        raise SystemExit(3)

    hall = Hall(tmp_path, leave)
    hall.see("a-0")
    hall.pool.resize(1)
    hall.wait()
    hall.close()
    assert isinstance(hall.deaths[0][1], SystemExit)


def test_pool_grows_and_shrinks(tmp_path: Path) -> None:
    """A reload changes the number of threads; one at work finishes its round first."""
    go, at_work = threading.Event(), threading.Semaphore(0)

    def wait_then(assignment: Assignment) -> RoundOutcome:
        at_work.release()
        assert go.wait(WAIT_SECONDS)
        return good(assignment)

    hall = Hall(tmp_path, wait_then)
    hall.see("a-0", "b-0", "c-0")
    hall.pool.resize(3)
    for _ in range(3):
        assert at_work.acquire(timeout=WAIT_SECONDS)
    hall.pool.resize(1)
    assert len(hall.pool.names) == 1
    assert len(hall.manager.snapshot().workers) == 3
    go.set()
    hall.wait(3)
    hall.see("a-0", "b-0")
    hall.wait(2)
    hall.close()
