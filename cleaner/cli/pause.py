"""`cleaner pause`."""

from __future__ import annotations

import argparse

from cleaner.cli.daemon_options import EXIT_CODES
from cleaner.cli.pausing import add_scope, ask

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
    add_scope(parser)


def run(arguments: argparse.Namespace) -> int:
    """Pause; returns the exit code."""
    return ask(arguments, "pause", "paused", "stopping", "asked to stop")
