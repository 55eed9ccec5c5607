"""
One row for each setting the cleaner reads: name, type, default, what it does, bounds, the broker's names for it.

The only place where a setting is declared: `config.py` gives the values a shape, `docs/settings.md` is written from
here. Topic settings are those of spec rule R-802, broker settings those of R-801; names that begin with `cleaner.`
are our own. Of several broker names the first one that is set counts.

The rows stand in `config_topic_rows.py`, `config_process_rows.py` (every command), `config_bulk_rows.py` (with
Spark), `config_daemon_rows.py` and `config_log_rows.py` (whoever writes logs).
"""

from __future__ import annotations

from collections.abc import Iterable

from cleaner.config.bulk_rows import BULK_ROWS
from cleaner.config.daemon_rows import DAEMON_ROWS
from cleaner.config.definition import Setting
from cleaner.config.log_rows import LOG_ROWS
from cleaner.config.process_rows import PROCESS_ROWS, UNLIMITED_RATE
from cleaner.config.topic_rows import LONG_MAX, TOPIC_ROWS, UNUSED_TOPIC_KEYS

__all__ = [
    "BROKER_SETTINGS",
    "LONG_MAX",
    "SETTING_OF_SYNONYM",
    "TOPIC_SETTINGS",
    "UNLIMITED_RATE",
    "UNUSED_TOPIC_KEYS",
]


def _table(settings: Iterable[Setting]) -> dict[str, Setting]:
    return {setting.name: setting for setting in settings}


TOPIC_SETTINGS = _table(TOPIC_ROWS)

# The settings of the process; `is_daemon` tells those that only the daemon reads.
BROKER_SETTINGS = _table((*PROCESS_ROWS, *LOG_ROWS, *BULK_ROWS, *DAEMON_ROWS))

# A broker's name of a topic setting -> the setting and the synonym, to recognise it wherever it is written.
SETTING_OF_SYNONYM = {
    synonym.name: (setting, synonym) for setting in TOPIC_SETTINGS.values() for synonym in setting.synonyms
}
