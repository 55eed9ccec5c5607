"""
The families of `families.py` filled from a snapshot, as a collector of prometheus_client.

Samples are put into the families directly: with thousands of topics `add_metric` costs four times as much.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from cleaner.daemon.snapshot import LogView, RoundView, ServiceSnapshot, TopicTotals
from cleaner.policy.selection_context import DirCondition
from cleaner.present.http.exposition import number
from cleaner.present.metrics import families as f
from cleaner.present.metrics.families import Family, MetricKind
from cleaner.present.text import printable

DEFAULT_PARTITIONS = 20
STATES = ("starting", "running", "stopping")
JOB_STATES = ("queued", "running", "done", "failed", "cancelled")

# One sample of a family: the labels' values in the family's order, and the value.
Row = tuple[tuple[str, ...], float]


class SnapshotCollector(Collector):
    """
    Answers each scrape from one snapshot of the daemon.

    Args:
        snapshot: returns the daemon's state; called once per scrape.
        partitions: how many of the dirtiest logs, and of the most overdue ones, get their own samples.
        is_with_kafka_names: also use Kafka's nine names, for existing dashboards and alerts.
    """

    def __init__(
        self,
        snapshot: Callable[[], ServiceSnapshot],
        *,
        partitions: int = DEFAULT_PARTITIONS,
        is_with_kafka_names: bool = False,
    ) -> None:
        self._snapshot = snapshot
        self._partitions = partitions
        self._is_with_kafka_names = is_with_kafka_names

    def describe(self) -> Iterable[Metric]:
        """Return nothing: names are not looked up before the daemon exists."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return every family, filled."""
        snapshot = self._snapshot()
        yield from _process(snapshot)
        yield from _scheduler(snapshot)
        yield from _workers(snapshot)
        yield from _logs(snapshot, self._partitions)
        yield from _rounds(snapshot)
        yield from _topics(snapshot.topics)
        yield from _throttle(snapshot)
        yield from _log_dirs(snapshot)
        yield from _config(snapshot)
        if self._is_with_kafka_names:
            yield from _kafka_names(snapshot)


def registry(collector: Collector) -> CollectorRegistry:
    """Return a new registry: the daemon's families, and the usual ones of a Prometheus client's process."""
    own = CollectorRegistry(auto_describe=False)
    own.register(collector)
    ProcessCollector(registry=own)
    return own


def filled(family: Family, rows: Iterable[Row]) -> Metric:
    """Return a counter or gauge with its samples."""
    kind = CounterMetricFamily if family.kind is MetricKind.COUNTER else GaugeMetricFamily
    metric: Metric = kind(family.name, family.help, labels=family.labels)
    name, labels, add = family.name, family.labels, metric.samples.append
    for values, value in rows:
        add(Sample(name, dict(zip(labels, values, strict=True)), value))
    return metric


def _one(family: Family, value: float | None) -> Metric:
    """Return a family without labels; without a sample if there is no value."""
    return filled(family, [((), value)] if value is not None else [])


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _process(snapshot: ServiceSnapshot) -> Iterator[Metric]:
    yield filled(f.BUILD_INFO, [((printable(snapshot.version),), 1)])
    yield _one(f.STARTED, _seconds(snapshot.started_ms))
    yield filled(f.STATE, [((state,), state == snapshot.state) for state in STATES])
    yield _one(f.READY, snapshot.is_ready)
    yield _one(f.PROGRESSING, snapshot.is_progressing)
    yield _one(f.STUCK, len(snapshot.stuck))
    yield _one(f.OPEN_FILES, snapshot.open_files)
    yield _one(f.ANONYMOUS_MEMORY, snapshot.anonymous_bytes)
    yield _one(f.NEEDED_MEMORY, snapshot.needed_bytes)


def _scheduler(snapshot: ServiceSnapshot) -> Iterator[Metric]:
    yield _one(f.TURN_SECONDS, snapshot.turn_seconds)
    yield _one(f.TURN_ENDED, _seconds(snapshot.turn_ended_ms))
    yield _one(f.WINDOW_OPEN, snapshot.opens_at_ms is None)
    yield _one(f.WINDOW_OPENS, _seconds(snapshot.opens_at_ms))
    yield _one(f.PAUSES, len(snapshot.pauses))
    yield _one(f.QUEUE, snapshot.counts.waiting)
    forecast = snapshot.forecast
    yield _one(f.DUE, forecast.due)
    yield _one(f.DUE_LEFT, forecast.left_bytes)
    yield _one(f.DUE_SECONDS, math.inf if forecast.is_growing else forecast.seconds)
    jobs = Counter(dict.fromkeys(JOB_STATES, 0))
    jobs.update(printable(job.state) for job in snapshot.jobs)
    yield filled(f.JOBS, [((state,), count) for state, count in jobs.items()])


