"""`cleaner history`."""

from __future__ import annotations

import argparse
import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base.clock import SystemClock
from cleaner.base.mistakes import did_you_mean
from cleaner.base.sizes import human_bytes, human_rate
from cleaner.cli.arguments import add_format, parse_offset_or_all
from cleaner.cli.daemon_options import add_state_dir, state_dir_of
from cleaner.cli.output import print_error, say_all
from cleaner.errors import CleanerError
from cleaner.present.text import moment, printable

if TYPE_CHECKING:
    from cleaner.base.json_values import JsonValue
    from cleaner.state.journal import JournalEntry
    from cleaner.state.journal_reader import JournalReader

SUMMARY = "what the daemon did, and who gave each command"

DESCRIPTION = """\
Reads the journal in a daemon's state directory: each round with its settings, offsets and what it removed, and each
command with the uid of who gave it. The daemon need not be running. The newest entry comes last."""

EXAMPLES = """\
examples:
  cleaner history
  cleaner history --partition orders-0 --since 7d
  cleaner history --kind pause --kind resume --last all
  cleaner history --kind round --format json | jq .details.bytes_read

exit status:
  0  listed, or nothing to list      1  the journal cannot be read      2  usage"""

KINDS = ("round", "retention", "now", "cancel", "pause", "resume", "release", "throttle", "reload")
"""The kinds of entries in a daemon's journal."""

_AGO = re.compile(r"([0-9]{1,6})(s|m|h|d|w)\Z")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_HEADINGS = ("time", "what", "of", "details")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--partition", metavar="TOPIC[-PARTITION]", help="only of this partition, or topic")
    parser.add_argument(
        "--kind",
        dest="kinds",
        metavar="KIND",
        action="append",
        choices=KINDS,
        help=f"only entries of this kind, may be repeated: {', '.join(KINDS)}",
    )
    parser.add_argument(
        "--since",
        metavar="WHEN",
        type=parse_moment,
        help="only since then: 30m, 6h, 7d ago, or 2026-02-28, 2026-02-28T06:30 in local time",
    )
    parser.add_argument(
        "--last",
        metavar="N|all",
        type=parse_offset_or_all,
        default=50,
        help="at most this many, the newest (default: 50)",
    )
    add_format(parser, "one entry a line")
    add_state_dir(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the entries; returns the exit code."""
    from itertools import islice

    from cleaner.state.journal_reader import JournalFilter, JournalReader
    from cleaner.storage.fs.file_system import FileSystem

    state_dir = state_dir_of(arguments)
    wanted = JournalFilter(
        kinds=frozenset(arguments.kinds) if arguments.kinds else None,
        partition=arguments.partition,
        since_ms=arguments.since,
    )
    reader = JournalReader(FileSystem(), state_dir)
    try:
        newest = list(islice(reader.entries(wanted), None if arguments.last == "all" else arguments.last))
        nothing = "" if newest or arguments.last == 0 else _why_nothing(reader, state_dir, arguments.partition)
    except OSError as error:
        raise CleanerError(f"{Path(error.filename or state_dir)}: {error.strerror or error}") from error
    say_all(newest[::-1], "history", arguments.format, _HEADINGS, _row, left=frozenset(range(4)), names=(2,))
    if nothing:
        print_error(nothing)
    if reader.unreadable_lines:
        print_error(f"{reader.unreadable_lines} lines of the journal are damaged")
    return 0


def parse_moment(text: str) -> int:
    """Read a moment (ms since 1970): a duration before now, or a date with or without a time."""
    found = _AGO.match(text)
    if found:
        return round((SystemClock().now_ms() / 1000 - int(found.group(1)) * _SECONDS[found.group(2)]) * 1000)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(f"{text!r} is neither like 6h nor like 2026-02-28T06:30") from None


def _why_nothing(reader: JournalReader, state_dir: Path, partition: str | None) -> str:
    """Return why there is nothing to show, such as a typing error in a name."""
    names = dict.fromkeys(entry.partition for entry in reader.entries())
    if not names:
        return f"{state_dir}: no journal in it; is it the state directory of a daemon (cleaner.state.dir)?"
    known = dict.fromkeys(name for name in names if name)
    known |= dict.fromkeys(name.rpartition("-")[0] for name in known if "-" in name)
    if partition is None or partition in known:
        return "no entry of the journal matches"
    return f"the journal has nothing of {partition}{did_you_mean(partition, known)}"


def _row(entry: JournalEntry) -> tuple[str, ...]:
    details = "  ".join(f"{name}={_words(name, value)}" for name, value in entry.details.items())
    return (moment(entry.time_ms), printable(entry.kind), printable(entry.partition or "-"), printable(details))


def _words(name: str, value: JsonValue) -> str:
    """Format a detail by the unit in its name."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "bytes" in name.split("_"):
            return human_rate(value) if name.endswith("_per_second") else human_bytes(value)
        if isinstance(value, int) and name.endswith("_ms"):
            return moment(value)
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={_words(key, inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_words("", inner) for inner in value) + "]"
    return "-" if value is None else str(value)
