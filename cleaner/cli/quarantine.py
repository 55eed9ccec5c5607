"""`cleaner quarantine`."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cleaner.cli.arguments import add_format
from cleaner.cli.daemon_options import add_daemon, control_of, state_dir_of

if TYPE_CHECKING:
    from cleaner.state.quarantine import QuarantinedLog

SUMMARY = "which logs were set aside, and why"

DESCRIPTION = """\
Lists the logs that were set aside after an error that another try would meet again: what was wrong, in which file and
where, and since when. Asks the daemon; where none is running, its state directory."""

EXAMPLES = """\
examples:
  cleaner quarantine
  cleaner quarantine --format json | jq -r .partition
  cleaner release orders-0        once the cause is gone

exit status:
  0  none is      1  some are, or the list cannot be read      77  the daemon's socket is not for this user"""

_HEADINGS = ("partition", "since", "log dir", "file", "at byte", "reason")
_WORDS = frozenset((0, 1, 2, 3, 5))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_format(parser, "one log a line")
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    """List them; returns the exit code."""
    from cleaner.cli.output import json_line, say_table

    entries = _entries(arguments)
    if arguments.format == "json":
        for entry in entries:
            print(json_line("quarantine", _fields(entry)))
    elif entries:
        say_table(_HEADINGS, map(_row, entries), left=_WORDS, names=(0, 2, 3))
    return 1 if entries else 0


def _entries(arguments: argparse.Namespace) -> Sequence[QuarantinedLog]:
    from cleaner.daemon.snapshot import ServiceSnapshot
    from cleaner.errors import CleanerError, NoDaemonError
    from cleaner.state.quarantine import read_quarantine
    from cleaner.state.state_file import BadStateError
    from cleaner.storage.fs.file_system import FileSystem

    control = control_of(arguments)
    try:
        return control.value(ServiceSnapshot, control.ask("status", logs=0), "snapshot").quarantine
    except NoDaemonError:
        # Who names a socket alone wants that daemon's word, and not that of a directory it may not even have.
        if arguments.socket is not None and arguments.state_dir is None and arguments.config is None:
            raise
    state_dir = state_dir_of(arguments)
    if not state_dir.is_dir():
        raise NoDaemonError(f"no daemon is running, and there is no state directory {state_dir}")
    try:
        return read_quarantine(FileSystem(), state_dir)
    except BadStateError as error:
        raise CleanerError(f"{state_dir}: the quarantine cannot be read: {error}") from error


def _fields(entry: QuarantinedLog) -> dict[str, object]:
    """Return an entry by the names that all commands use."""
    fields = {field.name: getattr(entry, field.name) for field in dataclasses.fields(entry)}
    return {"partition": fields.pop("topic_partition"), **fields}


def _row(entry: QuarantinedLog) -> tuple[str, ...]:
    from cleaner.present.formatting import moment, printable

    return (
        printable(str(entry.topic_partition)),
        moment(entry.since_ms),
        printable(entry.log_dir),
        printable(entry.file or "-"),
        "-" if entry.position is None else str(entry.position),
        printable(entry.reason),
    )