def _workers(snapshot: ServiceSnapshot) -> Iterator[Metric]:
    yield _one(f.WORKERS, len(snapshot.workers))
    yield _one(f.WORKERS_BUSY, sum(worker.partition is not None for worker in snapshot.workers))
    yield _one(f.WORKER_DEATHS, snapshot.worker_deaths)


def _logs(snapshot: ServiceSnapshot, partitions: int) -> Iterator[Metric]:
    yield filled(f.LOGS, [((standing,), many) for standing, many in sorted(snapshot.counts.standings.items())])
    yield _one(f.MAX_RATIO, snapshot.dirtiest_ratio)
    yield _one(f.OVERDUE, snapshot.overdue)
    yield _one(f.MAX_OVERDUE, snapshot.max_overdue_ms / 1000)
    judged = [(view.verdict.cleanable.ratio, view) for view in snapshot.logs if view.verdict is not None]
    topics: dict[str, float] = {}
    for ratio, view in judged:
        topic = view.partition.topic
        if ratio >= topics.get(topic, 0.0):
            topics[topic] = ratio
    yield filled(f.TOPIC_RATIO, [((printable(topic),), ratio) for topic, ratio in topics.items()])
    dirtiest = heapq.nlargest(partitions, judged, key=lambda entry: entry[0])
    yield filled(f.PARTITION_RATIO, [(_labels_of(view), ratio) for ratio, view in dirtiest])
    late = [(view.verdict.overdue_ms, view) for view in snapshot.logs if view.verdict and view.verdict.overdue_ms]
    most = heapq.nlargest(partitions, late, key=lambda entry: entry[0])
    yield filled(f.PARTITION_OVERDUE, [(_labels_of(view), overdue_ms / 1000) for overdue_ms, view in most])
    yield _one(f.RETRYING, len(snapshot.retries))


def _labels_of(view: LogView) -> tuple[str, str, str]:
    return printable(view.partition.topic), str(view.partition.partition), printable(view.log_dir)


def _rounds(snapshot: ServiceSnapshot) -> Iterator[Metric]:
    durations = HistogramMetricFamily(f.ROUND_SECONDS.name, f.ROUND_SECONDS.help)
    buckets, total = [], 0
    bounds = (*snapshot.round_seconds.bounds, math.inf)
    for bound, count in zip(bounds, snapshot.round_seconds.counts, strict=True):
        total += count
        buckets.append((number(bound), float(total)))
    durations.add_metric([], buckets, snapshot.round_seconds.total)
    yield durations
    yield _one(f.LAST_SUCCESS, _seconds(snapshot.ended_ms))
    last = last_rounds(snapshot.rounds)
    yield _one(f.MAP_UTILIZATION, max((view.map_utilization for view in last), default=0.0))


def last_rounds(rounds: Iterable[RoundView]) -> list[RoundView]:
    """Return each worker's last round; `rounds` are newest first."""
    last: dict[str, RoundView] = {}
    for view in rounds:
        last.setdefault(view.worker, view)
    return list(last.values())


def _topics(topics: Mapping[str, TopicTotals]) -> Iterator[Metric]:
    rows: defaultdict[Family, list[Row]] = defaultdict(list)
    for name, totals in topics.items():
        topic = printable(name)
        of_topic = (topic,)
        for result, count in totals.rounds.items():
            rows[f.ROUNDS].append(((topic, printable(result)), count))
        if totals.last_success_ms is not None:
            rows[f.TOPIC_LAST_SUCCESS].append((of_topic, totals.last_success_ms / 1000))
        rows[f.READ_BYTES] += (((topic, "map"), totals.map_bytes_read), ((topic, "copy"), totals.bytes_read))
        rows[f.READ_RECORDS] += (((topic, "map"), totals.map_messages_read), ((topic, "copy"), totals.messages_read))
        rows[f.WRITTEN_BYTES].append((of_topic, totals.bytes_written))
        rows[f.WRITTEN_RECORDS].append((of_topic, totals.messages_written))
        for reason, count in totals.removed.items():
            rows[f.REMOVED_RECORDS].append(((topic, printable(reason)), count))
        rows[f.RETENTION_SEGMENTS].append((of_topic, totals.retention_segments))
        rows[f.RETENTION_BYTES].append((of_topic, totals.retention_bytes))
    for family in (
        f.ROUNDS,
        f.TOPIC_LAST_SUCCESS,
        f.READ_BYTES,
        f.READ_RECORDS,
        f.WRITTEN_BYTES,
        f.WRITTEN_RECORDS,
        f.REMOVED_RECORDS,
        f.RETENTION_SEGMENTS,
        f.RETENTION_BYTES,
    ):
        yield filled(family, rows[family])


