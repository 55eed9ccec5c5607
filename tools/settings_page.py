"""cleaner.properties(5): the settings as a manual page, from the same table as `docs/settings.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cleaner.config.bulk_settings import BulkSettings
from cleaner.config.daemon_settings import DaemonSettings
from cleaner.config.definition import Setting
from cleaner.config.process_settings import ProcessSettings
from cleaner.config.table import rows_of
from cleaner.config.topic_settings import TopicSettings
from cleaner.config.writer_settings import WriterSettings
from tools.roff import heading, line, text

_HEAD = """\
A file of settings as Java's Properties reads them: key=value, # for comments. Names and defaults are those of Kafka \
4.4.0, so a broker's server.properties will do; names that begin with "cleaner." are the cleaner's own.
`cleaner config check` names every error, `cleaner config show` what is in force and from where, `cleaner config \
docs` prints this with the order in which sources count."""

_CHAPTERS = (
    ("TOPIC SETTINGS", rows_of(TopicSettings)),
    ("SETTINGS OF THE PROCESS", rows_of(ProcessSettings)),
    ("SETTINGS OF A PROCESS THAT WRITES LOGS", rows_of(WriterSettings)),
    ("SETTINGS OF BULK CLEANING", rows_of(BulkSettings)),
    ("SETTINGS OF THE DAEMON", rows_of(DaemonSettings)),
)


def settings_page(version: str) -> str:
    """Return the page in roff."""
    lines = [
        *heading("cleaner.properties", 5, version, "settings of the log cleaner"),
        ".SH DESCRIPTION",
        *map(line, _HEAD.splitlines()),
    ]
    for title, settings in _CHAPTERS:
        lines += [f".SH {text(title)}", *_settings(settings)]
    return "\n".join([*lines, ".SH SEE ALSO", ".BR cleaner (1)"]) + "\n"


def _settings(settings: Iterable[Setting]) -> Iterator[str]:
    for setting in settings:
        default = f" = {setting.default}" if setting.default else ""
        yield ".TP"
        yield f"\\fB{text(setting.name)}\\fR{text(default)}"
        yield line(setting.doc)
        facts = [setting.kind, setting.bound(), "" if setting.dynamic else "counts after a restart"]
        yield f"({text('; '.join(filter(None, facts)))})"
