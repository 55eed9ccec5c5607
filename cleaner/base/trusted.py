"""Finds out whether users other than root and this process's own can change a directory."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_MAX_LINKS = 40  # as many as the system follows


def why_open_to_others(path: Path, about: os.stat_result, *, is_on_the_way: bool = False) -> str | None:
    """
    Say why others can change a file or directory; None if they cannot. For root, all other users are others.

    Args:
        path: for the message.
        about: its status.
        is_on_the_way: it is a directory above the one that is used. Then a sticky one, such as `/tmp`, may be writable
            by others: they can neither rename nor remove our entries in it.
    """
    if about.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to user {about.st_uid}"
    if about.st_mode & 0o022 and not (is_on_the_way and about.st_mode & stat.S_ISVTX):
        return f"others may write to {path}"
    return None


def why_way_is_open_to_others(path: Path) -> str | None:
    """
    Say why others can make a path lead elsewhere; None if they cannot.

    Checks from the root downwards, as the system resolves a path: a directory that passes keeps others from changing
    the next name, and links and their targets are checked too. It ends where a component is missing.

    Args:
        path: as given, with links; its final target is not checked itself.
    Raises:
        OSError: links in a circle, or a status that cannot be read.
    """
    at, names, links = Path("/"), list(path.absolute().parts[:0:-1]), 0
    reason = why_open_to_others(at, at.lstat(), is_on_the_way=True)
    while names and reason is None:
        here = at / names.pop()
        if here.name == "..":
            at = at.parent
            continue
        try:
            about = here.lstat()
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(about.st_mode):
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            if about.st_uid not in (os.geteuid(), 0):
                return f"{here} is a link of user {about.st_uid}"
            target = here.readlink()
            if target.is_absolute():
                at = Path("/")
            names += [name for name in reversed(target.parts) if name != "/"]
            continue
        at = here
        if names:
            if not stat.S_ISDIR(about.st_mode):
                return f"{at} is not a directory"
            reason = why_open_to_others(at, about, is_on_the_way=True)
    return reason
