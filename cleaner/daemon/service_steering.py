"""The service's steering: each command is carried out, logged, and written to the journal with its uid."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from cleaner.base.json_values import JsonValue
from cleaner.base.model import TopicPartition
from cleaner.base.sizes import slow_rate
from cleaner.daemon.service import Service
from cleaner.daemon.snapshot import JobView, ServiceSnapshot
from cleaner.daemon.steering import ReloadResult
from cleaner.errors import SteeringError
from cleaner.storage.fs.file_system import real_path


class ServiceSteering:
    """The `Steering` of one service; each call is described there."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def snapshot(self, settings_of: Collection[str] = ()) -> ServiceSnapshot:
        """Return the state of the daemon."""
        return self._service.snapshot(settings_of)

    def request(self, partition: TopicPartition, uid: int) -> JobView:
        """Clean a partition next."""
        job = self._service.manager.request(partition, uid)
        self._service.note_command("now", uid, str(partition), {"job": job.id})
        return job

    def cancel(self, job_id: int, uid: int) -> JobView:
        """Cancel a job."""
        job = self._service.manager.cancel(job_id)
        self._service.note_command("cancel", uid, str(job.partition), {"job": job.id})
        return job

    def pause(self, scope: str | None, uid: int) -> Sequence[TopicPartition]:
        """Pause everything, a topic, or a partition."""
        found = self._scope(scope)
        stopped = self._service.manager.pause(found)
        self._service.note_command("pause", uid, scope, {"stopped": [str(partition) for partition in stopped]})
        return stopped

    def resume(self, scope: str | None, uid: int) -> None:
        """Remove one pause."""
        self._service.manager.resume(self._scope(scope))
        self._service.note_command("resume", uid, scope)

    def release(self, partition: TopicPartition, uid: int) -> None:
        """Take a partition out of quarantine."""
        released = self._service.manager.release(partition)
        reasons = [f"{entry.log_dir}: {entry.reason}" for entry in released]
        self._service.note_command("release", uid, str(partition), {"was": list(reasons)})

    def throttle(self, bytes_per_second: float | None, log_dir: str | None, uid: int) -> None:
        """Change the speed limit. Raises SteeringError: not above 0, or no log dir of this daemon."""
        if bytes_per_second is not None and not bytes_per_second > 0:
            raise SteeringError(f"{bytes_per_second}: a rate is above 0, or unlimited")
        path = None if log_dir is None else real_path(Path(log_dir))
        if path is not None and str(path) not in self._service.manager.snapshot().looks:
            raise SteeringError(f"{log_dir} is no log dir of this daemon")
        self._service.change_rate(bytes_per_second, path)
        details: dict[str, JsonValue] = {"bytes_per_second": bytes_per_second, "log_dir": log_dir}
        warning = slow_rate(bytes_per_second)
        self._service.note_command("throttle", uid, None, details | ({"warning": warning} if warning else {}))

    def reload(self, uid: int) -> ReloadResult:
        """Read the settings again."""
        result = self._service.reload()
        details: dict[str, JsonValue] = {
            "errors": list(result.errors),
            "changed": list(result.changed),
            "needs_restart": list(result.needs_restart),
            "warnings": list(result.warnings),
        }
        self._service.note_command("reload", uid, None, details)
        return result

    def _scope(self, scope: str | None) -> TopicPartition | str | None:
        """Parse a pause's scope. `a-0` is a partition if one has that name, otherwise the topic `a-0`."""
        if scope is None:
            return None
        try:
            partition = TopicPartition.parse(scope)
        except ValueError:
            return scope
        return partition if self._service.manager.knows(partition) else scope
