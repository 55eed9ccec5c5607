"""What `pause` and `resume` share: what they are about, and how the daemon's answer is told."""

from __future__ import annotations

import argparse

from cleaner.cli.arguments import add_format
from cleaner.cli.daemon_options import add_daemon, control_of
from cleaner.cli.output import print_answer, say
from cleaner.present.formatting import printable


def add_scope(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("scope", metavar="TOPIC[-PARTITION]", nargs="?", help="what (default: everything)")
    add_format(parser, "the daemon's answer, one object")
    add_daemon(parser)


def ask(arguments: argparse.Namespace, verb: str, done: str, concerned: str, heading: str) -> int:
    """
    Ask the daemon, and tell what it has done.

    Args:
        verb: what is asked of it.
        done: the word for what it did.
        concerned: the field of its answer that names what is concerned besides.
        heading: stands before these names, where there are any.
    Returns:
        the exit code.
    """
    answer = control_of(arguments).ask(verb, scope=arguments.scope)
    if arguments.format == "json":
        print_answer(answer)
        return 0
    listed = answer.get(concerned)
    names = ", ".join(map(str, listed)) if isinstance(listed, list) else ""
    say(printable(f"{done}: {arguments.scope or 'everything'}" + (f"; {heading}: {names}" if names else "")))
    return 0
