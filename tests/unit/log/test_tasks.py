"""Tasks run at their intervals, or earlier when they are due earlier."""

from __future__ import annotations

from collections.abc import Callable

from cleaner.log.tasks import PeriodicTask, Tasks
from tests.support.manual_clock import ManualClock

_NEVER_MS = 2**63 - 1


def _fail(name: str, error: Exception) -> None:
    raise AssertionError(name) from error


def _note(done: list[str], name: str) -> Callable[[], None]:
    return lambda: done.append(name)


def test_tasks_are_run_by_their_delays_and_intervals() -> None:
    """In the given order if several are due; a turn returns the time until the next one."""
    clock, done = ManualClock(), list[str]()
    tasks = Tasks(
        clock, [PeriodicTask("a", _note(done, "a"), 100, 0), PeriodicTask("b", _note(done, "b"), 250, 200)], _fail
    )
    assert (tasks.turn(), done) == (0.1, ["a"])
    clock.move_on(0.1)
    assert (tasks.turn(), done) == (0.1, ["a", "a"])
    clock.move_on(0.1)
    assert (tasks.turn(), done) == (0.1, ["a", "a", "a", "b"])
    clock.move_on(0.25)
    tasks.turn()
    assert done == ["a", "a", "a", "b", "a", "b"]


def test_task_that_is_due_sooner_is_run_then() -> None:
    """For example a flush whose time has come."""
    clock, done = ManualClock(), list[str]()
    due: list[int | None] = [None]

    def run() -> None:
        done.append("flush")
        due[0] = None

    tasks = Tasks(clock, [PeriodicTask("flush", run, _NEVER_MS, _NEVER_MS, lambda: due[0])], _fail)
    assert tasks.turn() > 1e9
    due[0] = 3_000_000_000
    assert tasks.turn() == 3.0
    clock.move_on(3)
    assert tasks.turn() > 1e9
    assert done == ["flush"]


def test_failed_task_is_reported_and_holds_up_no_other() -> None:
    """It gets its next turn after its interval."""
    clock, done = ManualClock(), list[str]()
    failures: list[str] = []

    def fail() -> None:
        raise RuntimeError("no luck")

    tasks = Tasks(
        clock,
        [PeriodicTask("bad", fail, 1000, 0), PeriodicTask("good", _note(done, "good"), 1000, 0)],
        lambda name, error: failures.append(f"{name}: {error}"),
    )
    tasks.turn()
    clock.move_on(0.5)
    tasks.turn()
    assert (failures, done) == (["bad: no luck"], ["good"])
    clock.move_on(0.5)
    tasks.turn()
    assert (failures, done) == (["bad: no luck"] * 2, ["good"] * 2)


def test_failed_task_that_stays_due_is_tried_again_after_a_second() -> None:
    """For example the removal of files that cannot be removed now: the thread is not busy with it."""
    clock, failures = ManualClock(), list[str]()

    def fail() -> None:
        raise ValueError("no")

    tasks = Tasks(
        clock,
        [PeriodicTask("removal", fail, _NEVER_MS, _NEVER_MS, lambda: 0)],
        lambda name, _error: failures.append(name),
    )
    assert tasks.turn() == 1.0
    assert tasks.turn() == 1.0
    assert failures == ["removal"]
    clock.move_on(1)
    assert (tasks.turn(), failures) == (1.0, ["removal", "removal"])


def test_interval_of_nothing_lets_other_tasks_have_their_turn() -> None:
    """Kafka's settings allow an interval of 0."""
    clock, done = ManualClock(), list[str]()
    tasks = Tasks(clock, [PeriodicTask("a", _note(done, "a"), 0, 0), PeriodicTask("b", _note(done, "b"), 0, 0)], _fail)
    tasks.turn()
    assert done == ["a", "b"]