def _throttle(snapshot: ServiceSnapshot) -> Iterator[Metric]:
    throttle = snapshot.throttle
    yield _one(f.THROTTLE_RATE, math.inf if throttle.bytes_per_second is None else throttle.bytes_per_second)
    yield filled(f.THROTTLE_DIR_RATE, [((printable(path),), rate) for path, rate in throttle.log_dirs.items()])
    yield _one(f.THROTTLE_BYTES, throttle.bytes)
    yield _one(f.THROTTLE_WAIT, throttle.waited_seconds)


def _log_dirs(snapshot: ServiceSnapshot) -> Iterator[Metric]:
    dirs = [((printable(view.path),), view) for view in snapshot.log_dirs]
    yield filled(
        f.DIR_STATE,
        [
            ((path, condition.name.lower()), view.condition is condition)
            for (path,), view in dirs
            for condition in DirCondition
        ],
    )
    yield _one(f.DIRS_OFFLINE, sum(view.condition is DirCondition.OFFLINE for view in snapshot.log_dirs))
    yield filled(f.DIR_PARTITIONS, [(path, view.partitions) for path, view in dirs])
    yield filled(f.DIR_WORKERS, [(path, view.workers) for path, view in dirs])
    yield filled(f.DIR_FREE, [(path, view.free_bytes) for path, view in dirs if view.free_bytes is not None])
    yield filled(f.DIR_SIZE, [(path, view.total_bytes) for path, view in dirs if view.total_bytes is not None])
    yield filled(
        f.DIR_LOOKED_AT, [(path, view.looked_at_ms / 1000) for path, view in dirs if view.looked_at_ms is not None]
    )
    yield filled(f.LOG_BYTES, _section_rows(snapshot))
    yield filled(f.QUARANTINED, [(path, view.uncleanable_partitions) for path, view in dirs])
    yield filled(f.QUARANTINED_BYTES, [(path, view.uncleanable_bytes) for path, view in dirs])
    yield _one(f.RETENTION_WAITING, snapshot.waiting_removals)


def _section_rows(snapshot: ServiceSnapshot) -> Iterator[Row]:
    sums = {view.path: [0, 0, 0, 0] for view in snapshot.log_dirs}
    for view in snapshot.logs:
        parts = view.sections
        if parts is None:
            continue
        of_dir = sums.setdefault(view.log_dir, [0, 0, 0, 0])
        of_dir[0] += parts.clean_bytes
        of_dir[1] += parts.dirty_bytes
        of_dir[2] += parts.uncleanable_bytes
        of_dir[3] += parts.active_bytes
    for path, counts in sums.items():
        for section, count in zip(("clean", "dirty", "uncleanable", "active"), counts, strict=True):
            yield (printable(path), section), count


def _config(snapshot: ServiceSnapshot) -> Iterator[Metric]:
    yield _one(f.RELOAD_GOOD, snapshot.config.is_last_reload_good)
    yield _one(f.RELOAD_TIME, _seconds(snapshot.config.loaded_ms))
    yield _one(f.RESTART_KEYS, len(snapshot.config.needs_restart))


def _kafka_names(snapshot: ServiceSnapshot) -> Iterator[Metric]:
    """Return whole numbers, as Kafka's gauges are."""
    last = last_rounds(snapshot.rounds)
    utilization = max((view.map_utilization for view in last), default=0.0)
    read = sum(view.bytes_read for view in last)
    yield _one(f.KAFKA_MAX_BUFFER, int(utilization * 100))
    yield _one(f.KAFKA_RECOPY, int(100 * sum(view.bytes_written for view in last) / max(read, 1)))
    yield _one(f.KAFKA_MAX_TIME, int(max((view.seconds for view in last), default=0.0)))
    yield _one(f.KAFKA_MAX_DELAY, snapshot.max_overdue_ms // 1000)
    yield _one(f.KAFKA_DEAD, snapshot.worker_deaths)
    yield _one(f.KAFKA_DIRTY, int(100 * snapshot.dirtiest_ratio))
    turned_ms = snapshot.started_ms if snapshot.turn_ended_ms is None else snapshot.turn_ended_ms
    yield _one(f.KAFKA_SINCE, snapshot.now_ms - turned_ms)
    dirs = [((printable(view.path),), view) for view in snapshot.log_dirs]
    yield filled(f.KAFKA_UNCLEANABLE, [(path, view.uncleanable_partitions) for path, view in dirs])
    yield filled(f.KAFKA_UNCLEANABLE_BYTES, [(path, view.uncleanable_bytes) for path, view in dirs])
