"""Prints what a command found of each partition, as it is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from cleaner.cli.output import json_line, say_refusal
from cleaner.cli.progress import ProgressBar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from cleaner.app.reports import Refusal

Report = TypeVar("Report", bound="DataclassInstance")


class OutcomePrinter(Generic[Report]):
    """
    Prints each partition as it is done.

    Args:
        kind: of its JSON.
        form: of the output: `text` or `json`.
        bar: is cleared before each.
        is_good: tells whether the exit code stays 0.
        show_text: prints a report for people.

    Attributes:
        exit_code: 0 as long as every partition is good.
        reports: how many were not refused.
    """

    def __init__(
        self,
        kind: str,
        form: str,
        bar: ProgressBar,
        is_good: Callable[[Report], bool],
        show_text: Callable[[Report], None],
    ) -> None:
        self.exit_code = 0
        self.reports = 0
        self._kind = kind
        self._form = form
        self._bar = bar
        self._is_good = is_good
        self._show_text = show_text

    def show(self, outcome: Report | Refusal) -> None:
        """Print a partition."""
        from cleaner.app.reports import Refusal

        self._bar.clear()
        if isinstance(outcome, Refusal):
            self.exit_code = max(self.exit_code, say_refusal(outcome, self._kind, self._form))
            return
        self.reports += 1
        if not self._is_good(outcome):
            self.exit_code = max(self.exit_code, 1)
        if self._form == "json":
            print(json_line(self._kind, outcome))
        else:
            self._show_text(outcome)
