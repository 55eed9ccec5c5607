"""`cleaner erase`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base.sizes import human_bytes
from cleaner.cli.arguments import add_common, parse_offset, sources
from cleaner.cli.key_list import add_key_options, given_keys, given_prefixes
from cleaner.cli.logs import log_warning
from cleaner.cli.output import json_line, say, say_refusal, say_table
from cleaner.cli.work import prepare_work, run_work
from cleaner.errors import CorruptLogError, UsageError
from cleaner.present.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleaner.app.erase_log_dir import Outcome
    from cleaner.app.erase_reports import EraseReport
    from cleaner.app.options import CallContext
    from cleaner.cleaning.recopy.erasure import ErasedRecords

SUMMARY = "erase the records of some keys from every place of a log dir, for good"

DESCRIPTION = """\
Removes the records of some keys, or of some offsets, from all directories of the topics: every segment, the active
one too, whatever the cleanup policy; aborted and open transactions; compressed and old batches; what swaps and
deletions have left; and -future, -stray and -delete directories. Directories that `clean --keep-old` and `recover
--save-cut` have filled are named by --kept and --cut.

Nothing else changes: other records keep their bytes, offsets and times; log ends, producers, transactions, epochs and
checkpoints stay, so a broker starts on the result without a recovery. There is no undo; --dry-run only counts. No
process may use the log dir. A directory is changed only after all of it was read: one with a damaged batch, which may
hold a record to erase, is refused. Interrupted, the same command finishes.

Other replicas, tiered storage and backups have the records still. `cleaner prove-erased` searches what is left."""

EXAMPLES = """\
examples:
  cleaner erase /var/lib/kafka orders payments --keys forgotten.txt --dry-run
  cleaner erase /var/lib/kafka orders payments --keys forgotten.txt --kept /var/kept --punch
  cleaner erase /var/lib/kafka orders-3 --offsets 4711-4712

