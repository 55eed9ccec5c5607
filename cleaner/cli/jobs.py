"""`cleaner jobs`."""

from __future__ import annotations

import argparse

from cleaner.cli.arguments import add_format, parse_offset
from cleaner.cli.daemon_options import EXIT_CODES, add_daemon, control_of

SUMMARY = "what was asked for with `now`, and how far it is"

DESCRIPTION = """\
Lists the jobs of a running daemon, the newest first: those that wait or run, and for a while those that ended."""

EXAMPLES = f"""\
examples:
  cleaner jobs
  cleaner jobs --cancel 7

exit status:
  0  listed, or cancelled      1  no such job, or it has ended
  {EXIT_CODES}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--cancel", metavar="ID", type=parse_offset, help="take a job back; one that runs stops at the next buffer"
    )
    add_format(parser, "one job a line")
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    """List the jobs, or cancel one; returns the exit code."""
    from cleaner.cli.show_jobs import print_jobs, read_jobs

    control = control_of(arguments)
    if arguments.cancel is not None:
        answer = control.ask("cancel", job=arguments.cancel)
        answer["jobs"] = [answer.get("job")]
    else:
        answer = control.ask("jobs")
    print_jobs(read_jobs(control, answer), arguments.format)
    return 0
