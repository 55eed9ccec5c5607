"""`cleaner resume`."""

from __future__ import annotations

import argparse

from cleaner.cli.arguments import add_format
from cleaner.cli.daemon_options import EXIT_CODES, add_daemon, control_of
from cleaner.cli.output import print_answer
from cleaner.cli.words import printable

SUMMARY = "take a pause back"

DESCRIPTION = """\
Takes back one pause of what is named, or of everything. What a topic's pause holds, a partition's resume does not
let go: name what was paused; `cleaner status` lists it."""

EXAMPLES = f"""\
examples:
  cleaner resume
  cleaner resume orders

exit status:
  0  resumed      1  refused
  {EXIT_CODES}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("scope", metavar="TOPIC[-PARTITION]", nargs="?", help="what (default: everything)")
    add_format(parser, "the daemon's answer, one object")
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    """Resume; returns the exit code."""
    answer = control_of(arguments).ask("resume", scope=arguments.scope)
    if arguments.format == "json":
        print_answer(answer)
        return 0
    pauses = answer.get("pauses")
    names = ", ".join(map(str, pauses)) if isinstance(pauses, list) else ""
    print(printable(f"resumed: {arguments.scope or 'everything'}" + (f"; still paused: {names}" if names else "")))
    return 0
