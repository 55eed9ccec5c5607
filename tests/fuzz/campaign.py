"""
One case: a place mutated by some numbers, steps run on it, and the rules that each step must keep.

    - it ends with an exit code: no exception that was not raised on purpose, whether printed or not
    - it ends in time and in its memory (`limits.py`)
    - a step that only reads changes nothing, and a step that refuses a partition leaves it as it was
    - damage never gets a good checksum (`laundering.py`)
    - untouched partitions are cleaned to the byte, whatever is wrong with another one
    - a sound log is still sound after cleaning, and `verify` proves it
"""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.laundering import SoundBatches
from tests.fuzz.limits import limited
from tests.fuzz.mutations import mutate
from tests.fuzz.places import FIRST_DIRTY, NOW_MS, TARGET, UNTOUCHED, make_places
from tests.fuzz.steps import CHANGING, READING, Label, command

_CODES = frozenset((0, 1, 2, 69, 75, 77, 78))
_UNTOUCHING_CODES = frozenset((2, 75, 78))  # command line, locks and settings: refused before anything is done
_UNPLANNED = re.compile(r"Traceback|unexpected [A-Z]\w+: |an internal error of the cleaner")
# What may leave indexes, snapshots and markers that tell different stories of transactions.
_CONTRADICTS = re.compile(
    r"producer|attributes|bytes of records|txnindex|snapshot|gone|again|order|elsewhere|another|exch"
)
_REFUSED = re.compile(rf"^(cleaner: )?{TARGET}: ", re.MULTILINE)
_SEGMENT = re.compile(r"/([0-9]{20})\.")
_REFUSED_ONE = re.compile(r"^cleaner: \S+-[0-9]+: ", re.MULTILINE)
_REFUSES_WHOLE = frozenset(
    ("clean", "clean --all", "clean --damaged keep", "clean --keep-old", "bulk", "recover", "undo")
)
_BY_THE_STEP = (b".lock", b".kafka_cleanshutdown")  # the steps of recovery remove the marker themselves
_REWRITTEN = "a record to be rewritten"  # found in the second pass, wherever it is
_APPENDS = frozenset(("produce", "topics alter", "topics delete", "library", "handover"))
_READING_A_CASE, _CHANGING_A_CASE = 6, 2  # what was not run on one place is run on another
Tree = dict[bytes, tuple[object, ...]]
Case = tuple[int, ...]
"""The numbers of its mutations."""


class Found(AssertionError):
    """Something that must not be."""


class Finding(NamedTuple):
    """What was found in which step."""

    step: str
    text: str


class Looked(NamedTuple):
    """What came of a case: findings, and the kind of answer of each step, of which new ones are worth following."""

    findings: list[Finding]
    answers: list[tuple[str, str]]
    changes: list[str]


def tree_of(directory: Path) -> Tree:
    """Return everything below a directory: kinds, times and bytes; locks, which come and go, left out."""
    return dict(_walk(os.fsencode(directory), b""))


def _walk(directory: bytes, prefix: bytes) -> Iterator[tuple[bytes, tuple[object, ...]]]:
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            about = entry.stat(follow_symlinks=False)
            name = prefix + entry.name
            content: object = None
            if stat.S_ISREG(about.st_mode):
                with open(entry.path, "rb") as file:  # noqa: PTH123 - a name that is no text
                    content = zlib.crc32(file.read())
            elif stat.S_ISLNK(about.st_mode):
                content = os.readlink(entry.path)  # noqa: PTH115
            is_directory = stat.S_ISDIR(about.st_mode)
            yield name, (about.st_mode, 0 if is_directory else about.st_size, about.st_mtime_ns, content)
            if is_directory:
                yield from _walk(entry.path, name + b"/")


def in_words(case: Case) -> str:
    """Write a case as `--case` takes it."""
    return ",".join(map(str, case))


def _contents(tree: Tree) -> dict[bytes, object]:
    return {name: about[3] for name, about in tree.items()}


class Before(NamedTuple):
    """A place before a step: whether all but the target is sound, the log dir, and its sound batches."""

    is_alone: bool
    logs: Tree
    sound: SoundBatches


