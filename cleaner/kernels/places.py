"""
Where the machine code of kernels is kept between runs, and who is trusted to have put it there.

numba keys its cache by the function's own source file only, so a kernel whose callee changed would run old code. Here
the directory's name carries a hash of all kernel sources, of the exact versions of Python, numpy, numba and llvmlite,
and of the target; bounds-checked code (NUMBA_BOUNDSCHECK=1) has a directory of its own. No path is part of it: a cache
made in one place serves an installation in another.

The files are programs, or pickles: whoever can write them, or exchange the directory they are in, can run code as us.
So a directory counts only if it, its files, and every directory from it up to the root belong to this process's user or
to root, and nobody else may write there. For root only root's own count: under `sudo -E` the home directory is somebody
else's, and nothing is read or made below it. One exception: a directory above that is sticky, as `/tmp` is, may be open
to others, since what is ours in it they can neither rename nor remove.

Looking comes before using, by the same path, and nothing can change in between: links are resolved first, then it is
looked at from the root downwards, and each directory that passed keeps others from changing the name of the next.

Code is read from every such directory, in order, and written to the first that takes it; numba's own cache wants to
write wherever it reads, and lets an error doing so end the computation. Without any place kernels are compiled at every
start: some seconds later, still right.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import stat
import sys
import warnings
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

import llvmlite
import numpy as np

from cleaner.base.trusted import why_open_to_others, why_way_is_open_to_others
from cleaner.kernels.baseline import Target

_VERSION = re.compile(r'"version": "([^"]+)"')


class CachePlaces(NamedTuple):
    """Directories for compiled kernels."""

    readable: tuple[Path, ...]
    writable: Path | None


def numba_directory() -> Path | None:
    """Return where numba is installed, without importing it; None if that is no directory."""
    spec = PathFinder.find_spec("numba")
    directory = Path(spec.origin).parent if spec is not None and spec.origin else None
    return directory if directory is not None and directory.is_dir() else None


@functools.cache
def numba_version() -> str:
    """Return the version of numba that is installed, without importing it."""
    directory = numba_directory()
    if directory is not None:
        with contextlib.suppress(FileNotFoundError):
            found = _VERSION.search((directory / "_version.py").read_text())
            if found:
                return found[1]
    import importlib.metadata  # slow to load

    return importlib.metadata.version("numba")


def cache_key(target: Target, *, bounds_checked: bool) -> str:
    """Return a name for everything machine code depends on."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    versions = (numba_version(), llvmlite.__version__, np.__version__, sys.version, sys.abiflags, str(bounds_checked))
    digest.update(" ".join((*versions, *target)).encode())
    return digest.hexdigest()[:20]


def _cache_roots() -> list[Path]:
    roots = [Path(os.environ[name]) for name in ("NUMBA_CACHE_DIR", "CACHE_DIRECTORY") if os.environ.get(name)]
    if os.environ.get("XDG_CACHE_HOME"):
        roots.append(Path(os.environ["XDG_CACHE_HOME"]) / "cleaner")
    if os.environ.get("HOME"):
        roots.append(Path(os.environ["HOME"]) / ".cache" / "cleaner")
    return roots


def _reason_against(path: Path, has_expected_type: Callable[[int], bool], *, is_on_the_way: bool = False) -> str | None:
    """Say why what lies at `path` cannot be trusted; None if it can."""
    about = path.lstat()
    if not has_expected_type(about.st_mode):
        return f"{path} is a link or something else that does not belong there"
    return why_open_to_others(path, about, is_on_the_way=is_on_the_way)


def _reason_against_directory(directory: Path, *, makes: bool) -> str | None:
    """
    Say why code in a directory cannot be trusted, for its own sake, a file's, or a directory's above; None if it can.

    With `makes` it is made where it is missing, below what can be trusted and nowhere else; without, what is missing is
    taken for made.
    """
    for above in reversed(directory.parents):
        if makes:
            _make(above)
        elif not os.path.lexists(above):
            return None
        if not stat.S_ISDIR(above.lstat().st_mode):
            raise NotADirectoryError(above)  # a file in the way: nobody has ever used this place
        reason = _reason_against(above, stat.S_ISDIR, is_on_the_way=True)
        if reason is not None:
            return reason
    if makes:
        _make(directory)
    elif not os.path.lexists(directory):
        return None
    reason = _reason_against(directory, stat.S_ISDIR)
    if reason is None:
        for path in directory.iterdir():
            # Another process may have just given a file its final name.
            with contextlib.suppress(FileNotFoundError):
                reason = reason or _reason_against(path, stat.S_ISREG)
    return reason


def _make(directory: Path) -> None:
    """Make a directory that is missing, readable for everybody: what root compiles is for users of lower rank, too."""
    if not os.path.lexists(directory):
        with contextlib.suppress(FileExistsError):  # another process that starts
            directory.mkdir(mode=0o755)


def _is_trusted(directory: Path, *, makes: bool) -> bool:
    """Make `directory` where that can be done, and tell whether it is there and safe to load code from."""
    try:
        reason = _reason_against_directory(directory, makes=makes)
    except OSError:
        return False
    if reason is not None:
        _warn(directory, reason)
    return reason is None


def _warn(directory: Path, reason: str) -> None:
    warnings.warn(f"compiled kernels in {directory} are not used: {reason}", RuntimeWarning, stacklevel=3)


def find_cache_places(name: str, *, makes: bool = True) -> CachePlaces:
    """
    Return the directories for compiled kernels, made on first use; none where no place is safe.

    One that is not to be trusted is passed over with a `RuntimeWarning`.

    Args:
        name: what they are called, in all places.
        makes: the one to write to is made; without, it is told where that would be, and nothing changes.
    """
    readable = []
    for root in dict.fromkeys(_cache_roots()):
        try:
            # Before anything is made: what is missing must not be made where somebody's link leads.
            reason = why_way_is_open_to_others(root / name)
            directory = root.resolve() / name
        except (OSError, RuntimeError):  # links in a circle
            continue
        if reason is not None:
            _warn(directory, reason)
            continue
        if not _is_trusted(directory, makes=makes):
            continue
        if not makes and not directory.is_dir():
            there = next(above for above in directory.parents if above.is_dir())
            if os.access(there, os.W_OK | os.X_OK):
                return CachePlaces(tuple(readable), directory)
            continue
        if not os.access(directory, os.R_OK | os.X_OK):
            continue
        readable.append(directory)
        if os.access(directory, os.W_OK):
            return CachePlaces(tuple(readable), directory)
    return CachePlaces(tuple(readable), None)


def cache_name(target: Target, *, bounds_checked: bool) -> str:
    """Return what the directories for a target are called."""
    return f"kernels-{cache_key(target, bounds_checked=bounds_checked)}"


@functools.cache
def places_for(target: Target, *, bounds_checked: bool) -> CachePlaces:
    """Return the directories of this process for one target; looked for, and warned about, once."""
    return find_cache_places(cache_name(target, bounds_checked=bounds_checked))
