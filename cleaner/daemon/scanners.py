"""
Looks at all log dirs, each in its own thread: a disk that hangs delays only its own log dir.

A slow disk does not count as hanging: as long as a look makes progress, its log dir keeps the state of the last look.
A log dir is offline only after it has answered once: before that nothing is known of its disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from cleaner.base import concurrency
from cleaner.base.clock import Clock
from cleaner.daemon.log_dir_watch import DirLook
from cleaner.policy.selection_context import DirCondition, LogDirFacts

# A look takes milliseconds; the first one of thousands of logs a few seconds.
PATIENCE_SECONDS = 10.0


class Watched(Protocol):
    """A log dir that can be looked at."""

    @property
    def path(self) -> Path:
        """Its path, links followed."""

    @property
    def progress(self) -> tuple[int, int]:
        """How many logs the current or last look has passed, and of how many."""

    def look(self, now_ms: int) -> DirLook:
        """Look at it."""


@dataclass
class _Scanner:
    """
    One log dir's thread.

    Attributes:
        executor: the thread.
        pending: the current look, or the work that replaces it.
        other_work: a description of that work; empty for a look.
        progress, moved_ns: the look's progress when last checked, and since when it has been that.
        last: the last completed look.
    """

    executor: concurrency.ThreadPoolExecutor
    pending: concurrency.Future[DirLook] | None = None
    other_work: str = ""
    progress: tuple[int, int] = (0, 0)
    moved_ns: int = 0
    last: DirLook | None = None


class Scanners:
    """
    The threads. To be called by one thread, the scheduler's.

    Args:
        clock: measures how long a log dir has not answered.
        patience_seconds: how long a turn waits for looks. A log dir whose look needs longer keeps its last look; it is
            shown as offline (or unread, if it is the first look) if the look has not passed another log in that time.
    """

    def __init__(self, clock: Clock, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._scanners: dict[Path, _Scanner] = {}

    def look(self, log_dirs: Sequence[Watched], now_ms: int) -> dict[str, DirLook]:
        """Look at log dirs in parallel; returns each look by path. An exception of a look is raised here."""
        for log_dir in log_dirs:
            self._begin(log_dir, now_ms)
        pending = [each.pending for each in self._scanners.values() if each.pending is not None]
        concurrency.wait(pending, timeout=self._patience_seconds)
        return {str(log_dir.path): self._result(log_dir) for log_dir in log_dirs}

    def run_other(self, path: Path, work: Callable[[], DirLook], words: str) -> None:
        """Let a log dir's thread do longer work that ends with a look, such as a recovery; `words` describe it."""
        scanner = self._scanner(path)
        if scanner.pending is None:
            scanner.pending, scanner.other_work = scanner.executor.submit(work), words

    def close(self) -> None:
        """End the threads; a thread that hangs ends when its disk answers, or with the process."""
        for scanner in self._scanners.values():
            scanner.executor.shutdown(wait=False, cancel_futures=True)

    def _begin(self, log_dir: Watched, now_ms: int) -> None:
        scanner = self._scanner(log_dir.path)
        if scanner.pending is None:
            scanner.progress, scanner.moved_ns = log_dir.progress, self._clock.monotonic_ns()
            scanner.pending, scanner.other_work = scanner.executor.submit(log_dir.look, now_ms), ""

    def _scanner(self, path: Path) -> _Scanner:
        if path not in self._scanners:
            executor = concurrency.ThreadPoolExecutor(1, thread_name_prefix=f"cleaner-look-{len(self._scanners) + 1}")
            self._scanners[path] = _Scanner(executor)
        return self._scanners[path]

    def _result(self, log_dir: Watched) -> DirLook:
        scanner = self._scanners[log_dir.path]
        if scanner.pending is not None and scanner.pending.done():
            pending, scanner.pending = scanner.pending, None
            scanner.last = pending.result()
            return scanner.last
        last = scanner.last or DirLook()
        if scanner.other_work:
            return replace(last, facts=LogDirFacts(DirCondition.NEEDS_RECOVERY, scanner.other_work))
        now_ns, progress = self._clock.monotonic_ns(), log_dir.progress
        if progress == scanner.progress:
            detail = f"no answer for {(now_ns - scanner.moved_ns) // 1_000_000_000} s"
            condition = DirCondition.UNREAD if scanner.last is None else DirCondition.OFFLINE
            return replace(last, facts=replace(last.facts, condition=condition, detail=detail))
        scanner.progress, scanner.moved_ns = progress, now_ns
        if scanner.last is not None:
            return last
        return replace(last, facts=LogDirFacts(detail="{} of {} logs read so far".format(*progress)))
