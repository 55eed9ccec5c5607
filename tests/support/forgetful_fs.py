"""
A disk that forgets changes that were not fsynced, in any order.

`ForgetfulFileSystem` works on a real directory and keeps a journal of every change. From the journal it computes what a
power cut at some time may leave, assuming only what POSIX promises:

- writes to a file before its last fsync are on disk; each later write may be complete, missing, torn, or zeros;
- names created, renamed or removed before the directory's last fsync are durable; each later change of a name may have
  happened or not, independently of the others; a rename is atomic: the file has its old name or its new one;
- fsync of a file does not make its name durable, fsync of a directory not the files' contents.

Real file systems forget less (ext4 and XFS apply name changes in order), so code that is safe here is safe on them.
The journal is exact and choices come from a seed: a state that broke something can be reproduced.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.support.watched_fs import Operation, WatchedFileSystem

# A file's mtime if a change of it was forgotten; no test sets this one.
FORGOTTEN_MTIME_NS = 1_000_000_000


class FileState(NamedTuple):
    """A file's content after the power cut."""

    data: bytes
    mtime_ns: int


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
            descriptor = os.open(f"{root}/{path}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            try:
                os.write(descriptor, state.data)
                os.utime(descriptor, ns=(state.mtime_ns, state.mtime_ns))
            finally:
                os.close(descriptor)


class _Disk:
    """The disk while a state is computed: files by their numbers, and their names."""

    def __init__(self, files: dict[int, FileState], names: dict[Path, int]) -> None:
        self.files = files
        self.names = names

    def copy(self) -> _Disk:
        return _Disk(dict(self.files), dict(self.names))

    def apply(self, operation: Operation, is_kept: bool, rng: random.Random) -> None:
        """Apply one change, or what a power cut leaves of it."""
        if operation.kind == "create":
            self.files[operation.inode] = FileState(b"", FORGOTTEN_MTIME_NS)
        if operation.kind in ("create", "rename", "remove"):
            if is_kept:
                _change_name(self.names, operation)
        elif operation.kind not in ("fsync", "fsync_dir"):
            self.files[operation.inode] = _changed_file(self.files[operation.inode], operation, is_kept, rng)


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
        self.journal: list[Operation] = []
        self.syncs: list[Operation] = []
        self.sync_sites: list[str] = []
        self._skip_sync = skip_sync
        self._skipped: tuple[int, Operation] | None = None
        self._directories = tuple(sorted(path.relative_to(root) for path in root.rglob("*") if path.is_dir()))
        # Files get our own numbers: a file system may reuse an inode's number for a later file.
        self._numbers = itertools.count()
        self._number_of_inode: dict[int, int] = {}
        self._number_of_name: dict[Path, int] = {}
        self._durable_at_start: set[int] = set()
        for path in sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink()):
            about = path.stat()
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
                number = self._number_of_inode[operation.inode] if operation.kind == "fsync" else 0
                self._skipped = (len(self.journal), operation._replace(inode=number))
                return
        self.enter(operation)

    def enter(self, operation: Operation) -> None:
        """Add a change to the journal, with our number of the file instead of its inode."""
        number = 0
        if operation.kind == "create":
            number = next(self._numbers)
            self._number_of_inode[operation.inode] = self._number_of_name[operation.path] = number
        elif operation.kind == "rename" and operation.target is not None:
            number = self._number_of_name.pop(operation.path)
            self._number_of_name[operation.target] = number
        elif operation.kind == "remove":
            number = self._number_of_name.pop(operation.path)
        elif operation.kind != "fsync_dir":
            number = self._number_of_inode[operation.inode]
        self.journal.append(operation if number == operation.inode else operation._replace(inode=number))

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
        cut = self.power_cut(point)
        rng = random.Random(f"{seed}/{point}")
        seen: set[DiskState] = set()
        for forgotten in itertools.islice(self._choices(cut.pending, limit, rng), 4 * limit):
            state = cut.state(forgotten, rng)
            if state not in seen:
                seen.add(state)
                yield state
            if len(seen) >= limit:
                return

    def power_cut(self, point: int | None = None) -> PowerCut:
        """Return the power cut after the first `point` changes; None: after all until now."""
        return PowerCut(self, len(self.journal) if point is None else point)

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
                names = [each for each in pending if self.journal[each].kind in ("create", "rename", "remove")]
                return frozenset(each for each in names if rng.random() < 0.5)
        return some

    def add_directory(self, path: Path) -> None:
        """Note a directory that was made since; it counts as durable."""
        self._directories = tuple(sorted({*self._directories, path.relative_to(self.root)}))

    def rename_directory(self, source: Path, target: Path) -> None:
        """Note that a directory has another name, which counts as durable."""

        old, new = str(source), str(target)

        def moved(path: Path) -> Path:
            text = str(path)
            return Path(new + text[len(old) :]) if text == old or text.startswith(f"{old}/") else path

        self._directories = tuple(sorted(moved(self.root / path).relative_to(self.root) for path in self._directories))
        self._number_of_name = {moved(path): number for path, number in self._number_of_name.items()}
        for place, operation in enumerate(self.journal):
            path = moved(operation.path)
            if path is not operation.path:
                renamed_to = None if operation.target is None else moved(operation.target)
                self.journal[place] = operation._replace(path=path, target=renamed_to)

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
            is_covered = operation.kind in ("create", "rename", "remove") and operation.path.parent == sync.path
        else:
            is_covered = operation.kind in ("write", "truncate", "set_mtime") and operation.inode == sync.inode
        return place < at and is_covered

    def _pending(self, point: int) -> list[int]:
        """List the changes, by their number in the journal, that no fsync has made durable yet."""
        synced_files = dict.fromkeys(self._durable_at_start, self.start)
        synced_directories: dict[Path, int] = {}
        for place, operation in enumerate(self.journal[:point]):
            if operation.kind == "fsync":
                synced_files[operation.inode] = place
            elif operation.kind == "fsync_dir":
                synced_directories[operation.path] = place
        pending = []
        for place, operation in enumerate(self.journal[:point]):
            if place < self.start and operation.inode in self._durable_at_start:
                continue
            if operation.kind in ("create", "rename", "remove"):
                is_pending = place > synced_directories.get(operation.path.parent, -1)
            elif operation.kind in ("write", "truncate", "set_mtime"):
                is_pending = place > synced_files.get(operation.inode, -1)
            else:
                is_pending = False
            if is_pending:
                pending.append(place)
        return pending


