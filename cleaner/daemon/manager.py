"""
Which worker works on which log: one lock around everything that a choice depends on.

Workers wait here for a log, ask here with every buffer whether to go on, and give the log back here, however the round
ended. `policy/selection.py` decides which log is next; this file only ensures that two workers never get the same log,
and that every outcome is handled as `faults.py` says.

    look -> survey -> wait_for_work (begin) -> round -> give back (done) -> look ...

A log that was given back is looked at again before it is picked again: the facts known about it are out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from cleaner.base import concurrency
from cleaner.base.clock import Clock
from cleaner.base.model import TopicPartition
from cleaner.config.values import CleanerConfig
from cleaner.daemon.activity import Activity, Effort
from cleaner.daemon.choices import Choices
from cleaner.daemon.faults import Ending, Fault
from cleaner.daemon.jobs import DONE, FAILED
from cleaner.daemon.log_dir_watch import DirLook
from cleaner.daemon.log_status import LogStatus
from cleaner.daemon.manager_snapshot import HeldLogs, ManagerSnapshot, as_of_now
from cleaner.daemon.snapshot import JobView
from cleaner.errors import CleanerError, CleaningAborted, SteeringError
from cleaner.policy.retry import RetryDelays, after_failure
from cleaner.policy.selection import deletable
from cleaner.policy.selection_context import Horizons
from cleaner.policy.states import Event
from cleaner.state.quarantine import Quarantine, QuarantinedLog
from cleaner.storage.files.kafka_uuid import format_uuid


@dataclass(frozen=True)
class Assignment:
    """
    A log handed to a worker.

    Attributes:
        log: as last looked at; the round looks again.
        worker: the worker that has it.
        is_requested: an operator asked for it: it is cleaned whatever its ratio.
        settled_ms: delete horizons up to it have had their effect; None: unknown.
    """

    log: LogStatus
    worker: str
    is_requested: bool
    settled_ms: int | None = None


class CleanerManager:
    """
    See the head of the file. Thread-safe.

    Args:
        clock: the time.
        quarantine: the quarantined logs.
        config: the settings in force.
        wake: called (with the lock held; it must only set a flag) when a turn is wanted before the next is due.
        report: called with each failed write to the state directory.
    """

    def __init__(
        self,
        clock: Clock,
        quarantine: Quarantine,
        config: CleanerConfig,
        *,
        wake: Callable[[], None],
        report: Callable[[str], None],
    ) -> None:
        self._clock = clock
        self._quarantine = quarantine
        self._wake = wake
        self._report = report
        self._change = concurrency.Condition()
        # The fields below are guarded by _change.
        self._choices = Choices(clock, quarantine, config)
        self._activities: dict[str, Activity] = {}
        self._is_stopping = False
        self._leaving: set[str] = set()

    # --- calls of the scheduler ---------------------------------------------------------------------------------

    def take_looks(self, looks: Mapping[str, DirLook]) -> None:
        """
        Take over the looks at all log dirs, by path; a log that was given back since a look began waits for another.

        A log dir that is slow or does not answer keeps its last look, so each look counts from when itself began.
        """
        self._release_made_again(looks)
        with self._change:
            self._choices.take_looks(looks)
            self._change.notify_all()

    def _release_made_again(self, looks: Mapping[str, DirLook]) -> None:
        """Release logs whose topic was made again since: the damage went with the old log (R-452)."""
        entries = [entry for entry in self._quarantine.entries() if entry.topic_id is not None]
        wanted = {(entry.topic_partition, entry.log_dir) for entry in entries}
        logs = [log for look in looks.values() for log in look.logs] if wanted else []
        now = {key: log.topic_id for log in logs if (key := (log.partition, str(log.directory.parent))) in wanted}
        for entry in entries:
            topic_id = now.get((entry.topic_partition, entry.log_dir))
            if topic_id is not None and format_uuid(topic_id) != entry.topic_id:
                try:
                    self._quarantine.release(entry.topic_partition, Path(entry.log_dir))
                except CleanerError as refused:
                    self._report(f"the quarantine cannot be written: {refused}; it is written later")
                self._report(f"{entry.topic_partition}: its topic was made again, so it is in quarantine no longer")

    def change_settings(self, config: CleanerConfig) -> None:
        """Take over new settings."""
        with self._change:
            self._choices.change_settings(config)
            self._change.notify_all()

    def stop(self) -> None:
        """Let no round begin, stop running rounds at their next buffer, and end waiting workers."""
        with self._change:
            self._is_stopping = True
            self._change.notify_all()

    def dismiss(self, worker: str) -> None:
        """End one worker as soon as it has no log."""
        with self._change:
            self._leaving.add(worker)
            self._change.notify_all()

    # --- calls of the workers -----------------------------------------------------------------------------------

    def wait_for_work(self, worker: str) -> Assignment | None:
        """Wait for a log to clean; None: the worker must end."""
        with self._change:
            while not (self._is_stopping or worker in self._leaving):
                assignment = self._assign(worker)
                if assignment is not None:
                    return assignment
                self._change.wait()
            self._leaving.discard(worker)
            return None

    def check_done(self, assignment: Assignment) -> None:
        """
        Ask whether to go on; to be called before each buffer (R-431).

        Raises:
            CleaningAborted: no.
        """
        with self._change:
            self._activities[assignment.worker].move(self._clock.monotonic_ns())
            why = self._why_stop(assignment.log.partition)
        if why:
            raise CleaningAborted(why)

    def note_progress(self, assignment: Assignment, phase: str, done_bytes: int, total_bytes: int) -> None:
        """Note how far a round is."""
        with self._change:
            activity = self._activities[assignment.worker]
        activity.enter(phase, done_bytes, total_bytes, self._clock.monotonic_ns())

    def give_back(
        self,
        assignment: Assignment,
        fault: Fault | None,
        note: str = "",
        *,
        found_nothing: bool = False,
        horizons: Horizons | None = None,
    ) -> None:
        """
        Take a log back after a round.

        Args:
            assignment: as it was handed out.
            fault: None after a successful round.
            note: of a successful round, for the operator who asked for it.
            found_nothing: the round had nothing to do, so the log can wait for the next regular turn to be looked at
                again.
            horizons: what the round has found of delete horizons; None: it has not looked for them.
        """
        now_ms = self._clock.now_ms()
        log, partition = assignment.log, assignment.log.partition
        if fault is not None and fault.ending is Ending.QUARANTINED:
            # Before the log is idle again, or another worker would take it; without the lock, since the disk may be
            # slow.
            self.put_into_quarantine(partition, log.directory.parent, fault.error, log.topic_id)
        with self._change:
            choices = self._choices
            self._activities.pop(assignment.worker, None)
            choices.end(log, assignment.worker, horizons)
            if fault is None:
                # The other waiting logs keep their places: the next log is found without a new survey.
                had_failed = choices.retries.pop(partition, None) is not None
                choices.dir_backoff.clear(log.log_dir)
                choices.jobs.end(partition, DONE, note, now_ms)
                if had_failed:
                    choices.invalidate()
            else:
                self._apply(fault, log, now_ms)
                choices.invalidate()
            self._change.notify_all()
            if not found_nothing:
                self._wake()

    # --- retention ----------------------------------------------------------------------------------------------

    def take_for_retention(self, logs: Collection[LogStatus]) -> list[TopicPartition]:
        """Take the logs among these that retention may work on now (R-433); the caller gives each back."""
        with self._change:
            free = deletable([log.retention_facts() for log in logs], self._choices.selection_context())
            taken = self._choices.states.pause_if_idle(facts.partition for facts in free)
            self._choices.retaining.update(taken)
            return taken

    def give_back_from_retention(self, partition: TopicPartition) -> None:
        """Take a log back from retention; it is looked at again before it is picked."""
        with self._change:
            self._choices.states.resume(partition)
            self._choices.retaining.discard(partition)
            self._choices.mark_stale(partition)
            self._wake()
            self._changed()

    # --- calls of the operator ----------------------------------------------------------------------------------

    def request(self, partition: TopicPartition, uid: int) -> JobView:
        """Clean a partition next; see `Steering.request`. Raises SteeringError: no such partition, or it may not be."""
        with self._change:
            log = self._choices.find(partition)
            if log.facts is None:
                raise SteeringError(f"{partition}: {log.error or log.why}")
            cause = self._choices.quarantined().get(partition)
            if cause is not None:
                raise SteeringError(f"{partition} is in quarantine: {cause}; release it first")
            jobs = self._choices.jobs
            job = jobs.add(partition, uid, self._clock.now_ms())
            if any(activity.partition == partition for activity in self._activities.values()):
                # It ends with that round, and a cancel stops that round.
                jobs.begin(partition, "joined the running round")
            self._changed()
            self._wake()
            return jobs.find(job.id) or job

    def cancel(self, job_id: int) -> JobView:
        """Take a job back; see `Steering.cancel`. Raises SteeringError: no such job, or it has ended."""
        with self._change:
            jobs = self._choices.jobs
            job = jobs.find(job_id)
            if job is None:
                raise SteeringError(f"no job {job_id}")
            if job.ended_ms is not None:
                raise SteeringError(f"job {job_id} has ended: {job.state}")
            jobs.cancel(job_id, self._clock.now_ms())
            self._changed()
            return jobs.find(job_id) or job

    def pause(self, scope: TopicPartition | str | None) -> list[TopicPartition]:
        """
        Pause a partition, a topic (its name) or everything (None); returns partitions whose workers must stop.

        Raises:
            SteeringError: no such partition or topic, or its round is being stopped for a pause already.
        """
        with self._change:
            choices = self._choices
            busy = {activity.partition for activity in self._activities.values()}
            if isinstance(scope, TopicPartition):
                choices.find(scope)
                if not choices.states.allows(scope, Event.ABORT_AND_PAUSE):
                    raise SteeringError(f"{scope} is being stopped for a pause: try again in a moment")
                choices.states.abort_and_pause(scope)
                stopped = sorted(busy & {scope})
            else:
                if scope is not None:
                    choices.require_topic(scope)
                choices.pauses.pause(scope)
                stopped = sorted(partition for partition in busy if choices.pauses.covers(partition))
            self._changed()
            return stopped

    def resume(self, scope: TopicPartition | str | None) -> None:
        """Take one pause of the same scope back. Raises SteeringError: there is none."""
        with self._change:
            choices = self._choices
            if isinstance(scope, TopicPartition):
                is_retentions = choices.states.of(scope).pauses == 1 and scope in choices.retaining
                if is_retentions or not choices.states.allows(scope, Event.RESUME):
                    raise SteeringError(f"{scope} is not paused: it is {choices.states.of(scope)}")
                choices.states.resume(scope)
            elif not choices.pauses.resume(scope):
                raise SteeringError(f"{'the cleaner' if scope is None else scope} is not paused")
            self._changed()
            self._wake()

    def release(self, partition: TopicPartition) -> list[QuarantinedLog]:
        """
        Take a partition out of quarantine and forget its failures; returns its former entries.

        Raises:
            SteeringError: no such partition, or it neither was in quarantine nor had failed.
        """
        released = [entry for entry in self._quarantine.entries() if entry.topic_partition == partition]
        try:
            self._quarantine.release(partition)
        except CleanerError as refused:
            self._report(f"the quarantine cannot be written: {refused}; the release counts until the process ends")
        with self._change:
            had_failed = self._choices.retries.pop(partition, None) is not None
            if not released and not had_failed:
                self._choices.find(partition)
            self._changed()
            self._wake()
        if not released and not had_failed:
            raise SteeringError(f"{partition} is not in quarantine")
        return released

    def put_into_quarantine(
        self, partition: TopicPartition, log_dir: Path, error: Exception, topic_id: UUID | None
    ) -> None:
        """Put a log into quarantine; `topic_id`: of its topic, if known."""
        try:
            self._quarantine.add(QuarantinedLog.of(partition, log_dir, error, self._clock.now_ms(), topic_id))
        except CleanerError as refused:
            self._report(f"the quarantine cannot be written: {refused}; it counts until the process ends")
        with self._change:
            self._changed()

    def knows(self, partition: TopicPartition) -> bool:
        """Tell whether a log dir has a partition of that name."""
        with self._change:
            return any(log.partition == partition for log in self._choices.logs)

    # --- state for others ---------------------------------------------------------------------------------------

    def snapshot(self) -> ManagerSnapshot:
        """Return the current state; verdicts are those of the last turn, or newer."""
        with self._change:
            choices = self._choices
            now_ns = self._clock.monotonic_ns()
            last = choices.survey()
            held = self._held_logs()
            for activity in self._activities.values():
                choices.jobs.advance(activity.partition, activity.progress)
            return ManagerSnapshot(
                logs=as_of_now(choices.logs, last.verdicts, held),
                held=held,
                looks=dict(choices.looks),
                log_dirs=choices.dir_facts(),
                survey=last,
                workers=tuple(
                    each.view(now_ns, is_stopping=bool(self._why_stop(each.partition)))
                    for each in self._activities.values()
                ),
                stuck=tuple(self._stuck(now_ns)),
                jobs=choices.jobs.views(),
                pauses=choices.pause_words(),
                retries=dict(choices.retries),
                last_round_ms=dict(choices.last_round_ms),
                opens_at_ms=choices.opens_at_ms(),
            )

    def stuck(self) -> list[str]:
        """Name the workers that have not reported for too long."""
        with self._change:
            return self._stuck(self._clock.monotonic_ns())

    @property
    def is_idle(self) -> bool:
        """Tell whether no worker has a log."""
        with self._change:
            return not self._activities

    # --- the methods below are called with the lock held --------------------------------------------------------

    def _assign(self, worker: str) -> Assignment | None:
        found = self._choices.next_log()
        if found is None:
            return None
        log, facts = found
        is_requested = log.partition in self._choices.jobs.requested()
        self._choices.begin(log, worker)
        weight = facts.cleanable
        effort = Effort(weight.cleanable_bytes, weight.clean_bytes + weight.cleanable_bytes)
        now_ms, now_ns = self._clock.now_ms(), self._clock.monotonic_ns()
        self._activities[worker] = Activity(worker, log.partition, log.log_dir, effort, now_ms, now_ns)
        return Assignment(log, worker, is_requested, self._choices.settled_ms(facts))

    def _apply(self, fault: Fault, log: LogStatus, now_ms: int) -> None:
        """Record what a failed round means for its log and log dir."""
        choices, partition = self._choices, log.partition
        delays = RetryDelays.of(choices.config)
        match fault.ending:
            case Ending.RETRY:
                before = choices.retries.get(partition)
                choices.retries[partition] = after_failure(before, now_ms, fault.detail, delays)
            case Ending.OFFLINE:
                choices.dir_backoff.fail(log.log_dir, now_ms, fault.detail, delays)
            case Ending.LOCKED:
                choices.dir_backoff.lock(log.log_dir, now_ms, choices.config.backoff_ms, fault.detail)
            case _:
                pass  # aborted: nothing to remember; quarantined: already written
        passes_by_itself = fault.ending in (Ending.OFFLINE, Ending.LOCKED, Ending.ABORTED)
        if passes_by_itself and not choices.jobs.is_cancelled(partition):
            choices.jobs.requeue(partition, fault.detail)
        else:
            choices.jobs.end(partition, FAILED, fault.detail, now_ms)

    def _held_logs(self) -> HeldLogs:
        choices = self._choices
        at_work = {(each.partition, each.log_dir): each.worker for each in self._activities.values()}
        return HeldLogs(
            workers=at_work,
            stopping=frozenset(partition for partition, _ in at_work if choices.states.is_aborted(partition)),
            retention=frozenset(choices.retaining),
            stale=choices.stale(),
        )

    def _why_stop(self, partition: TopicPartition) -> str:
        return "the cleaner is being stopped" if self._is_stopping else self._choices.why_stop(partition)

    def _stuck(self, now_ns: int) -> list[str]:
        max_ns = self._choices.config.stuck_ms * 1_000_000
        return [
            f"{each.worker}: no progress for {each.idle_ns(now_ns) // 1_000_000_000} s, at {each.partition}"
            for each in self._activities.values()
            if each.idle_ns(now_ns) > max_ns
        ]

    def _changed(self) -> None:
        """Make waiting workers choose again."""
        self._choices.invalidate()
        self._change.notify_all()
