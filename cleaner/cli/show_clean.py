"""How `cleaner clean` shows its outcomes."""

from __future__ import annotations

import argparse

from cleaner.app.clean_log_dir import Outcome
from cleaner.app.reports import CleanReport, Refusal, Skipped
from cleaner.base.model import TopicPartition
from cleaner.base.sizes import human_bytes
from cleaner.cli.advice import advice
from cleaner.cli.arguments import typed_again
from cleaner.cli.logs import log_note, log_warning
from cleaner.cli.output import json_line, print_failure, print_next, refusal_line, say_table
from cleaner.cli.progress import ProgressBar
from cleaner.errors import NoSpaceError, PolicyRefusedError

_HEADINGS = (
    "partition",
    "from",
    "to",
    "rounds",
    "bytes read",
    "written",
    "records read",
    "written",
    "removed",
    "seconds",
)
_COMPACT = "cleanup.policy=compact"
_MOST_CONFIRMED = 3


class CleanPrinter:
    """
    Takes the outcomes as they come: JSON lines at once, the table at the end, errors to standard error.

    `exit_code` is 0 until a partition is refused.
    """

    def __init__(self, arguments: argparse.Namespace, bar: ProgressBar) -> None:
        self.exit_code = 0
        self._arguments = arguments
        self._form = arguments.format
        self._bar = bar
        self._rows: list[tuple[str, ...]] = []
        self._skipped = 0
        self._doubtful: list[str] = []  # topics of which only a default says that they are compacted

    def show(self, outcome: Outcome) -> None:
        """Show one partition's outcome."""
        self._bar.clear()
        match outcome:
            case Refusal():
                self.exit_code = max(self.exit_code, outcome.error.exit_code)
                what_next = self._what_next(outcome)
                print_failure(outcome.error, outcome.partition, what_next)
                if self._form == "json":
                    print(refusal_line(outcome, "clean", what_next), flush=True)
            case Skipped(is_doubtful=True):
                log_warning(f"passed over: {outcome.reason}", partition=outcome.partition)
                self._doubtful.append(TopicPartition.parse(outcome.partition).topic)
            case Skipped():
                self._skipped += 1
            case CleanReport():
                self._show_report(outcome)

    def _what_next(self, refusal: Refusal) -> str:
        """Return the command that confirms a policy nobody has spoken of, or how to clean with little room."""
        if isinstance(refusal.error, NoSpaceError):
            others = "smaller logs first (name them), or `cleaner clean --retention` where the policy has delete"
            return f"{advice(refusal.error)}; or {others}"
        topic = refusal.error.topic if isinstance(refusal.error, PolicyRefusedError) else ""
        return typed_again(self._arguments, refusal.partition, [f"{topic}:{_COMPACT}"]) if topic else ""

    def _show_report(self, report: CleanReport) -> None:
        for warning in report.warnings:
            log_warning(warning, partition=report.partition)
        for kept in report.kept_damage:
            what = f"{kept.reason}; offsets {kept.base_offset} to {kept.last_offset} are kept as they are"
            log_warning(f"{kept.path}: at byte {kept.position}: {what}", partition=report.partition)
        if report.note:
            log_note(report.note, partition=report.partition)
        if report.retention_deleted_segments:
            log_note(f"retention deleted {report.retention_deleted_segments} segments", partition=report.partition)
        if self._form == "json":
            print(json_line("clean", report), flush=True)
        else:
            self._rows.append(_row(report))

    def finish(self) -> None:
        """Print the table, and how many partitions were passed over."""
        self._bar.clear()
        if self._rows:
            say_table(_HEADINGS, self._rows)
        if self._skipped:
            are = "partition is" if self._skipped == 1 else "partitions are"
            log_note(f"{self._skipped} {are} not due (cleaner plan says why)")
        topics = list(dict.fromkeys(self._doubtful))
        if len(topics) > _MOST_CONFIRMED:
            print_next(f"{typed_again(self._arguments)} --trust-default-policy")
        elif topics:
            print_next(typed_again(self._arguments, sets=[f"{topic}:{_COMPACT}" for topic in topics]))


def _row(report: CleanReport) -> tuple[str, ...]:
    return (
        report.partition,
        str(report.first_dirty_offset),
        str(report.end_offset),
        str(report.rounds),
        human_bytes(report.bytes_read),
        human_bytes(report.bytes_written),
        str(report.messages_read),
        str(report.messages_written),
        str(report.removed.total),
        f"{report.elapsed_seconds:.2f}",
    )
