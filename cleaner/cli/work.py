"""How a command works in directories: as which user, with which progress output, and how a signal stops it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cleaner.base.remote_path import is_remote
from cleaner.cli.logs import log_warning
from cleaner.cli.output import print_error
from cleaner.cli.progress import ProgressBar
from cleaner.cli.stop import StopFlag, run_interruptibly
from cleaner.errors import ForeignDirectoryError, LogDirOfflineError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.remote import RemoteFiles
from cleaner.storage.which_dir import require_existing

if TYPE_CHECKING:
    from cleaner.app.options import CallContext

Result = TypeVar("Result")


def prepare_work(*directories: Path | None, stay_root: bool) -> ProgressBar:
    """
    Get ready to work in directories; see `take_identity` for the arguments and for what it raises.

    Returns:
        A progress bar; later messages leave room for it.
    """
    bar = ProgressBar()
    announce_compiling(bar.speaking(print_error))
    take_identity(*directories, stay_root=stay_root)
    return bar


def run_work(
    work: Callable[[CallContext], Result], bar: ProgressBar, now_ms: int | None = None, fs: FileSystem | None = None
) -> Result:
    """
    Run `work` until it ends or a signal stops it; returns or raises what `work` does. Call from the main thread.

    Args:
        work: called with the command's context.
        bar: shows the progress, and makes room for warnings.
        now_ms: the moment to work by; None: the clock's.
        fs: None: the local disk. What is asked of a bucket is given up when a signal comes.
    """
    from cleaner.app.options import CallContext

    def with_flag(flag: StopFlag) -> Result:
        if isinstance(fs, RemoteFiles):
            fs.check_done = flag.check_done
        warn = bar.speaking(log_warning)
        return work(CallContext.of(fs, now_ms=now_ms, progress=bar, check_done=flag.check_done, warn=warn))

    with bar:
        return run_interruptibly(with_flag)


def announce_compiling(say: Callable[[str], None]) -> None:
    """Call `say` with one line if kernels have to be compiled."""
    from cleaner.kernels.announce import ABOUT_SECONDS, before_compiling

    def tell(kept_in: Path | None) -> None:
        if kept_in is not None:
            often = "once on this machine; `cleaner warm` does it beforehand"
        else:
            often = "at every start, because there is no directory to keep them in: see `cleaner warm --help`"
        say(f"compiling kernels, about {ABOUT_SECONDS} seconds, {often}")

    before_compiling(tell)


def take_identity(
    *directories: Path | None, stay_root: bool, needs_kernels: bool = True, may_be_new: bool = False
) -> None:
    """
    If started as root, become the owner of all work directories before any of their files is touched.

    Kernels are loaded first: their machine code is in a cache that belongs to root.

    Args:
        directories: all of them; the first must exist. None entries are ignored, and paths into buckets.
        stay_root: `--as-root`.
        needs_kernels: a round may follow.
        may_be_new: the first need not exist.
    Raises:
        ForeignDirectoryError: the owners differ, or other users can change root's files; see `ownership.owner_of`.
        UsageError: the first does not exist.
        LogDirOfflineError: the system refused.
    """
    given = [directory for directory in directories if directory is not None and not is_remote(directory)]
    if stay_root or os.geteuid() != 0 or not given:
        return
    from cleaner.storage.fs.ownership import become, code_closed_to, owner_of

    try:
        owner = owner_of(given)
    except ForeignDirectoryError:
        if not may_be_new:
            require_existing(FileSystem(), given[0])  # a missing directory has no owner to ask for
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
