"""Windows as the settings give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.config.values import CleanerConfig
from cleaner.errors import ConfigError
from cleaner.settings import SettingsResolver, windows_of
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem


def test_windows_of_the_settings_open_by_the_clock_of_their_zone() -> None:
    """22:00 in Berlin is 21:00 UTC in winter."""
    config = CleanerConfig(windows="22:00-23:00", windows_time_zone="Europe/Berlin")
    assert windows_of(config).is_open(21 * 3_600_000)
    assert not windows_of(config).is_open(22 * 3_600_000)
    assert windows_of(CleanerConfig()).is_open(0)


def test_windows_and_zone_that_are_both_wrong_are_both_reported(tmp_path: Path) -> None:
    """The resolver refuses them too, and says both."""
    settings = {"cleaner.windows": "22-23", "cleaner.windows.time.zone": "Berlin"}
    with pytest.raises(ConfigError) as caught:
        SettingsResolver(FileSystem(), tmp_path, Sources(settings))
    assert [mistake.key for mistake in caught.value.mistakes] == list(settings)
