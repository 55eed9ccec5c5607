"""
Counters of the writable log, for a registry that the caller provides.

A library does not choose how its numbers are shown. The caller of `LogManager` may give it a registry: any object with
these two methods, which are called often and from any thread, and must neither block nor raise. Names and units follow
Prometheus; the only label is the topic, never the partition.
"""

from __future__ import annotations

from typing import Protocol

FLUSHES = "cleaner_log_flushes_total"
FLUSH_SECONDS = "cleaner_log_flush_seconds_total"
EXPIRED_SEGMENTS = "cleaner_log_expired_segments_total"
EXPIRED_BYTES = "cleaner_log_expired_bytes_total"
RECOVERED_LOGS = "cleaner_log_recovered_logs_total"
TRUNCATED_BYTES = "cleaner_log_truncated_bytes_total"
FAILED_TASKS = "cleaner_log_failed_tasks_total"
OPEN_LOGS = "cleaner_log_open_logs"


class Registry(Protocol):
    """Takes numbers."""

    def add(self, name: str, amount: float, **labels: str) -> None:
        """Add to a counter."""

    def put(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""


class NoRegistry:
    """Ignores every number."""

    def add(self, name: str, amount: float, **labels: str) -> None:
        """Pass it over."""

    def put(self, name: str, value: float, **labels: str) -> None:
        """Pass it over."""
