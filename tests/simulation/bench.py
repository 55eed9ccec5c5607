"""What all processes of a world share: its logs, the truth about them, the operations that are left, the outcomes."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

from cleaner.base.model import TopicPartition
from cleaner.errors import CleanerError
from cleaner.log.manager import LogManager
from cleaner.log.record import ProducerStamp
from tests.simulation.disk import SimFiles
from tests.simulation.found import RoundBegun, Wrong
from tests.simulation.oracle import Oracle
from tests.simulation.plan import Operation, Plan
from tests.simulation.processes import Process
from tests.simulation.sent import Sent
from tests.simulation.topics import Topics
from tests.simulation.world import SimClock, World

_MOST_IN_A_SECOND = 10


class Kept(NamedTuple):
    """An append of an idempotent producer that was answered; `oracle`: of its topic."""

    stamp: ProducerStamp
    sent: list[Sent]
    oracle: Oracle


class Bench:
    """
    See the head of the file.

    Attributes:
        lacks_descriptors: nothing else has happened in this life that makes calls fail.
        index_dir: of key indexes; None: rounds read everything.
        is_served: readers ask `cleaner serve`.
        reads_within: see `Plan`.
        cleaned: the topics that the last round has cleaned.
        stopping: clients are to end.
        writer: whose log is open and loaded now.
        stops_clock: see `Plan`.
        holds_accidents: none may come now; they come later.
        begun: called with each operation's place in the plan when it begins.
        has_read: called when a reader has seen records.
        is_noting, has_noted: called before checkpoints are written, and when they were.
        has_deleted: called when a topic was deleted.
        has_failed: called when an operation of a client has failed.
        kept: each client's last append with a sequence, to be repeated in the next life.
        rounds_began: what was there when the last round began, of each topic.
    """

    def __init__(self, world: World, log_dir: Path, plan: Plan) -> None:
        self.world = world
        self.log_dir = log_dir
        self.settings = dict(plan.settings)
        self.index_dir = log_dir.parent / "index" if plan.has_index else None
        self.is_served = plan.is_served
        self.reads_within = plan.reads_within
        self.topics = Topics(log_dir, plan.topics, self.settings, self.clock.now_ms)
        self.kept: dict[int, Kept] = {}
        self._has_errors = False
        self._troubles = 0
        self.lacks_descriptors = False
        self.stopping = False
        self.holds_accidents = False
        self.operations: dict[int, deque[tuple[int, Operation]]] = {}
        for place, operation in enumerate(plan.operations):
            self.operations.setdefault(operation.client, deque()).append((place, operation))
        self.done = 0
        self._directories = 0
        self.outcomes: dict[str, int] = {}
        self.writer: Process | None = None
        self.stops_clock = plan.stops_clock
        self.begun: Any = lambda _place: None
        self.has_read: Any = lambda: None
        self.is_noting: Any = lambda: None
        self.has_noted: Any = lambda: None
        self.has_deleted: Any = lambda: None
        self.has_failed: Any = lambda: None
        self.rounds_began: dict[str, RoundBegun] = {}
        self.cleaned: set[str] = set()

    @property
    def clock(self) -> SimClock:
        """The machine's clock."""
        return self.world.clock

    @property
    def has_errors(self) -> bool:
        """Whether an accident that makes calls fail has happened in this life."""
        return self._has_errors

    @has_errors.setter
    def has_errors(self, has_errors: bool) -> None:
        self._has_errors = has_errors
        self._troubles += has_errors

    def is_troubled(self, topic: str) -> bool:
        """Tell whether calls for a topic may fail."""
        return self._has_errors or self.topics.is_damaged(topic)

    def calm(self) -> int:
        """Return a mark for `is_calm_since`: the work of another process may begin in one life and end in the next."""
        return self._troubles - self._has_errors

    def is_calm_since(self, mark: int) -> bool:
        """Tell whether no call had to fail at any time since a mark."""
        return self._troubles == mark

    def new_directory(self, kind: str) -> Path:
        """Return a path beside the log dir that no earlier rest had, even if no operation came between them."""
        self._directories += 1
        return self.log_dir.with_name(f"{kind}-{self._directories}")

    def directory(self, topic: str) -> Path:
        """Return a topic's directory."""
        return self.log_dir / str(TopicPartition(topic, 0))

    def damaged_bytes(self) -> dict[str, int]:
        """Return how many bytes of each topic's closed segments are damaged."""
        now = self.topics.now
        return {name: now[name].rots.damaged_bytes(self.directory(name)) for name in self.topics.names}

    def topic_of(self, client: int) -> str:
        """Return the topic that a client works on."""
        return self.topics.names[client % len(self.topics.names)]

    def count(self, what: str) -> None:
        """Count an outcome, for the report."""
        self.outcomes[what] = self.outcomes.get(what, 0) + 1

    def open(self, fs: SimFiles) -> LogManager:
        """Open the log for writing, in the calling thread's process."""
        log = EventLog(self, "writer")
        self.topics.opens()
        return LogManager(self.log_dir, self.settings, cleaner=False, clock=self.clock, fs=fs, logger=log)

    def loaded(self, manager: LogManager) -> list[str]:
        """
        Return the topics whose logs have been loaded.

        Raises:
            CleanerError: of a log that had to load.
        """
        failed = {partition.topic: error for partition, error in manager.failed.items()}
        for topic, error in failed.items():
            self.count(f"load: {type(error).__name__}")
            if not self.is_troubled(topic):
                raise error
        return [name for name in self.topics.names if name not in failed]


class EventLog:
    """Where a daemon or writer logs: an error that no accident explains fails the world."""

    def __init__(self, bench: Bench, name: str) -> None:
        self._bench = bench
        self._name = name
        self._often: dict[tuple[str, object], tuple[int, int]] = {}  # the last second of an event, how often in it

    def info(self, event: str, **_known: object) -> None:
        """Count it."""
        self._bench.count(f"{self._name}: {event.partition(':')[0]}")  # without a path of this process

    def warning(self, event: str, **known: object) -> None:
        """Count it; the same one of a log again and again, without a pause, fails the world."""
        self.info(event)
        about = (event, known.get("partition"))
        now = self._bench.clock.monotonic_ns() // 1_000_000_000
        then, count = self._often.get(about, (now, 0))
        self._often[about] = (now, count + 1 if now == then else 1)
        if self._often[about][1] > _MOST_IN_A_SECOND:
            raise Wrong(f"{event}: logged {self._often[about][1]} times in a second")

    def error(self, event: str, **known: object) -> None:
        """Count it, or fail."""
        self.warning(event, **known)
        task = self._bench.world.scheduler.current
        if task is None or task.owner.is_dead:
            return
        error = known.get("exc_info")
        if isinstance(error, CleanerError | OSError) or self._bench.has_errors:
            return
        if isinstance(error, Exception):
            raise Wrong(f"{event}: {error!r}") from error
