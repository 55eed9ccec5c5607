"""`cleaner pause`."""

from __future__ import annotations

import argparse

from cleaner.cli.arguments import add_format
from cleaner.cli.daemon_options import EXIT_CODES, add_daemon, control_of
from cleaner.cli.output import print_answer
from cleaner.cli.words import printable

SUMMARY = "stop cleaning: everything, a topic or a partition"

DESCRIPTION = """\
Has a running daemon begin no round of what is named, or of anything. A round that runs stops at its next buffer;
groups of segments that it has swapped stay swapped. Pauses nest: what was paused twice has to be resumed twice. They
last until then, or until the daemon ends."""

EXAMPLES = f"""\
examples:
  cleaner pause                   everything
  cleaner pause orders            all partitions of a topic
  cleaner pause orders-0

exit status:
  0  paused      1  refused
  {EXIT_CODES}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("scope", metavar="TOPIC[-PARTITION]", nargs="?", help="what (default: everything)")
    add_format(parser, "the daemon's answer, one object")
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    """Pause; returns the exit code."""
    answer = control_of(arguments).ask("pause", scope=arguments.scope)
    if arguments.format == "json":
        print_answer(answer)
        return 0
    stopping = answer.get("stopping")
    names = ", ".join(map(str, stopping)) if isinstance(stopping, list) else ""
    print(printable(f"paused: {arguments.scope or 'everything'}" + (f"; asked to stop: {names}" if names else "")))
    return 0
