"""
A simulated week of the daemon's scheduling under load: no overdue log waits while a worker does anything less urgent.

Scanners, manager, choices and selection are the daemon's own; looks and rounds are simulated, and time is a number. At
each step of `log.cleaner.backoff.ms` segments have rolled and everything is looked at; rounds end in between.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.config.table import LONG_MAX
from cleaner.config.values import CleanerConfig
from cleaner.daemon.log_dir_watch import DirLook
from cleaner.daemon.log_status import LogStatus
from cleaner.daemon.manager import Assignment, CleanerManager
from cleaner.daemon.scanners import Scanners
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.selection_context import LogFacts
from cleaner.state.quarantine import Quarantine
from cleaner.storage.fs.file_system import FileSystem
from tests.support.manual_clock import ManualClock
from tests.unit.daemon.looks import LOG_DIR, look

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
WEEK_MS = 7 * 24 * HOUR_MS
MB = 1_000_000
LOAD = 3  # what rounds of one log read in a millisecond, bytes, on average


@dataclass
class LoadedLog:
    """A log that is written all the time: a segment of so many bytes is rolled at regular intervals."""

    partition: TopicPartition
    max_lag_ms: int
    segment_bytes: int
    roll_ms: int
    next_roll_ms: int
    most_clean_bytes: int
    clean_bytes: int = 0
    end: int = 0
    first_dirty: int = 0
    oldest_ms: list[int] = field(default_factory=list)  # of each dirty segment, its first record
    last_round_ms: int | None = None
    status: LogStatus | None = None

    @property
    def deadline_ms(self) -> int | None:
        """When it becomes overdue; None: never, as it is now."""
        return self.oldest_ms[0] + self.max_lag_ms if self.oldest_ms and self.max_lag_ms < LONG_MAX else None

    def waits_since_ms(self, now_ms: int) -> int | None:
        """Return since when it is overdue and no worker had it; None if it is not overdue."""
        deadline_ms = self.deadline_ms
        if deadline_ms is None or now_ms <= deadline_ms:
            return None
        return max(deadline_ms, self.last_round_ms or 0)

    def roll(self) -> None:
        """Begin a new segment."""
        self.oldest_ms.append(self.next_roll_ms - self.roll_ms)
        self.next_roll_ms += self.roll_ms
        self.end += 1
        self.status = None

    def clean(self, end: int, now_ms: int) -> None:
        """End a round that had this log up to a segment."""
        count = end - self.first_dirty
        del self.oldest_ms[:count]
        self.clean_bytes = min(self.most_clean_bytes, self.clean_bytes + count * self.segment_bytes // 2)
        self.first_dirty, self.last_round_ms, self.status = end, now_ms, None

    def seen(self) -> LogStatus:
        """Return it as a look would; the same object as long as it is the same."""
        if self.status is None:
            dirty = len(self.oldest_ms) * self.segment_bytes
            found = Cleanable(self.first_dirty, self.end, self.clean_bytes, dirty, 0, False, "active segment")
            oldest_ms = self.oldest_ms[0] if self.oldest_ms else None
            facts = LogFacts(self.partition, LOG_DIR, found, oldest_ms, 0.5, self.max_lag_ms)
            directory = Path(LOG_DIR) / str(self.partition)
            self.status = LogStatus(self.partition, LOG_DIR, directory, policy="compact", segments=3, facts=facts)
        return self.status


class SimulatedWeek:
    """The daemon's parts that choose, and workers that are names."""

    path = Path(LOG_DIR)
    progress = (0, 0)

    def __init__(self, state_dir: Path, logs: int, workers: int, bytes_per_ms: int, backoff_ms: int, seed: int) -> None:
        lot = random.Random(seed)
        self.clock = ManualClock()
        self.began_ms = self.clock.now_ms()
        self.backoff_ms, self.bytes_per_ms = backoff_ms, bytes_per_ms
        self.logs = {log.partition: log for log in (self._log(lot, number) for number in range(logs))}
        self.rolls = [(log.next_roll_ms, log.partition) for log in self.logs.values()]
        heapq.heapify(self.rolls)
        quarantine = Quarantine(FileSystem(), state_dir, lambda _: None)
        config = CleanerConfig(backoff_ms=backoff_ms)
        self.manager = CleanerManager(self.clock, quarantine, config, wake=lambda: None, report=lambda _: None)
        self.scanners = Scanners(self.clock)
        self.idle = [f"worker {number}" for number in range(workers)]
        self.rounds: list[tuple[int, str, Assignment, int]] = []  # when they end
        self.overdue: list[tuple[int, TopicPartition]] = []  # that wait, as of the last look
        self.late_ms: list[int] = []
        self.busy_ms = self.longest_ms = 0

    def _log(self, lot: random.Random, number: int) -> LoadedLog:
        max_lag_ms = lot.choice((LONG_MAX, LONG_MAX, 12 * HOUR_MS, 24 * HOUR_MS, 72 * HOUR_MS))
        roll_ms = min(lot.choice((2, 6, 12, 24, 48)) * HOUR_MS, max_lag_ms)  # as Kafka rolls
        size = lot.choice((1, 4, 16, 64)) * MB
        return LoadedLog(
            TopicPartition(f"topic-{number // 10}", number % 10),
            max_lag_ms,
            size,
            roll_ms,
            self.began_ms + lot.randrange(roll_ms),
            size * lot.choice((1, 4, 16)),
        )

    def look(self, now_ms: int) -> DirLook:
        """Be looked at."""
        return look(*(log.seen() for log in self.logs.values()), begun_ns=self.clock.monotonic_ns())

    def run(self, until_ms: int) -> None:
        """Let time pass, turn by turn."""
        try:
            while self.clock.now_ms() < self.began_ms + until_ms:
                self._turn()
                next_ms = self.clock.now_ms() + self.backoff_ms
                while self.rounds and self.rounds[0][0] <= next_ms:
                    self._end_round()
                    self._begin_rounds()
                self._move_to(next_ms)
        finally:
            self.scanners.close()

    def _move_to(self, moment_ms: int) -> None:
        self.clock.move_on((moment_ms - self.clock.now_ms()) / 1000)

    def _turn(self) -> None:
        now_ms = self.clock.now_ms()
        while self.rolls[0][0] <= now_ms:
            log = self.logs[self.rolls[0][1]]
            log.roll()
            heapq.heapreplace(self.rolls, (log.next_roll_ms, log.partition))
        self.manager.take_looks(self.scanners.look([self], now_ms))
        at_work = {assignment.log.partition for _, _, assignment, _ in self.rounds}
        found = ((log.waits_since_ms(now_ms), log.partition) for log in self.logs.values())
        self.overdue = [(since, name) for since, name in found if since is not None and name not in at_work]
        heapq.heapify(self.overdue)
        self._begin_rounds()

    def _begin_rounds(self) -> None:
        while self.idle:
            with self.manager._change:
                assignment = self.manager._assign(self.idle[-1])
            if assignment is None:
                assert not self.overdue, f"{len(self.idle)} workers idle, {self.overdue[0]} waits"
                return
            self._begin_round(self.idle.pop(), assignment)

    def _begin_round(self, worker: str, assignment: Assignment) -> None:
        now_ms, log = self.clock.now_ms(), self.logs[assignment.log.partition]
        if self.overdue:
            since_ms, first = self.overdue[0]
            mine_ms = log.waits_since_ms(now_ms)
            assert mine_ms is not None, f"{log.partition} before {first}, which is overdue since {now_ms - since_ms} ms"
            assert mine_ms <= since_ms, f"{log.partition}, then {first}, which waits longer"
            self.overdue.remove((mine_ms, log.partition))
            heapq.heapify(self.overdue)
            self.late_ms.append(now_ms - mine_ms)
        assert assignment.log.facts is not None
        weight = assignment.log.facts.cleanable
        takes_ms = 100 + (weight.clean_bytes + 2 * weight.cleanable_bytes) // self.bytes_per_ms
        self.busy_ms += takes_ms
        self.longest_ms = max(self.longest_ms, takes_ms)
        heapq.heappush(self.rounds, (now_ms + takes_ms, worker, assignment, weight.first_uncleanable_offset))

    def _end_round(self) -> None:
        ends_ms, worker, assignment, end = heapq.heappop(self.rounds)
        self._move_to(max(ends_ms, self.clock.now_ms()))
        self.logs[assignment.log.partition].clean(end, self.clock.now_ms())
        self.manager.give_back(assignment, None)
        self.idle.append(worker)


