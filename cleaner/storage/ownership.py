"""
Who a command runs as: the owner of the log dir, so that the broker can read and replace everything it leaves behind.

Started as root (from cron, from a container's shell), a command gives root up for good before it touches a file of the
log dir. What it creates then belongs to the broker's user without any further care, and a mistake or an attack on it
can do no more than that user could.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import NamedTuple

from cleaner.errors import LogDirOfflineError


class Owner(NamedTuple):
    """Numbers of a user and a group; prints as `1001:1001`."""

    uid: int
    gid: int

    def __str__(self) -> str:
        return f"{self.uid}:{self.gid}"


def become_owner(log_dir: Path) -> Owner | None:
    """
    Become the user and group that own the log dir, for ever; all threads change.

    Nothing happens when the process is not root, or the log dir is root's own. Other groups become those of the owning
    user in the system's group list, none when it has no account here (as in a container).

    Args:
        log_dir: the directory; a link to it is followed, the owner of what it leads to counts.
    Returns:
        Who the process is now, or None when nothing changed.
    Raises:
        LogDirOfflineError: the directory cannot be looked at, or the system refused.
    """
    if os.geteuid() != 0:
        return None
    try:
        status = log_dir.stat()
        owner = Owner(status.st_uid, status.st_gid)
        if owner.uid == 0:
            return None
        # Groups first: once the user has changed there is no right left to change them. The real, effective and saved
        # ids all go, lest a way back to root stay open.
        os.setgroups(_groups(owner))
        os.setresgid(owner.gid, owner.gid, owner.gid)
        os.setresuid(owner.uid, owner.uid, owner.uid)
    except OSError as error:
        raise LogDirOfflineError(log_dir, error) from error
    return owner


def _groups(owner: Owner) -> list[int]:
    try:
        name = pwd.getpwuid(owner.uid).pw_name
    except KeyError:
        return [owner.gid]
    return os.getgrouplist(name, owner.gid)


def can_own(status: os.stat_result) -> bool:
    """Tell whether this process can create files with the owner and group of `status`: as root or as that user."""
    if os.geteuid() == 0:
        return True
    return status.st_uid == os.geteuid() and (status.st_gid == os.getegid() or status.st_gid in os.getgroups())
