"""How `cleaner doctor` shows its answers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from cleaner.app.doctor import Answer, Grade
from cleaner.cli.advice import advice
from cleaner.cli.output import json_line, say
from cleaner.present.formatting import Paint, printable

_INDENT = 19  # behind the grade and the longest question
_COLOURS = {Grade.PASS: "green", Grade.WARN: "yellow", Grade.FAIL: "red"}


def show_answer(answer: Answer, form: str, *, is_new: bool) -> None:
    """
    Print an answer; below it what to do.

    Args:
        form: `table` or `json`.
        is_new: it is the first about its log dir.
    """
    remedy = answer.remedy or ("" if answer.error is None else advice(answer.error))
    if form == "json":
        fields = {
            "check": answer.check,
            "log_dir": None if answer.log_dir is None else str(answer.log_dir),
            "result": answer.grade.value,
            "finding": answer.finding,
            "next": remedy,
        }
        print(json_line("doctor", fields), flush=True)
        return
    if is_new and answer.log_dir is not None:
        say()
        say(printable(str(answer.log_dir)))
    hang = " " * _INDENT
    grade = Paint(sys.stdout)(_COLOURS[answer.grade], answer.grade.value)
    say(f"{grade}  {answer.check:<{_INDENT - 6}}{printable(_without(answer.finding, answer.log_dir))}", hang=hang)
    if remedy:
        say(f"{hang}do: {printable(remedy)}", hang=hang)
    sys.stdout.flush()


def show_counts(counts: Mapping[Grade, int]) -> None:
    """Print how often there was each."""
    say()
    say(", ".join(f"{counts.get(grade, 0)} {grade.value}" for grade in reversed(Grade)))


def _without(finding: str, log_dir: Path | None) -> str:
    """Leave the log dir out of words that begin with it: it stands above."""
    if log_dir is None:
        return finding
    words = finding.removeprefix(f"{log_dir}: ").split(" ")
    return " ".join(word.removeprefix(f"{log_dir}/") for word in words)
