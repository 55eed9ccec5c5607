"""
How long the due logs will take: the bytes left to read, at the rate of the last minutes.

    gross rate      bytes that rounds read, for each second a worker had a log, times the workers there is work for; no
                    more than the limit lets through, which is charged for what is written, too
    arriving        bytes by which dirty sections have grown in that time, plus the bytes of them that were cleaned
    left            both passes over the due logs, less the bytes that current rounds have read

If dirty bytes arrive at least as fast as the workers can clean them, there is no end to estimate: the backlog is
growing. If nothing was done lately there is no rate, and no time is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from cleaner.daemon.snapshot import Counts, Forecast, RoundView, WorkerView

WINDOW_SECONDS = 600.0
"""Older samples say little about the next minutes."""

MIN_WORK_SECONDS = 1.0
"""Working time of all workers in the window; with less, no rate is computed."""


class _Sample(NamedTuple):
    """
    Sums since the start, of rounds' reading, working time, cleaned dirty bytes and charges; and the dirty bytes now.
    """

    now_ns: int
    read_bytes: int
    work_seconds: float
    cleaned_bytes: int
    charged_bytes: int
    dirty_bytes: int


class Meter:
    """Measures the rate. To be called by one thread at a time."""

    def __init__(self) -> None:
        self._read_bytes = self._cleaned_bytes = 0
        self._work_seconds = 0.0
        self._samples: deque[_Sample] = deque()
        self._log_dirs: frozenset[str] = frozenset()

    def note_round(self, view: RoundView) -> None:
        """Add a round that ended, whether it succeeded or failed."""
        self._read_bytes += view.bytes_read + view.map_bytes_read
        self._cleaned_bytes += view.map_bytes_read if view.bytes_read else 0
        self._work_seconds += view.seconds

    def sample(
        self,
        log_dirs: frozenset[str],
        counts: Counts,
        workers: Iterable[WorkerView],
        charged_bytes: int,
        now_ms: int,
        now_ns: int,
    ) -> None:
        """
        Take a sample after a look at all logs.

        Args:
            log_dirs: those that have been looked at so far. The dirty bytes of one that is new among them have not
                arrived just now.
            counts, workers, charged_bytes, now_ms, now_ns: see `forecast`.
        """
        if log_dirs != self._log_dirs:
            self.forget()
            self._log_dirs = log_dirs
        self._samples.append(self._now(counts, workers, charged_bytes, now_ms, now_ns))
        # One sample older than the window stays: it is where the window begins.
        while len(self._samples) > 2 and self._samples[1].now_ns < now_ns - WINDOW_SECONDS * 1e9:
            self._samples.popleft()

    def forget(self) -> None:
        """Start again: the limit has changed, and rates measured under the old one no longer hold."""
        self._samples.clear()

    def forecast(
        self,
        counts: Counts,
        workers: Iterable[WorkerView],
        charged_bytes: int,
        limit: float | None,
        now_ms: int,
        now_ns: int,
    ) -> Forecast:
        """
        Estimate how long the due logs will take.

        Args:
            counts: as they are now.
            workers: all of them, including those that wait.
            charged_bytes: charged against the limit, since the start.
            limit: bytes per second; None: no limit.
            now_ms, now_ns: the moment, by both clocks.
        """
        known = tuple(workers)
        busy = [worker for worker in known if worker.partition is not None]
        left = max(0, counts.work_bytes - sum(worker.read_bytes for worker in busy))
        found = Forecast(counts.due, left)
        if not counts.due or not self._samples:
            return found
        begin, end = self._samples[0], self._now(counts, known, charged_bytes, now_ms, now_ns)
        read_bytes, seconds = end.read_bytes - begin.read_bytes, (end.now_ns - begin.now_ns) / 1e9
        work_seconds = end.work_seconds - begin.work_seconds
        if read_bytes <= 0 or work_seconds < MIN_WORK_SECONDS or seconds <= 0:
            return found
        rate = read_bytes / work_seconds * max(1, min(len(known), counts.due))
        charged = end.charged_bytes - begin.charged_bytes
        if limit is not None and charged > read_bytes:
            rate = min(rate, limit * read_bytes / charged)
        # Both figures are as of the last look, or bytes cleaned since then would count as arrived.
        last = self._samples[-1]
        arrived = last.dirty_bytes - begin.dirty_bytes + last.cleaned_bytes - begin.cleaned_bytes
        # A round reads more than one byte for each dirty byte: the dirty byte twice, and the clean section.
        reads_a_byte = counts.work_bytes / counts.due_bytes if counts.due_bytes else 2.0
        span = (last.now_ns - begin.now_ns) / 1e9
        net = rate - (max(0, arrived) / span * reads_a_byte if span > 0 else 0.0)
        if net <= 0:
            return Forecast(counts.due, left, rate, is_growing=True)
        return Forecast(counts.due, left, rate, seconds=left / net)

    def _now(
        self, counts: Counts, workers: Iterable[WorkerView], charged_bytes: int, now_ms: int, now_ns: int
    ) -> _Sample:
        busy = [worker for worker in workers if worker.partition is not None]
        return _Sample(
            now_ns,
            self._read_bytes + sum(worker.read_bytes for worker in busy),
            self._work_seconds + sum(max(0, now_ms - worker.since_ms) for worker in busy) / 1000,
            self._cleaned_bytes,
            charged_bytes,
            counts.dirty_bytes,
        )