exit status:
  0  erased, or nothing to erase      1  some directory was refused, or has something that may still hold records
  2  usage      75  the log dir is in use      78  a bad setting"""

_HEADINGS = ("directory", "place", "segments", "size", "rewritten", "batches", "records", "after", "left-overs")
_MOST_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_common(parser)
    parser.add_argument(
        "partitions", metavar="TOPIC|TOPIC-PARTITION", nargs="*", help="all partitions of a topic, or one partition"
    )
    what = parser.add_mutually_exclusive_group()
    add_key_options(parser, what.add_argument)
    what.add_argument(
        "--offsets",
        metavar="A-B",
        type=_parse_offsets,
        help="the records from offset A to offset B, both inclusive, of one partition; also those without a key",
    )
    parser.add_argument("--dry-run", action="store_true", help="count what would be erased; write nothing")
    parser.add_argument(
        "--kept",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="a directory that `clean --keep-old` has filled; may be repeated",
    )
    parser.add_argument(
        "--cut",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="a directory that `recover --save-cut` has filled; may be repeated",
    )
    parser.add_argument(
        "--punch",
        action="store_true",
        help="overwrite files with zeros and punch holes into them before they are removed",
    )
    parser.add_argument(
        "--index-dir", metavar="DIR", type=Path, help="what `clean` was given (default: cleaner.index.dir)"
    )


def _parse_offsets(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if not dash:
        raise argparse.ArgumentTypeError(f"{text!r} is not A-B")
    offsets = parse_offset(first), parse_offset(last)
    if offsets[1] < offsets[0]:
        raise argparse.ArgumentTypeError(f"{text!r} ends before it begins")
    return offsets


def run(arguments: argparse.Namespace) -> int:
    """Erase, or count; returns the exit code."""
    if arguments.keys is None and not arguments.prefixes and arguments.offsets is None:
        raise UsageError("nothing to erase: --keys FILE, --key-prefix PREFIX or --offsets A-B")
    settings = sources(arguments)

    from cleaner.app.erase_log_dir import erase_log_dir
    from cleaner.app.erase_reports import EraseOptions

    # The list may belong to root, and the log dir to another user.
    wanted = _wanted(arguments)
    others = (*arguments.kept, *arguments.cut, arguments.index_dir)
    bar = prepare_work(arguments.log_dir, *others, stay_root=arguments.as_root)
    options = EraseOptions(
        dry_run=arguments.dry_run,
        punch=arguments.punch,
        kept=tuple(arguments.kept),
        cut=tuple(arguments.cut),
        index_dir=arguments.index_dir,
    )
    outcomes: list[Outcome] = []

    def work(context: CallContext) -> None:
        for outcome in erase_log_dir(arguments.log_dir, arguments.partitions, wanted, settings, options, context):
            bar.clear()
            outcomes.append(outcome)
            if arguments.format == "json":
                _print_json(outcome)

    try:
        run_work(work, bar, arguments.now)
    finally:
        bar.clear()
        if arguments.format == "table":
            _print(outcomes)
    return max(map(_exit_code, outcomes), default=0)


def _wanted(arguments: argparse.Namespace) -> ErasedRecords:
    from cleaner.app.erase_reports import wanted_records

    return wanted_records(given_keys(arguments), given_prefixes(arguments), arguments.offsets, arguments.partitions)


def _exit_code(outcome: Outcome) -> int:
    from cleaner.app.reports import Refusal

    if isinstance(outcome, Refusal):
        return outcome.error.exit_code
    return 0 if outcome.is_complete else 1


def _what_next(outcome: Outcome) -> str:
    """Return what to do about damage: not to clean around it."""
    error = getattr(outcome, "error", None)
    if not isinstance(error, CorruptLogError):
        return ""
    return (
        "what is damaged may hold a record to erase: repair it (`cleaner check`, `cleaner recover`) or restore it first"
    )


def _print_json(outcome: Outcome) -> None:
    from cleaner.app.reports import Refusal

    if isinstance(outcome, Refusal):
        say_refusal(outcome, "erase", "json", _what_next(outcome))
    else:
        _warn(outcome)
        print(json_line("erase", outcome), flush=True)


def _print(outcomes: Sequence[Outcome]) -> None:
    """Print what was erased as a table, then what needs attention."""
    from cleaner.app.reports import Refusal

    reports = [outcome for outcome in outcomes if not isinstance(outcome, Refusal)]
    if reports:
        say_table(_HEADINGS, map(_row, reports), left={0, 1}, names={0})
        _print_sum(reports)
    for outcome in outcomes:
        if isinstance(outcome, Refusal):
            say_refusal(outcome, "erase", "table", _what_next(outcome))
        else:
            _warn(outcome)


def _row(report: EraseReport) -> tuple[str, ...]:
    before = sum(each.bytes_before for each in report.files)
    after = sum(each.bytes_after for each in report.files)
    return (
        Path(report.directory).name,
        report.place,
        str(report.segments),
        human_bytes(report.bytes),
        human_bytes(before) if before else "-",
        str(report.batches),
        str(report.records),
        human_bytes(after) if before else "-",
        human_bytes(report.left_over_bytes) if report.left_over_files else "-",
    )


def _print_sum(reports: Sequence[EraseReport]) -> None:
    records, files = sum(each.records for each in reports), sum(len(each.files) for each in reports)
    what = f"{counted(records, 'record')} of {counted(files, 'file')}"
    overwritten = sum(each.overwritten_bytes for each in reports)
    if reports[0].dry_run:
        say(f"{what} would be erased; nothing was changed")
    elif overwritten:
        say(f"{what} erased; {human_bytes(overwritten)} of removed files overwritten")
    else:
        say(f"{what} erased")


def _warn(report: EraseReport) -> None:
    """Tell what may still hold records to erase."""
    for name in report.unknown_files[:_MOST_SHOWN]:
        what = "not a file of a log: not searched; `cleaner prove-erased` does; remove it, or move it away"
        log_warning(f"{printable(name)}: {what}", partition=Path(report.directory).name)
    for path in report.linked_files[:_MOST_SHOWN]:
        what = "has another name elsewhere (a hard link), where its records stay"
        log_warning(f"{printable(path)}: {what}", partition=Path(report.directory).name)
    more = max(0, len(report.unknown_files) - _MOST_SHOWN) + max(0, len(report.linked_files) - _MOST_SHOWN)
    if more:
        log_warning(f"and {more} more: --format json has all", partition=Path(report.directory).name)
    if report.unpunched_file is not None:
        log_warning(f"{printable(report.unpunched_file)}: overwritten, but its file system cannot punch holes")
