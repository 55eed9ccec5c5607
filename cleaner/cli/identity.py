"""Who a command runs as."""

from __future__ import annotations

import importlib
from pathlib import Path


def take_identity(log_dir: Path, *, stay_root: bool, with_kernels: bool = True) -> None:
    """
    Become the owner of the log dir if started as root, before any of its files is touched.

    Kernels are loaded first: their machine code is kept in a cache of the user who started the command.

    Args:
        log_dir: the directory; one that is not there is for somebody else to complain about.
        stay_root: `--as-root`.
        with_kernels: load the kernels of a cleaning round now.
    Raises:
        LogDirOfflineError: the system refused.
    """
    from cleaner.storage.ownership import become_owner

    if with_kernels:
        importlib.import_module("cleaner.engine.round")
    if not stay_root and log_dir.is_dir():
        become_owner(log_dir)
