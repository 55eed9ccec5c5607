"""Directories that nobody can change but root and this process's own user."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_MOST_LINKS = 40  # as many as the system follows


def why_open_to_others(path: Path, about: os.stat_result, *, is_on_the_way: bool = False) -> str | None:
    """
    Say why others can change what is at `path`; None if they cannot. For root others are all but root.

    Args:
        path: for the words.
        about: the status of what is there.
        is_on_the_way: it is a directory that only leads to what is used. A sticky one, as `/tmp` is, may be open to
            others then: what is ours in it they can neither rename nor remove.
    """
    if about.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to user {about.st_uid}"
    if about.st_mode & 0o022 and not (is_on_the_way and about.st_mode & stat.S_ISVTX):
        return f"others may write to {path}"
    return None


def why_way_is_open_to_others(path: Path) -> str | None:
    """
    Say why others can have a path lead elsewhere; None if they cannot.

    From the root downwards, as the system goes: a directory that has passed keeps others from changing the next name,
    and a link counts like what it leads through. It ends where something is missing.

    Args:
        path: as it was given, links and all; what it leads to is not looked at itself.
    Raises:
        OSError: links in a circle, or what cannot be asked.
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
            if links > _MOST_LINKS:
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
                return f"{at} is no directory"
            reason = why_open_to_others(at, about, is_on_the_way=True)
    return reason
