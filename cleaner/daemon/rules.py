"""What of the settings choices depend on, and which log dirs there are."""

from __future__ import annotations

from pathlib import Path

from cleaner.app.configuration import Loaded
from cleaner.config.values import CleanerConfig
from cleaner.daemon.choices import ChoiceSettings
from cleaner.policy.retry import RetryDelays
from cleaner.policy.selection import Order
from cleaner.storage.fs.file_system import real_path


def rules_of(loaded: Loaded) -> ChoiceSettings:
    """Return what choices depend on."""
    config = loaded.config
    return ChoiceSettings(
        order=Order(config.selection),
        delays=delays_of(config),
        backoff_ms=config.backoff_ms,
        windows=loaded.windows,
        is_window_hard=config.windows_hard,
        is_enabled=config.enable,
        max_workers=config.log_dir_max_workers,
        stuck_ms=config.stuck_ms,
    )


def delays_of(config: CleanerConfig) -> RetryDelays:
    """Return how long what failed is left alone: from one backoff on."""
    return RetryDelays(max(1, config.backoff_ms), max(1, config.retry_max_ms))


def log_dirs_of(config: CleanerConfig) -> tuple[Path, ...]:
    """Return the log dirs, links followed, each once."""
    return tuple(dict.fromkeys(real_path(Path(path)) for path in config.log_dirs))


def log_dir_rates_of(config: CleanerConfig) -> dict[Path, float]:
    """Return the speed limits of single log dirs, bytes a second."""
    return {real_path(Path(path)): rate for path, rate in config.log_dir_io_max_bytes_per_second}
