"""How `cleaner verify` shows what came of a proof."""

from __future__ import annotations

from cleaner.app.reports import Refusal
from cleaner.app.verify_log_dirs import VerifyReport
from cleaner.base.sizes import human_bytes
from cleaner.cli.output import json_line, print_failure, refusal_line, say
from cleaner.cli.progress import ProgressBar
from cleaner.present.formatting import printable

_MOST_SHOWN = 20


class VerifyPrinter:
    """
    Prints each partition as it is done.

    Attributes:
        exit_code: 0 while all are proven.
    """

    def __init__(self, form: str, bar: ProgressBar) -> None:
        self.exit_code = 0
        self._form = form
        self._bar = bar

    def show(self, outcome: VerifyReport | Refusal) -> None:
        """Print a partition."""
        self._bar.clear()
        if isinstance(outcome, Refusal):
            self.exit_code = max(self.exit_code, outcome.error.exit_code)
            if self._form == "json":
                print(refusal_line(outcome, "verify"))
            print_failure(outcome.error, outcome.partition)
            return
        if not outcome.is_proven:
            self.exit_code = max(self.exit_code, 1)
        if self._form == "json":
            print(json_line("verify", outcome))
        else:
            _print(outcome)


def _print(report: VerifyReport) -> None:
    verdict = "proven" if report.is_proven else f"REFUTED, {report.total_findings} findings"
    say(f"{report.partition}: {verdict}")
    say(
        f"  cleaned [{report.first_dirty_offset}, {report.end_offset}), {report.records} records, {report.keys} keys; "
        f"{human_bytes(report.bytes_before)} before, {human_bytes(report.bytes_after)} after"
    )
    for finding in report.findings[:_MOST_SHOWN]:
        where = f"{printable(finding.path)}: at byte {finding.position}"
        say(f"  offset {finding.offset}: {finding.kind}: {finding.reason}", hang="    ")
        say(f"    {where}", hang="      ")
    if report.total_findings > _MOST_SHOWN:
        say(f"  and {report.total_findings - _MOST_SHOWN} more: --format json has the first thousand")
    if report.note and not report.is_proven:
        say(f"  {report.note}")
