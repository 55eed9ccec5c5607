"""`cleaner resume`."""

from __future__ import annotations

import argparse

from cleaner.cli.daemon_options import EXIT_CODES
from cleaner.cli.pausing import add_scope, ask

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
    add_scope(parser)


def run(arguments: argparse.Namespace) -> int:
    """Resume; returns the exit code."""
    return ask(arguments, "resume", "resumed", "pauses", "still paused")
