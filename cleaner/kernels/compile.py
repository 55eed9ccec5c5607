"""The decorator of all kernels, and statistics: how many were compiled or loaded from the cache."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numba
import numpy.ma  # noqa: F401 - or numba does at the first call of a kernel, where an interrupt could reach it
from numba.core.compiler_lock import global_compiler_lock

from cleaner.base.concurrency import undisturbed
from cleaner.kernels.cache import KernelCache
from cleaner.kernels.places import cache_places
from cleaner.kernels.target import TARGET

_KEPT = []


class KernelStatistics(NamedTuple):
    """How this process got its kernels."""

    compiled: int
    saved: int
    """Of the compiled ones."""
    loaded: int
    directories: tuple[Path, ...]
    """Where they were searched."""
    kept_in: Path | None
    """Where the compiled ones were written; None if no directory is safe and writable."""
    cpu_name: str
    """LLVM's name of the processor they are compiled for."""


def jit(function: Callable, *, inlined: bool = False) -> Callable:
    """
    Compile a kernel on first use, or load it from the cache; it runs without the GIL.

    `inlined` puts its machine code into its callers: for kernels that are called once a record and return several
    values.

    Kernels allocate nothing, so they are compiled without numba's reference counts (`_nrt`, which has no public name):
    two locked instructions a record, on a cache line that all threads share, took a third of a round's time.
    """
    kernel = numba.njit(function, nogil=True, error_model="numpy", forceinline=inlined, _nrt=False)
    # Not cached: a closure, which its name does not identify, and functions of other packages, whose source is not
    # part of the directory's name.
    if function.__closure__ is None and function.__module__.rpartition(".")[0] == __package__:
        kernel._cache = KernelCache(function)  # as `cache=True` does, with a cache of ours
        _KEPT.append(kernel)
    # What numba's dispatcher calls for types of arguments that it has not seen yet.
    make = kernel._compile_for_args

    def make_undisturbed(*arguments: object) -> object:
        # Another thread would wait for numba's lock forever where this one is in the middle of a compilation already.
        return make(*arguments) if global_compiler_lock.is_locked() else undisturbed(partial(make, *arguments))

    kernel._compile_for_args = make_undisturbed
    return kernel


def inlined_jit(function: Callable) -> Callable:
    """Compile a kernel into its callers; see `jit`."""
    return jit(function, inlined=True)


def kernel_statistics() -> KernelStatistics:
    """Return how many versions of kernels were compiled and loaded so far, and where they are kept."""
    compiled = sum(sum(kernel.stats.cache_misses.values()) for kernel in _KEPT)
    loaded = sum(sum(kernel.stats.cache_hits.values()) for kernel in _KEPT)
    saved = sum(kernel._cache.saved for kernel in _KEPT)
    places = cache_places()
    return KernelStatistics(compiled, saved, loaded, places.readable, places.writable, TARGET.cpu_name)