class Campaign:
    """
    Runs cases, each from the same sound place.

    Args:
        root: an empty directory of its own.
        report: called with the progress.
    """

    longest_case = 5

    def __init__(self, root: Path, report: Callable[[str], None] = lambda _: None) -> None:
        self._place, self._sound = root / "place", root / "sound"
        self._report = report
        self._place.mkdir(parents=True)
        make_places(self._place)
        shutil.copytree(self._place, self._sound, copy_function=shutil.copy2)
        self._outside = self._outside_of_target()
        self._cleaned = self._clean_sound()

    def _clean_sound(self) -> Tree:
        """Return the result of cleaning an untouched partition."""
        result = CHANGING["clean"](self._place)
        if result.code:
            raise Found(f"the log that all others are made of is refused: {result.text}")
        return tree_of(self._place / "logs" / UNTOUCHED)

    def run(self, case: Case, only: Sequence[str] = ()) -> Looked:
        """
        Run a case.

        Args:
            only: names of steps; empty: some of those that read, and some that change things.
        """
        changes = self._restore(case)
        looked = Looked([], [], changes)

        def look(name: str, step: Callable[[Path], Label], check: Callable[[Label], None]) -> None:
            self._report(f"--case {in_words(case)} --only '{name}' ({'; '.join(changes)})")
            try:
                with limited():
                    result = step(self._place)
                looked.answers.append((name, _kind_of(result)))
                _check_result(result)
                check(result)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what we are looking for
                looked.findings.append(Finding(name, _error_in_words(error)[-3000:]))

        before = tree_of(self._place)
        chance = random.Random(in_words(case))
        for name in only or chance.sample(sorted(READING), _READING_A_CASE):
            if name in READING:
                look(name, READING[name], lambda _: self._check_unchanged(before))
        for name in only or chance.sample(sorted(CHANGING), _CHANGING_A_CASE):
            if name in CHANGING:
                self._restore(case)
                look(name, CHANGING[name], partial(self._check_changed, name, case, self._before()))
        return looked

    def shortest(self, case: Case, step: str) -> Case:
        """Return the shortest part of a case that a step still fails on."""
        for count in range(1, len(case)):
            for part in itertools.combinations(case, count):
                if self.run(part, [step]).findings:
                    return part
        return case

    def _restore(self, case: Case) -> list[str]:
        for path in self._place.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(os.fsencode(self._place))
        shutil.copytree(self._sound, self._place, copy_function=shutil.copy2)
        return mutate(self._place, case)

    def _before(self) -> Before:
        logs = self._place / "logs"
        sound = SoundBatches([logs, self._place / "kept"])
        return Before(self._outside_of_target() == self._outside, tree_of(logs), sound)

    def _outside_of_target(self) -> Tree:
        """Return everything that cleaning the untouched partitions may depend on."""
        found = {}
        for home in ("logs", "topics"):
            for name, about in tree_of(self._place / home).items():
                if name.partition(b"/")[0] not in (TARGET.encode(), b".lock"):
                    found[home.encode() + b"/" + name] = about
        return found

    def _check_unchanged(self, before: Tree) -> None:
        after = tree_of(self._place)
        if after != before:
            changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
            raise Found(f"has changed {changed}")

    def _check_changed(self, name: str, case: Case, before: Before, result: Label) -> None:
        self._check_refused(name, before, result)
        for directory in (self._place / "logs", self._place / "brokers"):
            laundered = before.sound.laundered(directory, may_append=name in _APPENDS)
            if laundered:
                raise Found(f"sound now, and was not before: {laundered[:3]}; {result.text}")
        if name in ("clean", "clean --all", "bulk") and before.is_alone:
            left = tree_of(self._place / "logs" / UNTOUCHED)
            if _contents(left) != _contents(self._cleaned):
                raise Found(f"a partition that nobody touched was not cleaned: {result.text}")
        if name in ("clean", "bulk", "clean --keep-old") and result.code == 0:
            self._check_cleaned(case)

    def _check_refused(self, name: str, before: Before, result: Label) -> None:
        """What was refused is as it was."""
        if result.code in _UNTOUCHING_CODES and not _REFUSED_ONE.search(result.text):
            # A writer opens the other logs first, which ends their open transactions.
            kept = TARGET.encode() if name in _APPENDS else b""
        elif name in _REFUSES_WHOLE and result.code and self._is_refused_at_first(result):
            kept = TARGET.encode()
        else:
            return
        old, new = (
            {n: c for n, c in _contents(tree).items() if n.startswith(kept) and not n.endswith(_BY_THE_STEP)}
            for tree in (before.logs, tree_of(self._place / "logs"))
        )
        if any(name.endswith(b".swap") for name in old):
            return  # a load settles an interrupted swap before anything can be read
        if old != new:
            changed = sorted(n for n in old.keys() | new.keys() if old.get(n) != new.get(n))
            raise Found(f"was refused, and has changed {changed}: {result.text}")

    def _is_refused_at_first(self, result: Label) -> bool:
        """
        Tell whether the target was refused by what is read before anything is changed: the dirty section, small files.

        Damage below it is found in the second pass, when the changes of the load and some groups may be done.
        """
        refused = _REFUSED.search(result.text)
        if refused is None or _REWRITTEN in result.text[refused.start() :]:
            return False
        segments = [int(base) for base in _SEGMENT.findall(result.text[refused.start() :].splitlines()[0])]
        return all(base >= FIRST_DIRTY for base in segments)

    def _check_cleaned(self, case: Case) -> None:
        """Hold a cleaned log against what it was made of, which is made once more."""
        cleaned = self._place.parent / "cleaned"
        shutil.rmtree(os.fsencode(cleaned), ignore_errors=True)
        (self._place / "logs").rename(cleaned)
        done = "; ".join(self._restore(case))
        before = command("check", self._place / "logs" / TARGET)
        after = command("check", cleaned / TARGET)
        # A name with two suffixes loses one with each load, as in Kafka: what is left is no mistake of ours.
        is_sound = before.code == 0 and "leftover" not in before.text
        if is_sound and after.code != 0:
            raise Found(f"damaged by cleaning: {after.text}")
        # Of transactions an index or a snapshot may say something else than the markers, which a proof goes by.
        if is_sound and not _CONTRADICTS.search(done):
            proof = command(
                *("verify", self._place / "logs", cleaned, TARGET, "--now", str(NOW_MS)),
                *("--topics-dir", self._place / "topics"),
            )
            _check_result(proof)
            if proof.code:
                raise Found(f"not proven: {proof.text}")


def _check_result(result: Label) -> None:
    if result.code not in _CODES:
        raise Found(f"exit code {result.code}: {result.text[-2000:]}")
    if _UNPLANNED.search(result.text):
        raise Found(result.text[-4000:])


def _kind_of(result: Label) -> str:
    """Return an answer without what differs from place to place: names, numbers, and words of the input."""
    said = re.sub(r"/\S+|'[^']*'|\"[^\"]*\"|[0-9]+", "#", result.text)
    errors = sorted(set(re.findall(r"(?m)^(?:cleaner: |damage |note ).*|^\w+Error\(.*", said)))
    return f"{result.code} {' | '.join(errors)[:400]}"


def _error_in_words(error: Exception) -> str:
    if isinstance(error, Found):
        return str(error)
    import traceback

    return "".join(traceback.format_exception(error)[-6:])
