"""Directories that nobody can change but root and this process's own user."""

from __future__ import annotations

import os
import stat
from pathlib import Path


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
    Say why others can have a path, links resolved, lead elsewhere; None if they cannot.

    From the root downwards: a directory that has passed keeps others from changing the name of the next.

    Raises:
        OSError: there is no such way.
    """
    for above in reversed(path.parents):
        about = above.lstat()
        if not stat.S_ISDIR(about.st_mode):
            return f"{above} is no directory"
        reason = why_open_to_others(above, about, is_on_the_way=True)
        if reason is not None:
            return reason
    return None
