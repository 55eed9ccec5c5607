"""`cleaner reload`."""

from __future__ import annotations

import argparse

from cleaner.cli.arguments import add_format
from cleaner.cli.daemon_options import EXIT_CODES, add_daemon, control_of
from cleaner.cli.output import print_answer, print_error, say
from cleaner.errors import ConfigError
from cleaner.present.formatting import printable

SUMMARY = "have the daemon read its settings again"

DESCRIPTION = """\
Has a running daemon read its settings again, as SIGHUP does. All of them are taken over or, with a mistake anywhere,
none; what can only change with a restart is named. Runtime changes (`cleaner throttle`) are forgotten."""

EXAMPLES = f"""\
examples:
  cleaner reload

exit status:
  0  taken over      78  a mistake: nothing has changed, one line says each
  {EXIT_CODES}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_format(parser, "the daemon's answer, one object")
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    """Reload; returns the exit code."""
    from cleaner.daemon.steering import ReloadResult

    control = control_of(arguments)
    answer = control.ask("reload")
    result = control.value(ReloadResult, {"result": answer}, "result")
    if arguments.format == "json":
        print_answer(answer)
    elif not result.errors:
        say(printable(f"changed: {', '.join(result.changed) or 'nothing'}"))
        if result.needs_restart:
            say(printable(f"only after a restart: {', '.join(result.needs_restart)}"))
    for mistake in result.errors:
        print_error(mistake)
    return ConfigError.exit_code if result.errors else 0
