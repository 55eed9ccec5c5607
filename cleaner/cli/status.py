"""`cleaner status`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cleaner.cli.arguments import add_format, parse_offset_or_all
from cleaner.cli.daemon_options import EXIT_CODES, add_daemon, control_of, options_given
from cleaner.errors import UsageError

if TYPE_CHECKING:
    from cleaner.base.clock import Clock
    from cleaner.daemon.control.client import Control
    from cleaner.daemon.snapshot import ServiceSnapshot

SUMMARY = "how the running daemon is, and what it is at"

DESCRIPTION = """\
Shows a running daemon: whether all is well, what its workers do, what waits and why, its log dirs, the dirtiest
logs and the last rounds. What is not well comes first, each with the command to go on with.

With --watch it is shown every two seconds, or as often as said: on a terminal in its place, else one below the other.
Ctrl-C ends it. A daemon that goes away is waited for."""

EXAMPLES = f"""\
examples:
  cleaner status
  cleaner status --config /etc/cleaner/cleaner.properties
  cleaner status --watch 5
  cleaner status --probe live                          in a container's health check
  cleaner status --logs all --format json | jq '.logs[] | select(.verdict.reason == "overdue") | .partition'

exit status:
  0  all is well      1  something is not: quarantine, a log dir offline, a log that failed or cannot be looked at,
     a refused reload, no progress; --probe: not so; --watch ends with 0 on Ctrl-C
  {EXIT_CODES}"""


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r}: seconds, from 0.1 to 86400")
    return seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--logs",
        metavar="N|all",
        type=parse_offset_or_all,
        default=10,
        help="how many logs, the dirtiest first (default: 10)",
    )
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        type=_parse_seconds,
        nargs="?",
        const=2.0,
        help="show it again every so many seconds until Ctrl-C (default: 2)",
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


def run(arguments: argparse.Namespace, clock: Clock | None = None) -> int:
    """Show the daemon; returns the exit code."""
    from cleaner.daemon.snapshot import ServiceSnapshot

    control = control_of(arguments)
    if arguments.watch is not None:
        from cleaner.base.clock import SystemClock
        from cleaner.cli.watching import watch

        if arguments.probe is not None:
            raise UsageError("--probe asks once; --watch does not go with it")
        return watch(lambda: _show(control, arguments), arguments.watch, clock or SystemClock())
    if arguments.probe is not None:
        answer = control.ask("status", logs=0, topics=False, config=False)
        return 0 if _is_so(arguments.probe, control.value(ServiceSnapshot, answer, "snapshot")) else 1
    return _show(control, arguments)


def _show(control: Control, arguments: argparse.Namespace) -> int:
    from cleaner.cli.show_status import show_status
    from cleaner.daemon.snapshot import ServiceSnapshot
    from cleaner.present.problems import troubles
    from cleaner.state.json_text import format_json

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
