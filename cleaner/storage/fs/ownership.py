"""
Which user a command runs as: the owner of the log dir, so that the broker can read and replace every file it leaves.

Started as root (from cron, from a container's shell), a command gives up root for good before it touches a file of the
log dir. Its files then belong to the broker's user with no further effort, and a bug in it or an attack on it can do no
more than that user could.

The owner of each directory that is worked in decides, never the owner of a file in it. If root owns them, the process
stays root, as long as no other user can change them: see `owner_of`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import pwd
import stat
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from cleaner.base.trusted import why_open_to_others, why_way_is_open_to_others
from cleaner.errors import ForeignDirectoryError, LogDirOfflineError, UnreadableCodeError
from cleaner.storage.fs.file_system import FileSystem, real_path

_PROGRAM = Path(__file__).parents[2]
# Not loaded before giving up root: Spark starts new Python processes, which read it themselves; kernels have `warm_up`.
_LEFT_OUT = ("cleaner.__main__", "cleaner.spark.clean", "cleaner.spark.source", "cleaner.kernels", "tests.support")
# Modules that ours import inside functions or on first use, and the encodings they name.
LOADED_LATE = (
    "bcrypt",
    "concurrent.futures.thread",
    "difflib",
    "encodings.idna",
    "encodings.unicode_escape",
    "encodings.utf_16",
    "encodings.utf_16_be",
    "importlib.metadata",
    "numpy.random",
    "structlog.dev",
    "traceback",
    "yaml",
    "zoneinfo",
)


class Owner(NamedTuple):
    """Ids of a user and a group; prints as `1001:1001`."""

    uid: int
    gid: int

    def __str__(self) -> str:
        return f"{self.uid}:{self.gid}"


def owner_of(directories: Sequence[Path]) -> Owner | None:
    """
    Return the user that root must become to work in some directories; None if root owns them and may stay root.

    For a missing directory the nearest existing parent counts, unless root owns that: its owner could create the
    directory. Links are followed; their targets count.

    Raises:
        ForeignDirectoryError: they belong to different users; or to root, and another user can change them, their
            contents, or a directory above them. Says what to change.
    """
    owners: dict[int, tuple[Path, Owner]] = {}
    for given in directories:
        directory = _nearest(given)
        about = _status(directory)
        if about.st_uid != 0 or directory == real_path(given):
            owners.setdefault(about.st_uid, (given, Owner(about.st_uid, about.st_gid)))
    if len(owners) > 1:
        whose = " and ".join(f"{path} to {_name(owner.uid)}" for path, owner in owners.values())
        first = next(iter(owners.values()))[0]
        raise ForeignDirectoryError(
            first, f"directories of different owners: {whose}; chown them, work in one at a time, or use --as-root"
        )
    for _, owner in owners.values():
        if owner.uid != 0:
            return owner
    for given in directories:
        require_owned_by_root(given)
        for below in _directories_in(given):
            with contextlib.suppress(FileNotFoundError):
                _refuse(given, why_open_to_others(below, below.lstat()))
    return None


def require_owned_by_root(given: Path) -> None:
    """
    Make sure that only root can change a directory, or make its path lead elsewhere.

    For a missing directory, the existing part of its path is checked.

    Raises:
        ForeignDirectoryError: another user can. Says what to change.
    """
    directory = _nearest(given)
    try:
        reason = why_way_is_open_to_others(given)
        # If it is missing: the directory above, where others could create one of their own even if it is sticky.
        about = directory.lstat()
        is_missing_in_sticky = not given.exists() and reason is None and about.st_mode & stat.S_ISVTX
        reason = reason or why_open_to_others(directory, about)
    except OSError as error:
        raise LogDirOfflineError(given, error) from error
    # Nobody may chown /tmp because of it.
    _refuse(given, reason, _MAKE_IT.format(given) if is_missing_in_sticky else _CHOWN)


_CHOWN = "chown it to the owner of the logs, or to root with chmod go-w"
_MAKE_IT = "make {} first, as the owner of the logs or as root"


def _refuse(given: Path, reason: str | None, remedy: str = _CHOWN) -> None:
    """Raise if there is a reason."""
    if reason is not None:
        why = f"root would work where others can replace files: {reason}"
        raise ForeignDirectoryError(given, f"{why}; {remedy}; --as-root works there anyway")


def _directories_in(given: Path) -> list[Path]:
    if not given.is_dir():
        return []
    with os.scandir(given) as entries:
        return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def _nearest(given: Path) -> Path:
    """Return a directory, or the nearest existing one above it; links resolved."""
    resolved = real_path(given)
    return next(each for each in (resolved, *resolved.parents) if each.is_dir())


def _status(directory: Path) -> os.stat_result:
    try:
        return directory.stat()
    except OSError as error:
        raise LogDirOfflineError(directory, error) from error


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def closed_to(path: Path, owner: Owner) -> Path | None:
    """
    Return what keeps a user from reading a directory or file: itself or a directory above it; None if nothing does.

    Decides by owner, group and mode; an access list that grants more is not seen.
    """
    groups = _groups(owner)
    ways = dict.fromkeys((*reversed(path.parents), path, *reversed(real_path(path).parents), real_path(path)))
    for each in ways:
        about = each.stat()
        shift = 6 if about.st_uid == owner.uid else 3 if about.st_gid in groups else 0
        needed = 0o1 if each not in (path, real_path(path)) else 0o5 if each.is_dir() else 0o4
        if about.st_mode >> shift & needed != needed:
            return each
    return None


def become(owner: Owner) -> None:
    """
    Become a user and a group permanently, in all threads. Only root may call this.

    If the program is in a directory that the user may not enter, as `/root` often is, all its modules except kernels
    are loaded first. A later import of another module raises UnreadableCodeError, which says why it is not found.

    The supplementary groups become the user's groups on this system; none if the user has no account here (as in a
    container).

    Raises:
        OSError: the system refused.
    """
    closed = code_closed_to(owner)
    if closed is not None:
        _load_everything()
    # Groups first: after the user has changed, the right to change them is gone. The real, effective and saved ids all
    # change, so that no way back to root stays open.
    os.setgroups(_groups(owner))
    os.setresgid(owner.gid, owner.gid, owner.gid)
    os.setresuid(owner.uid, owner.uid, owner.uid)
    if closed is not None:
        sys.meta_path.append(_UnreadableCodeFinder(closed, owner))


def code_closed_to(owner: Owner) -> Path | None:
    """Return what keeps a user from reading our modules, other packages, or Python's; None if nothing does."""
    closed = [closed_to(place, owner) for place in (_PROGRAM, Path(np.__file__).parent, Path(os.__file__).parent)]
    return next((place for place in closed if place is not None), None)


