"""`cleaner plan --who`: prints whose bytes a log dir holds."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from cleaner.base.sizes import human_bytes
from cleaner.cli.arguments import parse_count, sources
from cleaner.cli.fitting import shortened
from cleaner.cli.logs import log_note
from cleaner.cli.output import json_line, say, say_refusal, say_table
from cleaner.cli.work import prepare_work, run_work
from cleaner.errors import UsageError
from cleaner.present.text import counted, percent, printable
from cleaner.storage.fs.remote import files_for

if TYPE_CHECKING:
    from cleaner.app.options import CallContext
    from cleaner.app.who_log_dir import WhoReport, WhoRow

_MOST_TOPICS = 5  # shown in detail; all are in the first table
_NAME_COLUMNS = 28
_DAMAGE_SHOWN = 5
_BYTES = ("bytes", "live_bytes", "superseded_bytes", "tombstone_bytes", "aborted_bytes", "waiting_bytes")
_HEADINGS = ("size", "share", "live", "superseded", "tombs", "aborted", "waiting")


def add_who(parser: argparse.ArgumentParser) -> None:
    """Add `--who` and what only it takes."""
    parser.add_argument(
        "--who",
        action="store_true",
        help="read a sample of all records instead: whose bytes these are, by key, prefix, producer, age, group",
    )
    parser.add_argument(
        "--top", metavar="N", type=parse_count, help="with --who: how many names of each kind (default: 10)"
    )


def run_who(arguments: argparse.Namespace) -> int:
    """Print whose bytes the partitions hold; returns the exit code."""
    if arguments.estimate:
        raise UsageError("--who and --estimate read different samples; give them in two commands")
    settings = sources(arguments)

    from cleaner.app.reports import Refusal
    from cleaner.app.who_log_dir import TOP, who_log_dir

    bar = prepare_work(arguments.log_dir, stay_root=arguments.as_root)
    exit_code, reports = 0, list["WhoReport"]()

    def work(context: CallContext) -> None:
        nonlocal exit_code
        for outcome in who_log_dir(
            arguments.log_dir,
            settings,
            context,
            partitions=arguments.partitions or None,
            high_watermark=arguments.high_watermark,
            sample_bytes=arguments.sample,
            top=arguments.top or TOP,
        ):
            bar.clear()
            if isinstance(outcome, Refusal):
                exit_code = max(exit_code, say_refusal(outcome, "who", arguments.format))
            elif arguments.format == "json":
                _print_rows(outcome)
            else:
                reports.append(outcome)
            if not isinstance(outcome, Refusal) and outcome.damage:
                exit_code = max(exit_code, 1)

    run_work(work, bar, arguments.now, files_for(None, arguments.log_dir))
    if reports:
        _print_all(sorted(reports, key=lambda report: -report.bytes), is_named=bool(arguments.partitions))
    return exit_code


def _print_rows(report: WhoReport) -> None:
    """Print a line of JSON a row; that of the topic also has what concerns all of it."""
    of_topic = {each.name: getattr(report, each.name) for each in fields(report) if each.name not in ("rows", "bytes")}
    for row in report.rows:
        print(json_line("who", row, **of_topic) if row.by == "topic" else json_line("who", row))


def _print_all(reports: Sequence[WhoReport], *, is_named: bool) -> None:
    if len(reports) > 1:
        _print_table("topic", [report.rows[0] for report in reports])
        say()
    shown = reports if is_named else reports[:_MOST_TOPICS]
    for place, report in enumerate(shown):
        if place:
            say()
        _print_topic(report)
    if len(shown) < len(reports):
        say()
        say(f"{counted(len(reports) - len(shown), 'smaller topic')} not shown; name partitions, or use --format json")
    if reports[0].in_use:
        log_note(f"in use while read, by {reports[0].in_use}: the figures may be out of date")


def _print_topic(report: WhoReport) -> None:
    of_topic, partitions = report.rows[0], report.by("partition")
    how = "all read" if of_topic.is_exact else f"{human_bytes(report.sampled_bytes)} read, so these are estimates"
    size, count = human_bytes(report.bytes), counted(len(partitions), "partition")
    say(f"{report.topic}: {size} in {count}, cleanup.policy={report.policy}; {how}")
    if not report.bytes:
        return
    for what in dict.fromkeys(row.by for row in report.rows if row.by != "topic"):
        rows = report.by(what)
        if what == "partition" and len(rows) > 10:
            rows = rows[:10]
        if what == "partition" or _says_something(rows):
            say()
            _print_table(what.replace("_", " "), rows)
    for reason in dict.fromkeys(report.waits.values()):
        waiting = [partition for partition, why in report.waits.items() if why == reason]
        more = f" and {counted(len(waiting) - 1, 'more partition')}" if len(waiting) > 1 else ""
        say(f"  waiting: beyond what a round may clean now, by {reason}, in {waiting[0]}{more}", hang="    ")
    for each in report.damage[:_DAMAGE_SHOWN]:
        say(f"  damage  {printable(each.path)} at byte {each.position}: {each.reason}; left out", hang="    ")
    if len(report.damage) > _DAMAGE_SHOWN:
        say(f"  and {len(report.damage) - _DAMAGE_SHOWN} more: `cleaner check` lists all damage")


def _says_something(rows: Sequence[WhoRow]) -> bool:
    """Tell whether rows divide a topic at all."""
    return len(rows) > 1 or not rows[0].name.startswith("(")


def _print_table(what: str, rows: Sequence[WhoRow]) -> None:
    is_exact = all(row.is_exact for row in rows)
    headings = (what, *_HEADINGS) if is_exact else (what, *_HEADINGS, "dead, likely")
    say_table(headings, [_cells(row, is_exact=is_exact) for row in rows])


def _cells(row: WhoRow, *, is_exact: bool) -> tuple[str, ...]:
    size, *others = (human_bytes(getattr(row, name)) if getattr(row, name) else "-" for name in _BYTES)
    cells = (shortened(printable(row.name), _NAME_COLUMNS), size, percent(row.share), *others)
    likely = f"{human_bytes(row.least_dead_bytes)} to {human_bytes(row.most_dead_bytes)}"
    return cells if is_exact else (*cells, likely)
