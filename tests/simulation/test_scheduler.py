"""The simulated threads: what they do to each other is what Python's own would, and every choice is the seed's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from cleaner.base import concurrency
from cleaner.log.work_threads import WorkThreads
from tests.simulation.primitives import Primitives
from tests.simulation.processes import Process
from tests.simulation.scheduler import Deadlock, Scheduler
from tests.simulation.world import World


def _world(seed: int, *, stretch: float = 2.0) -> tuple[Scheduler, Primitives, Callable[[Callable[[], Any]], None]]:
    scheduler = Scheduler(Random(seed), stretch=stretch, changes=3, expected_steps=50)
    primitives, process = Primitives(scheduler), Process("one")
    return scheduler, primitives, lambda run: (scheduler.spawn("thread", process, run), None)[1]


@pytest.mark.parametrize("stretch", [2.0, 0.0], ids=["random", "PCT"])
def test_threads_that_lock_in_opposite_orders_deadlock_in_some_seed(stretch: float) -> None:
    """And the report says who waits."""
    deadlocks = 0
    for seed in range(40):
        scheduler, primitives, spawn = _world(seed, stretch=stretch)
        first, second = primitives.Lock(), primitives.Lock()

        def take(one: Any, other: Any) -> None:
            with one, other:
                pass

        spawn(partial(take, first, second))
        spawn(partial(take, second, first))
        try:
            scheduler.run()
        except Deadlock as deadlock:
            deadlocks += 1
            assert str(deadlock).count("one/thread at acquire") == 2
    assert 0 < deadlocks < 40


def test_unlocked_count_loses_updates_in_some_seed_and_a_locked_one_in_none() -> None:
    """A lock excludes, and without it threads meet."""
    for is_locked in (True, False):
        lost = 0
        for seed in range(20):
            scheduler, primitives, spawn = _world(seed)
            lock, counts = primitives.RLock(), [0]

            def add(
                lock: Any = lock,
                counts: list[int] = counts,
                scheduler: Scheduler = scheduler,
                *,
                held: bool = is_locked,
            ) -> None:
                for _ in range(5):
                    if held:
                        lock.acquire()
                    before = counts[0]
                    scheduler.pause("between")
                    counts[0] = before + 1
                    if held:
                        lock.release()

            spawn(add)
            spawn(add)
            scheduler.run()
            lost += counts[0] != 10
        assert (lost == 0) == is_locked


def test_waits_end_at_their_simulated_time() -> None:
    """An hour takes no time, and the earlier timer comes first."""
    scheduler, primitives, spawn = _world(1)
    order: list[str] = []
    never = primitives.Event()
    spawn(lambda: order.append(f"late {never.wait(3600)}"))
    spawn(lambda: order.append(f"early {never.wait(60)}"))
    scheduler.run()
    assert order == ["early False", "late False"]
    assert 3600 < scheduler.now_ns() / 1e9 < 3601


def test_killed_process_unwinds_without_an_effect() -> None:
    """Its locks and waits raise again whatever it catches; another process goes on."""
    scheduler = Scheduler(Random(1), stretch=2.0)
    primitives, victim, other = Primitives(scheduler), Process("victim"), Process("other")
    done: list[str] = []
    lock = primitives.Lock()

    def hold() -> None:
        while True:
            try:
                primitives.Event().wait()
            except BaseException:  # noqa: BLE001 - as code that catches everything and goes on
                with lock:
                    done.append("after its death")

    def kill() -> None:
        scheduler.pause("before")
        victim.die()
        scheduler.bury(victim)
        with lock:
            done.append("other")

    scheduler.spawn("hold", victim, hold)
    scheduler.spawn("kill", other, kill)
    scheduler.run()
    assert done == ["other"]
    assert all(task.has_ended for task in scheduler.tasks)


def test_flush_threads_begun_by_two_callers_at_once_end_at_the_shutdown(tmp_path: Any) -> None:
    """Python starts a thread twice if two callers start it at the same time, and one of the two would never end."""
    for seed in range(30):
        world = World(seed, tmp_path)
        done: list[int] = []
        process, _ = world.process("one")
        with world.installed():

            def main(world: World = world, done: list[int] = done) -> None:
                threads = WorkThreads(3)
                callers = [
                    concurrency.Thread(target=lambda at=at: threads.submit(lambda: bool(done.append(at))))
                    for at in range(3)
                ]
                for caller in callers:
                    caller.start()
                for caller in callers:
                    caller.join()
                threads.shutdown()

            world.spawn(process, "main", main)
            world.scheduler.run()
        assert sorted(done) == [0, 1, 2]
