"""
The long form: `python -m tests.fuzz --cases 5000`, or `--minutes 60`; `make fuzz` for short.

A finding is printed with the numbers of its case, the shortest that still fails: `--case 17,4 --only clean` repeats it.
A hang or a crash of the process is reported by the process that started it. A case is drawn anew, or made of one whose
answer was new, with more mutations.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tests.fuzz.campaign import Campaign, Case, in_words

_CASES_A_PROCESS = 200
_PARSED_A_PROCESS = 20_000
_SILENT_SECONDS = 900
"""After which a process is killed; a step that does not end has ended it before (`limits.py`)."""

_FOLLOWED_SHARE = 0.5


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Hostile files for all commands.")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--cases", type=int, help="how many")
    parser.add_argument("--minutes", type=float, help="or how long")
    parser.add_argument("--parsers", action="store_true", help="single parsers instead of commands")
    parser.add_argument("--case", type=_case, help="repeat this one")
    parser.add_argument("--only", action="append", default=[], help="a step; may be repeated")
    parser.add_argument("--corpus", type=Path, help="a file of cases with new answers, to begin with and to extend")
    parser.add_argument("--in-process", action="store_true", help="what the process that watches starts")
    return parser.parse_args()


def _case(text: str) -> Case:
    return tuple(int(number) for number in text.split(","))


class Corpus:
    """The cases whose answer was new, with the step that gave it; in a file, for the next process."""

    def __init__(self, path: Path | None, longest_case: int) -> None:
        self._path, self._longest_case = path, longest_case
        self._known: set[tuple[str, str]] = set()
        self._cases: list[Case] = []
        for line in path.read_text().splitlines() if path and path.exists() else []:
            case, answers = json.loads(line)
            self._note(tuple(case), [tuple(answer) for answer in answers])

    def draw(self, seed: int) -> Case:
        """Draw a case."""
        lot = random.Random(seed)
        fresh = tuple(lot.randrange(2**32) for _ in range(lot.choice((1, 1, 1, 2, 2, 3))))
        if not self._cases or lot.random() > _FOLLOWED_SHARE:
            return fresh
        return (*lot.choice(self._cases), *fresh)[: self._longest_case]

    def learn(self, case: Case, answers: list[tuple[str, str]]) -> None:
        """Keep a case if one of its answers is new."""
        new = [answer for answer in answers if answer not in self._known]
        if new:
            self._note(case, new)
            if self._path is not None:
                with self._path.open("a") as file:
                    file.write(json.dumps([case, new]) + "\n")

    def _note(self, case: Case, answers: list[tuple[str, str]]) -> None:
        self._known.update(answers)
        self._cases.append(case)


def _run_here(given: argparse.Namespace) -> None:
    """Run cases in this process; writes each finding to stdout, and where it is to stderr."""
    from tests.fuzz.parsing import Parsing

    kind = Parsing if given.parsers else Campaign
    corpus = Corpus(given.corpus, kind.longest_case)
    with tempfile.TemporaryDirectory(prefix="cleaner-fuzz-") as root:
        campaign = kind(Path(root), lambda text: print(f"at {text}", file=sys.stderr, flush=True))
        for seed in range(given.seed, given.seed + given.cases):
            case = given.case or corpus.draw(seed)
            looked = campaign.run(case, given.only)
            corpus.learn(case, looked.answers)
            for step, text in looked.findings:
                shortest = campaign.shortest(case, step)
                kind_option = "--parsers " if given.parsers else ""
                print(
                    f"{kind_option}--case {in_words(shortest)} --only '{step}' ({'; '.join(looked.changes)}): {text}",
                    flush=True,
                )
            print(f"done {seed} {len(looked.findings)}", file=sys.stderr, flush=True)


def _watch(given: argparse.Namespace) -> int:
    """Run processes one after the other until there were enough cases; returns how many cases were bad."""
    ends_at = time.monotonic() + 60 * given.minutes if given.minutes else None
    end_seed = None if given.cases is None else given.seed + given.cases
    bad, seed, began = 0, given.seed, time.monotonic()
    while (end_seed is None or seed < end_seed) and (ends_at is None or time.monotonic() < ends_at):
        most = _PARSED_A_PROCESS if given.parsers else _CASES_A_PROCESS
        count = most if end_seed is None else min(most, end_seed - seed)
        done, found = _run_process(given, seed, count, ends_at)
        bad += found
        seed += done
        spent = (time.monotonic() - began) / 3600
        print(f"{seed - given.seed} cases, {bad} bad, {spent:.2f} hours", file=sys.stderr, flush=True)
    return bad


def _run_process(given: argparse.Namespace, seed: int, count: int, ends_at: float | None) -> tuple[int, int]:
    """Run some cases in a process of their own, until a time; returns how many it has done, and how many were bad."""
    command = [sys.executable, "-m", "tests.fuzz", "--in-process", "--seed", str(seed), "--cases", str(count)]
    for name in ("case", "corpus"):
        if (value := getattr(given, name)) is not None:
            command += [f"--{name}", in_words(value) if name == "case" else str(value)]
    command += ["--parsers"] * given.parsers
    for step in given.only:
        command += ["--only", step]
    done, bad, at, rest = 0, 0, "", list[str]()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        assert process.stderr is not None
        for line in _lines(process.stderr):
            if line is None:
                rest.append(f"silent for {_SILENT_SECONDS} s")
                process.kill()
                break
            kind, _, text = line.rstrip("\n").partition(" ")
            if kind == "at":
                at, rest = text, []
            elif kind == "done":
                done, bad = done + 1, bad + bool(int(text.split()[1]))
                if ends_at is not None and time.monotonic() > ends_at:
                    process.terminate()
                    return done, bad
            else:
                rest.append(line)
    if done < count:
        print(f"{at}: the process ended with {process.returncode}:\n{''.join(rest)[-6000:]}", flush=True)
        return done + 1, bad + 1
    return done, bad


def _lines(stream: IO[str]) -> Iterator[str | None]:
    """Give the lines of a process as they come, and None when none comes for too long."""
    buffered = b""
    descriptor = stream.fileno()
    while True:
        if not select.select([descriptor], [], [], _SILENT_SECONDS)[0]:
            yield None
            return
        data = os.read(descriptor, 1 << 16)
        if not data:
            break
        *whole, buffered = (buffered + data).split(b"\n")
        yield from (line.decode(errors="replace") + "\n" for line in whole)
    if buffered:
        yield buffered.decode(errors="replace")


def main() -> int:
    """Run what was asked for; returns the exit code."""
    given = _arguments()
    if given.case is not None:
        given.cases = 1
    if given.in_process:
        _run_here(given)
        return 0
    if given.cases is None and given.minutes is None:
        given.cases = 1000
    return 1 if _watch(given) else 0


if __name__ == "__main__":
    sys.exit(main())
