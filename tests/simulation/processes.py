"""
Simulated processes: what dies together.

A process has threads, open files, locks, and the state that the product keeps once in a process. Killed, it loses its
files and locks at once; each of its threads gets `Killed` at its next step, and nothing that it does on its way out has
an effect: every call of a file or a lock raises again.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from cleaner.storage.lock import byte_ranges, log_dir_lock
from tests.simulation.scheduler import Scheduler


class _Handle(Protocol):
    def close(self) -> None: ...


class Process:
    """
    One simulated process.

    Attributes:
        closed_in_order: it has done its work to the end.
        frozen_until_ns: stopped until then: each of its threads waits at its next call of a file.
        accidents: by how many more changes of files it makes before them.
        accidents_at_fences: by how many more fsyncs of a directory it begins before them; they come right before one.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.closed_in_order = False
        self.frozen_until_ns = 0
        self.accidents: list[tuple[int, Callable[[], None]]] = []
        self.accidents_at_fences: list[tuple[int, Callable[[], None]]] = []
        self._files: list[weakref.ref[Any]] = []  # a weak set costs ten times as much for each file that is opened
        self.locked: weakref.WeakSet[Any] = weakref.WeakSet()
        self.locks_of_ours: weakref.WeakSet[Any] = weakref.WeakSet()

    def has_changed_a_file(self) -> None:
        """Count a change, and have the accident happen whose turn it is."""
        self.accidents = _count_down(self.accidents)

    def begins_a_fence(self) -> None:
        """Count an fsync of a directory, and have the accident happen whose turn it is."""
        self.accidents_at_fences = _count_down(self.accidents_at_fences)

    def opened(self, file: _Handle) -> None:
        """Note an open file."""
        self._files.append(weakref.ref(file))

    def open_files(self) -> list[Any]:
        """Return the files that are open now."""
        there = [file() for file in self._files]
        return [file for file in there if file is not None and not file.is_closed]

    def die(self) -> None:
        """Lose all files and locks."""
        self.is_dead = True
        for file in [*self.open_files(), *self.locked]:
            with contextlib.suppress(OSError, ValueError):
                if hasattr(file, "handle"):
                    file.handle.close()
                else:
                    file.close()


def _count_down(accidents: list[tuple[int, Callable[[], None]]]) -> list[tuple[int, Callable[[], None]]]:
    """Have those happen whose turn it is; returns the others."""
    for left, accident in accidents:
        if left <= 0:
            accident()
    return [(left - 1, accident) for left, accident in accidents if left > 0]


class _PerProcess:
    """Stands for a set that the product keeps once in a process."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self._scheduler = scheduler
        self._name = name
        self._world: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def _own(self) -> weakref.WeakSet[Any]:
        task = self._scheduler.current
        return self._world if task is None else getattr(task.owner, self._name)  # type: ignore[no-any-return]

    def add(self, item: Any) -> None:
        self._own.add(item)

    def discard(self, item: Any) -> None:
        self._own.discard(item)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._own)


@contextlib.contextmanager
def state_per_process(scheduler: Scheduler) -> Iterator[None]:
    """Have each simulated process see its own of what the product keeps once in a process."""
    places = ((byte_ranges, "_locked", "locked"), (log_dir_lock, "_ours", "locks_of_ours"))
    before = [(module, name, getattr(module, name)) for module, name, _ in places]
    for module, name, own in places:
        setattr(module, name, _PerProcess(scheduler, own))
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
