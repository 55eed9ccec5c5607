"""`warm`: every kernel ready before it is needed."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cleaner.errors import CleanerError

_COMPILER = "cleaner.kernels.compile"


@dataclass(frozen=True)
class WarmReport:
    """
    What it took to have every kernel.

    Attributes:
        compiled: how many were not in the cache; 0: all were there.
        kept_in: where those were put; None if there were none.
        seconds: how long it took.
    """

    compiled: int
    kept_in: Path | None
    seconds: float


def warm_kernels() -> WarmReport:
    """
    Compile or load every kernel; see `cleaner.warm`.

    Raises:
        CleanerError: some were compiled and could not be kept: every start would compile them again.
    """
    began = time.monotonic()

    from cleaner.cleaning.round.warm_up import warm_up
    from cleaner.kernels.announce import before_compiling

    before = _compiled()
    before_compiling(None)  # who calls this expects it
    warm_up()
    compiled, unkept, kept_in = _compiled()
    if unkept:
        raise CleanerError(
            f"{unkept} kernels were compiled and could not be kept: "
            f"let NUMBA_CACHE_DIR name a directory that only you can write to"
        )
    compiled -= before.kernels
    return WarmReport(compiled, kept_in if compiled else None, time.monotonic() - began)


class _Compiled(NamedTuple):
    """Kernels that this process has compiled, those of them that could not be kept, and where the others are."""

    kernels: int = 0
    unkept: int = 0
    kept_in: Path | None = None


def _compiled() -> _Compiled:
    # Without numba nothing was compiled, and asking would load it.
    if _COMPILER not in sys.modules:
        return _Compiled()
    from cleaner.kernels.compile import kernel_statistics

    done = kernel_statistics()
    return _Compiled(done.compiled, done.compiled - done.saved, done.kept_in)
