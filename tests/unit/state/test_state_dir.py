"""The state directory lies outside of all log dirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.errors import ConfigError
from cleaner.state.state_dir import require_outside_log_dirs


@pytest.mark.parametrize("name", ["logs", "logs/state", "logs/topic-0/state", "link/state", "logs/../logs/state"])
def test_state_dir_inside_a_log_dir_is_refused(tmp_path: Path, name: str) -> None:
    """Whatever way leads there; the error names setting, value and log dir."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "link").symlink_to("logs")
    with pytest.raises(ConfigError, match=r"cleaner\.state\.dir=.*inside the log dir .*logs") as caught:
        require_outside_log_dirs(tmp_path / name, [tmp_path / "other", tmp_path / "logs"])
    assert caught.value.exit_code == 78


@pytest.mark.parametrize("name", ["state", "logs-state", "logs2"])
def test_state_dir_beside_or_above_log_dirs_is_fine(tmp_path: Path, name: str) -> None:
    """A common beginning of the name is no matter; neither is a log dir below it."""
    (tmp_path / "logs").mkdir()
    require_outside_log_dirs(tmp_path / name, [tmp_path / "logs"])
    require_outside_log_dirs(tmp_path, [tmp_path / "logs"])
