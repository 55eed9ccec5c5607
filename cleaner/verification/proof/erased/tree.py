"""Lists everything below some directories, so that two lists show whether anything has changed between them."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cleaner.errors import LogDirOfflineError
from cleaner.storage.fs.file_system import FileSystem, real_path
from cleaner.storage.fs.readable import FileStatus
from cleaner.verification.proof.erased.findings import Doubt, Unsure

_SPECIAL = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISCHR, "a character device"),
)


class Identity(NamedTuple):
    """What stays the same as long as a file does, and nobody writes to it; times in ns."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, about: FileStatus) -> Identity:
        """Take over what the system tells; a file system without times of change has 0 there."""
        ctime_ns = int(getattr(about, "st_ctime_ns", 0))
        return cls(about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, ctime_ns)


@dataclass
class Tree:
    """
    Attributes:
        files: the regular files, in the order of their paths.
        unsure: what is no regular file, and cannot be searched.
    """

    files: dict[Path, Identity] = field(default_factory=dict)
    unsure: dict[Path, Unsure] = field(default_factory=dict)

    def latest_change_ns(self) -> int:
        """Return when a file was changed last, ns since 1970; 0 without files."""
        return max((max(each.mtime_ns, each.ctime_ns) for each in self.files.values()), default=0)


def list_trees(fs: FileSystem, directories: Sequence[Path]) -> Tree:
    """
    List all files below some directories.

    Args:
        directories: with links resolved.
    """
    tree = Tree()
    for root in directories:
        try:
            device = fs.stat(root).st_dev
        except (OSError, LogDirOfflineError) as error:
            tree.unsure[root] = _unreadable(error)
        else:
            _list(fs, root, device, directories, tree)
    tree.files = dict(sorted(tree.files.items()))
    return tree


def _list(fs: FileSystem, root: Path, device: int, roots: Sequence[Path], tree: Tree) -> None:
    left = [root]
    while left:
        directory = left.pop()
        try:
            found = fs.list_dir(directory)
        except (OSError, LogDirOfflineError) as error:
            tree.unsure[directory] = _unreadable(error)
            continue
        for name in found:
            path = directory / name
            try:
                about = fs.stat(path)
            except (OSError, LogDirOfflineError) as error:
                tree.unsure[path] = _unreadable(error)
                continue
            if stat.S_ISREG(about.st_mode):
                tree.files[path] = Identity.of(about)
            elif not stat.S_ISDIR(about.st_mode):
                _note_other(path, about, roots, tree)
            elif about.st_dev == device:
                left.append(path)
            elif path not in roots:
                reason = "another file system is mounted here; name it as a directory of its own"
                tree.unsure[path] = Unsure(Doubt.OTHER_FILE_SYSTEM, None, reason)


def _note_other(path: Path, about: os.stat_result, roots: Sequence[Path], tree: Tree) -> None:
    """Note a file that is not searched."""
    if stat.S_ISLNK(about.st_mode):
        target = real_path(path)
        if not any(target.is_relative_to(root) for root in roots):
            reason = f"a link, which is not followed; name what it leads to, {target}"
            tree.unsure[path] = Unsure(Doubt.SYMLINK, None, reason)
        return
    kind = next((words for is_kind, words in _SPECIAL if is_kind(about.st_mode)), "a special file")
    tree.unsure[path] = Unsure(Doubt.SPECIAL_FILE, None, f"{kind}, which is not read")


def _unreadable(error: Exception) -> Unsure:
    if isinstance(error, FileNotFoundError):
        return Unsure(Doubt.CHANGED, None, "it vanished while the directories were listed")
    return Unsure(Doubt.UNREADABLE, None, str(error))
