"""
All settings by name; `docs/settings.md` is generated from this.

Topic settings are those of R-802, broker settings those of R-801; names that begin with `cleaner.` are our own. Of
several broker names for a setting, the first one that is set counts.
"""

from __future__ import annotations

from cleaner.config.bulk_settings import BulkSettings
from cleaner.config.daemon_settings import DaemonSettings
from cleaner.config.definition import LONG_MAX, Setting, settings_of
from cleaner.config.process_settings import UNLIMITED_RATE, ProcessSettings
from cleaner.config.topic_settings import UNUSED_TOPIC_KEYS, TopicSettings
from cleaner.config.writer_settings import WriterSettings

__all__ = [
    "BROKER_SETTINGS",
    "LONG_MAX",
    "SETTING_OF_SYNONYM",
    "TOPIC_SETTINGS",
    "UNLIMITED_RATE",
    "UNUSED_TOPIC_KEYS",
    "rows_of",
]


def rows_of(cls: type) -> list[Setting]:
    """Return the rows of the settings that a dataclass declares, in order."""
    of_fields = dict(settings_of(cls).values())
    return [of_fields[name] if name in of_fields else vars(cls)[name] for name in cls.__annotations__]


TOPIC_SETTINGS = {row.name: row for row in rows_of(TopicSettings)}

# The settings of the process; `daemon` marks those that only the daemon reads.
BROKER_SETTINGS = {
    row.name: row for cls in (ProcessSettings, WriterSettings, BulkSettings, DaemonSettings) for row in rows_of(cls)
}

# A broker's name of a topic setting -> the setting and the synonym.
SETTING_OF_SYNONYM = {
    synonym.name: (setting, synonym) for setting in TOPIC_SETTINGS.values() for synonym in setting.synonyms
}
