"""Where settings come from: command line, files, the cluster's metadata, Kafka's own, and in which order."""

from __future__ import annotations

from cleaner.settings.files import parse_set, read_config_file
from cleaner.settings.resolver import ResolvedTopic, SettingsResolver
from cleaner.settings.windows import windows_of

__all__ = ["ResolvedTopic", "SettingsResolver", "parse_set", "read_config_file", "windows_of"]
