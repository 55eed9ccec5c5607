"""
A disk that forgets changes that were not fsynced, in any order.

`ForgetfulFileSystem` works on a real directory and keeps a journal of every change. From the journal it computes what a
power cut at some time may leave, assuming only what POSIX promises:

- writes to a file before its last fsync are on disk; each later write may be complete, missing, zeros, or torn: cut off
  in the middle, or by sectors or pages, of which each is old, new or zeros;
- names created, renamed or removed before the directory's last fsync are durable, those of directories too; each later
  change of a name may have happened or not, independently of the others; a rename is atomic: the file has its old name
  or its new one. What is in a directory without a name is gone;
- fsync of a file does not make its name durable, fsync of a directory not the files' contents;
- a failed fsync is final (`lose_pages`): the pages count as written and are not, so no later fsync writes them. The
  page cache still shows them, until it is dropped (`drop_cache`).

Real file systems forget less (ext4 and XFS apply name changes in order), so code that is safe here is safe on them.
The journal is exact and choices come from a seed: a state that broke something can be reproduced.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.support.watched_fs import Operation, WatchedFileSystem

SECTOR = 512
_PAGE = 4096
_ROOT = 0
_OF_NAMES = ("create", "make_dir", "rename", "remove", "remove_dir")
_OF_CONTENTS = ("write", "truncate", "set_mtime")

# A file's mtime if a change of it was forgotten; no test sets this one.
FORGOTTEN_MTIME_NS = 1_000_000_000


class FileState(NamedTuple):
    """A file's content after the power cut."""

    data: bytes
    mtime_ns: int


_NO_FILE = FileState(b"", FORGOTTEN_MTIME_NS)


@dataclass(frozen=True)
class DiskState:
    """
    The disk after a power cut: files by path relative to the root, and their directories.

    `note` says which changes were forgotten; comparisons ignore it.
    """

    files: tuple[tuple[Path, FileState], ...]
    directories: tuple[Path, ...]
    note: str = field(default="", compare=False)

    def write_to(self, root: Path) -> None:
        """Write the state to a directory that is empty or does not exist yet."""
        for directory in (Path(), *self.directories):
            (root / directory).mkdir(parents=True, exist_ok=True)
        for path, state in self.files:
            (root / path).write_bytes(state.data)
            os.utime(root / path, ns=(state.mtime_ns, state.mtime_ns))


class _Place(NamedTuple):
    """Where a file or a directory is: the number of its directory, and its name in it."""

    directory: int
    name: str


class _Disk:
    """The disk while a state is computed: files by their numbers, and the names of files and directories."""

    def __init__(self, files: dict[int, FileState], names: dict[_Place, int], places: dict[int, _Place]) -> None:
        self.files = files
        self.names = names
        self.places = places  # the same by number; one that was replaced or removed has none

    def copy(self) -> _Disk:
        return _Disk(dict(self.files), dict(self.names), dict(self.places))

    def apply(self, operation: _Change, is_kept: bool, rng: random.Random) -> None:
        """Apply one change, or what a power cut leaves of it."""
        if operation.kind == "create":
            self.files[operation.inode] = _NO_FILE
        if operation.kind in _OF_NAMES:
            if is_kept:
                self._change_name(operation)
        elif operation.kind not in ("fsync", "fsync_dir"):
            self.files[operation.inode] = _changed_file(self.files[operation.inode], operation, is_kept, rng)

    def _change_name(self, operation: _Change) -> None:
        """
        Apply one change of a name, perhaps without the changes before it.

        A file has one name. If an earlier rename was forgotten, a rename still moves the file from its name to the new
        one, and a removal removes it whatever its name.
        """
        number = operation.inode
        before = self.places.pop(number, None)
        if before is not None:
            del self.names[before]
        if operation.kind in ("create", "make_dir"):
            at = _Place(operation.directory, operation.path.name)
        elif operation.target is not None:
            at = _Place(operation.directory, operation.target.name)
        else:
            return
        replaced = self.names.get(at)
        if replaced is not None:
            del self.places[replaced]
        self.names[at], self.places[number] = number, at

    def paths(self) -> Iterator[tuple[Path, int]]:
        """Yield the paths below the root and their numbers; what is in a directory without a name has none."""
        known: dict[int, Path | None] = {_ROOT: Path()}

        def path_of(number: int) -> Path | None:
            if number not in known:
                at = self.places.get(number)
                above = None if at is None else path_of(at.directory)
                known[number] = None if at is None or above is None else above / at.name
            return known[number]

        for number in self.places:
            path = path_of(number)
            if path is not None:
                yield path, number


