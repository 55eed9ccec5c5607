"""Who a command runs as."""

from __future__ import annotations

import os
from pathlib import Path


def take_identity(
    *directories: Path | None, stay_root: bool, needs_kernels: bool = True, may_be_new: bool = False
) -> None:
    """
    Become the owner of all directories that are worked in if started as root, before any of their files is touched.

    Kernels are loaded first: their machine code is in a cache that belongs to root.

    Args:
        directories: all of them, the one that has to be there first. None is none.
        stay_root: `--as-root`.
        needs_kernels: a round may follow.
        may_be_new: the first need not be there.
    Raises:
        ForeignDirectoryError: there is not one owner, or others can change what is root's; see `ownership.owner_of`.
        UsageError: the first is not there.
        LogDirOfflineError: the system refused.
    """
    given = [directory for directory in directories if directory is not None]
    if stay_root or os.geteuid() != 0 or not given:
        return
    from cleaner.errors import ForeignDirectoryError, LogDirOfflineError
    from cleaner.storage.fs.file_system import FileSystem
    from cleaner.storage.fs.ownership import become, code_closed_to, owner_of
    from cleaner.storage.which_dir import require_there

    try:
        owner = owner_of(given)
    except ForeignDirectoryError:
        if not may_be_new:
            require_there(FileSystem(), given[0])  # whose a directory would be that nobody has is not the question
        raise
    if owner is None:
        return
    if needs_kernels or code_closed_to(owner) is not None:
        from cleaner.cleaning.round.warm_up import warm_up

        warm_up()
    try:
        become(owner)
    except OSError as error:
        raise LogDirOfflineError(given[0], error) from error
