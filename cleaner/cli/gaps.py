"""`cleaner gaps`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cleaner.base.remote_path import any_path
from cleaner.cli.arguments import add_as_root, add_format, add_settings, sources
from cleaner.cli.outcomes import OutcomePrinter
from cleaner.cli.output import say
from cleaner.cli.work import prepare_work, run_work
from cleaner.present.text import printable
from cleaner.storage.fs.remote import files_for

if TYPE_CHECKING:
    from cleaner.app.gaps_log_dir import GapReport, GapTotal
    from cleaner.app.options import CallContext

SUMMARY = "say which offsets are missing, and why: compacted, aborted, retention, or lost"

DESCRIPTION = """\
Accounts for every offset of a partition from 0 to its end: it has a record, or a reason why it has none. Cleaning
removed it, it was part of an aborted transaction, it is a transaction marker, it lies below the log's start, it is
in a damaged batch, or no rule explains that it is gone: it is lost.

A log dir does not tell everything. Below the cleaner checkpoint a lost segment looks like a cleaned one; there
`cleaner verify` with an older copy decides. What else cannot be told is said with the result.

Reads every batch and verifies its checksum, takes no lock and writes nothing, so it may run beside a broker and on a
read-only mount; it also reads a single partition's directory.

Directories may be in a bucket or in HDFS: s3://, gs://, abfs://, hdfs://, webhdfs:// (docs/buckets.md)."""

EXAMPLES = """\
examples:
  cleaner gaps /var/lib/kafka
  cleaner gaps /var/lib/kafka prices-0 --config /etc/kafka/server.properties
  cleaner gaps /archive/prices-0 --set prices:cleanup.policy=delete
  cleaner gaps /var/lib/kafka --format json | jq -c 'select(.is_complete | not)'

exit status:
  0  every missing offset is explained      1  something is lost, unexplained or unreadable
  2  usage      78  a bad setting"""

_MAX_SHOWN = 5
_MAX_DAMAGE = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "log_dir", metavar="LOG_DIR", type=any_path, help="one entry of a broker's log.dirs, or a partition's directory"
    )
    parser.add_argument("partitions", metavar="TOPIC-PARTITION", nargs="*", help="only these (default: all)")
    parser.add_argument(
        "--trust-default-policy",
        action="store_true",
        help="take a cleanup.policy that is only a default for the topic's own",
    )
    add_settings(parser)
    add_format(parser, "one object a partition, see docs/gaps.md")
    add_as_root(parser, "the directory's")


def run(arguments: argparse.Namespace) -> int:
    """Account for the partitions; returns the exit code."""
    settings = sources(arguments)

    from cleaner.app.gaps_log_dir import gaps_log_dir

    bar = prepare_work(arguments.log_dir, stay_root=arguments.as_root)
    printer = OutcomePrinter["GapReport"]("gaps", arguments.format, bar, lambda report: report.is_complete, _print)

    def work(context: CallContext) -> None:
        for outcome in gaps_log_dir(arguments.log_dir, settings, context, arguments.partitions or None):
            printer.show(outcome)

    run_work(work, bar, fs=files_for(None, arguments.log_dir))
    return printer.exit_code


def _print(report: GapReport) -> None:
    last = report.end_offset - 1
    offsets = f"offsets {report.log_start_offset}-{last}" if last >= report.log_start_offset else "no offsets"
    say(f"{report.partition}: {offsets}, {report.records} with a record; {_verdict(report)}")
    for gap in report.gaps:
        say(f"  {gap.reason.name.lower():<11}  {gap.offsets}: {_ranges(gap)}", hang=" " * 15)
        say(f"{'':15}{gap.meaning}", hang=" " * 15)
    for each in report.damage[:_MAX_DAMAGE]:
        at = "" if each.position is None else f" at byte {each.position}"
        say(
            f"  {'damage' if each.is_damage else 'note'}  {each.kind}  {printable(each.path)}{at}: {each.reason}",
            hang="    ",
        )
    if report.total_damage > _MAX_DAMAGE:
        say(f"  and {report.total_damage - _MAX_DAMAGE} more: --format json has the first thousand")
    for note in report.notes:
        say(f"  note: {note}", hang="    ")


def _verdict(report: GapReport) -> str:
    from cleaner.verification.gaps.reasons import GapReason

    bad = [
        f"{report.offsets_of(reason)} {reason.name}"
        for reason in (GapReason.LOST, GapReason.UNEXPLAINED, GapReason.UNREADABLE)
        if report.offsets_of(reason)
    ]
    if bad:
        return f"{report.missing} missing, {', '.join(bad)}"
    if not report.is_complete:
        return f"{report.missing} missing, and damage"
    return f"{report.missing} missing, all explained" if report.missing else "none is missing"


def _ranges(gap: GapTotal) -> str:
    """Return the largest ranges, the largest first."""
    largest = sorted(gap.listed, key=lambda each: (-each.count, each.first))[:_MAX_SHOWN]
    words = [
        (str(each.first) if each.first == each.last else f"{each.first}-{each.last}")
        + ("" if each.is_whole else f" ({each.count} of them)")
        for each in largest
    ]
    more = gap.ranges - len(words)
    return ", ".join(words) + (f", and {more} more ranges" if more else "")