@dataclass(frozen=True)
class _Change(Operation):
    """An entry of the journal, with our own numbers of files and directories; `directory`: that of the name."""

    directory: int = 0


class ForgetfulFileSystem(WatchedFileSystem):
    """
    A real directory with a journal of every change made to it.

    `journal` begins with the files found at the start; `start` is its length then. `syncs` lists every fsync in order,
    and `sync_sites` the places in the program that called them.

    Args:
        root: directory to work on; files in it now count as durable.
        unsynced: says for each of these files whether it is *not* durable: contents and name were never fsynced.
        skip_sync: number (from 0) of an fsync or directory fsync to leave out, to see whether a test notices.
    """

    def __init__(
        self, root: Path, *, unsynced: Callable[[Path], bool] = lambda _: False, skip_sync: int | None = None
    ) -> None:
        self.root = root
        self.journal: list[_Change] = []
        self.syncs: list[Operation] = []
        self.sync_sites: list[str] = []
        self._skip_sync = skip_sync
        self._skipped: tuple[int, _Change] | None = None
        # Files get our own numbers: a file system may reuse an inode's number for a later file.
        self._numbers = itertools.count(_ROOT + 1)
        self._number_of_inode: dict[int, int] = {}
        self._number_of_name: dict[Path, int] = {root: _ROOT}
        self._durable_at_start: set[int] = set()
        self._stale: set[int] = set()
        for path in sorted(root.rglob("*")):
            about = path.lstat()
            if stat.S_ISDIR(about.st_mode):
                self.enter(Operation("make_dir", path))
                self._durable_at_start.add(self._number_of_name[path])
            elif stat.S_ISREG(about.st_mode):
                self.enter(Operation("create", path, about.st_ino))
                self.enter(Operation("write", path, about.st_ino, data=path.read_bytes()))
                self.enter(Operation("set_mtime", path, about.st_ino, number=about.st_mtime_ns))
                if not unsynced(path):
                    self._durable_at_start.add(self._number_of_name[path])
        self.start = len(self.journal)

    def after(self, operation: Operation) -> None:
        """Add the change to the journal, unless it is the fsync to leave out."""
        if operation.kind in ("fsync", "fsync_dir"):
            self.syncs.append(operation)
            self.sync_sites.append(_calling_place())
            if len(self.syncs) - 1 == self._skip_sync:
                self._skipped = (len(self.journal), self._change_of(operation))
                return
        self.enter(operation)

    def enter(self, operation: Operation) -> None:
        """Add a change to the journal, with our number of the file instead of its inode."""
        self.journal.append(self._change_of(operation))

    def _change_of(self, operation: Operation) -> _Change:
        """Return a change with our numbers, and keep in mind which name and which inode has which."""
        kind, path, target = operation.kind, operation.path, operation.target
        directory = 0
        if kind in _OF_NAMES:
            directory = self._number_of_directory(path.parent)
        if kind in ("create", "make_dir"):
            number = self._number_of_name[path] = next(self._numbers)
            if kind == "create":
                self._number_of_inode[operation.inode] = number
        elif kind == "rename" and target is not None:
            if target.is_dir():
                self._move_names(path, target)
            number = self._number_of_name[target] = self._number_of_name.pop(path)
        elif kind in ("remove", "remove_dir"):
            number = self._number_of_name.pop(path)
        elif kind == "fsync_dir":
            number = self._number_of_directory(path)
        else:
            number = self._number_of_inode[operation.inode]
        return _Change(kind, path, number, target, operation.position, operation.data, operation.number, directory)

    def _number_of_directory(self, path: Path) -> int:
        """Return a directory's number; one above the root has none, and names in it are durable at once."""
        return self._number_of_name[path] if path.is_relative_to(self.root) else -1

    def _move_names(self, source: Path, target: Path) -> None:
        """Have the names below a directory begin with its new one."""
        for path in [path for path in self._number_of_name if path.is_relative_to(source) and path != source]:
            self._number_of_name[target / path.relative_to(source)] = self._number_of_name.pop(path)

    def crash_points(self) -> list[int]:
        """
        Return the lengths of the journal at which a power cut can leave something new: before each fsync, at the end.

        With an fsync left out, only those after it: before it nothing is different.

        A state possible at any other time is possible at the next of these too, since each change in between can
        still be forgotten.
        """
        first = 0 if self._skipped is None else self._skipped[0]
        syncs = [place for place, operation in enumerate(self.journal) if operation.kind in ("fsync", "fsync_dir")]
        return [*(place for place in syncs if place >= first), len(self.journal)]

    def states_at(self, point: int, *, limit: int, seed: int) -> Iterator[DiskState]:
        """
        Yield different states that a power cut after the first `point` changes may leave, at most `limit` of them.

        All of them, if all combinations of forgotten changes are within the limit. Else useful ones come first: what
        only a skipped fsync would have kept, nothing, everything, one change alone, all but one, everything from one
        change on, all later changes of one file; and then random combinations.
        """
        pending = self._pending(point)
        rng = random.Random(f"{seed}/{point}")
        # Everything before the first pending change is the same in every state.
        settled = pending[0] if pending else point
        disk = _Disk({}, {}, {})
        for operation in self.journal[:settled]:
            disk.apply(operation, True, rng)
        seen: set[DiskState] = set()
        for forgotten in itertools.islice(self._choices(pending, limit, rng), 4 * limit):
            state = self._state(disk.copy(), settled, point, forgotten, rng)
            if state not in seen:
                seen.add(state)
                yield state
            if len(seen) >= limit:
                return

    def state_after_power_cut(self, rng: random.Random) -> DiskState:
        """Return one state that a power cut now may leave."""
        point = len(self.journal)
        pending = self._pending(point)
        settled = pending[0] if pending else point
        disk = _Disk({}, {}, {})
        for operation in self.journal[:settled]:
            disk.apply(operation, True, rng)
        return self._state(disk, settled, point, self._forgotten(pending, rng), rng)

    def is_pending(self) -> bool:
        """Tell whether a power cut now could forget something."""
        return bool(self._pending(len(self.journal)))

    def _forgotten(self, pending: list[int], rng: random.Random) -> frozenset[int]:
        """Draw what is forgotten: any changes, all from one on, all but one, one, only names, a file's later ones."""
        if not pending:
            return frozenset()
        place, share = rng.choice(pending), rng.choice((0.0, 1.0, 0.5, rng.random()))
        some = frozenset(each for each in pending if rng.random() < share)
        match rng.randrange(10):
            case 0:
                return frozenset(each for each in pending if each >= place)
            case 1:
                return frozenset(pending) - {place}
            case 2:
                return frozenset((place,))
            case 3:
                return self._rest_of_file(place, pending)
            case 4 | 5:
                names = [each for each in pending if self.journal[each].kind in _OF_NAMES]
                return frozenset(each for each in names if rng.random() < 0.5)
        return some

    def rot(self, path: Path, position: int, data: bytes) -> None:
        """Change a file at rest: on the disk, whatever is synced, and unnoticed by its times."""
        about = path.stat()
        with path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), data, position)
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
        self.enter(Operation("rot", path, about.st_ino, position=position, data=data))

    # ---- pages that an fsync has lost ------------------------------------------------------------------------------

    def lose_pages(self, inode: int, rng: random.Random) -> None:
        """
        Let an fsync of a file fail: of what was written since the last one some is lost, all of it or any writes.

        As with Linux, the pages are clean now: they are in the page cache, and no later fsync writes them to the disk.
        There the file has what it had before, and where it had nothing zeros, or it ends earlier.
        """
        number = self._number_of_inode[inode]
        pending = [
            place
            for place in self._pending(len(self.journal))
            if self.journal[place].kind == "write" and self.journal[place].inode == number
        ]
        share, ends_earlier = rng.choice((0.5, 1.0, 1.0)), rng.random() < 0.5
        content, done = _NO_FILE, 0
        for place in pending:
            if rng.random() >= share:
                continue
            # Without the lost writes before it.
            content, done = self._content(number, content, done, place), place
            written = self.journal[place]
            before = content.data[written.position : written.position + len(written.data)]
            data = before if ends_earlier else before + bytes(len(written.data) - len(before))
            self.journal[place] = dataclasses.replace(written, data=data)
            self._stale.add(number)

    @property
    def has_lost_pages(self) -> bool:
        """Tell whether the page cache shows something that is not on the disk, and that no fsync writes there."""
        return bool(self._stale)

    def drop_cache(self, descriptor: int) -> None:
        """Have an open file show what is on the disk, if a failed fsync has lost pages of it."""
        about = os.fstat(descriptor)
        number = self._number_of_inode.get(about.st_ino)
        if number not in self._stale:
            return
        self._stale.discard(number)
        data = self._content(number, _NO_FILE, 0, len(self.journal)).data
        with Path(f"/proc/self/fd/{descriptor}").open("r+b", buffering=0) as file:
            file.write(data)
            file.truncate(len(data))
        os.utime(descriptor, ns=(about.st_atime_ns, about.st_mtime_ns))

    def _content(self, number: int, content: FileState, first: int, end: int) -> FileState:
        """Apply the changes of a file's content from one place in the journal up to another."""
        nothing_torn = random.Random(0)
        for operation in self.journal[first:end]:
            if operation.inode == number and operation.kind in (*_OF_CONTENTS, "rot"):
                content = _changed_file(content, operation, True, nothing_torn)
        return content

    def _choices(self, pending: list[int], limit: int, rng: random.Random) -> Iterator[frozenset[int]]:
        """Yield sets of pending changes to forget, by their places in the journal."""
        if 2 ** len(pending) <= limit:
            for kept in itertools.product((True, False), repeat=len(pending)):
                yield frozenset(place for place, is_kept in zip(pending, kept, strict=True) if not is_kept)
            return
        suspects = [place for place in pending if self._was_skipped(place)]
        if suspects:
            yield frozenset(suspects)
            for place in suspects:
                yield self._rest_of_file(place, pending)
                yield frozenset((place,))
        everything = frozenset(pending)
        yield frozenset()
        yield everything
        for place in pending:
            yield frozenset((place,))
            yield everything - {place}
            yield frozenset(later for later in pending if later >= place)
            yield self._rest_of_file(place, pending)
        while True:
            share = rng.random()
            yield frozenset(place for place in pending if rng.random() < share)

    def _rest_of_file(self, place: int, pending: list[int]) -> frozenset[int]:
        number = self.journal[place].inode
        return frozenset(later for later in pending if later >= place and self.journal[later].inode == number)

    def _was_skipped(self, place: int) -> bool:
        """Tell whether the fsync that was left out would have made this change durable."""
        if self._skipped is None:
            return False
        at, sync = self._skipped
        operation = self.journal[place]
        if sync.kind == "fsync_dir":
            is_covered = operation.kind in _OF_NAMES and operation.directory == sync.inode
        else:
            is_covered = operation.kind in _OF_CONTENTS and operation.inode == sync.inode
        return place < at and is_covered

    def _pending(self, point: int) -> list[int]:
        """List the changes, by their number in the journal, that no fsync has made durable yet."""
        synced_files = dict.fromkeys(self._durable_at_start, self.start - 1)
        synced_directories: dict[int, int] = {-1: point}
        for place, operation in enumerate(self.journal[:point]):
            if operation.kind == "fsync":
                synced_files[operation.inode] = place
            elif operation.kind == "fsync_dir":
                synced_directories[operation.inode] = place
        pending = []
        for place, operation in enumerate(self.journal[:point]):
            if place < self.start and operation.inode in self._durable_at_start:
                continue
            if operation.kind in _OF_NAMES:
                is_pending = place > synced_directories.get(operation.directory, -1)
            elif operation.kind in _OF_CONTENTS:
                is_pending = place > synced_files.get(operation.inode, -1)
            else:
                is_pending = False
            if is_pending:
                pending.append(place)
        return pending

    def _state(self, disk: _Disk, settled: int, point: int, forgotten: frozenset[int], rng: random.Random) -> DiskState:
        """Apply the changes from `settled` to `point` except forgotten ones."""
        for place in range(settled, point):
            disk.apply(self.journal[place], place not in forgotten, rng)
        note = ", ".join(str(self.journal[place]) for place in sorted(forgotten))
        paths = sorted(disk.paths())
        return DiskState(
            tuple((path, disk.files[number]) for path, number in paths if number in disk.files),
            tuple(path for path, number in paths if number not in disk.files),
            f"power cut after change {point - self.start}, forgotten: {note or 'nothing'}",
        )


