"""`cleaner explain`."""

from __future__ import annotations

import argparse

from cleaner.cli.arguments import add_format
from cleaner.cli.daemon_options import EXIT_CODES, add_daemon, control_of, options_given, parse_partition

SUMMARY = "why a log is, or is not, cleaned now"

DESCRIPTION = """\
Draws one log to scale (clean and dirty section, delete retention point, first uncleanable offset, active segment)
and says the one reason why it is next, waits or is not cleaned: what it means, the setting behind it, and what to
type next. Asks the running daemon."""

EXAMPLES = f"""\
examples:
  cleaner explain orders-0
  cleaner explain orders-0 --format json | jq .why

the signs of the drawing:
  =  clean, and so old that its tombstones may go        #  dirty: what the next round takes
  -  clean, its tombstones have to stay yet              .  uncleanable for now      ~  the active segment

exit status:
  0  explained      1  the daemon has no such log
  {EXIT_CODES}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("partition", metavar="TOPIC-PARTITION", type=parse_partition, help="which log")
    add_format(parser, "the log, one object a line")
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    """Explain one log, in each log dir that has it; returns the exit code."""
    from cleaner.cli.show_explain import show_explain
    from cleaner.daemon.snapshot import ServiceSnapshot
    from cleaner.daemon.snapshot_json import json_value
    from cleaner.daemon.steering import SteeringError
    from cleaner.state.json_text import format_json

    control = control_of(arguments)
    name = str(arguments.partition)
    shown = control.value(ServiceSnapshot, control.ask("status", of=[name], config=True), "snapshot")
    # A topic may have a name that reads like a partition of another one.
    views = [view for view in shown.logs if str(view.partition) == name]
    if not views:
        raise SteeringError(f"the daemon at {control.path} has no log {name}; cleaner status --logs all lists them")
    for number, view in enumerate(views):
        if arguments.format == "json":
            value = json_value(view)
            print(format_json(value if isinstance(value, dict) else {}))
        else:
            print("\n" if number else "", end="")
            show_explain(view, shown, options_given(arguments))
    return 0
