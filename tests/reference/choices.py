"""
The scheduler's choices, the slow and obvious way: sections 4.2 to 4.5 and 7.2, read again and written from scratch.

Nothing is kept that can be counted anew: each question goes through all segments of a log. It knows of no state
machine, only of who works where, who was told to stop, and how many pauses are outstanding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

Name = tuple[str, int]


class Segment(Protocol):
    """A segment: offsets from its base on, bytes, and the times of its first batch and of its latest record."""

    base_offset: int
    size: int
    first_ms: int
    largest_ms: int


class Log(Protocol):
    """A log as it lies on disk, and its settings."""

    partition: Name
    log_dir: str
    segments: list[Segment]
    checkpoint: int | None
    last_stable_offset: int
    is_compacted: bool
    min_ratio: float
    min_lag_ms: int
    max_lag_ms: int


@dataclass
class World:
    """What an operator, the disks and the settings say at a moment."""

    now_ms: int
    logs: Sequence[Log]
    is_enabled: bool = True
    is_paused: bool = False
    is_window_open: bool = True
    offline: set[str] = field(default_factory=set)
    locked_until_ms: dict[str, int] = field(default_factory=dict)
    max_workers: dict[str, int] = field(default_factory=dict)
    requests: list[Name] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log_dirs = {log.partition: log.log_dir for log in self.logs}


def cleanable_range(log: Log, now_ms: int) -> tuple[int, int]:
    """Return first dirty and first uncleanable offset (R-405, R-406, R-408); the logs here begin at 0."""
    active = log.segments[-1].base_offset
    dirty = log.checkpoint or 0
    bound = min(active, log.last_stable_offset)
    for row, segment in enumerate(log.segments[:-1]):
        reaches_dirty = log.segments[row + 1].base_offset > dirty
        if log.min_lag_ms > 0 and reaches_dirty and segment.largest_ms > now_ms - log.min_lag_ms:
            bound = min(bound, segment.base_offset)
            break
    bound = max(dirty, bound)
    rounded = active
    for row in range(len(log.segments) - 2, -1, -1):
        if log.segments[row + 1].base_offset > bound:
            rounded = log.segments[row].base_offset
    return dirty, rounded


def ratio_and_bytes(log: Log, now_ms: int) -> tuple[float, int]:
    """Return the ratio, and the bytes that could be cleaned (R-409); rounds end at segments, so none counts twice."""
    dirty, end = cleanable_range(log, now_ms)
    clean = sum(segment.size for segment in log.segments if segment.base_offset < dirty)
    cleanable = sum(segment.size for segment in log.segments if dirty <= segment.base_offset < end)
    return (cleanable / (clean + cleanable) if clean + cleanable else 0.0), cleanable


def deadline_ms(log: Log) -> int | None:
    """Return the last moment at which the log is not yet overdue; None: it has no dirty segment with a time (R-415)."""
    dirty = log.checkpoint or 0
    times = [s.first_ms for s in log.segments[:-1] if s.base_offset >= dirty and s.first_ms > 0]
    return min(times) + log.max_lag_ms if times else None


class Twin:
    """
    The choices of one order, `kafka` or `deadline`.

    Args:
        order: which.
        first_delay_ms, longest_delay_ms: of retries.
    """

    def __init__(self, order: str, first_delay_ms: int, longest_delay_ms: int) -> None:
        self.order = order
        self.first_delay_ms = first_delay_ms
        self.longest_delay_ms = longest_delay_ms
        self.working: dict[Name, str] = {}
        self.told_to_stop: set[Name] = set()
        self.pauses: Counter[Name] = Counter()
        self.failures: Counter[Name] = Counter()
        self.failed_at_ms: dict[Name, int] = {}
        self.damaged: set[Name] = set()
        self.last_worked_ms: dict[Name, int] = {}

    def choose(self, world: World) -> Name | None:
        """Return the log to clean next; go through all, and keep one until a better one comes."""
        best: Log | None = None
        for log in world.logs:
            if not self.obstacles(log, world) and (best is None or self.is_better(log, best, world)):
                best = log
        return None if best is None else best.partition

    def obstacles(self, log: Log, world: World) -> set[str]:
        """Return all that holds a log, in no order."""
        name, now_ms = log.partition, world.now_ms
        ratio, cleanable = ratio_and_bytes(log, now_ms)
        is_due = cleanable > 0 and (self.is_overdue(log, now_ms) or ratio > log.min_ratio)
        is_asked_for = name in world.requests
        busy = sum(world.log_dirs[other] == log.log_dir for other in self.working)
        conditions: dict[str, Callable[[], bool]] = {
            "in_progress": lambda: name in self.working and name not in self.told_to_stop,
            "aborted": lambda: name in self.told_to_stop,
            "paused": lambda: self.pauses[name] > 0,
            "not_compacted": lambda: not log.is_compacted,
            "quarantined": lambda: name in self.damaged,
            "log_dir_offline": lambda: log.log_dir in world.offline,
            "all_paused": lambda: world.is_paused,
            "disabled": lambda: not world.is_enabled,
            "nothing_to_clean": lambda: cleanable == 0,
            "under_ratio": lambda: cleanable > 0 and not is_due and not is_asked_for,
            "window_closed": lambda: is_due and not world.is_window_open and not is_asked_for,
            "retry_later": lambda: is_due and now_ms < self.retry_at_ms(name) and not is_asked_for,
            "log_dir_locked": lambda: now_ms < world.locked_until_ms.get(log.log_dir, 0),
            "log_dir_busy": lambda: busy >= world.max_workers.get(log.log_dir, 10**9),
        }
        return {reason for reason, holds in conditions.items() if holds()}

    def is_better(self, log: Log, other: Log, world: World) -> bool:
        """Tell whether a log is to be cleaned before one that was given before it."""
        asked = [world.requests.index(x.partition) if x.partition in world.requests else None for x in (log, other)]
        if asked != [None, None]:
            return asked[0] is not None and (asked[1] is None or asked[0] < asked[1])
        overdue = [self.order == "deadline" and self.is_overdue(x, world.now_ms) for x in (log, other)]
        if overdue[0] != overdue[1]:
            return overdue[0]
        if all(overdue) and self.waits_since_ms(log) != self.waits_since_ms(other):
            return self.waits_since_ms(log) < self.waits_since_ms(other)
        return ratio_and_bytes(log, world.now_ms)[0] > ratio_and_bytes(other, world.now_ms)[0]

    def is_overdue(self, log: Log, now_ms: int) -> bool:
        """Tell whether the log's oldest dirty segment is past its maximum lag."""
        deadline = deadline_ms(log)
        return deadline is not None and now_ms > deadline

    def waits_since_ms(self, log: Log) -> int:
        """Return the moment from which an overdue log's waiting counts."""
        deadline = deadline_ms(log)
        assert deadline is not None
        return max(deadline, self.last_worked_ms.get(log.partition, deadline))

    def retry_at_ms(self, name: Name) -> int:
        """Return when a log may be tried again: twice as long after each failure."""
        if not self.failures[name]:
            return 0
        delay_ms = self.first_delay_ms
        for _ in range(self.failures[name] - 1):
            delay_ms = min(self.longest_delay_ms, delay_ms * 2)
        return self.failed_at_ms[name] + delay_ms

    def begun(self, name: Name, worker: str) -> None:
        """A worker has the log."""
        assert name not in self.working
        self.working[name] = worker

    def finished(self, name: Name, worker: str, outcome: str, now_ms: int) -> None:
        """A worker gives the log back: `done`, `aborted`, `no room` or `damaged`."""
        assert self.working.pop(name) == worker
        if name in self.told_to_stop:
            self.told_to_stop.remove(name)
            self.pauses[name] += 1
        self.last_worked_ms[name] = now_ms
        if outcome == "done":
            self.failures[name] = 0
        if outcome == "no room":
            self.failures[name] += 1
            self.failed_at_ms[name] = now_ms
        if outcome == "damaged":
            self.damaged.add(name)

    def paused(self, name: Name) -> None:
        """The operator pauses a log."""
        if name in self.working:
            self.told_to_stop.add(name)
        else:
            self.pauses[name] += 1

    def resumed(self, name: Name) -> None:
        """The operator takes a pause back."""
        self.pauses[name] -= 1

    def released(self, name: Name) -> None:
        """The operator takes a log out of quarantine."""
        self.damaged.discard(name)
