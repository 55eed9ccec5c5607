"""
Where the machine code of kernels is kept between runs, and who is trusted to have put it there.

A directory's name carries a hash of all kernel sources, of the exact versions of Python, numpy, numba and llvmlite, and
of the target; bounds-checked code (NUMBA_BOUNDSCHECK=1) has a directory of its own. No path is part of it: a cache made
in one place serves an installation in another.

The files are programs: a user who can write them, or exchange the directory they are in, can run code as us. So a
directory counts only if it, its files, and every directory from it up to the root belong to this process's user or to
root, and nobody else may write there. For root only root's own count: under `sudo -E` the home directory is somebody
else's, and nothing is read or made below it. One exception: a directory above that is sticky, as `/tmp` is, may be open
to others, since what is ours in it they can neither rename nor remove.

Looking comes before using, by the same path, and nothing can change in between: links are resolved first, then it is
looked at from the root downwards, and each directory that passed keeps others from changing the name of the next.

Code is read from every such directory, in order, and written to the first that takes it, which is made when there is
something to keep. Without any place kernels are compiled at every start: some seconds later, still right.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import llvmlite
import numba
import numpy as np

from cleaner.base.trusted import why_open_to_others, why_way_is_open_to_others
from cleaner.kernels.target import TARGET, Target

BOUNDS_CHECKED = bool(numba.config.BOUNDSCHECK)


class CachePlaces(NamedTuple):
    """Directories for compiled kernels."""

    readable: tuple[Path, ...]
    """Those that are there."""
    writable: Path | None
    """The one to write to, which may have to be made; None where no place is safe and writable."""


def cache_key(target: Target, *, bounds_checked: bool) -> str:
    """Return a name for everything machine code depends on."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    versions = (numba.__version__, llvmlite.__version__, np.__version__, sys.version, sys.abiflags, str(bounds_checked))
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


def _warn(directory: Path, reason: str) -> None:
    warnings.warn(f"compiled kernels in {directory} are not used: {reason}", RuntimeWarning, stacklevel=3)


def make_place(directory: Path) -> None:
    """
    Make the place to write to, if it is not there.

    Raises:
        OSError: the system refused; PermissionError also where somebody was faster, and it is not to be trusted.
    """
    reason = _reason_against_directory(directory, makes=True)
    if reason is not None:
        raise PermissionError(reason)


def find_cache_places(name: str) -> CachePlaces:
    """
    Return the directories for compiled kernels; none where no place is safe. Nothing is made.

    One that is not to be trusted is passed over with a `RuntimeWarning`.

    Args:
        name: what they are called, in all places.
    """
    readable = []
    for root in dict.fromkeys(_cache_roots()):
        try:
            # By the name that was given: what is missing must not be made where somebody's link leads.
            reason = why_way_is_open_to_others(root / name)
            directory = root.resolve() / name
            reason = reason or _reason_against_directory(directory, makes=False)
        except (OSError, RuntimeError):  # links in a circle, or what cannot be looked at
            continue
        if reason is not None:
            _warn(directory, reason)
            continue
        if directory.is_dir() and os.access(directory, os.R_OK | os.X_OK):
            readable.append(directory)
        nearest = next(each for each in (directory, *directory.parents) if each.is_dir())
        if os.access(nearest, os.W_OK | os.X_OK):
            return CachePlaces(tuple(readable), directory)
    return CachePlaces(tuple(readable), None)


@functools.cache
def cache_places() -> CachePlaces:
    """Return the directories of this process; looked for, and warned about, once."""
    return find_cache_places(f"kernels-{cache_key(TARGET, bounds_checked=BOUNDS_CHECKED)}")
