"""
Looking at all log dirs, each in a thread of its own: a disk that hangs holds up nobody but itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from cleaner.daemon.log_dir_watch import DirLook
from cleaner.policy.circumstances import DirCondition

# A look takes milliseconds; the first one of thousands of logs a few seconds.
PATIENCE_SECONDS = 10.0


class Watched(Protocol):
    """A log dir that can be looked at."""

    @property
    def path(self) -> Path:
        """Where it is, links followed."""

    def look(self, now_ms: int) -> DirLook:
        """Look at it."""


@dataclass
class _Scanner:
    """One log dir's thread."""

    executor: ThreadPoolExecutor
    pending: Future[DirLook] | None = None
    pending_since_ms: int = 0
    last: DirLook | None = None


class Scanners:
    """
    The threads. To be called by one thread, the scheduler's.

    Args:
        patience_seconds: how long a turn waits for looks; a log dir that needs longer is shown as not answering until
            it does, with what was known of it.
    """

    def __init__(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._scanners: dict[Path, _Scanner] = {}

    def look(self, log_dirs: Sequence[Watched], now_ms: int) -> dict[str, DirLook]:
        """Look at log dirs side by side; returns one look each, by path. What a look raises is raised here."""
        for log_dir in log_dirs:
            self._begin(log_dir, now_ms)
        pending = [each.pending for each in self._scanners.values() if each.pending is not None]
        wait(pending, timeout=self._patience_seconds)
        return {str(log_dir.path): self._result(log_dir.path, now_ms) for log_dir in log_dirs}

    def run_aside(self, path: Path, work: Callable[[], DirLook], now_ms: int) -> None:
        """Have a log dir's thread do something longer that ends with a look, such as recovering it."""
        scanner = self._scanner(path)
        if scanner.pending is None:
            scanner.pending, scanner.pending_since_ms = scanner.executor.submit(work), now_ms

    def close(self) -> None:
        """End the threads; one that hangs ends when its disk answers, or with the process."""
        for scanner in self._scanners.values():
            scanner.executor.shutdown(wait=False, cancel_futures=True)

    def _begin(self, log_dir: Watched, now_ms: int) -> None:
        scanner = self._scanner(log_dir.path)
        if scanner.pending is None:
            scanner.pending = scanner.executor.submit(log_dir.look, now_ms)
            scanner.pending_since_ms = now_ms

    def _scanner(self, path: Path) -> _Scanner:
        if path not in self._scanners:
            executor = ThreadPoolExecutor(1, thread_name_prefix=f"cleaner-look-{len(self._scanners) + 1}")
            self._scanners[path] = _Scanner(executor)
        return self._scanners[path]

    def _result(self, path: Path, now_ms: int) -> DirLook:
        scanner = self._scanners[path]
        if scanner.pending is not None and scanner.pending.done():
            pending, scanner.pending = scanner.pending, None
            scanner.last = pending.result()
            return scanner.last
        last = scanner.last or DirLook()
        waited_s = max(0, now_ms - scanner.pending_since_ms) // 1000
        facts = replace(last.facts, condition=DirCondition.OFFLINE, detail=f"it has not answered for {waited_s} s")
        return replace(last, facts=facts)