SHORT = pytest.param(600, 30 * MINUTE_MS, id="600 logs")
LONG = pytest.param(5000, 5 * MINUTE_MS, marks=pytest.mark.slow, id="5000 logs")


@pytest.mark.parametrize(("logs", "backoff_ms"), [SHORT, LONG])
@pytest.mark.parametrize(("share", "seed"), [(0.5, 1), (0.8, 2), (2.0, 3)])
def test_overdue_log_waits_for_nothing_that_is_less_urgent(
    tmp_path: Path, logs: int, backoff_ms: int, share: float, seed: int
) -> None:
    """
    It gets the next free worker, after those that wait longer, and no worker is idle; with capacity to spare it waits
    hardly longer than `max.compaction.lag.ms` allows: a turn, until it is seen, and the rounds that are going on.
    """
    workers = 4
    week = SimulatedWeek(tmp_path, logs, workers, max(1, round(logs * LOAD / workers / share)), backoff_ms, seed)
    week.run(WEEK_MS)
    used = week.busy_ms / WEEK_MS / workers
    assert len(week.late_ms) > logs, "most of the week's rounds were of overdue logs"
    if share < 1:
        assert used < 0.95
        assert max(week.late_ms) <= backoff_ms + 2 * week.longest_ms
    else:
        assert used > 0.95
    assert all(log.last_round_ms is not None for log in week.logs.values() if log.max_lag_ms < LONG_MAX)