class PowerCut:
    """
    A power cut after some changes of a journal; all that its states have in common is worked out once.

    Attributes:
        pending: the changes that may be forgotten, by their places in the journal.
    """

    def __init__(self, journal: ForgetfulFileSystem, point: int) -> None:
        self._journal = journal
        self._point = point
        self.pending = journal._pending(point)
        # Everything before the first pending change is the same in every state.
        self._settled = self.pending[0] if self.pending else point
        self._disk = _Disk({}, {})
        kept_whole = random.Random(0)
        for operation in journal.journal[: self._settled]:
            self._disk.apply(operation, True, kept_whole)

    def draw(self, rng: random.Random) -> DiskState:
        """Draw one of the states that it may leave."""
        return self.state(self._journal._forgotten(self.pending, rng), rng)

    def state(self, forgotten: frozenset[int], rng: random.Random) -> DiskState:
        """Return the state with these changes forgotten; some leave a part, which is drawn."""
        disk, changes, root = self._disk.copy(), self._journal.journal, self._journal.root
        for place in range(self._settled, self._point):
            disk.apply(changes[place], place not in forgotten, rng)
        note = ", ".join(str(changes[place]) for place in sorted(forgotten))
        return DiskState(
            tuple((path.relative_to(root), disk.files[number]) for path, number in sorted(disk.names.items())),
            self._journal._directories,
            f"power cut after change {self._point - self._journal.start}, forgotten: {note or 'nothing'}",
        )


def _calling_place() -> str:
    """Return file, function and line of the caller outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and Path(frame.f_code.co_filename).parent == Path(__file__).parent:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}, {frame.f_code.co_name}, line {frame.f_lineno}"


def _change_name(names: dict[Path, int], operation: Operation) -> None:
    """
    Apply one change of a name, perhaps without the changes before it.

    A file has one name. If an earlier rename was forgotten, a rename still moves the file from its name to the new
    one, and a removal removes it whatever its name.
    """
    for path in [path for path, number in names.items() if number == operation.inode]:
        del names[path]
    if operation.kind == "create":
        names[operation.path] = operation.inode
    elif operation.target is not None:
        names[operation.target] = operation.inode


def _changed_file(file: FileState, operation: Operation, is_kept: bool, rng: random.Random) -> FileState:
    """Apply one change of a file's contents; a forgotten write may leave nothing, zeros, or its first half."""
    if operation.kind == "set_mtime":
        return FileState(file.data, operation.number) if is_kept else file
    if operation.kind == "truncate":
        size = operation.number
        data = file.data[:size] + bytes(max(0, size - len(file.data))) if is_kept else file.data
        return FileState(data, FORGOTTEN_MTIME_NS)
    written = operation.data
    if not is_kept:
        written = rng.choice((b"", b"", bytes(len(written)), written[: len(written) // 2]))
    if not written:
        return FileState(file.data, FORGOTTEN_MTIME_NS)
    position = operation.position
    before = file.data[:position] + bytes(max(0, position - len(file.data)))
    return FileState(before + written + file.data[position + len(written) :], FORGOTTEN_MTIME_NS)
