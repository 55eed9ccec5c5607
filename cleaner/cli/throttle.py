"""`cleaner throttle`."""

from __future__ import annotations

import argparse

from cleaner.base.sizes import SUFFIXES_IN_WORDS, human_rate, slow_rate
from cleaner.cli.arguments import add_format, parse_bytes
from cleaner.cli.daemon_options import EXIT_CODES, add_daemon, control_of
from cleaner.cli.logs import log_warning
from cleaner.cli.output import print_answer, say
from cleaner.present.formatting import printable

SUMMARY = "change how fast the daemon may read and write"

DESCRIPTION = """\
Changes the speed limit of a running daemon: bytes read and written a second, of all its workers together, or of those
in one log dir. It counts at once, and until the settings are read again or the daemon ends.
A rate below 1M draws a warning: 50 is 50 bytes a second."""

EXAMPLES = f"""\
examples:
  cleaner throttle 50M
  cleaner throttle 5M --log-dir /mnt/disk2/kafka
  cleaner throttle unlimited

exit status:
  0  changed      1  refused      2  usage
  {EXIT_CODES}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "rate",
        metavar="RATE|unlimited",
        type=_parse_rate,
        help=f"bytes a second, with {SUFFIXES_IN_WORDS}",
    )
    parser.add_argument("--log-dir", metavar="DIR", help="only of work in this log dir, beside the limit of all")
    add_format(parser, "the daemon's answer, one object")
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    """Change the rate; returns the exit code."""
    rate = None if arguments.rate == "unlimited" else arguments.rate
    answer = control_of(arguments).ask("throttle", bytes_per_second=rate, log_dir=arguments.log_dir)
    if warning := slow_rate(rate):
        log_warning(warning)
    if arguments.format == "json":
        print_answer(answer)
    else:
        say(printable(f"throttle: {human_rate(rate)}" + (f" in {arguments.log_dir}" if arguments.log_dir else "")))
    return 0


def _parse_rate(text: str) -> int | str:
    return text if text == "unlimited" else parse_bytes(text)
