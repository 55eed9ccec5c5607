"""Who a command runs as."""

from __future__ import annotations

import os
from pathlib import Path


def take_identity(log_dir: Path, *, stay_root: bool, needs_kernels: bool = True) -> None:
    """
    Become the owner of the log dir if started as root, before any of its files is touched.

    Kernels are loaded first: their machine code is in a cache that belongs to root.

    Args:
        log_dir: the directory; one that is not there is for somebody else to complain about.
        stay_root: `--as-root`.
        needs_kernels: a round may follow.
    Raises:
        LogDirOfflineError: the system refused.
    """
    if stay_root or os.geteuid() != 0 or not log_dir.is_dir() or log_dir.stat().st_uid == 0:
        return
    if needs_kernels:
        from cleaner.engine.warm_up import warm_up

        warm_up()
    from cleaner.storage.ownership import become_owner

    become_owner(log_dir)
