"""
The daemon's state at one moment: frozen values, made by the service, for everything that shows status.

The page, the metrics, `cleaner status` and the dump on SIGUSR1 all use one `ServiceSnapshot`. It contains no byte of
any record's key or value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from cleaner.app.plan_report import SettingInForce
from cleaner.base.model import TopicPartition
from cleaner.policy.cleaning_status import CleaningStatus
from cleaner.policy.reasons import Reason
from cleaner.policy.retry import Retry
from cleaner.policy.sections import Sections
from cleaner.policy.selection_context import DirCondition
from cleaner.state.quarantine import QuarantinedLog


@dataclass(frozen=True, slots=True)
class LogView:
    """
    One log.

    Attributes:
        partition, log_dir: which.
        policy, policy_origin: `cleanup.policy` and where it comes from.
        segments: how many.
        sections: None if the log could not be read.
        verdict: why it is next, waits or is not to be cleaned; None if its policy forbids cleaning or it could not be
            looked at: then `why` says so.
        why: one line for the operator; never empty.
        error: why it cannot be read; empty if it can.
        last_round_ms: when its last round ended, wall clock; None: not in this process.
        warnings: of its settings.
        settings: its topic's settings that affect cleaning, if they were asked for; otherwise empty.
        held_by: why it has no verdict; None: it has one.
    """

    JSON_PROPERTIES: ClassVar[tuple[str, ...]] = ("ratio", "standing")

    partition: TopicPartition
    log_dir: str
    policy: str
    policy_origin: str
    segments: int
    sections: Sections | None
    verdict: CleaningStatus | None
    why: str
    error: str = ""
    last_round_ms: int | None = None
    warnings: tuple[str, ...] = ()
    settings: tuple[SettingInForce, ...] = ()
    held_by: Reason | None = None

    @property
    def ratio(self) -> float | None:
        """The dirty ratio; None without a verdict."""
        return self.verdict.cleanable.ratio if self.verdict is not None else None

    @property
    def reason(self) -> Reason:
        """Its verdict's reason, or why it has no verdict."""
        if self.verdict is not None:
            return self.verdict.reason
        # A daemon before 0.2.0 does not say.
        return self.held_by or (Reason.UNREADABLE if self.error else Reason.NOT_COMPACTED)

    @property
    def standing(self) -> str:
        """The code of its reason, by which logs are counted everywhere."""
        return self.reason.value

    @property
    def overdue_ms(self) -> int:
        """By how much it is over its maximum lag, whatever holds it; 0: it is not, or its numbers are out of date."""
        verdict = self.verdict
        # A log that was given back still has its old numbers.
        if verdict is None or verdict.dueness is not Reason.OVERDUE or verdict.reason is Reason.TO_BE_LOOKED_AT:
            return 0
        return verdict.overdue_ms

    def at(self, now_ms: int) -> LogView:
        """Return it with its verdict's times counted from a later moment."""
        verdict = None if self.verdict is None else self.verdict.at(now_ms)
        if verdict is None or verdict is self.verdict:
            return self
        return replace(self, verdict=verdict, why=verdict.words())


_ALSO_DUE = (Reason.IN_PROGRESS, Reason.LOG_DIR_BUSY)
"""
Due besides the logs that only wait for a worker: logs of workers, and logs whose log dir has all its workers busy.
"""


_MAX_ERRORS = 5


@dataclass(frozen=True, slots=True)
class UnreadableLogs:
    """
    Logs that cannot be read for the same reason.

    Attributes:
        error: the reason.
        count: how many.
        first: one of them.
    """

    error: str
    count: int
    first: TopicPartition


