"""`warm`: compiles every kernel before it is needed, and checks whether all are compiled."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cleaner.errors import CleanerError
from cleaner.kernels.announce import before_compiling


@dataclass(frozen=True)
class WarmReport:
    """
    The result of `warm`.

    Attributes:
        compiled: how many were not in the cache.
        kept_in: where those were stored; None if there were none.
        seconds: how long it took.
    """

    compiled: int
    kept_in: Path | None
    seconds: float


@dataclass(frozen=True)
class KeptKernels:
    """
    The state of the kernel cache for the next process.

    Attributes:
        are_complete: it has all kernels; nothing will be compiled.
        writable: where code is kept, or would be; None: nowhere, so it is compiled at every start.
        warnings: cache directories that are not used, and why.
    """

    are_complete: bool
    writable: Path | None
    warnings: tuple[str, ...]


_REMEDY = "let NUMBA_CACHE_DIR name a directory that only you can write to"


def warm_kernels(announce: Callable[[Path], None] | None = None) -> WarmReport:
    """
    Compile or load every kernel; see `cleaner.warm`.

    Args:
        announce: called once before the first is compiled, with the directory in which they will be kept.
    Raises:
        CleanerError: some would be compiled, or were, and cannot be kept: every start would compile them again.
    """
    began = time.monotonic()

    from cleaner.cleaning.round.warm_up import warm_up
    from cleaner.kernels.compile import kernel_statistics
    from cleaner.kernels.places import make_place

    before = kernel_statistics()

    def begin(kept_in: Path | None) -> None:
        if kept_in is None:
            raise CleanerError(f"there is no directory to keep compiled kernels in: {_REMEDY}")
        try:
            make_place(kept_in)
        except OSError as error:
            raise CleanerError(
                f"compiled kernels cannot be kept in {kept_in}: {error.strerror or error}: {_REMEDY}"
            ) from error
        if announce is not None:
            announce(kept_in)

    before_compiling(begin)
    try:
        warm_up()
    finally:
        before_compiling(None)
    done = kernel_statistics()
    unkept = done.compiled - done.saved
    if unkept:
        raise CleanerError(f"{unkept} kernels were compiled and could not be kept: {_REMEDY}")
    compiled = done.compiled - before.compiled
    return WarmReport(compiled, done.kept_in if compiled else None, time.monotonic() - began)


class _NotKeptError(Exception):
    """A kernel has to be compiled."""


def find_kept_kernels() -> KeptKernels:
    """Load every kernel up to the first that must be compiled. Nothing is compiled, stored or created."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from cleaner.cleaning.round.warm_up import warm_up
        from cleaner.kernels.places import cache_places

        before_compiling(_refuse)
        try:
            warm_up()
        except _NotKeptError:
            are_complete = False
        else:
            are_complete = True
        finally:
            before_compiling(None)
    return KeptKernels(are_complete, cache_places().writable, tuple(str(each.message) for each in caught))


def _refuse(_kept_in: Path | None) -> None:
    raise _NotKeptError
