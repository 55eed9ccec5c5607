"""What one worker does at the moment; its round updates this with every buffer."""

from __future__ import annotations

from dataclasses import dataclass

from cleaner.base import concurrency
from cleaner.base.model import TopicPartition
from cleaner.daemon.snapshot import WorkerView

# An estimate from the first moments of a round would jump up and down.
_MIN_ELAPSED_NS = 500_000_000


@dataclass(frozen=True)
class Effort:
    """
    How much a round has to read.

    Attributes:
        map_bytes: of the dirty section, in the first pass.
        copy_bytes: of clean and dirty section, in the second.
    """

    map_bytes: int = 0
    copy_bytes: int = 0

    def part_done(self, phase: str, done_bytes: int) -> float:
        """Return how much of it is done, 0 to 1."""
        before = self.map_bytes if phase == "copy" else 0
        total = self.map_bytes + self.copy_bytes
        return min(1.0, (before + done_bytes) / total) if total and phase in ("map", "copy") else 0.0


class Activity:
    """
    One worker's work on one partition. Thread-safe: the worker writes, others read.

    Args:
        worker: its name.
        partition, log_dir: what it works on.
        effort: the work as estimated when the log was picked; the log may have grown or shrunk since.
        now_ms, now_ns: the moment it began, by both clocks.
    """

    def __init__(
        self, worker: str, partition: TopicPartition, log_dir: str, effort: Effort, now_ms: int, now_ns: int
    ) -> None:
        self.worker = worker
        self.partition = partition
        self.log_dir = log_dir
        self._effort = effort
        self._since_ms = now_ms
        self._since_ns = now_ns
        self._lock = concurrency.Lock()
        # All guarded by _lock.
        self._phase = "load"
        self._done_bytes = self._total_bytes = 0
        self._moved_ns = now_ns

    def move(self, now_ns: int) -> None:
        """Note that the worker is alive: it has asked whether to go on."""
        with self._lock:
            self._moved_ns = now_ns

    def enter(self, phase: str, done_bytes: int, total_bytes: int, now_ns: int) -> None:
        """Note a phase and how far it is."""
        with self._lock:
            self._phase, self._done_bytes, self._total_bytes = phase, done_bytes, total_bytes
            self._moved_ns = now_ns

    @property
    def progress(self) -> float:
        """How much of the round is done, 0 to 1."""
        with self._lock:
            return self._effort.part_done(self._phase, self._done_bytes)

    def idle_ns(self, now_ns: int) -> int:
        """Return the time since the worker last reported."""
        with self._lock:
            return now_ns - self._moved_ns

    def view(self, now_ns: int, *, is_stopping: bool) -> WorkerView:
        """Return what is shown of the worker."""
        progress = self.progress
        elapsed_ns = now_ns - self._since_ns
        remaining = None
        if progress > 0 and elapsed_ns >= _MIN_ELAPSED_NS:
            remaining = elapsed_ns / 1e9 * (1 - progress) / progress
        with self._lock:
            return WorkerView(
                name=self.worker,
                partition=self.partition,
                log_dir=self.log_dir,
                phase=self._phase,
                done_bytes=self._done_bytes,
                total_bytes=self._total_bytes,
                since_ms=self._since_ms,
                remaining_seconds=remaining,
                is_stopping=is_stopping,
                read_bytes=round(progress * (self._effort.map_bytes + self._effort.copy_bytes)),
            )
