"""`cleaner verify --as`: the states that internal topics are replayed into, compared."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cleaner.cli.outcomes import OutcomePrinter
from cleaner.cli.output import say
from cleaner.cli.work import prepare_work, run_work
from cleaner.errors import UsageError
from cleaner.present.text import counted, printable
from cleaner.storage.fs.remote import files_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cleaner.app.options import CallContext
    from cleaner.app.replay_log_dirs import ReplayReport
    from cleaner.settings.sources import Sources
    from cleaner.verification.replay.state import StateDifference

KINDS = ("groups", "share-state", "transactions", "schemas", "connect", "auto")
_MAX_SHOWN = 10
_MAX_WORDS = 100
_OF_PROOFS = ("end", "now", "since", "delete_retention_ms")


def run_replay(arguments: argparse.Namespace, settings: Sources) -> int:
    """
    Compare the states; returns the exit code.

    Raises:
        UsageError: an option that only proofs have.
    """
    for name in _OF_PROOFS:
        if getattr(arguments, name) is not None:
            raise UsageError(f"--as compares states, for which --{name.replace('_', '-')} says nothing; leave it out")

    from cleaner.app.replay_log_dirs import replay_log_dirs

    bar = prepare_work(arguments.before, arguments.after, stay_root=arguments.as_root)
    printer = OutcomePrinter["ReplayReport"]("replay", arguments.format, bar, lambda report: report.is_same, _print)

    def work(context: CallContext) -> None:
        places = arguments.before, arguments.after
        for outcome in replay_log_dirs(*places, arguments.kind, settings, context, arguments.partitions):
            printer.show(outcome)

    run_work(work, bar, fs=files_for(None, arguments.before, arguments.after))
    return printer.exit_code


def _print(report: ReplayReport) -> None:
    count = len(report.differences)
    verdict = f"the same {report.kind}" if report.is_same else f"OTHER {report.kind}, {counted(count, 'difference')}"
    say(f"{printable(report.partition)}: {verdict}")
    things = ", ".join(counted(number, kind) for kind, number in sorted(report.things.items())) or "nothing"
    say(f"  {report.records_before} records before, {report.records_after} after: {things}")
    shown: dict[str, int] = {}
    for each in report.differences:
        shown[each.kind] = shown.get(each.kind, 0) + 1
        if shown[each.kind] <= _MAX_SHOWN:
            say(f"  {_words(each)}", hang="    ")
    for kind, number in shown.items():
        if number > _MAX_SHOWN:
            say(f"  and {number - _MAX_SHOWN} more of kind {kind}: --format json has all")
    if report.total_failures_before:
        first = report.failures_before[0]
        say(
            f"  before, {counted(report.total_failures_before, 'record')} could not be applied, the first at offset "
            f"{first.offset}: {_short(first.name)}: {_short(first.reason)}",
            hang="    ",
        )
    for when, passed in (("before", report.passed_over_before), ("after", report.passed_over_after)):
        _print_passed_over(when, passed)


def _print_passed_over(when: str, passed: Mapping[str, int]) -> None:
    if passed:
        reasons = ", ".join(f"{number} ({_short(reason)})" for reason, number in sorted(passed.items())[:_MAX_SHOWN])
        say(f"  {when}, records passed over, as by those who read the topic: {reasons}", hang="    ")


def _words(difference: StateDifference) -> str:
    """Return a difference in words: `group g1, topic t-0: offset 17 before, none after`."""
    name, field = _short(difference.name), _short(difference.field)
    if difference.kind == "replay":
        return f"{name}: the replay {_short(difference.after or '')}"
    before, after = (None if each is None else _short(each) for each in (difference.before, difference.after))
    told = f"{field} {before} before" if before is not None else f"no {field} before"
    return f"{name}: {told}, {'none' if after is None else after} after"


def _short(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _MAX_WORDS else shown[:_MAX_WORDS] + "..."
