"""The calls by which the control socket, or a program that runs the daemon in process, steers the daemon."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from cleaner.base.model import TopicPartition
from cleaner.daemon.snapshot import JobView, ServiceSnapshot


@dataclass(frozen=True)
class ReloadResult:
    """
    How a reload went: all of it or nothing.

    Attributes:
        errors: one line for each mistake: key, value, why, what is allowed. If not empty, nothing has changed.
        changed: keys whose new values are in force now.
        needs_restart: keys whose new values take effect only after a restart.
        warnings: why a restart would be refused as it is now.
    """

    errors: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Steering(Protocol):
    """
    The daemon as its operator controls it. Every call may come from any thread and returns at once.

    `uid` is the calling user; it goes into the journal. Every call except `snapshot` may raise SteeringError.
    """

    def snapshot(self, settings_of: Collection[str] = ()) -> ServiceSnapshot:
        """
        Return the state of the daemon.

        Args:
            settings_of: topics and partitions whose logs are shown with their topics' settings, which makes the answer
                larger.
        """

    def request(self, partition: TopicPartition, uid: int) -> JobView:
        """Clean a partition next, whatever its ratio; a job that is already queued or running for it is returned."""

    def cancel(self, job_id: int, uid: int) -> JobView:
        """Cancel a job; if it runs it stops at the next buffer, and groups already swapped stay."""

    def pause(self, scope: str | None, uid: int) -> Sequence[TopicPartition]:
        """Pause everything (None), a topic, or a partition; pauses nest. Returns the partitions being stopped."""

    def resume(self, scope: str | None, uid: int) -> None:
        """Remove one pause of the same scope."""

    def release(self, partition: TopicPartition, uid: int) -> None:
        """Take a partition out of quarantine, and forget its failures."""

    def throttle(self, bytes_per_second: float | None, log_dir: str | None, uid: int) -> None:
        """Change the speed limit (None: none), of all workers or of one log dir, until the next reload or restart."""

    def reload(self, uid: int) -> ReloadResult:
        """Read the settings again."""
