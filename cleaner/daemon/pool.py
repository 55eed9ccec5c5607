"""
The worker threads: each waits for a log, cleans it and gives it back; one that dies is logged, counted and replaced.

A round's errors never end a worker (`round_task.py`). Only an internal error outside of rounds does. If a cleaner's
only thread died silently, disks would fill up: see R-450 for Kafka's solution.
"""

from __future__ import annotations

from collections.abc import Callable

from cleaner.base import concurrency
from cleaner.daemon.faults import Ending, Fault
from cleaner.daemon.manager import Assignment, CleanerManager
from cleaner.daemon.round_task import RoundOutcome
from cleaner.errors import OutOfThreadsError

RunRound = Callable[[Assignment], RoundOutcome]


class WorkerPool:
    """
    Worker threads, as many as the settings say. Thread-safe.

    Args:
        manager: gives out logs.
        run_round: cleans one; raises nothing but internal errors.
        ended: called with each round, in its worker's thread, before the log is given back.
        died: called when a worker died, with its name and the error.
    """

    def __init__(
        self,
        manager: CleanerManager,
        run_round: RunRound,
        ended: Callable[[RoundOutcome], None],
        died: Callable[[str, BaseException], None],
    ) -> None:
        self._manager = manager
        self._run_round = run_round
        self._ended = ended
        self._died = died
        self._lock = concurrency.Lock()
        # All guarded by _lock.
        self._threads: dict[str, concurrency.Thread] = {}
        self._last_number = 0
        self._deaths = 0
        self._is_stopping = False

    @property
    def deaths(self) -> int:
        """How many workers died since the start."""
        with self._lock:
            return self._deaths

    @property
    def names(self) -> list[str]:
        """Return the names of the current workers."""
        with self._lock:
            return list(self._threads)

    def resize(self, count: int) -> None:
        """Change the number of workers: start new ones, or end the last ones as soon as they have no log."""
        with self._lock:
            for _ in range(count - len(self._threads)):
                self._begin()
            surplus = list(self._threads)[count:]
            for name in surplus:
                del self._threads[name]
        for name in surplus:
            self._manager.dismiss(name)

    def join(self, timeout: float) -> bool:
        """
        Wait for all workers to end, after `CleanerManager.stop`; False: some have not.

        Args:
            timeout: seconds, for each worker in turn.
        """
        with self._lock:
            self._is_stopping = True
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(timeout)
        return not any(thread.is_alive() for thread in threads)

    def _begin(self) -> None:
        self._last_number += 1
        name = f"cleaner-worker-{self._last_number}"
        thread = concurrency.Thread(target=self._run, args=(name,), name=name, daemon=True)
        thread.start()
        self._threads[name] = thread

    def _run(self, name: str) -> None:
        while True:
            try:
                while (assignment := self._manager.wait_for_work(name)) is not None:
                    self._work(assignment)
            except BaseException as error:  # noqa: BLE001 - the thread ends here in any case, but not silently
                self._died(name, error)
                if not self._replace(name):
                    continue
            return

    def _work(self, assignment: Assignment) -> None:
        """Clean a log, and give it back whatever happens."""
        fault: Fault | None = None
        note, found_nothing, horizons = "", False, None
        try:
            outcome = self._run_round(assignment)
            fault, note, horizons = outcome.fault, outcome.view.detail, outcome.horizons
            found_nothing = outcome.view.result == Ending.NOTHING.value
            self._ended(outcome)
        except BaseException as error:
            words = f"its worker died: {type(error).__name__}: {error}"
            fault = fault or Fault(Ending.RETRY, words, RuntimeError(words))
            raise
        finally:
            self._manager.give_back(assignment, fault, note, found_nothing=found_nothing, horizons=horizons)

    def _replace(self, name: str) -> bool:
        """Start a worker for one that died; False: no thread is left, so its own goes on."""
        with self._lock:
            self._deaths += 1
            if name in self._threads and not self._is_stopping:
                try:
                    self._begin()
                except OutOfThreadsError:
                    return False
            self._threads.pop(name, None)
            return True
