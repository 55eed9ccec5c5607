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

import itertools
import os
import random
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from cleaner.storage.fs.file_system import File
from tests.support.power_cut import (
    NO_FILE,
    OF_CONTENTS,
    OF_NAMES,
    ROOT,
    DiskState,
    FileState,
    PowerCut,
    changed_file,
)
from tests.support.watched_fs import Operation, WatchedFile, WatchedFileSystem


class ForgetfulFile(WatchedFile):
    """An open file of a `ForgetfulFileSystem`."""

    def __init__(self, file: File, owner: ForgetfulFileSystem) -> None:
        super().__init__(file.path, file.handle, owner)
        self._owner = owner

    def drop_cache(self, position: int, size: int) -> None:
        """Have the file show what is on the disk: the pages that a failed fsync has lost are clean."""
        self._owner.drop_cache(self.fileno())


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
        # Files get our own numbers: a file system may reuse an inode's number for a later file.
        self._numbers = itertools.count(ROOT + 1)
        self._number_of_inode: dict[int, int] = {}
        self._number_of_name: dict[Path, int] = {root: ROOT}
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

    def _watched(self, file: File) -> File:
        return ForgetfulFile(file, self)

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

    def _change_of(self, operation: Operation) -> Operation:
        """Return a change with our numbers, and keep in mind which name and which inode has which."""
        kind, path, target = operation.kind, operation.path, operation.target
        directory = 0
        if kind in OF_NAMES:
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
        return operation._replace(inode=number, directory=directory)

    def _number_of_directory(self, path: Path) -> int:
        """Return a directory's number; one above the root or removed has none, and names in it are durable at once."""
        return self._number_of_name.get(path, -1)

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
        cut = self.power_cut(point)
        rng = random.Random(f"{seed}/{point}")
        seen: set[DiskState] = set()
        for forgotten in itertools.islice(self._choices(cut, limit, rng), 4 * limit):
            state = cut.state(forgotten, rng)
            if state not in seen:
                seen.add(state)
                yield state
            if len(seen) >= limit:
                return

    def power_cut(self, point: int | None = None) -> PowerCut:
        """Return the power cut after the first `point` changes; None: after all until now."""
        point = len(self.journal) if point is None else point
        return PowerCut(self.journal[:point], self._pending(point), self.start)

    def rot(self, path: Path, position: int, data: bytes) -> None:
        """Operation a file at rest: on the disk, whatever is synced, and unnoticed by its times."""
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
        content, done = NO_FILE, 0
        for place in pending:
            if rng.random() >= share:
                continue
            # Without the lost writes before it.
            content, done = self._content(number, content, done, place), place
            written = self.journal[place]
            before = content.data[written.position : written.position + len(written.data)]
            data = before if ends_earlier else before + bytes(len(written.data) - len(before))
            self.journal[place] = written._replace(data=data)
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
        data = self._content(number, NO_FILE, 0, len(self.journal)).data
        with Path(f"/proc/self/fd/{descriptor}").open("r+b", buffering=0) as file:
            file.write(data)
            file.truncate(len(data))
        os.utime(descriptor, ns=(about.st_atime_ns, about.st_mtime_ns))

    def without_lost_pages(self, path: Path) -> bytes:
        """Return what a file shows once its cache has been dropped; nothing is dropped."""
        about = path.stat()
        number = self._number_of_inode.get(about.st_ino)
        if number not in self._stale:
            return path.read_bytes()
        return self._content(number, NO_FILE, 0, len(self.journal)).data

    def _content(self, number: int, content: FileState, first: int, end: int) -> FileState:
        """Apply the changes of a file's content from one place in the journal up to another."""
        nothing_torn = random.Random(0)
        for operation in self.journal[first:end]:
            if operation.inode == number and operation.kind in (*OF_CONTENTS, "rot"):
                content = changed_file(content, operation, True, nothing_torn)
        return content

    def _choices(self, cut: PowerCut, limit: int, rng: random.Random) -> Iterator[frozenset[int]]:
        """Yield sets of pending changes to forget, by their places in the journal."""
        pending = cut.pending
        if 2 ** len(pending) <= limit:
            for kept in itertools.product((True, False), repeat=len(pending)):
                yield frozenset(place for place, is_kept in zip(pending, kept, strict=True) if not is_kept)
            return
        suspects = [place for place in pending if self._was_skipped(place)]
        if suspects:
            yield frozenset(suspects)
            for place in suspects:
                yield cut.rest_of_file(place)
                yield frozenset((place,))
        everything = frozenset(pending)
        yield frozenset()
        yield everything
        for place in pending:
            yield frozenset((place,))
            yield everything - {place}
            yield frozenset(later for later in pending if later >= place)
            yield cut.rest_of_file(place)
        while True:
            share = rng.random()
            yield frozenset(place for place in pending if rng.random() < share)

    def _was_skipped(self, place: int) -> bool:
        """Tell whether the fsync that was left out would have made this change durable."""
        if self._skipped is None:
            return False
        at, sync = self._skipped
        operation = self.journal[place]
        if sync.kind == "fsync_dir":
            is_covered = operation.kind in OF_NAMES and operation.directory == sync.inode
        else:
            is_covered = operation.kind in OF_CONTENTS and operation.inode == sync.inode
        return place < at and is_covered

    def _pending(self, point: int) -> list[int]:
        """List the changes, by their number in the journal, that no fsync has made durable yet."""
        synced_files = dict.fromkeys(self._durable_at_start, self.start - 1)
        synced_directories: dict[int, int] = {}
        for place, operation in enumerate(self.journal[:point]):
            if operation.kind == "fsync":
                synced_files[operation.inode] = place
            elif operation.kind == "fsync_dir":
                synced_directories[operation.inode] = place
        synced_directories[-1] = point
        pending = []
        for place, operation in enumerate(self.journal[:point]):
            if place < self.start and operation.inode in self._durable_at_start:
                continue
            if operation.kind in OF_NAMES:
                is_pending = place > synced_directories.get(operation.directory, -1)
            elif operation.kind in OF_CONTENTS:
                is_pending = place > synced_files.get(operation.inode, -1)
            else:
                is_pending = False
            if is_pending:
                pending.append(place)
        return pending


def _calling_place() -> str:
    """Return file, function and line of the caller outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and Path(frame.f_code.co_filename).parent == Path(__file__).parent:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}, {frame.f_code.co_name}, line {frame.f_lineno}"
