"""Converts the settings of windows to the policy's type."""

from __future__ import annotations

from cleaner.base.mistakes import Mistakes
from cleaner.config.values import CleanerConfig
from cleaner.policy.windows import Windows, time_zone


def windows_of(config: CleanerConfig) -> Windows:
    """Return when rounds may start. Raises ConfigError, as `read_windows`."""
    return read_windows(config.windows, config.windows_time_zone)


def read_windows(windows: str, zone: str) -> Windows:
    """
    Parse `cleaner.windows` and `cleaner.windows.time.zone`.

    Raises:
        ConfigError: the windows are malformed, the time zone does not exist, or both.
    """
    mistakes = Mistakes()
    read = Windows()
    with mistakes.collected():
        read = Windows.parse(windows)
    with mistakes.collected():
        read = Windows(read.edges, time_zone(zone.strip()))
    mistakes.raise_any()
    return read
