"""The windows of the settings as the policy reads them."""

from __future__ import annotations

from cleaner.config import CleanerConfig
from cleaner.mistakes import Mistakes
from cleaner.policy.windows import Windows, time_zone


def windows_of(config: CleanerConfig) -> Windows:
    """
    Return when rounds may start.

    Raises:
        ConfigError: `cleaner.windows` is malformed, there is no such time zone, or both.
    """
    mistakes = Mistakes()
    windows = Windows()
    with mistakes.collected():
        windows = Windows.parse(config.windows)
    with mistakes.collected():
        windows = Windows(windows.edges, time_zone(config.windows_time_zone))
    mistakes.raise_any()
    return windows