@dataclass(frozen=True, slots=True)
class Counts:
    """
    Counts of logs by state. Page, metrics, `cleaner status`, JSON and the dump all show these numbers.

    Attributes:
        logs: all of them.
        standings: the number of logs for each `LogView.standing`.
        waiting: logs that only wait for a worker; the queue's length.
        in_progress: logs that a worker has, whether or not it was asked to stop.
        due: logs that are due and wait for a worker, or have one; not logs that something else holds back.
        due_bytes, work_bytes: the bytes of their dirty sections, and the bytes that rounds read of them in both passes.
        dirty_bytes: of all dirty sections, due or not.
        overdue, max_overdue_ms: logs over their maximum lag, even if something else holds them back, and the largest
            excess.
        dirtiest, dirtiest_ratio: the dirtiest log that may be cleaned, due or not (R-422); None: none is dirty.
        unreadable: why logs cannot be read, the most frequent reasons first, at most five.
    """

    logs: int = 0
    standings: Mapping[str, int] = field(default_factory=dict)
    waiting: int = 0
    in_progress: int = 0
    due: int = 0
    due_bytes: int = 0
    work_bytes: int = 0
    dirty_bytes: int = 0
    overdue: int = 0
    max_overdue_ms: int = 0
    dirtiest: TopicPartition | None = None
    dirtiest_ratio: float = 0.0
    unreadable: tuple[UnreadableLogs, ...] = ()

    def at(self, logs: Sequence[LogView]) -> Counts:
        """Return the counts of the same logs at a later moment."""
        return replace(self, max_overdue_ms=max(view.overdue_ms for view in logs)) if self.overdue else self

    @staticmethod
    def of(logs: Sequence[LogView]) -> Counts:
        """Count."""
        standings = Counter(view.standing for view in logs)
        # A log that was given back still has its old numbers.
        judged = [view.verdict for view in logs if view.verdict and view.verdict.reason is not Reason.TO_BE_LOOKED_AT]
        due = [verdict.cleanable for verdict in judged if verdict.reason.is_due_and_free or verdict.reason in _ALSO_DUE]
        due_bytes = sum(cleanable.cleanable_bytes for cleanable in due)
        overdue = [excess_ms for view in logs if (excess_ms := view.overdue_ms)]
        dirty = (verdict for verdict in judged if verdict.reason.is_candidate and verdict.cleanable.ratio)
        dirtiest = max(dirty, key=lambda verdict: verdict.cleanable.ratio, default=None)
        return Counts(
            logs=len(logs),
            standings=dict(standings),
            waiting=sum(verdict.reason.is_due_and_free for verdict in judged),
            in_progress=standings[Reason.IN_PROGRESS.value] + standings[Reason.ABORTED.value],
            due=len(due),
            due_bytes=due_bytes,
            work_bytes=2 * due_bytes + sum(cleanable.clean_bytes for cleanable in due),
            dirty_bytes=sum(verdict.cleanable.cleanable_bytes for verdict in judged),
            overdue=len(overdue),
            max_overdue_ms=max(overdue, default=0),
            dirtiest=dirtiest.partition if dirtiest else None,
            dirtiest_ratio=dirtiest.cleanable.ratio if dirtiest else 0.0,
            unreadable=_unreadable(logs),
        )


def _unreadable(logs: Sequence[LogView]) -> tuple[UnreadableLogs, ...]:
    alike: dict[str, list[TopicPartition]] = {}
    for view in logs:
        if view.reason.is_error:
            alike.setdefault(view.error, []).append(view.partition)
    found = [UnreadableLogs(error, len(partitions), min(partitions)) for error, partitions in alike.items()]
    return tuple(sorted(found, key=lambda each: (-each.count, each.first))[:_MAX_ERRORS])


@dataclass(frozen=True, slots=True)
class Forecast:
    """
    How long the due logs will take, as far as it can be estimated.

    Attributes:
        due: how many logs; see `Counts.due`.
        left_bytes: bytes of them left to read.
        bytes_per_second: of reading, as measured lately; None: no recent work to measure.
        seconds: until no log is due any more, including bytes that arrive until then; None: not known.
        is_growing: dirty bytes arrive at least as fast as they can be cleaned, so there is no end to estimate.
    """

    JSON_PROPERTIES: ClassVar[tuple[str, ...]] = ("about_seconds",)

    due: int = 0
    left_bytes: int = 0
    bytes_per_second: float | None = None
    seconds: float | None = None
    is_growing: bool = False

    @property
    def about_seconds(self) -> int | None:
        """The seconds, rounded to the precision of the estimate."""
        if self.seconds is None:
            return None
        step = next((step for most, step in _STEPS if self.seconds < most), 3600)
        return max(step, round(self.seconds / step) * step)


_STEPS = ((60, 10), (3600, 60), (6 * 3600, 600))


@dataclass(frozen=True, slots=True)
class LogDirView:
    """
    One log dir.

    Attributes:
        path: as configured, links followed.
        condition, detail: see `DirCondition`.
        since_ms: since when; wall clock.
        partitions: how many it has.
        free_bytes, total_bytes: of its file system; None when it does not answer.
        workers: how many are at work in it.
        uncleanable_partitions, uncleanable_bytes: of those in quarantine.
        looked_at_ms: when it was last looked at with success; None: never.
        beside_writer: one of our writers holds it too.
        kafka, kafka_origin: the Kafka version whose rules apply, and why that one; empty: not known yet.
    """

    path: str
    condition: DirCondition
    detail: str
    since_ms: int
    partitions: int
    free_bytes: int | None
    total_bytes: int | None
    workers: int
    uncleanable_partitions: int
    uncleanable_bytes: int
    looked_at_ms: int | None
    beside_writer: bool = False
    kafka: str = ""
    kafka_origin: str = ""


