"""
Groups of segments and what they were made into, for crashes of the swap alone: no cleaning, all files made by hand.

Each case has two groups and an active segment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import CLEANED, LOG, SEGMENT_SUFFIXES, segment_file_name
from cleaner.storage.swap.swap import fsync_sources, replace_segments
from tests.crash.loader_model import INDEXES, Files, load
from tests.crash.verdict import Group, judge
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder

NEW_MTIME_MS = 1_600_000_000_000


@dataclass(frozen=True)
class Case:
    """A partition directory before the swaps, and its groups in order."""

    name: str
    before: Files
    groups: tuple[Group, ...]

    @property
    def rebuilt(self) -> Mapping[bytes, Files]:
        """The index files of every `.log`, as recovery would make them."""
        found = {}
        for files in (self.before, *(group.new for group in self.groups)):
            for name, data in files.items():
                if name.endswith(".log"):
                    stem = name.removesuffix(".log")
                    found[data] = {suffix: files[stem + suffix] for suffix in INDEXES if stem + suffix in files}
        return found

    def write(self, directory: Path) -> None:
        """Lay out the directory before the swaps."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in self.before.items():
            (directory / name).write_bytes(data)

    def verdicts(self, found: Mapping[str, bytes]) -> list[str]:
        """Load the directory as a broker would and judge each group; an AssertionError is a crash that did harm."""
        return judge(self.before, self.groups, load(found, self.rebuilt))


def run(fs: FileSystem, directory: Path, case: Case, finished: Callable[[], None] = lambda: None) -> None:
    """Do what a round does around its swaps; `finished` is called when each group is durable."""
    fsync_sources(fs, directory, [int(name[:20]) for name in case.before if name.endswith(".log")])
    for group in case.groups:
        for name, data in group.new.items():
            with fs.create(directory / (name + CLEANED), like=directory / segment_file_name(group.base, LOG)) as file:
                file.write(data, 0)
                if not name.endswith(".txnindex"):
                    fs.set_mtime_ns(file.path, NEW_MTIME_MS * 1_000_000)
                file.fsync()
        fs.fsync_dir(directory)
        replace_segments(fs, directory, new_base=group.base, old_bases=group.bases, still_held=lambda: None)
        finished()


def _fill(log: LogBuilder, *, abort: bool) -> None:
    """Append ten offsets, with an aborted transaction among them or not."""
    if abort:
        producer = Producer(9, 0, log.next_offset, transactional=True)
        log.append(*[(f"k{number}", f"v{log.next_offset}") for number in range(4)], producer=producer)
        log.end_transaction(9, 0, commit=False)
        log.append(*[(f"k{number}", f"w{log.next_offset}") for number in range(5)])
    else:
        log.append(*[(f"k{number}", f"v{log.next_offset}") for number in range(5)])
        log.append(*[(f"k{number}", f"w{log.next_offset}") for number in range(5)])


def _old_log() -> LogBuilder:
    """Segments 0, 10, 20 | 30, 40 | 50 (active), all but 10 and 50 with a transaction index."""
    log = LogBuilder(index_interval_bytes=1)
    for base in range(0, 60, 10):
        _fill(log, abort=base not in (10, 50))
        if base < 50:
            log.roll()
    return log


def _new_segment(base: int, last_offset: int | None, *, abort: bool) -> Files:
    """Return the files of a cleaned segment whose last batch ends at `last_offset`; None: an empty one."""
    log = LogBuilder(base_offset=base, index_interval_bytes=1)
    if abort:
        log.append(("kept", "by producer"), producer=Producer(9, 0, base, transactional=True))
        log.end_transaction(9, 0, commit=False)
    if last_offset is not None:
        log.append(("new", f"of {base}"))
        log.skip(last_offset - log.next_offset)
        log.append(("new", f"last of {base}"))
    return {name: data for name, data in log.files().items() if name.endswith(SEGMENT_SUFFIXES)}


def _case(name: str, first: Files, second: Files) -> Case:
    before = _old_log().files()
    return Case(name, before, (Group((0, 10, 20), first), Group((30, 40), second)))


CASES = (
    _case("merged", _new_segment(0, 29, abort=True), _new_segment(30, 49, abort=False)),
    _case("superseded-tail", _new_segment(0, 8, abort=False), _new_segment(30, 39, abort=False)),
    _case("nothing-left", _new_segment(0, None, abort=False), _new_segment(30, None, abort=False)),
)
