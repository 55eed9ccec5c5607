"""Searches directories, and tells whether anything in them has changed in the meantime."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cleaner.base.clock import Clock
from cleaner.errors import CleanerError, CleaningAborted, LogChangedError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment import names
from cleaner.verification.proof.erased.certificate import FoundKey, NotSearched, SearchedFile
from cleaner.verification.proof.erased.file_search import FileSearch
from cleaner.verification.proof.erased.findings import Doubt, FileAccount, LeftOver, Level, Unsure
from cleaner.verification.proof.erased.tree import Identity, Tree, list_trees
from cleaner.verification.proof.erased.wanted import WantedKeys

MAX_LISTED = 1000
# File systems note times in steps of at most some milliseconds: what changes twice within one shows only once.
_TICK_NS = 20_000_000

Mentions = Literal["note", "found", "off"]
Describe = Callable[[int], tuple[bool, str | None, int | None]]
"""Returns, for the number of a key, whether it is a prefix, its keyed digest, and its line."""


@dataclass(frozen=True)
class Question:
    """
    What is looked for.

    Attributes:
        keys: of records.
        topics: the only ones whose records count; None: all.
        mentions: what to do about keys within values and headers.
        limit_bytes: most bytes a batch may unpack to.
        describe: names a key.
    """

    keys: WantedKeys
    topics: Collection[str] | None
    mentions: Mentions
    limit_bytes: int
    describe: Describe


@dataclass
class Answer:
    """What was read and found; see `Certificate`."""

    files: list[SearchedFile] = field(default_factory=list)
    found: list[FoundKey] = field(default_factory=list)
    counts: dict[Level, int] = field(default_factory=lambda: dict.fromkeys(Level, 0))
    found_numbers: set[int] = field(default_factory=set)
    not_searched: list[NotSearched] = field(default_factory=list)
    total_not_searched: int = 0

    def doubt(self, path: Path, unsure: Unsure) -> None:
        """Add something that was not, or not surely, searched."""
        self.total_not_searched += 1
        if len(self.not_searched) < MAX_LISTED:
            self.not_searched.append(NotSearched(unsure.doubt, str(path), unsure.position, unsure.reason))

    def result(self, mentions: Mentions) -> str:
        """Return the result in a word."""
        levels = Level if mentions == "found" else (Level.RECORD, Level.RAW)
        if any(self.counts[level] for level in levels):
            return "found"
        return "not_proven" if self.total_not_searched else "proven"

    def is_only_changed(self, mentions: Mentions) -> bool:
        """Tell whether nothing but changes meanwhile stands in the way of a proof."""
        changed = {each.path for each in self.not_searched if each.kind is Doubt.CHANGED}
        only = all(each.path in changed for each in self.not_searched) and self.total_not_searched <= MAX_LISTED
        return only and self.result(mentions) == "not_proven"


class ErasureProof:
    """
    Args:
        fs: access to the file system.
        directories: to search, with links resolved.
        question: what is looked for.
        clock: to wait by.
        progress: called with a file, and with the bytes of all files that are done, and of all there are.
        check_done: called before each chunk; raises CleaningAborted to stop.
    """

    def __init__(
        self,
        fs: FileSystem,
        directories: Sequence[Path],
        question: Question,
        *,
        clock: Clock,
        progress: Callable[[str, int, int], None],
        check_done: Callable[[], None],
    ) -> None:
        self._fs = fs
        self._directories = directories
        self._question = question
        self._clock = clock
        self._progress = progress
        self._answer = Answer()
        self._done = self._total = 0
        self._search = FileSearch(
            question.keys,
            limit_bytes=question.limit_bytes,
            with_mentions=question.mentions != "off",
            check_done=check_done,
        )

    def run(self) -> Answer:
        """Search everything."""
        tree = self._listed()
        self._total = sum(each.size for each in tree.files.values())
        for path, identity in tree.files.items():
            self._read(path, identity)
            self._done += identity.size
        for path, unsure in tree.unsure.items():
            self._answer.doubt(path, unsure)
        self._compare(tree, list_trees(self._fs, self._directories))
        return self._answer

    def _listed(self) -> Tree:
        """List what there is, when the last change is so long ago that another one would show."""
        tree = list_trees(self._fs, self._directories)
        since = self._clock.now_ms() * 1_000_000 - tree.latest_change_ns()
        if -_TICK_NS < since < _TICK_NS:
            self._clock.sleep(2 * _TICK_NS / 1e9)
            tree = list_trees(self._fs, self._directories)
        return tree

    def _read(self, path: Path, listed: Identity) -> None:
        answer = self._answer
        partition = partition_of(path, self._directories)
        is_meant = self._is_meant(partition)

        def on_find(left_over: LeftOver) -> None:
            # Bytes do not tell of which topic they are.
            if is_meant or left_over.level is Level.RAW:
                self._add(path, partition, left_over)

        def on_bytes(done: int) -> None:
            self._progress(path.name, self._done + done, self._total)

        try:
            with self._fs.open(path) as file:
                opened = Identity.of(file.stat())
                account = self._search.run(file, opened.size, on_find, on_bytes)
                after = Identity.of(file.stat())
        except FileNotFoundError:
            answer.doubt(path, Unsure(Doubt.CHANGED, None, "it vanished before it could be read"))
        except CleaningAborted:
            raise
        except LogChangedError as error:
            answer.doubt(path, Unsure(Doubt.CHANGED, None, str(error)))
        except (CleanerError, OSError) as error:
            answer.doubt(path, Unsure(Doubt.UNREADABLE, None, str(error)))
        else:
            answer.files.append(_searched(path, partition, opened, account))
            for unsure in account.unsure:
                answer.doubt(path, unsure)
            if not listed == opened == after:
                answer.doubt(path, Unsure(Doubt.CHANGED, None, "it changed while it was read"))

    def _is_meant(self, partition: str | None) -> bool:
        """Tell whether records of a partition count; those in no partition's directory always do."""
        topics = self._question.topics
        return topics is None or partition is None or any(names.may_be_of_topic(partition, each) for each in topics)

    def _add(self, path: Path, partition: str | None, left_over: LeftOver) -> None:
        answer = self._answer
        answer.counts[left_over.level] += 1
        if left_over.level is not Level.MENTION:
            answer.found_numbers.add(left_over.number)
        if answer.counts[left_over.level] <= MAX_LISTED:  # of each level
            is_prefix, digest, line = self._question.describe(left_over.number)
            answer.found.append(
                FoundKey(
                    *(left_over.level, str(path), left_over.position, left_over.offset, partition),
                    *(is_prefix, digest, line),
                )
            )

    def _compare(self, before: Tree, after: Tree) -> None:
        """Note what has changed since the files were listed: then there was no moment at which all was as read."""
        for path in sorted(before.files.keys() | after.files.keys()):
            old, new = before.files.get(path), after.files.get(path)
            if old != new:
                words = "it vanished" if new is None else "it is new" if old is None else "it was written to"
                reason = f"{words} while the directories were read"
                self._answer.doubt(path, Unsure(Doubt.CHANGED, None, reason))
        for path in sorted(after.unsure.keys() - before.unsure.keys()):
            self._answer.doubt(path, after.unsure[path])


def partition_of(path: Path, directories: Sequence[Path]) -> str | None:
    """Return the name of the nearest partition directory a file is in, at or below the named directories."""
    for directory in path.parents:
        try:
            names.parse_partition_dir(directory.name)
        except ValueError:
            if directory in directories:
                return None
        else:
            return directory.name
    return None


def _searched(path: Path, partition: str | None, identity: Identity, account: FileAccount) -> SearchedFile:
    return SearchedFile(
        path=str(path),
        partition=partition,
        size=account.size,
        sha256=account.sha256,
        modified_ns=identity.mtime_ns,
        device=identity.device,
        inode=identity.inode,
        batches=account.batches,
        records=account.records,
        codecs=tuple(sorted(account.codecs)),
        structured_bytes=account.structured_bytes,
        raw_bytes=account.raw_bytes,
        zero_bytes=account.zero_bytes,
    )
