"""How `cleaner undo` shows what was put back."""

from __future__ import annotations

from collections.abc import Iterable

from cleaner.app.reports import Refusal
from cleaner.app.undo_clean import UndoReport
from cleaner.base.sizes import human_bytes
from cleaner.cli.output import json_line, print_failure, refusal_line, say


def show_undone(outcomes: Iterable[UndoReport | Refusal], form: str) -> int:
    """Print each partition as it is done; returns the exit code."""
    code = 0
    for outcome in outcomes:
        if isinstance(outcome, Refusal):
            code = max(code, outcome.error.exit_code)
            if form == "json":
                print(refusal_line(outcome, "undo"))
            print_failure(outcome.error, outcome.partition)
        elif form == "json":
            print(json_line("undo", outcome))
        else:
            told = f"{outcome.segments} segments put back ({human_bytes(outcome.bytes)})"
            line = "none" if outcome.checkpoint is None else str(outcome.checkpoint)
            say(f"{outcome.partition}: {told}, cleaner checkpoint {line}")
    return code
