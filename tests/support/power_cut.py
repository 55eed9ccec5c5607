"""
What a power cut leaves of a disk: the changes that no fsync has made durable, each kept, lost or torn by itself.

See `forgetful_fs.py`, which keeps the journal of changes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.support.watched_fs import Operation

SECTOR = 512
_PAGE = 4096
ROOT = 0
OF_NAMES = ("create", "make_dir", "rename", "remove", "remove_dir")
OF_CONTENTS = ("write", "truncate", "set_mtime")

# A file's mtime if a change of it was forgotten; no test sets this one.
FORGOTTEN_MTIME_NS = 1_000_000_000


class FileState(NamedTuple):
    """A file's content after the power cut."""

    data: bytes
    mtime_ns: int


NO_FILE = FileState(b"", FORGOTTEN_MTIME_NS)


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

    def apply(self, operation: Operation, is_kept: bool, rng: random.Random) -> None:
        """Apply one change, or what a power cut leaves of it."""
        if operation.kind == "create":
            self.files[operation.inode] = NO_FILE
        if operation.kind in OF_NAMES:
            if is_kept:
                self._change_name(operation)
        elif operation.kind not in ("fsync", "fsync_dir"):
            self.files[operation.inode] = changed_file(self.files[operation.inode], operation, is_kept, rng)

    def _change_name(self, operation: Operation) -> None:
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
        known: dict[int, Path | None] = {ROOT: Path()}

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


class PowerCut:
    """
    A power cut after some changes of a journal; all that its states have in common is worked out once.

    Args:
        changes: until then.
        pending: those that may be forgotten, by their places among the changes.
        start: how many changes only say what was there at first.
    """

    def __init__(self, changes: Sequence[Operation], pending: list[int], start: int) -> None:
        self.pending = pending
        self._changes = changes
        self._start = start
        # Everything before the first pending change is the same in every state.
        self._settled = pending[0] if pending else len(changes)
        self._disk = _Disk({}, {}, {})
        kept_whole = random.Random(0)
        for change in changes[: self._settled]:
            self._disk.apply(change, True, kept_whole)

    def draw(self, rng: random.Random) -> DiskState:
        """Draw one of the states that it may leave."""
        return self.state(self._forgotten(rng), rng)

    def state(self, forgotten: frozenset[int], rng: random.Random) -> DiskState:
        """Return the state with these changes forgotten; some leave a part, which is drawn."""
        disk, changes = self._disk.copy(), self._changes
        for place in range(self._settled, len(changes)):
            disk.apply(changes[place], place not in forgotten, rng)
        note = ", ".join(str(changes[place]) for place in sorted(forgotten))
        paths = sorted(disk.paths())
        return DiskState(
            tuple((path, disk.files[number]) for path, number in paths if number in disk.files),
            tuple(path for path, number in paths if number not in disk.files),
            f"power cut after change {len(changes) - self._start}, forgotten: {note or 'nothing'}",
        )

    def _forgotten(self, rng: random.Random) -> frozenset[int]:
        """Draw what is forgotten: any changes, all from one on, all but one, one, only names, a file's later ones."""
        pending = self.pending
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
                return self.rest_of_file(place)
            case 4 | 5:
                names = [each for each in pending if self._changes[each].kind in OF_NAMES]
                return frozenset(each for each in names if rng.random() < 0.5)
        return some

    def rest_of_file(self, place: int) -> frozenset[int]:
        """Return a pending change and all later ones of the same file."""
        number = self._changes[place].inode
        return frozenset(each for each in self.pending if each >= place and self._changes[each].inode == number)


def changed_file(file: FileState, operation: Operation, is_kept: bool, rng: random.Random) -> FileState:
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
