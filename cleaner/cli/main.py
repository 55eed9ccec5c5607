"""
The command `cleaner`: one file a sub-command, each loaded with what it needs only when it runs; those that ask a daemon
are a table (`steer.py`).

Exit codes: 0 done or nothing to do, 1 something was refused, or it was stopped in order by a signal, 2 usage, 69 no
daemon is running, 75 the log dir is in use, 77 the daemon is for other users to steer, 78 a bad setting; as shells show
it, 130 or 143: ended at once by SIGINT or SIGTERM.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn, TextIO

from cleaner.cli import (
    bulk,
    check,
    clean,
    config,
    consume,
    doctor,
    dump,
    explain,
    handover,
    history,
    plan,
    produce,
    recover,
    status,
    steer,
    topics,
    undo,
    verify,
    warm,
)
from cleaner.cli import run as run_daemon
from cleaner.cli.collecting import hold_back_while_loading
from cleaner.cli.fitting import wide
from cleaner.cli.output import print_error, print_failure
from cleaner.cli.parser import Parser
from cleaner.cli.steer import SteeringCommand
from cleaner.cli.stop import leave_signals_alone
from cleaner.cli.version import VersionAction
from cleaner.errors import CleanerError, ConfigError, describe

_COMMANDS: dict[str, ModuleType | SteeringCommand] = {
    "doctor": doctor,
    "clean": clean,
    "bulk": bulk,
    "plan": plan,
    "check": check,
    "dump": dump,
    "recover": recover,
    "verify": verify,
    "undo": undo,
    "handover": handover,
    "run": run_daemon,
    "config": config,
    "warm": warm,
    "status": status,
    "explain": explain,
    **steer.COMMANDS,
    "history": history,
    "topics": topics,
    "produce": produce,
    "consume": consume,
}

_DESCRIPTION = """\
Cleans Kafka log directories outside a broker: byte for byte what Kafka 4.3.1's log cleaner would leave."""

_EPILOG = """\
Start with `cleaner plan LOG_DIR`: it changes nothing and says what there is to do. Each command explains itself:
`cleaner clean --help`.

Lines are as long as the terminal is wide, or as COLUMNS says: long names are cut in their middle, long rows become
several lines. Into a pipe, and with --wide (`cleaner history --wide | less -S`), a row is one line with everything in
it."""


_STANDARD_ERROR = 2


def make_parser() -> Parser:
    """Return the parser of the whole command line."""
    parser = Parser(prog="cleaner", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("--version", action=VersionAction, nargs=0, help="the release, and those of libraries")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in _COMMANDS.items():
        command = commands.add_parser(
            name,
            help=module.SUMMARY,
            description=module.DESCRIPTION,
            epilog=module.EXAMPLES,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; names of partitions may stand behind options too, which argparse alone refuses."""
    parser = make_parser()
    chosen, rest = parser.parse_known_args(arguments)
    if rest and (not hasattr(chosen, "partitions") or any(word.startswith("-") for word in rest)):
        parser.commands()[chosen.command].error(f"unrecognized arguments: {' '.join(rest)}")
    chosen.typed = list(sys.argv[1:] if arguments is None else arguments)
    if rest:
        chosen.partitions = [*chosen.partitions, *rest]
    return chosen


def _log_python_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Log what a library warns about: one line for the operator, not the place in our sources."""
    from cleaner.cli.logs import log_warning

    log_warning(str(message))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Errors raised on purpose are one line on standard error."""
    chosen = _parse(arguments)
    with wide(chosen=getattr(chosen, "wide", False)):
        return _run(chosen)


def _run(chosen: argparse.Namespace) -> int:
    """Run a command; returns its exit code."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _log_python_warning
            code: int = chosen.run(chosen)
    except ConfigError as error:
        for mistake in error.mistakes:
            print_error(str(mistake))
        return error.exit_code
    except CleanerError as error:
        print_failure(error)
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output has gone; what was to be cleaned is clean. Keep Python from complaining at its exit.
        sys.stderr.close()
        return 1
    except OSError as error:
        print_error(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - an internal error, told as one line with its place instead of a page
        print_error(f"{describe(error)}{_place_of(error)}; this is an internal error of the cleaner")
        return 1
    return code


def _place_of(error: Exception) -> str:
    """Return the last place in our sources that an error came by."""
    import traceback

    ours = [
        frame for frame in traceback.extract_tb(error.__traceback__) if f"{os.sep}cleaner{os.sep}" in frame.filename
    ]
    return f" (at {ours[-1].filename}:{ours[-1].lineno})" if ours else ""


def prepare_streams() -> None:
    """Have what a stream's encoding cannot express written as an escape: names on disk are bytes, not always text."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _occupy_standard_descriptors() -> None:
    """Put nothing where standard input, output or error were closed: a log would get the number, and messages in it."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        continue
    os.close(descriptor)
    # Python has None for a stream that was closed when it was started.
    sys.stdout = sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115


def run() -> NoReturn:
    """Run the command of this process and end it."""
    hold_back_while_loading()
    # numpy's library for matrices starts a thread a core when it is loaded, and no kernel multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    leave_signals_alone()
    _occupy_standard_descriptors()
    prepare_streams()
    code = main()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # its reader has gone, or it was closed for that reason
            code = code or 1
    # Not `sys.exit`: taking the compiled kernels down piece by piece takes as long as cleaning 200 MB. What is to last
    # has been fsynced, and all threads have ended.
    os._exit(code)
