"""`cleaner release`."""

from __future__ import annotations

import argparse

from cleaner.cli.arguments import add_format
from cleaner.cli.daemon_options import EXIT_CODES, add_daemon, control_of, parse_partition
from cleaner.cli.output import print_answer, say

SUMMARY = "take a partition out of quarantine"

DESCRIPTION = """\
Has a running daemon clean a partition again that was set aside after an error, and forget its failures. If the cause
is not gone, the next round sets it aside again."""

EXAMPLES = f"""\
examples:
  cleaner quarantine              what was set aside, and why
  cleaner release orders-0

exit status:
  0  released      1  it is not in quarantine
  {EXIT_CODES}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("partition", metavar="TOPIC-PARTITION", type=parse_partition, help="which")
    add_format(parser, "the daemon's answer, one object")
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    """Release it; returns the exit code."""
    answer = control_of(arguments).ask("release", partition=str(arguments.partition))
    if arguments.format == "json":
        print_answer(answer)
    else:
        say(f"released: {arguments.partition}")
    return 0
