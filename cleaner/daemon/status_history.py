"""
Data kept only to be shown: the last rounds, sums, the last turn, and since when log dirs have had their condition.

A `ServiceSnapshot` is made from it and from the state of the daemon's parts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cleaner.app.configuration import Loaded
from cleaner.app.reports import SUMS
from cleaner.base import concurrency
from cleaner.base.clock import Clock
from cleaner.base.io_throttle import IoThrottle
from cleaner.base.model import TopicPartition
from cleaner.cleaning.round.memory_budget import MemoryBudget
from cleaner.daemon.faults import Ending
from cleaner.daemon.forecast import Meter
from cleaner.daemon.manager_snapshot import ManagerSnapshot
from cleaner.daemon.round_task import RoundOutcome
from cleaner.daemon.snapshot import ConfigView, Histogram, LogView, RoundView, ServiceSnapshot, TopicTotals
from cleaner.daemon.views import LogDirHistory, LogViews, throttle_view, worker_views
from cleaner.policy.selection_context import LogDirFacts
from cleaner.state.quarantine import Quarantine
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.memory_limits import anonymous_bytes

# A round of a small log takes milliseconds, one of 500 GB an hour.
ROUND_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)


class Totals:
    """Sums of the work since the process started, by topic, and how long rounds took. Used by one thread at a time."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicTotals] = {}
        self._counts = [0] * (len(ROUND_SECONDS) + 1)
        self._seconds = 0.0
        self._ended_ms: int | None = None

    def add_round(self, view: RoundView) -> None:
        """Add a round that ended, whether it succeeded or failed."""
        is_good = view.result in (Ending.DONE.value, Ending.NOTHING.value)
        totals = self._topics.get(view.partition.topic, TopicTotals())
        self._topics[view.partition.topic] = replace(
            totals,
            rounds=_added(totals.rounds, {view.result: 1}),
            **{name: getattr(totals, name) + getattr(view, name) for name in SUMS},
            removed=_added(totals.removed, view.removed),
            last_success_ms=view.ended_ms if is_good else totals.last_success_ms,
        )
        if is_good:
            self._counts[bisect_left(ROUND_SECONDS, view.seconds)] += 1
            self._seconds += view.seconds
            self._ended_ms = view.ended_ms

    def add_retention(self, topic: str, segments: int, size: int) -> None:
        """Add what a retention pass deleted of one log."""
        totals = self._topics.get(topic, TopicTotals())
        self._topics[topic] = replace(
            totals,
            retention_segments=totals.retention_segments + segments,
            retention_bytes=totals.retention_bytes + size,
        )

    def topics(self) -> dict[str, TopicTotals]:
        """Return the sums of each topic with any work."""
        return dict(self._topics)

    def round_seconds(self) -> Histogram:
        """Return the durations of successful rounds."""
        return Histogram(ROUND_SECONDS, tuple(self._counts), self._seconds)

    @property
    def ended_ms(self) -> int | None:
        """When the last successful round ended."""
        return self._ended_ms


