"""Who a command runs as."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleaner.storage.ownership import Owner

# Not loaded beforehand: Spark starts Python anew, which has to read it; kernels are loaded by `warm_up`.
_LEFT_OUT = ("cleaner.__main__", "cleaner.bulk", "cleaner.frames", "cleaner.kernels", "cleaner.testing")
# What our modules load inside functions.
_LOADED_LATE = (
    "bcrypt",
    "difflib",
    "encodings.idna",
    "importlib.metadata",
    "numpy.random",
    "structlog.dev",
    "traceback",
    "yaml",
    "zoneinfo",
)


def take_identity(
    *directories: Path | None, stay_root: bool, needs_kernels: bool = True, may_be_new: bool = False
) -> None:
    """
    Become the owner of all directories that are worked in if started as root, before any of their files is touched.

    Kernels are loaded first: their machine code is in a cache that belongs to root. Where the program itself is in a
    directory that the owner may not enter, as `/root` often is, all of it is loaded first, too.

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
    from cleaner.storage.fs import FileSystem
    from cleaner.storage.ownership import become, owner_of
    from cleaner.storage.which_dir import require_there

    try:
        owner = owner_of(given)
    except ForeignDirectoryError:
        if not may_be_new:
            require_there(FileSystem(), given[0])  # whose a directory would be that nobody has is not the question
        raise
    if owner is None:
        return
    closed = _code_closed_to(owner)
    if needs_kernels or closed is not None:
        from cleaner.engine.warm_up import warm_up

        warm_up()
    if closed is not None:
        _load_everything()
    try:
        become(owner)
    except OSError as error:
        raise LogDirOfflineError(given[0], error) from error
    if closed is not None:
        sys.meta_path.append(_NothingMore(closed, owner))


def _code_closed_to(owner: Owner) -> Path | None:
    """Return what keeps a user from reading our modules, those of others, or Python's; None if nothing does."""
    import numpy as np

    import cleaner
    from cleaner.storage.ownership import closed_to

    places = [Path(module.__file__).parent for module in (cleaner, np, os) if module.__file__ is not None]
    closed = [closed_to(place, owner) for place in places]
    return next((place for place in closed if place is not None), None)


def _load_everything() -> None:
    import cleaner

    for found in pkgutil.walk_packages(cleaner.__path__, "cleaner."):
        if not found.name.startswith(_LEFT_OUT):
            importlib.import_module(found.name)
    for name in _LOADED_LATE:
        importlib.import_module(name)


class _NothingMore(MetaPathFinder):
    """Asked when a module was found nowhere else: it may be there, where this process cannot look any more."""

    def __init__(self, closed: Path, owner: Owner) -> None:
        self._closed, self._owner = closed, owner

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise: nothing can be told of it."""
        from cleaner.errors import UnreadableCodeError

        raise UnreadableCodeError(fullname, self._closed, f"user {self._owner}")
