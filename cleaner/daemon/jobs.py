"""The jobs of `cleaner now`: which user asked for which partition, how far the job is, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cleaner.base.model import TopicPartition
from cleaner.daemon.snapshot import JobView

QUEUED = "queued"
RUNNING = "running"
DONE = "done"
FAILED = "failed"
CANCELLED = "cancelled"

_OPEN = (QUEUED, RUNNING)


class JobBook:
    """
    Jobs by number. Not guarded: the manager's lock is held.

    Args:
        kept: how many ended jobs are remembered.
    """

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self._jobs: dict[int, JobView] = {}
        self._cancelled: set[int] = set()  # running jobs whose workers are asked to stop
        self._last_id = 0

    def add(self, partition: TopicPartition, uid: int, now_ms: int) -> JobView:
        """Add a job; if the partition has an open job, return that one instead."""
        open_job = self._open_for(partition)
        if open_job is not None:
            return open_job
        self._last_id += 1
        view = JobView(self._last_id, partition, QUEUED, uid, now_ms, None, 0.0, "")
        self._jobs[view.id] = view
        return view

    def requested(self) -> dict[TopicPartition, int]:
        """Return the partitions of queued jobs, with the job's number."""
        return {job.partition: job.id for job in self._jobs.values() if job.state == QUEUED}

    def find(self, job_id: int) -> JobView | None:
        """Return a job; None if no job has that number, or it was forgotten."""
        return self._jobs.get(job_id)

    def begin(self, partition: TopicPartition, detail: str = "") -> None:
        """Note that a worker has a partition; does nothing if no job for it is queued."""
        job = self._open_for(partition)
        if job is not None and job.state == QUEUED:
            self._put(replace(job, state=RUNNING, detail=detail))

    def advance(self, partition: TopicPartition, progress: float) -> None:
        """Note how far a round is, 0 to 1."""
        job = self._open_for(partition)
        if job is not None and job.state == RUNNING:
            self._put(replace(job, progress=progress))

    def cancel(self, job_id: int, now_ms: int) -> bool:
        """Cancel an open job; True: it runs, and its worker must be asked to stop."""
        job = self._jobs[job_id]
        if job.state == QUEUED:
            self._end(job, CANCELLED, "cancelled before it began", now_ms)
            return False
        self._cancelled.add(job_id)
        return job.state == RUNNING

    def is_cancelled(self, partition: TopicPartition) -> bool:
        """Tell whether the round of a partition must stop because its job was cancelled."""
        job = self._open_for(partition)
        return job is not None and job.id in self._cancelled

    def end(self, partition: TopicPartition, state: str, detail: str, now_ms: int) -> None:
        """Note how a job's round ended; a cancelled job ends as cancelled unless its round was done before."""
        job = self._open_for(partition)
        if job is None:
            return
        self._end(job, CANCELLED if job.id in self._cancelled and state != DONE else state, detail, now_ms)

    def requeue(self, partition: TopicPartition, detail: str) -> None:
        """Queue a job again whose round could not begin or go on for a temporary reason."""
        job = self._open_for(partition)
        if job is not None:
            self._put(replace(job, state=QUEUED, progress=0.0, detail=detail))

    def views(self) -> tuple[JobView, ...]:
        """Return all jobs, newest first."""
        return tuple(reversed(self._jobs.values()))

    def _open_for(self, partition: TopicPartition) -> JobView | None:
        return next((job for job in self._open() if job.partition == partition), None)

    def _open(self) -> Iterator[JobView]:
        return (job for job in self._jobs.values() if job.state in _OPEN)

    def _end(self, job: JobView, state: str, detail: str, now_ms: int) -> None:
        progress = 1.0 if state == DONE else job.progress
        self._put(replace(job, state=state, detail=detail, ended_ms=now_ms, progress=progress))
        self._cancelled.discard(job.id)
        ended = [job.id for job in self._jobs.values() if job.state not in _OPEN]
        for job_id in ended[: max(0, len(ended) - self.kept)]:
            del self._jobs[job_id]

    def _put(self, job: JobView) -> None:
        self._jobs[job.id] = job
