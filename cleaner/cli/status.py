"""`cleaner status`."""

from __future__ import annotations

import argparse

from cleaner.cli.arguments import add_format, parse_offset
from cleaner.cli.daemon_options import EXIT_CODES, add_daemon, control_of, options_given

SUMMARY = "how the running daemon is, and what it is at"

DESCRIPTION = """\
Shows a running daemon: whether all is well, what its workers do, what waits and why, its log dirs, the dirtiest
logs and the last rounds. What is not well comes first, each with the command to go on with."""

EXAMPLES = f"""\
examples:
  cleaner status
  cleaner status --config /etc/cleaner/cleaner.properties
  cleaner status --logs all --format json | jq '.logs[] | select(.verdict.reason == "overdue") | .partition'

exit status:
  0  all is well      1  something is not: quarantine, a log dir offline, a failed log, a refused reload, no progress
  {EXIT_CODES}"""


def _parse_count(text: str) -> int | str:
    return "all" if text == "all" else parse_offset(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--logs", metavar="N|all", type=_parse_count, default=10, help="how many logs, the dirtiest first (default: 10)"
    )
    add_format(parser, "the whole snapshot, one object")
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show the daemon; returns the exit code."""
    from cleaner.cli.show_status import show_status
    from cleaner.cli.troubles import troubles
    from cleaner.daemon.snapshot import ServiceSnapshot
    from cleaner.state.json_text import format_json

    control = control_of(arguments)
    is_json = arguments.format == "json"
    answer = control.ask("status", logs=arguments.logs, topics=is_json, config=is_json)
    shown = control.value(ServiceSnapshot, answer, "snapshot")
    if is_json:
        # As it was sent: of a daemon of a later release, fields this one does not know, too.
        snapshot = answer["snapshot"]
        print(format_json(snapshot if isinstance(snapshot, dict) else {}))
    else:
        show_status(shown, answer, options_given(arguments))
    return 1 if troubles(shown) else 0
