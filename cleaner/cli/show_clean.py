"""How `cleaner clean` shows its outcomes."""

from __future__ import annotations

from cleaner.api.clean_log_dir import Outcome
from cleaner.api.reports import CleanReport, Refusal, Skipped
from cleaner.cli.logs import log_note, log_warning
from cleaner.cli.output import json_line, print_failure, refusal_line, table
from cleaner.cli.progress import ProgressBar
from cleaner.sizes import human_bytes

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


class CleanPrinter:
    """
    Takes the outcomes as they come: JSON lines at once, the table at the end, errors to standard error.

    `exit_code` is 0 until a partition is refused.
    """

    def __init__(self, form: str, bar: ProgressBar) -> None:
        self.exit_code = 0
        self._form = form
        self._bar = bar
        self._rows: list[tuple[str, ...]] = []
        self._skipped = 0

    def show(self, outcome: Outcome) -> None:
        """Show one partition's outcome."""
        self._bar.clear()
        match outcome:
            case Refusal():
                self.exit_code = max(self.exit_code, outcome.error.exit_code)
                print_failure(outcome.error, outcome.partition)
                if self._form == "json":
                    print(refusal_line(outcome, "clean"), flush=True)
            case Skipped(is_doubtful=True):
                log_warning(f"passed over: {outcome.reason}", partition=outcome.partition)
            case Skipped():
                self._skipped += 1
            case CleanReport():
                self._show_report(outcome)

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
            print(table(_HEADINGS, self._rows))
        if self._skipped:
            are = "partition is" if self._skipped == 1 else "partitions are"
            log_note(f"{self._skipped} {are} not due (cleaner plan says why)")


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
