"""`cleaner config`: check, show, docs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base.mistakes import Mistakes
from cleaner.cli.arguments import add_format, add_settings, load_process_settings, set_options
from cleaner.cli.fitting import columns
from cleaner.cli.logs import log_warning
from cleaner.cli.output import json_line, say, say_table
from cleaner.present.text import counted, printable
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.which_dir import require_log_dir

if TYPE_CHECKING:
    from cleaner.app.configuration import Loaded
    from cleaner.config.definition import Setting
    from cleaner.settings import ResolvedTopic

SUMMARY = "check the settings, show which are in force and where they come from, or print their reference"

DESCRIPTION = """\
check   reads all settings as the daemon would: file, environment (CLEANER_LOG_CLEANER_THREADS=2), --set, files of
        topics, and those of every topic in the log dirs. Names every mistake, one a line: key, value, what is
        wrong, what is allowed.
show    every setting with its value and where it comes from; with --topic those of one topic.
docs    the reference of all settings, in Markdown.

None of them changes or locks anything."""

EXAMPLES = """\
examples:
  cleaner config check --config /etc/cleaner/cleaner.properties
  cleaner config show --config /etc/cleaner/cleaner.properties --changed-only
  cleaner config show --config /etc/cleaner/cleaner.properties --topic prices --format json
  cleaner config docs

exit status:
  0  sound, or shown      2  usage      78  a bad setting"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's actions and options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, help="check, show or docs")
    check = actions.add_parser("check", help="name every mistake")
    show = actions.add_parser("show", help="every setting")
    actions.add_parser("docs", help="the reference")
    for action in (check, show):
        add_settings(action)
        action.add_argument(
            "--log-dir",
            dest="log_dirs",
            metavar="LOG_DIR",
            type=Path,
            action="append",
            default=[],
            help="a log dir whose topics are checked or shown; may be repeated (default: those of log.dirs)",
        )
    show.add_argument("--topic", metavar="TOPIC", help="the settings of this topic")
    show.add_argument("--changed-only", action="store_true", help="leave out defaults")
    add_format(show)


def run(arguments: argparse.Namespace) -> int:
    """Check, show or print; returns the exit code."""
    match arguments.action:
        case "check":
            _check(arguments)
        case "show":
            _show(arguments)
        case "docs":
            from cleaner.cli.settings_document import document

            print(document(columns()), end="")
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """
    Check everything.

    Raises:
        ConfigError: all mistakes.
    """
    from cleaner.app.check_settings import CheckedSettings, check_log_dirs, check_topic_files
    from cleaner.app.configuration import configured_topics_dir

    fs = FileSystem()
    mistakes = Mistakes()
    checked = CheckedSettings((), 0, ())
    topics_dir = arguments.topics_dir
    if topics_dir is None:
        topics_dir = configured_topics_dir(arguments.config, set_options(arguments), os.environ, fs)
    with mistakes.collected():
        loaded = load_process_settings(arguments)
        checked = check_log_dirs(fs, loaded, arguments.log_dirs, mistakes)
    if topics_dir is not None:
        check_topic_files(fs, topics_dir, mistakes)
    mistakes.raise_any()
    for warning in checked.warnings:
        log_warning(warning)
    topics, log_dirs = counted(checked.topics, "topic"), counted(len(checked.log_dirs), "log dir")
    where = f", also for {topics} in {log_dirs}" if checked.log_dirs else ""
    say(f"the settings are sound{where}")


def _show(arguments: argparse.Namespace) -> None:
    loaded = load_process_settings(arguments)
    for log_dir in arguments.log_dirs:
        require_log_dir(FileSystem(), log_dir)
    if arguments.topic is None:
        rows = _process_rows(loaded)
    else:
        from cleaner.app.check_settings import resolve_topic

        resolved = resolve_topic(FileSystem(), loaded, arguments.topic, arguments.log_dirs)
        for warning in resolved.warnings:
            log_warning(warning)
        rows = _topic_rows(resolved)
    _show_rows(rows, arguments.format, changed_only=arguments.changed_only)


@dataclass(frozen=True)
class SettingRow:
    """
    One setting as shown.

    Attributes:
        key, value: as text; None: not given, and without a default of its own.
        source: where the value comes from, or `default`.
        default: its value if none is given.
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
    def of(setting: Setting, text: str, source: str) -> SettingRow:
        """Fill in the setting's fields from the table."""
        from cleaner.settings.given import DEFAULT

        is_given = source != DEFAULT or setting.default is not None
        return SettingRow(
            key=setting.name,
            value=text if is_given else None,
            source=source,
            default=setting.default,
            type=setting.kind,
            counts_after="reload" if setting.dynamic else "restart",
            read_by="daemon" if setting.daemon else "every command",
        )


def _process_rows(loaded: Loaded) -> list[SettingRow]:
    """Return every setting; topic settings have the values of a topic without its own."""
    from cleaner.config.table import BROKER_SETTINGS, TOPIC_SETTINGS

    settings = BROKER_SETTINGS | TOPIC_SETTINGS
    return [SettingRow.of(setting, *loaded.values[key]) for key, setting in settings.items()]


def _topic_rows(resolved: ResolvedTopic) -> list[SettingRow]:
    """Return every setting of a topic."""
    from cleaner.config.table import TOPIC_SETTINGS

    return [SettingRow.of(setting, *resolved.in_force(name)) for name, setting in TOPIC_SETTINGS.items()]


def _show_rows(rows: Iterable[SettingRow], how: str, *, changed_only: bool) -> None:
    """Print a table, or one object per line."""
    from cleaner.settings.given import DEFAULT

    shown = [row for row in rows if not changed_only or row.source != DEFAULT]
    if how == "json":
        for row in shown:
            print(json_line("setting", row))
        return
    cells = [(row.key, "-" if row.value is None else printable(row.value), printable(row.source)) for row in shown]
    say_table(("KEY", "VALUE", "SOURCE"), cells, left=frozenset((0, 1, 2)), names=())