@dataclass(frozen=True, slots=True)
class WorkerView:
    """
    One worker thread.

    Attributes:
        name: of the thread.
        partition, log_dir: what it works on; None: it waits.
        phase: `load`, `map`, `copy`, `retention`, `close`; empty when it waits.
        done_bytes, total_bytes: of the phase.
        since_ms: when it got the partition, wall clock.
        remaining_seconds: an estimate for the round; None: too early to tell.
        is_stopping: it was asked to give the partition back.
        read_bytes: by its round so far, in both passes.
    """

    name: str
    partition: TopicPartition | None
    log_dir: str | None
    phase: str
    done_bytes: int
    total_bytes: int
    since_ms: int
    remaining_seconds: float | None
    is_stopping: bool = False
    read_bytes: int = 0


@dataclass(frozen=True, slots=True)
class JobView:
    """
    One `cleaner now`.

    Attributes:
        id: given when it was asked for; small numbers from 1.
        partition: what is to be cleaned.
        state: `queued`, `running`, `done`, `failed`, `cancelled`.
        asked_by: uid of the user who asked.
        asked_ms, ended_ms: wall clock; None: not ended.
        progress: part of the round, 0 to 1.
        detail: how it ended, or why it waits.
    """

    id: int
    partition: TopicPartition
    state: str
    asked_by: int
    asked_ms: int
    ended_ms: int | None
    progress: float
    detail: str


@dataclass(frozen=True, slots=True)
class RoundView:
    """
    A round that ended, whether it succeeded or failed.

    Attributes:
        partition, log_dir: which log.
        worker: the worker that did it.
        result: `done`, `nothing`, `retry`, `quarantined`, `aborted`, `locked`, `offline`.
        detail: why it failed, or a note; may be empty.
        ended_ms, seconds: wall clock, and its total time.
        map_seconds, copy_seconds: its two passes.
        map_utilization: entries of the offset map as a part of its capacity, 0 to 1.
        first_dirty_offset, end_offset: the dirty section covered.
        bytes_read, bytes_written, bytes_in_place, messages_read, messages_written, map_bytes_read, map_messages_read,
            invalid_messages: see `CleanReport`.
        bytes_read_once, segments_unread, bytes_unread, index_bytes_read, index_bytes_written: likewise.
        recompress, batches_packed, batches_joined, packed_bytes_before, packed_bytes_after: likewise.
        removed: records removed, by reason (the names of `Removed`).
        kafka, kafka_origin, key_view, merged_keys: see `CleanReport`.
        survivor, outranked_records, record_ttl_ms, expired_records: likewise.
    """

    JSON_PROPERTIES: ClassVar[tuple[str, ...]] = ("bytes_freed",)

    partition: TopicPartition
    log_dir: str
    worker: str
    result: str
    detail: str
    ended_ms: int
    seconds: float
    map_seconds: float = 0.0
    copy_seconds: float = 0.0
    map_utilization: float = 0.0
    first_dirty_offset: int = 0
    end_offset: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_in_place: int = 0
    messages_read: int = 0
    messages_written: int = 0
    map_bytes_read: int = 0
    map_messages_read: int = 0
    bytes_read_once: int = 0
    segments_unread: int = 0
    bytes_unread: int = 0
    index_bytes_read: int = 0
    index_bytes_written: int = 0
    invalid_messages: int = 0
    removed: Mapping[str, int] = field(default_factory=dict)
    kafka: str = ""
    kafka_origin: str = ""
    recompress: str = ""
    batches_packed: int = 0
    batches_joined: int = 0
    packed_bytes_before: int = 0
    packed_bytes_after: int = 0
    key_view: str = ""
    merged_keys: int | None = 0
    survivor: str = ""
    outranked_records: int = 0
    record_ttl_ms: int | None = None
    expired_records: int = 0

    @property
    def bytes_freed(self) -> int:
        """By how much the log became smaller."""
        return self.bytes_read - self.bytes_written


