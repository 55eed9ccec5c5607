"""
The kernels for the rooms above: from kept machine code where there is some, else by numba; nobody can tell but by the
time it takes.

    from cleaner.kernels.ready import offset_map as kernel

gives what stands in for the module `cleaner.kernels.offset_map`: its constants, and its kernels as callables. A kernel
is linked when it is first called. Whatever has no machine code that is certain to be the right one (never compiled, a
damaged file, arguments of other types, a processor below the baseline, numba told to work differently or of a release
not tried yet) is done by the module itself, for which numba is imported. In a process that has imported numba anyway
there is nothing to gain, and the name is the module.
"""

from __future__ import annotations

import functools
import importlib
import operator
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cleaner.kernels.baseline import baseline_target, numba_is_as_always
from cleaner.kernels.linker import Linker, is_proven
from cleaner.kernels.machine_code import list_codes, read_code, read_constants
from cleaner.kernels.parameters import Check, make_check
from cleaner.kernels.places import cache_name, find_cache_places, places_for

if TYPE_CHECKING:
    from cleaner.kernels import (
        batches,
        codecs,
        columns,
        crc32c,
        encode,
        fates,
        index,
        legacy,
        offset_bits,
        offset_map,
        producer_table,
        proof,
        records,
        repack,
        retain,
        transactions,
        xxhash32,
    )

__all__ = [
    "batches",
    "codecs",
    "columns",
    "crc32c",
    "encode",
    "fates",
    "index",
    "legacy",
    "offset_bits",
    "offset_map",
    "producer_table",
    "proof",
    "records",
    "repack",
    "retain",
    "transactions",
    "xxhash32",
]


def _module(name: str) -> Any:
    return importlib.import_module(f"cleaner.kernels.{name}")


class _Version(NamedTuple):
    """Machine code of a kernel for arguments of certain types."""

    checks: tuple[Check, ...]
    function: Callable[..., Any]


class _Store:
    """The machine code there is, and what links it."""

    def __init__(self, directories: tuple[Path, ...]) -> None:
        self.directories = directories
        self._files: dict[str, list[Path]] = {}
        for directory in directories:
            for kernel, paths in list_codes(directory).items():
                self._files.setdefault(kernel, []).extend(paths)
        self._linker: Linker | None = None
        self._lock = threading.RLock()  # a signal handler may need a kernel, too

    def has(self, kernel: str) -> bool:
        return kernel in self._files

    def link(self, kernel: str) -> list[_Version]:
        """Return the versions of a kernel that can be called."""
        with self._lock:
            versions = [self._link_file(kernel, path) for path in self._files[kernel]]
        return [version for version in versions if version is not None]

    def _link_file(self, kernel: str, path: Path) -> _Version | None:
        try:
            code = read_code(path)
            if code is None or code.kernel != kernel:
                return None
            checks = tuple(make_check(parameter) for parameter in code.parameters)
            self._linker = self._linker or Linker()
            return _Version(checks, self._linker.link(code))
        except Exception:  # noqa: BLE001 (whatever is wrong with it, numba does without)
            return None


class Kernel:
    """Calls the machine code made for its arguments, or numba."""

    def __init__(self, store: _Store, module: str, name: str) -> None:
        self._store = store
        self._module = module
        self._name = name
        self._versions: list[_Version] | None = None

    def __call__(self, *arguments: Any) -> Any:
        versions = self._versions
        if versions is None:
            versions = self._versions = self._store.link(f"{self._module}.{self._name}")
        for checks, function in versions:
            if len(checks) == len(arguments) and all(map(operator.call, checks, arguments)):
                return function(*arguments)
        return getattr(_module(self._module), self._name)(*arguments)


class _StandIn:
    """Has the names of a module of kernels."""

    def __init__(self, store: _Store, module: str, constants: dict[str, int]) -> None:
        self._store = store
        self._module = module
        vars(self).update(constants)

    def __getattr__(self, name: str) -> Any:
        if not self._store.has(f"{self._module}.{name}"):
            return getattr(_module(self._module), name)
        kernel = Kernel(self._store, self._module, name)
        setattr(self, name, kernel)
        return kernel


@functools.cache
def _store() -> _Store | None:
    """Return the machine code this process may use; None if it has to be numba."""
    if not numba_is_as_always() or not is_proven():
        return None
    try:
        target = baseline_target()
        return None if target is None else _Store(places_for(target, bounds_checked=False).readable)
    except OSError:  # a directory that went away
        return None


class Kept(NamedTuple):
    """
    What is kept of the kernels for the next process.

    Attributes:
        is_asked: numba works as always, so that what is kept is used.
        writable: where code is kept, or would be; None: nowhere, it is compiled at every start.
        missing: modules without any code.
    """

    is_asked: bool
    writable: Path | None
    missing: tuple[str, ...]


def what_is_kept() -> Kept:
    """Look what the next process will find; nothing is made or loaded. Warns as `find_cache_places`."""
    target = baseline_target()
    if target is None or not numba_is_as_always() or not is_proven():
        return Kept(False, None, tuple(__all__))
    places = find_cache_places(cache_name(target, bounds_checked=False), makes=False)
    there = {name for name in __all__ for each in places.readable if read_constants(each, name) is not None}
    return Kept(True, places.writable, tuple(name for name in __all__ if name not in there))


@functools.cache
def _stand_in(name: str) -> Any:
    store = _store()
    for directory in store.directories if store is not None else ():
        constants = read_constants(directory, name)
        if store is not None and constants is not None:
            return _StandIn(store, name, constants)
    return None


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    stand_in = None if "numba" in sys.modules else _stand_in(name)
    return _module(name) if stand_in is None else stand_in
