"""Where state may be kept: in a directory that no broker, writer or reader of logs looks into."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cleaner.errors import ConfigError

STATE_DIR_KEY = "cleaner.state.dir"


def require_outside_log_dirs(state_dir: Path, log_dirs: Iterable[Path]) -> None:
    """
    Make sure that the state directory is no log dir and in none; links are followed.

    Raises:
        ConfigError: a broker would take a foreign directory among its partitions for damage (R-104), and one in a
            partition's directory would be lost when it moves.
    """
    resolved = state_dir.resolve()
    for log_dir in log_dirs:
        if resolved.is_relative_to(log_dir.resolve()):
            raise ConfigError(STATE_DIR_KEY, state_dir, f"must not be inside the log dir {log_dir}")
