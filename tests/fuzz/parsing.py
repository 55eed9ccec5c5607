"""
Cases for single parsers: a sample, some mutations, and the lines of the product that ran.

The first number of a case chooses the parser and its sample, each of the others is a mutation. A case that reached a
line that no case before it had reached is worth following.
"""

from __future__ import annotations

import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import cleaner
from cleaner.errors import CleanerError
from tests.fuzz.campaign import Case, Finding, Looked, in_words
from tests.fuzz.change_bytes import Rng, change_bytes
from tests.fuzz.change_texts import change_json, change_text
from tests.fuzz.limits import STEP_SECONDS, TooMuch, limited
from tests.fuzz.parsers import Parser, parsers
from tests.fuzz.places import make_places

_OURS = str(Path(cleaner.__file__).parent)
_MOST_BYTES = 1 << 20
_LIMITED_SHARE = 0.02
"""Of the cases, whose memory is looked at: to look takes longer than to parse."""


class Parsing:
    """Runs cases of parsers; see `Campaign`, which does the same for commands."""

    longest_case = 24

    def __init__(self, root: Path, report: Callable[[str], None] = lambda _: None) -> None:
        make_places(root / "place")
        self._parsers = parsers(root / "place")
        self._names = sorted(self._parsers)
        self._directory = root / "parsed"
        self._directory.mkdir()
        self._report = report
        self._chance = random.Random(0)
        self._lines: set[tuple[CodeType, int]] = set()

    def run(self, case: Case, only: Sequence[str] = ()) -> Looked:
        """Run a case; `only` has the parser's name, to repeat one."""
        name = only[0] if only else self._names[case[0] % len(self._names)]
        parser = self._parsers[name]
        path = self._directory / parser.file_name
        path.write_bytes(parser.samples[case[0] // len(self._names) % len(parser.samples)])
        changes = [_change(random.Random(number), path) for number in case[1:]]
        path.write_bytes(path.read_bytes()[:_MOST_BYTES])  # what reads files and sockets has limits of its own
        looked = Looked([], [], changes)
        self._report(f"--parsers --case {in_words(case)} --only '{name}'")
        began = time.process_time()
        with self._watched(looked.answers):
            try:
                parser.parse(path)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what we are looking for
                if not isinstance(error, (CleanerError, *parser.raises)):
                    looked.findings.append(Finding(name, "".join(traceback.format_exception(error)[-4:])[-3000:]))
        if time.process_time() - began > STEP_SECONDS or self._chance.random() < _LIMITED_SHARE:
            try:
                with limited():  # alone, and without being watched
                    _try(parser, path)
            except TooMuch as error:
                looked.findings.append(Finding(name, str(error)))
        for left in self._directory.iterdir():
            left.unlink()
        return looked

    def shortest(self, case: Case, step: str) -> Case:
        """Leave out what can be left out."""
        at = 1
        while at < len(case):
            shorter = (*case[:at], *case[at + 1 :])
            if self.run(shorter, [step]).findings:
                case = shorter
            else:
                at += 1
        return case

    @contextmanager
    def _watched(self, answers: list[tuple[str, str]]) -> Iterator[None]:
        """Note lines of the product that run for the first time."""
        known, ours = self._lines, _OURS

        def on_line(frame: FrameType, event: str, _argument: Any) -> Any:
            if event == "line":
                at = (frame.f_code, frame.f_lineno)
                if at not in known:
                    known.add(at)
                    answers.append((frame.f_code.co_filename.removeprefix(ours), str(frame.f_lineno)))
            return on_line

        def on_call(frame: FrameType, _event: str, _argument: Any) -> Any:
            return on_line if frame.f_code.co_filename.startswith(ours) else None

        sys.settrace(on_call)
        try:
            yield
        finally:
            sys.settrace(None)


def _try(parser: Parser, path: Path) -> None:
    try:
        parser.parse(path)
    except Exception:  # noqa: BLE001 - what it raises has been judged before
        return


def _change(rng: Rng, path: Path) -> str:
    data = path.read_bytes()
    kinds = [change_bytes, change_text]
    if data.lstrip()[:1] in (b"{", b"["):
        kinds += [change_json] * 3
    return rng.choice(kinds)(rng, path)