def _added(sums: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {name: sums.get(name, 0) + more.get(name, 0) for name in {**sums, **more}}


ROUNDS_SHOWN = 50


@dataclass(frozen=True)
class Turn:
    """
    The scheduler's last turn.

    Attributes:
        ended_ms, ended_ns: when it ended, by both clocks.
        seconds: how long it took.
        next_ms: when the next one comes, unless something wakes the scheduler.
    """

    ended_ms: int
    ended_ns: int
    seconds: float
    next_ms: int


class StatusHistory:
    """
    See the head of the file. Thread-safe.

    Args:
        fs, clock: the disk and the time.
        version: of the program.
        settings: those in force at the start.
        quarantine, throttle: shown as they are.
    """

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        version: str,
        settings: Loaded,
        quarantine: Quarantine,
        throttle: IoThrottle,
    ) -> None:
        self._fs = fs
        self._clock = clock
        self._version = version
        self._quarantine = quarantine
        self._throttle = throttle
        self._started_ms = clock.now_ms()
        self._lock = concurrency.Lock()
        # The fields below are guarded by _lock.
        self._totals = Totals()
        self._config = _config_view(settings, self._started_ms)
        self._needed_bytes = MemoryBudget.of(settings.config).total
        self._rounds: deque[RoundView] = deque(maxlen=ROUNDS_SHOWN)
        self._rates: dict[Path | None, float] = {}
        self._turn: Turn | None = None
        self._history = LogDirHistory()
        self._log_views = LogViews()
        self._meter = Meter()

    def note_turn(self, turn: Turn) -> None:
        """Take note of a turn that ended."""
        with self._lock:
            self._turn = turn

    @property
    def turn(self) -> Turn | None:
        """The last turn; None before the first has ended."""
        with self._lock:
            return self._turn

    def note_round(self, outcome: RoundOutcome) -> None:
        """Take note of a round that ended."""
        with self._lock:
            self._totals.add_round(outcome.view)
            self._rounds.appendleft(outcome.view)
            self._meter.note_round(outcome.view)

    def note_retention(self, topic: str, segments: int, size: int) -> None:
        """Take note of what a retention pass deleted of one log."""
        with self._lock:
            self._totals.add_retention(topic, segments, size)

    def note_conditions(self, log_dirs: Mapping[str, LogDirFacts]) -> list[str]:
        """Take note of the log dirs' conditions; returns the log dirs whose condition has changed."""
        with self._lock:
            return self._history.note(log_dirs, self._clock.now_ms())

    def note_rate(self, bytes_per_second: float, log_dir: Path | None) -> None:
        """Take note of a speed limit, of all workers (None) or of a log dir."""
        with self._lock:
            if self._rates.get(log_dir) != bytes_per_second:
                self._meter.forget()
            self._rates[log_dir] = bytes_per_second

    def prepare(self, known: ManagerSnapshot) -> None:
        """Make the views of all logs after a look, so that the next reader finds them ready, and take a sample."""
        now_ms, now_ns = self._clock.now_ms(), self._clock.monotonic_ns()
        charged = self._throttle.statistics().bytes
        seen = frozenset(path for path, look in known.looks.items() if look.looked_at_ms is not None)
        with self._lock:
            _, counts = self._log_views.of(known)
            self._meter.sample(seen, counts, known.workers, charged, now_ms, now_ns)

    def note_settings(self, settings: Loaded, needs_restart: tuple[str, ...]) -> None:
        """Take note of a reload that succeeded."""
        with self._lock:
            self._config = replace(_config_view(settings, self._clock.now_ms()), needs_restart=needs_restart)
            # Some settings wait for a restart, and memory needed before may stay in use.
            self._needed_bytes = max(self._needed_bytes, MemoryBudget.of(settings.config).total)

    def note_refused_settings(self, errors: tuple[str, ...]) -> None:
        """Take note of a reload that was refused."""
        with self._lock:
            self._config = replace(self._config, is_last_reload_good=False, errors=errors)

    def snapshot(
        self, state: str, known: ManagerSnapshot, stuck: tuple[str, ...], workers: tuple[list[str], int]
    ) -> ServiceSnapshot:
        """
        Make a snapshot.

        Args:
            state: of the service.
            known: the manager's state.
            stuck: workers and scheduler that make no progress.
            workers: their names, and how many have died.
        """
        now_ms = self._clock.now_ms()
        names, deaths = workers
        quarantine = tuple(self._quarantine.entries())
        with self._lock:
            logs, counts = self._log_views.of(known)
            topics, round_seconds, ended_ms = self._totals.topics(), self._totals.round_seconds(), self._totals.ended_ms
            config, turn = self._config, self._turn
            needed_bytes = self._needed_bytes
            rounds = tuple(self._rounds)
            limit = throttle_view(self._throttle, {str(path): rate for path, rate in self._rates.items() if path})
            shown_workers = worker_views(names, known.workers, now_ms)
            forecast = self._meter.forecast(
                counts, shown_workers, limit.bytes, limit.bytes_per_second, now_ms, self._clock.monotonic_ns()
            )
            log_dirs = tuple(
                self._history.view(path, look, known.log_dirs[path], quarantine, now_ms)
                for path, look in known.looks.items()
            )
        # Verdicts are kept from turn to turn, with the time of the turn that judged them.
        logs = tuple(view.at(now_ms) for view in logs)
        counts = counts.at(logs)
        return ServiceSnapshot(
            version=self._version,
            now_ms=now_ms,
            started_ms=self._started_ms,
            state=state,
            is_ready=state == "running",
            turn_ended_ms=turn.ended_ms if turn else None,
            turn_seconds=turn.seconds if turn else None,
            next_turn_ms=turn.next_ms if turn else None,
            is_progressing=not stuck,
            stuck=stuck,
            config=config,
            throttle=limit,
            logs=logs,
            log_dirs=log_dirs,
            workers=shown_workers,
            worker_deaths=deaths,
            counts=counts,
            forecast=forecast,
            queue=_queue(logs),
            quarantine=quarantine,
            retries=known.retries,
            jobs=known.jobs,
            rounds=rounds,
            pauses=known.pauses,
            opens_at_ms=known.opens_at_ms,
            topics=topics,
            round_seconds=round_seconds,
            waiting_removals=sum(log.deleted_files for log, _ in known.logs),
            open_files=len(self._fs.list_dir(Path("/proc/self/fd"))),
            ended_ms=ended_ms,
            anonymous_bytes=anonymous_bytes(self._fs),
            needed_bytes=needed_bytes,
        )


def _queue(logs: Iterable[LogView]) -> tuple[TopicPartition, ...]:
    """Return the logs that only wait for a worker, in order."""
    places = [(view.verdict.place, view.partition) for view in logs if view.verdict and view.verdict.place is not None]
    return tuple(partition for _, partition in sorted(places))


def _config_view(settings: Loaded, now_ms: int) -> ConfigView:
    return ConfigView(None if settings.file is None else str(settings.file), now_ms, values=settings.rows())