@dataclass(frozen=True, slots=True)
class TopicTotals:
    """
    What was done to one topic since the process started.

    Attributes:
        rounds: by result (see `RoundView.result`).
        bytes_read, bytes_written, bytes_in_place, messages_read, messages_written: of second passes.
        map_bytes_read, map_messages_read: of first passes.
        removed: records removed, by reason.
        retention_segments, retention_bytes: what retention deleted.
        last_success_ms: when its last successful round ended; None: never.
    """

    rounds: Mapping[str, int] = field(default_factory=dict)
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_in_place: int = 0
    messages_read: int = 0
    messages_written: int = 0
    map_bytes_read: int = 0
    map_messages_read: int = 0
    removed: Mapping[str, int] = field(default_factory=dict)
    retention_segments: int = 0
    retention_bytes: int = 0
    last_success_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Histogram:
    """
    Durations of rounds since the process started.

    Attributes:
        bounds: upper bounds (s), ascending, without infinity.
        counts: one more than bounds; the number of rounds at or below each bound and above the one before.
        total: their sum (s).
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True)
class ThrottleView:
    """
    The speed limit.

    Attributes:
        bytes_per_second: the rate; None: unlimited.
        bytes: charged since the start.
        waited_seconds: slept since the start, all workers together.
        log_dirs: rates of single log dirs.
    """

    bytes_per_second: float | None
    bytes: int
    waited_seconds: float
    log_dirs: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigView:
    """
    The settings in force.

    Attributes:
        file: the file they came from; None: none.
        loaded_ms: when they were last taken over, wall clock.
        is_last_reload_good: whether the last attempt to reload succeeded; True before the first.
        errors: one line for each mistake of the last attempt; empty if it succeeded.
        needs_restart: keys whose new values wait for a restart.
        values: key, value and where it comes from, by key.
    """

    file: str | None
    loaded_ms: int
    is_last_reload_good: bool = True
    errors: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()
    values: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceSnapshot:
    """
    The daemon at one moment.

    Attributes:
        version: of the program.
        now_ms, started_ms: wall clock.
        state: `starting`, `running`, `stopping`.
        is_ready: settings and kernels are loaded, and every log dir was looked at once.
        turn_ended_ms, turn_seconds: of the scheduler's last turn; None before the first.
        next_turn_ms: when the next one comes unless something wakes it.
        is_progressing: the scheduler turns and every busy worker has reported in time.
        stuck: workers and scheduler that make no progress, in words; empty if all do.
        config, throttle: see `ConfigView` and `ThrottleView`.
        logs: every log, in order of partition and log dir; as of the last turn.
        log_dirs, workers: see `LogDirView` and `WorkerView`.
        worker_deaths: workers that died of an internal error and were replaced.
        queue: the logs that only wait for a worker, in order.
        quarantine, retries: quarantined logs, and logs whose last round failed.
        jobs: newest first; a limited number of ended ones is kept.
        rounds: the last ones, newest first.
        pauses: what operators have paused, in words (`all`, a topic, a partition).
        opens_at_ms: when the next window opens; None: one is open.
        topics: totals by topic.
        round_seconds: durations of successful rounds.
        waiting_removals: `.deleted` files of retention that wait for `file.delete.delay.ms`.
        open_files: descriptors of this process.
        ended_ms: when the last successful round of any log ended; None: none so far.
        counts: of all logs, even if `logs` has only some of them.
        forecast: how long the due logs will take.
        anonymous_bytes: this process's memory that is not backed by files; None: not known.
        needed_bytes: the most it needs by its settings (`cleaning/round/memory_budget.py`); None: not known.
    """

    JSON_PROPERTIES: ClassVar[tuple[str, ...]] = ("dirtiest_ratio", "overdue", "max_overdue_ms")

    version: str
    now_ms: int
    started_ms: int
    state: str
    is_ready: bool
    turn_ended_ms: int | None
    turn_seconds: float | None
    next_turn_ms: int | None
    is_progressing: bool
    stuck: tuple[str, ...]
    config: ConfigView
    throttle: ThrottleView
    logs: tuple[LogView, ...]
    log_dirs: tuple[LogDirView, ...]
    workers: tuple[WorkerView, ...]
    worker_deaths: int
    queue: tuple[TopicPartition, ...]
    quarantine: tuple[QuarantinedLog, ...]
    retries: Mapping[TopicPartition, Retry]
    jobs: tuple[JobView, ...]
    rounds: tuple[RoundView, ...]
    pauses: tuple[str, ...]
    opens_at_ms: int | None
    topics: Mapping[str, TopicTotals]
    round_seconds: Histogram
    waiting_removals: int
    open_files: int
    ended_ms: int | None = None
    anonymous_bytes: int | None = None
    needed_bytes: int | None = None
    counts: Counts = field(default_factory=Counts)
    forecast: Forecast = field(default_factory=Forecast)

    @property
    def dirtiest_ratio(self) -> float:
        """The ratio of the dirtiest log."""
        return self.counts.dirtiest_ratio

    @property
    def overdue(self) -> int:
        """How many logs are over their maximum lag."""
        return self.counts.overdue

    @property
    def max_overdue_ms(self) -> int:
        """The largest excess over a maximum lag."""
        return self.counts.max_overdue_ms

    @property
    def has_too_much_memory(self) -> bool:
        """
        Tell whether the process uses more memory than its settings need; if that lasts, it may be a leak.

        It need not be one: a batch may unpack to more than expected, and very many partitions take some memory.
        """
        if self.anonymous_bytes is None or self.needed_bytes is None:
            return False
        return self.anonymous_bytes > self.needed_bytes
