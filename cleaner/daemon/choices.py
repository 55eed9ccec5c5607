"""
The data that the choice of the next log depends on: the logs as last looked at, partition states, jobs, pauses,
failures.

This is the manager's memory, without a lock of its own: every call is made with the manager's lock held. A survey of
all logs is kept until something it depends on changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from cleaner.base.clock import Clock
from cleaner.base.mistakes import did_you_mean
from cleaner.base.model import TopicPartition
from cleaner.config.values import CleanerConfig
from cleaner.daemon.jobs import DONE, FAILED, JobBook
from cleaner.daemon.log_dir_backoff import LogDirBackoff
from cleaner.daemon.log_dir_watch import DirLook
from cleaner.daemon.log_status import LogStatus
from cleaner.daemon.pauses import Pauses
from cleaner.errors import SteeringError
from cleaner.policy.due import watches_time
from cleaner.policy.reasons import Reason
from cleaner.policy.retry import Retry
from cleaner.policy.selection import Order, Survey, survey
from cleaner.policy.selection_context import Horizons, LogDirFacts, LogFacts, SelectionContext
from cleaner.policy.states import Event, PartitionState, PartitionStates, Phase
from cleaner.settings import windows_of
from cleaner.state.quarantine import Quarantine
from cleaner.storage.log_dir import conflicts_of


class Choices:
    """
    See the head of the file.

    Args:
        clock: the time.
        quarantine: the quarantined logs.
        config: the settings in force.
    Attributes:
        config: the settings in force.
        states, jobs, pauses, dir_backoff: see their classes.
        retries: logs whose last round failed.
        last_round_ms: when a log's last round ended, whether it succeeded or failed.
        horizons: of logs whose last round has looked for them.
        looks: the log dirs as last looked at, by path.
        retaining: partitions that are paused because retention works on them.
    """

    def __init__(self, clock: Clock, quarantine: Quarantine, config: CleanerConfig) -> None:
        self._clock = clock
        self._quarantine = quarantine
        self._take(config)
        self.states = PartitionStates()
        self.jobs = JobBook(config.job_history)
        self.pauses = Pauses()
        self.dir_backoff = LogDirBackoff()
        self.retries: dict[TopicPartition, Retry] = {}
        self.last_round_ms: dict[TopicPartition, int] = {}
        self.horizons: dict[TopicPartition, Horizons] = {}
        self.looks: dict[str, DirLook] = {}
        self.retaining: set[TopicPartition] = set()
        self._logs: dict[tuple[TopicPartition, str], LogStatus] = {}
        self._behind: frozenset[TopicPartition] = frozenset()
        self._stale_since_ns: dict[TopicPartition, int] = {}
        self._workers: dict[str, int] = {}
        self._survey: Survey | None = None
        self._before: Survey | None = None
        self._dated: dict[TopicPartition, tuple[LogFacts, LogFacts]] = {}
        self._is_window_open = True

    @property
    def logs(self) -> Iterator[LogStatus]:
        """All logs."""
        return iter(self._logs.values())

    def change_settings(self, config: CleanerConfig) -> None:
        """Take over new settings."""
        self._take(config)
        self.jobs.kept = config.job_history
        self.invalidate()

    def _take(self, config: CleanerConfig) -> None:
        self.config = config
        self._order, self._windows = Order(config.selection), windows_of(config)

    def take_looks(self, looks: Mapping[str, DirLook]) -> None:
        """Take over the looks; a log that was worked on since its log dir's look began has to be looked at again."""
        before, self.looks = self.looks, dict(looks)
        if before.keys() != looks.keys() or any(look.logs is not before[path].logs for path, look in looks.items()):
            self._take_logs()
        self._behind = frozenset().union(*(look.behind for look in looks.values()))
        self._stale_since_ns = {
            tp: ns
            for tp, ns in self._stale_since_ns.items()
            if tp in self._behind
            or any(ns >= look.begun_ns for path, look in looks.items() if (tp, path) in self._logs)
        }
        self.invalidate()
        self._end_jobs_without_work()

    def _take_logs(self) -> None:
        self._logs = {(log.partition, log.log_dir): log for look in self.looks.values() for log in look.logs}
        directories = {Path(path): {log.partition for log in look.logs} for path, look in self.looks.items()}
        for conflict in conflicts_of(directories, {}):
            for path in map(str, conflict.log_dirs):
                alone = self._logs[conflict.topic_partition, path].left_alone(conflict.why_not_cleaned)
                self._logs[conflict.topic_partition, path] = alone
        self._forget_gone()

    def next_log(self) -> tuple[LogStatus, LogFacts] | None:
        """Return the first of the queue that is not stale, is idle, and whose log dir has a free worker; None: none."""
        now_ms = self._clock.now_ms()
        if self._is_window_open != self._windows.is_open(now_ms):
            self.invalidate()
        log_dirs: Mapping[str, LogDirFacts] | None = None
        for facts in self.survey().queue:
            if facts.partition in self._stale_since_ns or not self.states.allows(facts.partition, Event.BEGIN):
                continue
            log_dirs = log_dirs or self.dir_facts()
            at = log_dirs[facts.log_dir]
            if at.max_workers is None or at.workers < at.max_workers:
                return self._logs[facts.partition, facts.log_dir], facts
        return None

    def begin(self, log: LogStatus, worker: str) -> None:
        """Note that a worker has a log."""
        self.states.begin(log.partition, worker)
        self._workers[log.log_dir] = self._workers.get(log.log_dir, 0) + 1
        self.jobs.begin(log.partition)

    def end(self, log: LogStatus, worker: str, horizons: Horizons | None = None) -> None:
        """Note that a worker has given a log back; the facts known about it are out of date."""
        self.horizons.pop(log.partition, None)
        if horizons is not None:
            self.horizons[log.partition] = horizons
        self.states.done_cleaning(log.partition, worker)
        self._workers[log.log_dir] -= 1
        self.last_round_ms[log.partition] = self._clock.now_ms()
        self.mark_stale(log.partition)

    def mark_stale(self, partition: TopicPartition) -> None:
        """Have a log looked at before it is picked again."""
        self._stale_since_ns[partition] = self._clock.monotonic_ns()

    def stale(self) -> frozenset[TopicPartition]:
        """Return the partitions that were given back and must be looked at again before they are picked."""
        return frozenset(self._stale_since_ns)

    def find(self, partition: TopicPartition) -> LogStatus:
        """
        Return a log.

        Raises:
            SteeringError: no log has that name.
        """
        for log in self._logs.values():
            if log.partition == partition:
                return log
        likely = did_you_mean(str(partition), (str(log.partition) for log in self._logs.values()))
        raise SteeringError(f"no partition {partition} in any log dir{likely}")

    def require_topic(self, topic: str) -> None:
        """Raise SteeringError if no log of the topic is known."""
        if not any(partition.topic == topic for partition, _ in self._logs):
            names = {partition.topic for partition, _ in self._logs}
            what = "topic"
            # A name that ends like a partition's may also be a topic's name.
            if _is_partition_name(topic):
                names |= {str(partition) for partition, _ in self._logs}
                what = "partition or topic"
            raise SteeringError(f"no {what} {topic} in any log dir{did_you_mean(topic, names)}")

    def why_stop(self, partition: TopicPartition) -> str:
        """Return why a worker should give a partition back; empty if it should go on."""
        if self.states.is_aborted(partition) or self.pauses.covers(partition):
            return "paused"
        if self.jobs.is_cancelled(partition):
            return "its job was cancelled"
        if self.config.windows_hard and not self._windows.is_open(self._clock.now_ms()):
            return "the window of cleaner.windows has closed"
        return ""

    # --- surveys ------------------------------------------------------------------------------------------------

    def survey(self) -> Survey:
        """
        Return the survey to choose from.

        It is kept until `invalidate`: also while rounds begin and end, since the other waiting logs keep their places.
        """
        if self._survey is None:
            context = self.selection_context()
            self._is_window_open = context.opens_at_ms is None
            facts = [self._with_memory(log.facts) for log in self._logs.values() if log.facts is not None]
            self._survey = self._before = survey(facts, context, self._order, self._before)
        return self._survey

    def invalidate(self) -> None:
        """Have the next choice made from a new survey."""
        self._survey = None

    def selection_context(self) -> SelectionContext:
        """Return everything a selection depends on besides the logs themselves."""
        return SelectionContext(
            now_ms=self._clock.now_ms(),
            states=self._states_with_topics(),
            log_dirs=self.dir_facts(),
            quarantined=self.quarantined(),
            retries=self.retries,
            requested=self.jobs.requested(),
            is_enabled=self.config.enable,
            is_paused=self.pauses.is_all,
            opens_at_ms=self.opens_at_ms(),
        )

    def dir_facts(self) -> dict[str, LogDirFacts]:
        """Return the facts of each log dir: from its look, from failures of rounds, and the number of workers."""
        now_ms = self._clock.now_ms()
        return {
            path: replace(
                self.dir_backoff.over(path, look.facts, now_ms),
                workers=self._workers.get(path, 0),
                max_workers=self.config.log_dir_max_workers,
            )
            for path, look in self.looks.items()
        }

    def opens_at_ms(self) -> int | None:
        """Return when the next window opens; None if one is open."""
        windows, now_ms = self._windows, self._clock.now_ms()
        return None if windows.is_open(now_ms) else windows.next_opening_ms(now_ms)

    def quarantined(self) -> dict[TopicPartition, str]:
        """Return the quarantined partitions, each with its reason."""
        return {entry.topic_partition: entry.reason for entry in self._quarantine.entries()}

    def pause_words(self) -> tuple[str, ...]:
        """List what operators have paused."""
        partitions = [
            f"{partition} ({state.pauses - (partition in self.retaining) or 'being stopped'})"
            for partition, state in sorted(self.states.not_idle.items())
            if state.phase is Phase.ABORTED or state.pauses > (partition in self.retaining)
        ]
        return (*self.pauses.words(), *partitions)

    def _states_with_topics(self) -> Mapping[TopicPartition, PartitionState]:
        """Return the states, as if each partition of a paused topic were paused."""
        topics = self.pauses.topics
        if not topics:
            return self.states.not_idle
        paused = {
            partition: PartitionState(Phase.PAUSED, topics[partition.topic])
            for partition, _ in self._logs
            if partition.topic in topics
        }
        return {**paused, **self.states.not_idle}

    def _with_memory(self, facts: LogFacts) -> LogFacts:
        """Return facts with what is known of the log's last round; the same object as long as nothing changes."""
        last, next_ms = self.last_round_ms.get(facts.partition), self._next_horizon_ms(facts)
        if not last and next_ms is None:
            return facts
        given, dated = self._dated.get(facts.partition, (None, facts))
        if given is not facts or (dated.last_round_ms, dated.next_horizon_ms) != (last, next_ms):
            dated = replace(facts, last_round_ms=last, next_horizon_ms=next_ms)
            self._dated[facts.partition] = (facts, dated)
        return dated

    def _known_horizons(self, facts: LogFacts) -> Horizons | None:
        """Return what is known of a log's delete horizons; None: nothing, or another process has cleaned it since."""
        known = self.horizons.get(facts.partition)
        if known is None or known.expires_after_ms != facts.expires_after_ms:
            return None
        return known if known.first_dirty_offset == facts.cleanable.first_dirty_offset else None

    def _next_horizon_ms(self, facts: LogFacts) -> int | None:
        """Return when a round is due although nothing is dirty: at once if nothing is known of its horizons."""
        is_watched = watches_time(
            quiet_cleaning=self.config.quiet_cleaning,
            expires_after_ms=facts.expires_after_ms,
            takes_whole_log=facts.takes_whole_log,
        )
        if not is_watched or not facts.has_clean_section:
            return None
        known = self._known_horizons(facts)
        return 0 if known is None else known.next_ms

    def settled_ms(self, facts: LogFacts) -> int | None:
        """Return up to when a log's delete horizons have had their effect; None: unknown."""
        known = self._known_horizons(facts)
        return None if known is None else known.settled_ms

    def _end_jobs_without_work(self) -> None:
        """End jobs whose partition has nothing to clean, or no longer exists."""
        requested = [partition for partition in self.jobs.requested() if partition not in self._behind]
        if not requested:
            return
        now_ms = self._clock.now_ms()
        verdicts = {verdict.partition: verdict for verdict in self.survey().verdicts}
        for partition in requested:
            verdict = verdicts.get(partition)
            if verdict is None:
                self.jobs.end(partition, FAILED, "its log is gone, or may no longer be cleaned", now_ms)
            elif verdict.reason in (Reason.NOTHING_TO_CLEAN, Reason.NO_HIGH_WATERMARK):
                self.jobs.end(partition, DONE, verdict.words(), now_ms)
        self.invalidate()

    def _forget_gone(self) -> None:
        """Drop the memory of partitions that are gone, so that it does not grow for years."""
        there = {partition for partition, _ in self._logs}
        for memory in (self.retries, self.last_round_ms, self.horizons, self._dated):
            for partition in [partition for partition in memory if partition not in there]:
                del memory[partition]


def _is_partition_name(text: str) -> bool:
    try:
        TopicPartition.parse(text)
    except ValueError:
        return False
    return True
