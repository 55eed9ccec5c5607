"""A fake daemon for tests of its control interface: it records requests and answers from a given snapshot."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from cleaner.base.model import TopicPartition
from cleaner.daemon.snapshot import JobView, ServiceSnapshot
from cleaner.daemon.steering import ReloadResult
from cleaner.errors import SteeringError


class FakeSteering:
    """
    Grants every request for a log, topic or job of its snapshot.

    Attributes:
        shown: its snapshot; may be replaced.
        calls: name and arguments of every request, in order.
        reloaded: what `reload` returns.
        error: raised by every call unless it is None.
    """

    def __init__(self, shown: ServiceSnapshot) -> None:
        self.shown = shown
        self.calls: list[tuple[object, ...]] = []
        self.reloaded = ReloadResult()
        self.error: Exception | None = None

    def snapshot(self, settings_of: Collection[str] = ()) -> ServiceSnapshot:
        """Return the snapshot."""
        if self.error is not None:
            raise self.error
        return self.shown

    def request(self, partition: TopicPartition, uid: int) -> JobView:
        """Create a waiting job."""
        self._note("request", partition, uid)
        self._require(str(partition))
        last = max((job.id for job in self.shown.jobs), default=0)
        job = JobView(last + 1, partition, "queued", uid, self.shown.now_ms, None, 0.0, "waits for a worker")
        self.shown = replace(self.shown, jobs=(job, *self.shown.jobs))
        return job

    def cancel(self, job_id: int, uid: int) -> JobView:
        """End a job."""
        self._note("cancel", job_id, uid)
        return self.update_job(job_id, state="cancelled", ended_ms=self.shown.now_ms, detail="cancelled")

    def update_job(self, job_id: int, **fields: object) -> JobView:
        """Change a job of the snapshot, as the daemon's workers do."""
        found = [job for job in self.shown.jobs if job.id == job_id]
        if not found:
            raise SteeringError(f"there is no job {job_id}")
        changed = replace(found[0], **fields)  # type: ignore[arg-type]
        self.shown = replace(self.shown, jobs=tuple(changed if job.id == job_id else job for job in self.shown.jobs))
        return changed

    def pause(self, scope: str | None, uid: int) -> Sequence[TopicPartition]:
        """Pause; the first worker of the snapshot that has a partition is asked to stop."""
        self._note("pause", scope, uid)
        self._require(scope)
        self.shown = replace(self.shown, pauses=(*self.shown.pauses, scope or "all"))
        return [worker.partition for worker in self.shown.workers if worker.partition is not None][:1]

    def resume(self, scope: str | None, uid: int) -> None:
        """End one pause."""
        self._note("resume", scope, uid)
        pauses = list(self.shown.pauses)
        if (scope or "all") not in pauses:
            raise SteeringError(f"not paused: {scope or 'all'}")
        pauses.remove(scope or "all")
        self.shown = replace(self.shown, pauses=tuple(pauses))

    def release(self, partition: TopicPartition, uid: int) -> None:
        """Release from quarantine."""
        self._note("release", partition, uid)
        left = tuple(entry for entry in self.shown.quarantine if entry.topic_partition != partition)
        if left == self.shown.quarantine:
            raise SteeringError(f"{partition} is not in quarantine")
        self.shown = replace(self.shown, quarantine=left)

    def throttle(self, bytes_per_second: float | None, log_dir: str | None, uid: int) -> None:
        """Change the rate."""
        self._note("throttle", bytes_per_second, log_dir, uid)
        if log_dir is not None and log_dir not in [one.path for one in self.shown.log_dirs]:
            raise SteeringError(f"{log_dir} is no log dir of this daemon")

    def reload(self, uid: int) -> ReloadResult:
        """Return `reloaded`."""
        self._note("reload", uid)
        return self.reloaded

    def _note(self, *call: object) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error

    def _require(self, name: str | None) -> None:
        known = {str(view.partition) for view in self.shown.logs} | {view.partition.topic for view in self.shown.logs}
        if name is not None and name not in known:
            raise SteeringError(f"there is no {name} here")