def _calling_place() -> str:
    """Return file, function and line of the caller outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and Path(frame.f_code.co_filename).parent == Path(__file__).parent:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}, {frame.f_code.co_name}, line {frame.f_lineno}"


def _changed_file(file: FileState, operation: Operation, is_kept: bool, rng: random.Random) -> FileState:
    """Apply one change of a file's contents, or what is left of a forgotten one."""
    if operation.kind == "set_mtime":
        return FileState(file.data, operation.number) if is_kept else file
    if operation.kind == "truncate":
        size = operation.number
        data = file.data[:size] + bytes(max(0, size - len(file.data))) if is_kept else file.data
        return FileState(data, FORGOTTEN_MTIME_NS)
    if operation.kind == "rot":
        end = min(len(file.data), operation.position + len(operation.data))
        rotten = operation.data[: max(0, end - operation.position)]
        return FileState(file.data[: operation.position] + rotten + file.data[end:], file.mtime_ns) if rotten else file
    position = operation.position
    written = operation.data if is_kept else _left_of(operation.data, position, file.data, rng)
    if not written:
        return FileState(file.data, FORGOTTEN_MTIME_NS)
    before = file.data[:position] + bytes(max(0, position - len(file.data)))
    return FileState(before + written + file.data[position + len(written) :], FORGOTTEN_MTIME_NS)


def _left_of(data: bytes, position: int, before: bytes, rng: random.Random) -> bytes:
    """Draw what a power cut leaves of an unsynced write: nothing, zeros, its first half, or some sectors or pages."""
    unit = rng.choice((0, 0, 1, 2, SECTOR, _PAGE))
    if unit < SECTOR:
        return (b"", bytes(len(data)), data[: len(data) // 2])[unit]
    left = bytearray(before[position : position + len(data)])
    left += bytes(len(data) - len(left))
    ends = [*range(unit - position % unit, len(data), unit), len(data)]
    for start, end in zip([0, *ends], ends, strict=False):
        fate = rng.randrange(4)
        if fate < 2:
            left[start:end] = data[start:end]
        elif fate == 2:
            left[start:end] = bytes(end - start)
    return bytes(left)
