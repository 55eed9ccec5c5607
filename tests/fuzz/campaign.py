"""
One case: a place mutated by a seed, every step run on it, and the rules that each step must keep.

    - it ends with an exit code: no exception that was not raised on purpose, whether printed or not
    - it ends in time: a step that takes too long ends the process with the stacks of all threads
    - a step that only reads changes nothing
    - untouched partitions are cleaned to the byte, whatever is wrong with another one
    - a sound log is still sound after cleaning, and `verify` proves it
"""

from __future__ import annotations

import faulthandler
import os
import random
import re
import shutil
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.fuzz.mutations import mutate
from tests.fuzz.places import NOW_MS, TARGET, UNTOUCHED, make_places
from tests.fuzz.steps import CHANGING, READING, Label, command

STEP_SECONDS = 60
_CODES = frozenset((0, 1, 2, 75, 78))
_UNPLANNED = re.compile(r"Traceback|unexpected [A-Z]\w+: |an internal error of the cleaner")
# What may leave indexes, snapshots and markers that tell different stories of transactions.
_CONTRADICTS = re.compile(
    r"producer|attributes|bytes of records|txnindex|snapshot|gone|again|order|elsewhere|another|exch"
)
_READING_A_CASE, _CHANGING_A_CASE = 6, 2  # what was not run on one place is run on another
Tree = dict[bytes, tuple[object, ...]]


class Found(AssertionError):
    """Something that must not be."""


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


class Campaign:
    """
    Runs cases, each from the same sound place.

    Args:
        root: an empty directory of its own.
        report: called with the progress.
    """

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

    def run(self, seed: int, only: Sequence[str] = ()) -> list[str]:
        """
        Run a case; returns what was found, each with its step, empty when all is well.

        Args:
            only: names of steps; empty: some of those that read, and some that change things.
        """
        done = self._restore(seed)
        found: list[str] = []

        def look(name: str, step: Callable[[Path], Label], check: Callable[[Label], None]) -> None:
            self._report(f"seed {seed}, {name}: {'; '.join(done)}")
            faulthandler.dump_traceback_later(STEP_SECONDS, exit=True, file=sys.__stderr__)
            try:
                result = step(self._place)
                _check_result(result)
                check(result)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what we are looking for
                found.append(f"{name}: {_in_words(error)[-3000:]}")
            finally:
                faulthandler.cancel_dump_traceback_later()

        before = tree_of(self._place)
        chance = random.Random(seed)
        for name in only or chance.sample(sorted(READING), _READING_A_CASE):
            if name in READING:
                look(name, READING[name], lambda _: self._check_unchanged(before))
        for name in only or chance.sample(sorted(CHANGING), _CHANGING_A_CASE):
            if name in CHANGING:
                self._restore(seed)
                is_alone = self._outside_of_target() == self._outside
                look(name, CHANGING[name], partial(self._check_changed, name, seed, is_alone))
        return [f"seed {seed} ({'; '.join(done)}): {line}" for line in found]

    def _restore(self, seed: int) -> list[str]:
        for path in self._place.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(os.fsencode(self._place))
        shutil.copytree(self._sound, self._place, copy_function=shutil.copy2)
        return mutate(random.Random(seed), self._place)

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

    def _check_changed(self, name: str, seed: int, is_alone: bool, result: Label) -> None:
        if name in ("clean", "clean --all", "bulk") and is_alone:
            left = tree_of(self._place / "logs" / UNTOUCHED)
            if {file: about[3] for file, about in left.items()} != {f: a[3] for f, a in self._cleaned.items()}:
                raise Found(f"a partition that nobody touched was not cleaned: {result.text}")
        if name in ("clean", "bulk", "clean --keep-old") and result.code == 0:
            self._check_cleaned(seed)

    def _check_cleaned(self, seed: int) -> None:
        """Hold a cleaned log against what it was made of, which is made once more."""
        cleaned = self._place.parent / "cleaned"
        shutil.rmtree(os.fsencode(cleaned), ignore_errors=True)
        (self._place / "logs").rename(cleaned)
        done = "; ".join(self._restore(seed))
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


def _in_words(error: Exception) -> str:
    if isinstance(error, Found):
        return str(error)
    import traceback

    return "".join(traceback.format_exception(error)[-6:])