def _load_everything() -> None:
    for found in pkgutil.walk_packages([str(_PROGRAM)], "cleaner."):
        if not found.name.startswith(_LEFT_OUT):
            importlib.import_module(found.name)
    for name in LOADED_LATE:
        importlib.import_module(name)


class _UnreadableCodeFinder(MetaPathFinder):
    """Asked last, when no other finder found a module: it may be where this process can no longer look."""

    def __init__(self, closed: Path, owner: Owner) -> None:
        self._closed, self._owner = closed, owner

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise UnreadableCodeError."""
        raise UnreadableCodeError(fullname, self._closed, f"user {self._owner}")


def _groups(owner: Owner) -> list[int]:
    try:
        name = pwd.getpwuid(owner.uid).pw_name
    except KeyError:
        return [owner.gid]
    return os.getgrouplist(name, owner.gid)


class OwnDirectories(FileSystem):
    """
    Refuses to hold another user's directory, and as root one that others can change: one may appear at any time.

    For a process that was started as root; for others the system's permissions suffice.
    """

    def accept(self, directory: Path, status: os.stat_result | None = None) -> None:
        """Raise ForeignDirectoryError for another user's directory."""
        uid = (status or self.stat(directory)).st_uid
        if uid != os.geteuid():
            whose, mine = _name(uid), _name(os.geteuid())
            raise ForeignDirectoryError(
                directory, f"belongs to {whose}, and this process has become {mine}; start it again"
            )
        if os.geteuid() == 0:
            require_owned_by_root(directory)


def can_own(status: os.stat_result) -> bool:
    """Tell whether this process can create files with the owner and group of `status`: as root or as that user."""
    if os.geteuid() == 0:
        return True
    return status.st_uid == os.geteuid() and (status.st_gid == os.getegid() or status.st_gid in os.getgroups())
