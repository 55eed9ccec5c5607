"""How `cleaner recover` shows its report."""

from __future__ import annotations

from cleaner.app.reports import RecoveredPartition, RecoverReport
from cleaner.base.sizes import human_bytes
from cleaner.cli.logs import log_note
from cleaner.cli.output import json_line, print_failure, refusal_line, say_table

_HEADINGS = ("partition", "log start", "log end", "bytes before", "after", "seconds")


def show_recovered(report: RecoverReport, form: str) -> int:
    """Print what was recovered and what refused; returns the exit code."""
    if form == "json":
        for partition in report.partitions:
            print(json_line("recover", partition))
        for refusal in report.refused:
            print(refusal_line(refusal, "recover"))
    elif report.partitions:
        say_table(_HEADINGS, map(_row, report.partitions))
    for refusal in report.refused:
        print_failure(refusal.error, refusal.partition)
    if report.note:
        log_note(report.note)
    elif report.has_marker:
        log_note("the log dir has a clean-shutdown marker: a broker starts on it without recovery")
    return max((refusal.error.exit_code for refusal in report.refused), default=0)


def _row(partition: RecoveredPartition) -> tuple[str, ...]:
    return (
        partition.partition,
        str(partition.log_start_offset),
        str(partition.log_end_offset),
        human_bytes(partition.bytes_before),
        human_bytes(partition.bytes_after),
        f"{partition.elapsed_seconds:.2f}",
    )
