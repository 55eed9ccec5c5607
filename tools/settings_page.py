"""cleaner.properties(5): the settings as a manual page, from the same table as `docs/settings.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cleaner.config.bulk_rows import BULK_ROWS
from cleaner.config.daemon_rows import DAEMON_ROWS
from cleaner.config.definition import Setting
from cleaner.config.log_rows import LOG_ROWS
from cleaner.config.process_rows import PROCESS_ROWS
from cleaner.config.topic_rows import TOPIC_ROWS
from tools.roff import heading, line, text

_HEAD = """\
A file of settings as Java's Properties reads them: key=value, # for comments. Names and defaults are those of Kafka \
4.3.1, so a broker's server.properties will do; names that begin with "cleaner." are the cleaner's own.
`cleaner config check` names every mistake, `cleaner config show` what is in force and who says so, `cleaner config \
docs` prints this with the order in which sources count."""

_CHAPTERS = (
    ("TOPIC SETTINGS", TOPIC_ROWS),
    ("SETTINGS OF THE PROCESS", PROCESS_ROWS),
    ("SETTINGS OF A PROCESS THAT WRITES LOGS", LOG_ROWS),
    ("SETTINGS OF BULK CLEANING", BULK_ROWS),
    ("SETTINGS OF THE DAEMON", DAEMON_ROWS),
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
