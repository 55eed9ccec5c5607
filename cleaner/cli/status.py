"""`cleaner status`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cleaner.cli.arguments import add_format, parse_offset
from cleaner.cli.daemon_options import EXIT_CODES, add_daemon, control_of, options_given

if TYPE_CHECKING:
    from cleaner.daemon.snapshot import ServiceSnapshot

SUMMARY = "how the running daemon is, and what it is at"

DESCRIPTION = """\
Shows a running daemon: whether all is well, what its workers do, what waits and why, its log dirs, the dirtiest
logs and the last rounds. What is not well comes first, each with the command to go on with."""

EXAMPLES = f"""\
examples:
  cleaner status
  cleaner status --config /etc/cleaner/cleaner.properties
  cleaner status --probe live                          in a container's health check
  cleaner status --logs all --format json | jq '.logs[] | select(.verdict.reason == "overdue") | .partition'

exit status:
  0  all is well      1  something is not: quarantine, a log dir offline, a failed log, a refused reload, no progress;
     --probe: not so
  {EXIT_CODES}"""


def _parse_count(text: str) -> int | str:
    return "all" if text == "all" else parse_offset(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--logs", metavar="N|all", type=_parse_count, default=10, help="how many logs, the dirtiest first (default: 10)"
    )
    add_format(parser, "the whole snapshot, one object")
    parser.add_argument(
        "--probe",
        choices=("live", "ready"),
        help="show nothing, for health checks. live: it answers and moves, whatever its logs are like; ready: it has "
        "also looked at every log dir, and is not stopping",
    )
    add_daemon(parser)


def _is_so(probe: str, shown: ServiceSnapshot) -> bool:
    if probe == "live":
        return shown.is_progressing
    return shown.is_progressing and shown.is_ready and shown.state == "running"


def run(arguments: argparse.Namespace) -> int:
    """Show the daemon; returns the exit code."""
    from cleaner.cli.show_status import show_status
    from cleaner.cli.troubles import troubles
    from cleaner.daemon.snapshot import ServiceSnapshot
    from cleaner.state.json_text import format_json

    control = control_of(arguments)
    if arguments.probe is not None:
        answer = control.ask("status", logs=0, topics=False, config=False)
        return 0 if _is_so(arguments.probe, control.value(ServiceSnapshot, answer, "snapshot")) else 1
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
