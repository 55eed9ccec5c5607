"""The sources of settings and their precedence: command line, files, the cluster's metadata, Kafka's own."""

from __future__ import annotations

from cleaner.settings.config_watch import ConfigWatch
from cleaner.settings.environment import read_environment, variable_of
from cleaner.settings.files import read_config_file
from cleaner.settings.followed import FollowedSettings
from cleaner.settings.given import Given
from cleaner.settings.resolver import ResolvedTopic, SettingsResolver
from cleaner.settings.windows import windows_of

__all__ = [
    "ConfigWatch",
    "FollowedSettings",
    "Given",
    "ResolvedTopic",
    "SettingsResolver",
    "read_config_file",
    "read_environment",
    "variable_of",
    "windows_of",
]
