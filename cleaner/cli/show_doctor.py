"""How `cleaner doctor` shows its answers."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from cleaner.api.doctor import Answer, Grade
from cleaner.cli.advice import advice
from cleaner.cli.output import json_line
from cleaner.cli.words import Paint, printable
from cleaner.sizes import human_bytes

_WIDTH = 80
_INDENT = 19  # behind the grade and the longest question
_BYTES = re.compile(r"\b([0-9]{1,18}) bytes\b")
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
        print(f"\n{printable(str(answer.log_dir))}")
    finding = _readable(printable(_without(answer.finding, answer.log_dir)))
    lines = _wrapped(finding, "") + (_wrapped(_readable(printable(remedy)), "do: ") if remedy else [])
    grade = Paint(sys.stdout)(_COLOURS[answer.grade], answer.grade.value)
    print(f"{grade}  {answer.check:<{_INDENT - 6}}{lines[0]}")
    for line in lines[1:]:
        print(f"{'':{_INDENT}}{line}")
    sys.stdout.flush()


def show_counts(counts: Mapping[Grade, int]) -> None:
    """Print how often there was each."""
    print("\n" + ", ".join(f"{counts.get(grade, 0)} {grade.value}" for grade in reversed(Grade)))


def _without(finding: str, log_dir: Path | None) -> str:
    """Leave the log dir out of words that begin with it: it stands above."""
    return finding if log_dir is None else finding.removeprefix(f"{log_dir}: ").replace(f"{log_dir}/", "")


def _readable(text: str) -> str:
    """Write numbers of bytes as people read them."""
    return _BYTES.sub(lambda found: human_bytes(int(found[1])), text)


def _wrapped(text: str, begin: str) -> list[str]:
    """Return lines that fit; a path is never cut."""
    width = _WIDTH - _INDENT
    pieces = textwrap.wrap(begin + text, width, break_long_words=False, break_on_hyphens=False)
    return pieces or [begin]
