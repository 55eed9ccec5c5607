"""`cleaner check --replicas`."""

from __future__ import annotations

import argparse
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from cleaner.base.sizes import human_bytes
from cleaner.cli.outcomes import OutcomePrinter
from cleaner.cli.output import print_next, say
from cleaner.cli.work import prepare_work, run_work
from cleaner.errors import UsageError
from cleaner.present.text import printable
from cleaner.storage.fs.remote import files_for

if TYPE_CHECKING:
    from cleaner.app.options import CallContext
    from cleaner.app.replicas_report import ReplicaDifference, ReplicasReport
    from cleaner.settings.sources import Sources

_MAX_SHOWN = 10


def run_replicas(arguments: argparse.Namespace, settings: Sources) -> int:
    """Compare replicas; returns the exit code."""
    from cleaner.app.replicas import DEFAULT_MEMORY_BYTES, ReplicaOptions, compare_all

    for name in ("repair", "clean_section"):
        if getattr(arguments, name):
            raise UsageError(f"--{name.replace('_', '-')} does not go with --replicas")
    if not arguments.paths:
        raise UsageError("--replicas: name two or more directories with replicas of the same partitions")
    file: Path | None = arguments.safe_tombstones
    bar = prepare_work(*arguments.paths, stay_root=arguments.as_root)
    options = ReplicaOptions(memory_bytes=arguments.memory or DEFAULT_MEMORY_BYTES)
    printer = OutcomePrinter["ReplicasReport"]("replicas", arguments.format, bar, lambda report: report.agrees, _print)

    def work(context: CallContext) -> None:
        names = arguments.partitions
        compare_all(arguments.paths, names, settings, context, options, file, printer.show)

    run_work(work, bar, arguments.now, files_for(None, *arguments.paths))
    if printer.reports and arguments.format != "json":
        _say_next(file, agree=not printer.exit_code)
    return printer.exit_code


def _say_next(file: Path | None, agree: bool) -> None:
    """Say what the file of safe points is for."""
    if file is not None:
        print_next(f"cleaner clean LOG_DIR TOPIC-PARTITION --safe-tombstones {quote(str(file))}")
    elif not agree:
        print_next(
            "until they agree, keep their tombstones: `cleaner check --replicas ... --safe-tombstones FILE`, then "
            "`cleaner clean --safe-tombstones FILE`; docs/replicas.md says how to mend each of them"
        )


def _print(report: ReplicasReport) -> None:
    are = f"{len(report.replicas)} replicas"
    verdict = f"{are} agree" if report.agrees else f"{are} DISAGREE: {_counts(report)}"
    say(f"{report.partition}: {verdict}; {report.keys} keys below offset {report.end_offset} compared")
    for replica in report.replicas:
        mark = "" if replica.high_watermark is None else f", high watermark {replica.high_watermark}"
        ends = f"offsets {replica.log_start_offset} to {replica.log_end_offset}{mark}"
        say(
            f"  {printable(replica.path)}: {ends}, {replica.records} records, {human_bytes(replica.bytes)}", hang="    "
        )
        if replica.needs_tombstones:
            are = "1 tombstone" if replica.needs_tombstones == 1 else f"{replica.needs_tombstones} tombstones"
            say(f"    it still needs {are}, from offset {replica.first_needed_offset} on", hang="      ")
    if (parting := report.parting) is not None:
        first, second = map(printable, parting.replicas)
        say(f"  they stop agreeing at offset {parting.offset}: {parting.reason} ({first}, {second})", hang="    ")
    for each in report.differences[:_MAX_SHOWN]:
        _print_difference(each)
    more = sum(report.total_differences.values()) - _MAX_SHOWN
    if more > 0:
        say(f"  and {more} more: --format json has the first thousand")
    say(f"  tombstones and markers below offset {report.safe.safe_offset} may go: {printable(report.safe.bounded_by)}")
    for note in report.notes:
        say(f"  note: {printable(note)}", hang="    ")


def _counts(report: ReplicasReport) -> str:
    found = [f"{count} {kind.replace('_', ' ')}" for kind, count in report.total_differences.items()]
    return ", ".join([*found, *(["their logs part"] if report.parting is not None else [])])


def _print_difference(each: ReplicaDifference) -> None:
    key = "" if each.key is None else f"key {printable(each.key)}, "
    other = "" if each.other_offset is None else f", there at offset {each.other_offset}"
    say(f"  {each.kind.name.lower()}: {key}offset {each.offset} in {printable(each.has_it)}", hang="    ")
    say(f"    not in {printable(each.departs)}{other}: {each.meaning}", hang="      ")
