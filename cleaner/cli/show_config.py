"""What `cleaner config show` prints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cleaner.app.configuration import Loaded
from cleaner.cli.output import json_line, say_table
from cleaner.config.definition import Setting
from cleaner.config.table import BROKER_SETTINGS, TOPIC_SETTINGS
from cleaner.present.formatting import printable
from cleaner.settings import ResolvedTopic
from cleaner.settings.given import DEFAULT


@dataclass(frozen=True)
class SettingRow:
    """
    One setting as shown.

    Attributes:
        key, value: as text; None: it is not given and has no default of its own.
        source: who says so, or `default`.
        default: what it is when nobody says anything.
        type: as in `docs/settings.md`.
        counts_after: `reload` or `restart`.
        read_by: `daemon` or `every command`.
    """

    key: str
    value: str | None
    source: str
    default: str | None
    type: str
    counts_after: str
    read_by: str

    @staticmethod
    def of(setting: Setting, value: str | None, source: str) -> SettingRow:
        """Fill in what the table says of the setting."""
        return SettingRow(
            key=setting.name,
            value=value,
            source=source,
            default=setting.default,
            type=setting.kind,
            counts_after="reload" if setting.dynamic else "restart",
            read_by="daemon" if setting.daemon else "every command",
        )


def process_rows(loaded: Loaded) -> list[SettingRow]:
    """Return every setting, those of topics as topics have them that nobody speaks of by name."""
    rows = []
    for key, setting in (BROKER_SETTINGS | TOPIC_SETTINGS).items():
        text, origin = loaded.values[key]
        is_given = origin != DEFAULT or setting.default is not None
        rows.append(SettingRow.of(setting, text if is_given else None, origin))
    return rows


def topic_rows(resolved: ResolvedTopic) -> list[SettingRow]:
    """Return every setting of a topic."""
    rows = []
    for name, setting in TOPIC_SETTINGS.items():
        text, origin = resolved.in_force(name)
        is_given = origin != DEFAULT or setting.default is not None
        rows.append(SettingRow.of(setting, text if is_given else None, origin))
    return rows


def show_rows(rows: Iterable[SettingRow], how: str, *, changed_only: bool) -> None:
    """Print a table, or an object a line."""
    shown = [row for row in rows if not changed_only or row.source != DEFAULT]
    if how == "json":
        for row in shown:
            print(json_line("setting", row))
        return
    cells = [(row.key, "-" if row.value is None else printable(row.value), printable(row.source)) for row in shown]
    say_table(("KEY", "VALUE", "SOURCE"), cells, left=frozenset((0, 1, 2)), names=())
