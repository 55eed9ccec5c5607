"""
A random week of two hundred logs: segments that roll, disks that fail, an operator who pauses, and a clock change.

The events are drawn once and are the same for every chooser; a chooser only decides which log is cleaned when. Time is
a number that goes up in steps of a quarter of an hour.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, cast
from zoneinfo import ZoneInfo

from cleaner.base.model import TopicPartition
from tests.reference.choices import Log, Name, World, cleanable_range

ZONE = ZoneInfo("Europe/Berlin")
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
STEP_MS = 15 * MINUTE_MS
# Monday; on Sunday the clocks leap from 02:00 to 03:00.
START_MS = int(datetime(2026, 3, 23, tzinfo=ZONE).timestamp()) * 1000
END_MS = START_MS + 7 * DAY_MS
WINDOWS = "22:00-06:00,12:00-13:30"
WINDOWS_FROM_MS = START_MS + 4 * DAY_MS
WORKERS = ("worker 1", "worker 2", "worker 3")
LOG_DIRS = ("/disk1", "/disk2", "/disk3")
LONG_MAX = 2**63 - 1
# Sizes in few steps, so that ratios are often equal.
SIZE_STEP = 1000


@dataclass
class WeekSegment:
    """A segment; its methods are those the product asks."""

    base_offset: int
    size: int
    first_ms: int
    largest_ms: int

    def first_batch_timestamp(self) -> int:
        return self.first_ms

    def largest_timestamp(self) -> int:
        return self.largest_ms


@dataclass
class WeekLog:
    """A log; `version` counts its changes."""

    partition: TopicPartition
    log_dir: str
    is_compacted: bool
    min_ratio: float
    min_lag_ms: int
    max_lag_ms: int
    age_of_records_ms: int
    segments: list[WeekSegment]
    checkpoint: int | None = None
    open_transaction: int | None = None
    attempts: int = 0
    version: int = 0
    log_start_offset: int = 0

    @property
    def log_end_offset(self) -> int:
        return self.segments[-1].base_offset + 5

    @property
    def high_watermark(self) -> int:
        return self.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark if self.open_transaction is None else self.open_transaction

    def roll(self, now_ms: int, size: int) -> None:
        """Close the active segment at its size and begin a new one."""
        self.segments[-1].size = size
        dated_ms = now_ms - self.age_of_records_ms if self.age_of_records_ms >= 0 else -1
        self.segments.append(WeekSegment(self.segments[-1].base_offset + 10, 0, dated_ms, max(dated_ms, 0)))
        self.version += 1

    def clean_up_to(self, end_offset: int) -> None:
        """Make what is below one segment of three fifths of the bytes."""
        below = [segment for segment in self.segments if segment.base_offset < end_offset]
        size = sum(segment.size for segment in below) * 3 // 5 // SIZE_STEP * SIZE_STEP
        first = WeekSegment(0, size, below[0].first_ms, max(segment.largest_ms for segment in below))
        self.segments = [first, *self.segments[len(below) :]]
        self.checkpoint = end_offset
        self.version += 1


class Chooser(Protocol):
    """Chooses logs, and is notified of the results."""

    def choose(self, world: World) -> Name | None: ...

    def look(self, world: World) -> None: ...

    def begun(self, name: Name, worker: str) -> None: ...

    def finished(self, name: Name, worker: str, outcome: str, now_ms: int) -> None: ...

    def paused(self, name: Name) -> None: ...

    def resumed(self, name: Name) -> None: ...

    def released(self, name: Name) -> None: ...


@dataclass(frozen=True)
class Choice:
    """A line of the table: which worker began which log when."""

    now_ms: int
    worker: str
    partition: Name


@dataclass
class Round:
    """A log at work."""

    log: WeekLog
    end_offset: int
    until_ms: int
    outcome: str


@dataclass
class Week:
    """A week drawn from a seed; run it once."""

    seed: int
    logs: int = 200
    rounds: dict[str, Round] = field(default_factory=dict)
    table: list[Choice] = field(default_factory=list)

    def __post_init__(self) -> None:
        lot = random.Random(self.seed)
        logs = [_log_by_lot(lot, number) for number in range(self.logs)]
        self.by_name: dict[Name, WeekLog] = {log.partition: log for log in logs}
        self.world = World(START_MS, cast("list[Log]", logs), max_workers={"/disk1": 2, "/disk2": 1})
        self.script = sorted(_script_by_lot(lot, logs), key=lambda line: line[0])
        self.is_aborted: set[Name] = set()
        self.skipped: set[int] = set()
        self.paused_at_work: dict[int, WeekLog] = {}

    def run(self, chooser: Chooser) -> list[Choice]:
        """Let it happen; at each step rounds end, then things happen, then free workers get logs."""
        for now_ms in range(START_MS, END_MS, STEP_MS):
            self.world.now_ms = now_ms
            self.world.is_window_open = now_ms < WINDOWS_FROM_MS or _is_in_windows(now_ms)
            self._end_rounds(chooser, now_ms)
            while self.script and self.script[0][0] <= now_ms:
                _, what, about, number = self.script.pop(0)
                self._happen(chooser, what, about, number)
            chooser.look(self.world)
            for worker in WORKERS:
                if worker not in self.rounds:
                    self._choose(chooser, worker)
        return self.table

    def _choose(self, chooser: Chooser, worker: str) -> None:
        name = chooser.choose(self.world)
        if name is None:
            return
        log = self.by_name[name]
        lot = random.Random(f"{self.seed} {name} {log.attempts}")
        log.attempts += 1
        _, end_offset = cleanable_range(cast("Log", log), self.world.now_ms)
        until_ms = self.world.now_ms + lot.choice((10, 15, 40, 70)) * MINUTE_MS
        outcome = lot.choices(("done", "no room", "damaged"), (90, 8, 2))[0]
        assert all(name != other.log.partition for other in self.rounds.values()), "two workers on one log"
        self.rounds[worker] = Round(log, end_offset, until_ms, outcome)
        self.table.append(Choice(self.world.now_ms, worker, name))
        if name in self.world.requests:
            self.world.requests.remove(name)
        chooser.begun(name, worker)

    def _end_rounds(self, chooser: Chooser, now_ms: int) -> None:
        for worker, ongoing in list(self.rounds.items()):
            name = ongoing.log.partition
            was_aborted = name in self.is_aborted
            if not was_aborted and now_ms < ongoing.until_ms:
                continue
            del self.rounds[worker]
            self.is_aborted.discard(name)
            outcome = "aborted" if was_aborted else ongoing.outcome
            if outcome == "done":
                ongoing.log.clean_up_to(ongoing.end_offset)
            chooser.finished(name, worker, outcome, now_ms)

    def _happen(self, chooser: Chooser, what: str, about: Name | str, number: int) -> None:
        if isinstance(about, tuple):
            self._happen_to_log(chooser, what, self.by_name[about], number)
        elif what == "pause one at work":
            free = [ongoing.log for ongoing in self.rounds.values() if ongoing.log.partition not in self.is_aborted]
            if free:
                self.paused_at_work[number] = free[0]
                self._happen_to_log(chooser, "pause", free[0], number)
        elif what == "resume it":
            if number in self.paused_at_work:
                self._happen_to_log(chooser, "resume", self.paused_at_work[number], number)
        elif what == "offline":
            self.world.offline.add(about)
        elif what == "online":
            self.world.offline.discard(about)
        elif what == "locked":
            self.world.locked_until_ms[about] = self.world.now_ms + number
        elif what == "all paused":
            self.world.is_paused = bool(number)
        else:
            assert what == "enabled", what
            self.world.is_enabled = bool(number)

    def _happen_to_log(self, chooser: Chooser, what: str, log: WeekLog, number: int) -> None:
        name = log.partition
        if what == "roll":
            log.roll(self.world.now_ms, number)
        elif what == "transaction":
            log.open_transaction = log.segments[-1].base_offset if number else None
            log.version += 1
        elif what == "request":
            if name not in self.world.requests:
                self.world.requests.append(name)
        elif what == "release":
            chooser.released(name)
        elif what == "pause" and name in self.is_aborted:
            self.skipped.add(number)
        elif what == "pause":
            if any(ongoing.log is log for ongoing in self.rounds.values()):
                self.is_aborted.add(name)
            chooser.paused(name)
        elif number not in self.skipped:
            assert what == "resume", what
            chooser.resumed(name)


def _is_in_windows(now_ms: int) -> bool:
    wall = datetime.fromtimestamp(now_ms / 1000, ZONE)
    minutes = wall.hour * 60 + wall.minute
    return wall.hour >= 22 or wall.hour < 6 or 12 * 60 <= minutes < 13 * 60 + 30


def _log_by_lot(lot: random.Random, number: int) -> WeekLog:
    return WeekLog(
        TopicPartition(f"topic{number % 40}", number // 40),
        lot.choice(LOG_DIRS),
        is_compacted=lot.random() < 0.95,
        min_ratio=lot.choice((0.0, 0.1, 0.5, 0.5, 0.9, 1.0)),
        min_lag_ms=lot.choice((0, 0, 0, 2 * HOUR_MS)),
        max_lag_ms=lot.choice((LONG_MAX, LONG_MAX, 6 * HOUR_MS, DAY_MS, 3 * DAY_MS)),
        # A few are fed with records of last year, a few with records without a time.
        age_of_records_ms=lot.choice((0, 0, 0, 0, HOUR_MS, HOUR_MS, 365 * DAY_MS, -1)),
        segments=[WeekSegment(0, 0, START_MS - DAY_MS, START_MS)],
    )


def _script_by_lot(lot: random.Random, logs: list[WeekLog]) -> list[tuple[int, str, Name | str, int]]:
    """Return what happens: when, what, to which log or log dir, and a number."""
    script: list[tuple[int, str, Name | str, int]] = []

    def moment(latest_ms: int = END_MS) -> int:
        return lot.randrange(START_MS, latest_ms)

    for log in logs:
        for _ in range(lot.choice((2, 8, 20, 40))):
            script.append((moment(), "roll", log.partition, lot.randrange(1, 6) * SIZE_STEP))
        if lot.random() < 0.2:
            begin = moment()
            script.append((begin, "transaction", log.partition, 1))
            script.append((begin + lot.randrange(2 * DAY_MS), "transaction", log.partition, 0))
    for number in range(150):
        name, begin = lot.choice(logs[:30]).partition, moment()
        script.append((begin, "pause", name, number))
        script.append((begin + lot.randrange(2 * STEP_MS, DAY_MS), "resume", name, number))
    for number in range(1000, 1060):
        begin = moment()
        script.append((begin, "pause one at work", "", number))
        script.append((begin + lot.randrange(2 * STEP_MS, DAY_MS), "resume it", "", number))
    for _ in range(60):
        script.append((moment(), "request", lot.choice(logs).partition, 0))
        script.append((moment(), "release", lot.choice(logs).partition, 0))
        script.append((moment(), "locked", lot.choice(LOG_DIRS), lot.randrange(HOUR_MS)))
    begin = moment(START_MS + 2 * DAY_MS)
    script += [(begin, "offline", "/disk3", 0), (begin + DAY_MS, "online", "/disk3", 0)]
    for what in ("enabled", "all paused"):
        begin = moment()
        script.append((begin, what, "", int(what == "all paused")))
        script.append((begin + 5 * HOUR_MS, what, "", int(what == "enabled")))
    return script
