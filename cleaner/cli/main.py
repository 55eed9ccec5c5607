"""
The command `cleaner`: one file per sub-command, each imported with its needs only when it runs; those that ask a daemon
are a table (`steer.py`).

Exit codes: 0 done or nothing to do, 1 something was refused, or a signal stopped it in order, 2 usage, 69 no daemon is
running, 75 the log dir is in use, 77 only other users may steer the daemon, 78 a bad setting; as shells show it, 130 or
143: ended at once by SIGINT or SIGTERM.
"""

from __future__ import annotations

import argparse
import io
import os
import platform
import sys
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import NoReturn, TextIO

from cleaner import __version__
from cleaner.base.remote_path import RemotePath, is_remote, refuse_remote
from cleaner.cli import (
    bulk,
    check,
    clean,
    config,
    consume,
    doctor,
    dump,
    erase,
    explain,
    export,
    gaps,
    handover,
    history,
    plan,
    produce,
    prove_erased,
    recover,
    serve,
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
from cleaner.cli.logs import log_warning
from cleaner.cli.output import print_error, print_failure
from cleaner.cli.parser import Parser
from cleaner.cli.steer import SteeringCommand
from cleaner.cli.stop import leave_signals_alone
from cleaner.errors import CleanerError, ConfigError, describe
from cleaner.policy.kafka_version import KAFKA_VERSIONS

_COMMANDS: dict[str, ModuleType | SteeringCommand] = {
    "doctor": doctor,
    "clean": clean,
    "bulk": bulk,
    "plan": plan,
    "check": check,
    "gaps": gaps,
    "dump": dump,
    "recover": recover,
    "verify": verify,
    "erase": erase,
    "prove-erased": prove_erased,
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
    "export": export,
    "serve": serve,
}

_READ_REMOTE = ("plan", "check", "dump", "verify", "prove-erased", "consume", "gaps", "export", "serve")
"""The commands that take log dirs in buckets."""

_WRITE_REMOTE = (("bulk", "to"),)
"""Options that name a new place in a bucket."""

_DESCRIPTION = """\
Cleans Kafka log directories outside a broker: byte for byte what the log cleaner of Kafka 4.3.1, or of 4.4.0, would
leave."""

_EPILOG = """\
Start with `cleaner plan LOG_DIR`: it changes nothing and shows what there is to clean. Each command has its own help,
such as `cleaner clean --help`.

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
    """Read the command line; names of partitions may also follow options, which argparse alone refuses."""
    parser = make_parser()
    chosen, rest = parser.parse_known_args(arguments)
    if rest and (not hasattr(chosen, "partitions") or any(word.startswith("-") for word in rest)):
        parser.commands()[chosen.command].error(f"unrecognized arguments: {' '.join(rest)}")
    chosen.typed = list(sys.argv[1:] if arguments is None else arguments)
    if rest:
        chosen.partitions = [*chosen.partitions, *rest]
    return chosen


def _refuse_remote(chosen: argparse.Namespace) -> None:
    """
    Refuse paths into buckets where they are not read.

    Raises:
        UsageError: an argument names one, and is not a log dir of a command that only reads.
    """
    remote = [word for word in chosen.typed for word in (word, word.partition("=")[2]) if is_remote(word)]
    if not remote:
        return
    values = [value for name, value in vars(chosen).items() if (chosen.command, name) not in _WRITE_REMOTE]
    named = [each for value in values for each in (value if isinstance(value, list) else [value])]
    for path in named:
        if isinstance(path, RemotePath) and chosen.command not in _READ_REMOTE:
            refuse_remote(path, f"cleaner {chosen.command} needs a directory of this machine")
        if isinstance(path, Path) and not isinstance(path, RemotePath):
            # A plain path has lost a slash.
            for url in remote:
                if path == Path(url):
                    refuse_remote(url, "that option needs a path of this machine")


def _log_python_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Log a library's warning: one line for the operator, without the place in our sources."""
    log_warning(str(message))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Errors raised on purpose are one line on standard error."""
    with ExitStack() as stack:  # outside: --wide holds for errors, too
        return _run(arguments, stack)


def _run(arguments: Sequence[str] | None, stack: ExitStack) -> int:
    """Run a command; returns its exit code. The stack gets what holds until after its errors are printed."""
    try:
        chosen = _parse(arguments)  # prints --version
        stack.enter_context(wide(chosen=getattr(chosen, "wide", False)))
        with warnings.catch_warnings():
            warnings.showwarning = _log_python_warning
            _refuse_remote(chosen)
            code: int = chosen.run(chosen)
    except ConfigError as error:
        for mistake in error.mistakes:
            print_error(str(mistake))
        return error.exit_code
    except CleanerError as error:
        print_failure(error)
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output has gone; the cleaning is done. Keep Python from complaining at its exit.
        sys.stderr.close()
        return 1
    except OSError as error:
        print_error(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - an internal error, reported as one line with its place instead of a traceback
        print_error(f"{describe(error)}{_place_of(error)}; this is an internal error of the cleaner")
        return 1
    return code


def _place_of(error: Exception) -> str:
    """Return the last place in our sources in an error's traceback."""
    import traceback

    ours = [
        frame for frame in traceback.extract_tb(error.__traceback__) if f"{os.sep}cleaner{os.sep}" in frame.filename
    ]
    return f" (at {ours[-1].filename}:{ours[-1].lineno})" if ours else ""


def prepare_streams() -> None:
    """Escape characters that a stream's encoding cannot express: names on disk are bytes, not always text."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _occupy_standard_descriptors() -> None:
    """Open /dev/null for closed standard streams: otherwise a log's file would get the number, and our messages."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        continue
    os.close(descriptor)
    # Python sets a stream to None if it was closed at the start.
    sys.stdout = sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115


def run() -> NoReturn:
    """Run the command of this process and end it."""
    hold_back_while_loading()
    # numpy's matrix library starts one thread per core when loaded, and no kernel multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    leave_signals_alone()
    _occupy_standard_descriptors()
    prepare_streams()
    try:
        code = main()
    except SystemExit as end:  # argparse's, after --help, --version and mistakes in the command line
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # its reader has gone, or it was closed because of that
            code = code or 1
    # Not `sys.exit`: freeing the compiled kernels one by one takes as long as cleaning 200 MB. Everything durable has
    # been fsynced, and all threads have ended.
    os._exit(code)


# Libraries whose release may change bytes, speed or output; those of the `spark` extra may be missing.
_LIBRARIES = (
    "numpy",
    "numba",
    "llvmlite",
    "mmh3",
    "cramjam",
    "isal",
    "zstandard",
    "structlog",
    "prometheus-client",
    "pyspark",
    "pyarrow",
    "pandas",
)


class VersionAction(argparse.Action):
    """Prints the versions and ends; looks them up only then."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> NoReturn:
        """Answer `--version`."""
        print(version_text())
        parser.exit()


def version_text() -> str:
    """Return the versions, one per line, the cleaner's first."""
    releases = " and ".join(each.release for each in KAFKA_VERSIONS)
    lines = [f"cleaner {__version__}", f"rules of Apache Kafka {releases}, python {platform.python_version()}"]
    lines += [f"{name} {_release(name)}" for name in _LIBRARIES]
    return "\n".join(lines)


def _release(library: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"
