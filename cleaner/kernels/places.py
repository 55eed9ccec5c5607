"""
The directories in which machine code of kernels is kept between runs, and which of them are trusted.

A directory's name contains a hash of all kernel sources, of the exact versions of Python, numpy, numba and llvmlite,
and of the target; bounds-checked code (NUMBA_BOUNDSCHECK=1) has its own directory. The hash includes no path: a cache
made in one place works for an installation in another.

The files are programs: a user who can write them, or exchange their directory, can run code as this process. So a
directory is used only if it, its files, and every directory from it up to the root belong to this process's user or to
root, and no one else may write there. For root, only root's own count: under `sudo -E` the home directory is another
user's, and nothing is read or created below it. One exception: a sticky directory above, such as `/tmp`, may be
writable by others, since they can neither rename nor remove our entries in it.

The check comes before the use, by the same path, and nothing can change in between: links are resolved first, then the
path is checked from the root downwards, and each directory that passed keeps others from changing the next name.

Code is read from every such directory, in order, and written to the first writable one, which is created when there is
something to save. The first is `kernels` in the installation itself, if it is there: installers make it, and root
compiles into it once for everyone. Without any directory, kernels are compiled at every start: slower by some seconds,
but correct.
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
    """The existing ones."""
    writable: Path | None
    """The one to write to, which may not exist yet; None if no directory is safe and writable."""


def cache_key(target: Target, *, bounds_checked: bool) -> str:
    """Return a hash of everything that machine code depends on."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    versions = (numba.__version__, llvmlite.__version__, np.__version__, sys.version, sys.abiflags, str(bounds_checked))
    digest.update(" ".join((*versions, *target)).encode())
    return digest.hexdigest()[:20]


def _cache_roots() -> list[Path]:
    installed = Path(sys.prefix) / "kernels"
    roots = [installed] if installed.is_dir() else []
    roots += [Path(os.environ[name]) for name in ("NUMBA_CACHE_DIR", "CACHE_DIRECTORY") if os.environ.get(name)]
    if os.environ.get("XDG_CACHE_HOME"):
        roots.append(Path(os.environ["XDG_CACHE_HOME"]) / "cleaner")
    if os.environ.get("HOME"):
        roots.append(Path(os.environ["HOME"]) / ".cache" / "cleaner")
    return roots


def _why_untrusted(path: Path, has_expected_type: Callable[[int], bool], *, is_on_the_way: bool = False) -> str | None:
    """Say why the file or directory at `path` cannot be trusted; None if it can."""
    about = path.lstat()
    if not has_expected_type(about.st_mode):
        return f"{path} is a link or something else that does not belong there"
    return why_open_to_others(path, about, is_on_the_way=is_on_the_way)


def _why_untrusted_dir(directory: Path, *, makes: bool) -> str | None:
    """
    Say why code in a directory cannot be trusted, because of it, a file in it, or a directory above; None if it can.

    With `makes`, missing directories are created, but only below trusted ones; without, missing ones count as trusted.
    """
    for above in reversed(directory.parents):
        if makes:
            _make(above)
        elif not os.path.lexists(above):
            return None
        if not stat.S_ISDIR(above.lstat().st_mode):
            raise NotADirectoryError(above)  # a file in the path: the directory was never used
        reason = _why_untrusted(above, stat.S_ISDIR, is_on_the_way=True)
        if reason is not None:
            return reason
    if makes:
        _make(directory)
    elif not os.path.lexists(directory):
        return None
    reason = _why_untrusted(directory, stat.S_ISDIR)
    if reason is None:
        for path in directory.iterdir():
            # Another process may have just given a file its final name.
            with contextlib.suppress(FileNotFoundError):
                reason = reason or _why_untrusted(path, stat.S_ISREG)
    return reason


def _make(directory: Path) -> None:
    """Create a missing directory, readable for everyone: other users may use code that root compiled."""
    if not os.path.lexists(directory):
        with contextlib.suppress(FileExistsError):  # another starting process created it
            directory.mkdir(mode=0o755)


def _warn(directory: Path, reason: str) -> None:
    warnings.warn(f"compiled kernels in {directory} are not used: {reason}", RuntimeWarning, stacklevel=3)


def make_place(directory: Path) -> None:
    """
    Create the directory to write to, if it does not exist.

    Raises:
        OSError: the system refused; PermissionError also if another process was faster and it cannot be trusted.
    """
    reason = _why_untrusted_dir(directory, makes=True)
    if reason is not None:
        raise PermissionError(reason)


def find_cache_places(name: str) -> CachePlaces:
    """
    Return the directories for compiled kernels; none if none is safe. Creates nothing.

    A directory that cannot be trusted is skipped with a `RuntimeWarning`.

    Args:
        name: the directory's name, the same below every root.
    """
    readable = []
    for root in dict.fromkeys(_cache_roots()):
        try:
            # Checked by the given name: nothing must be created where another user's link leads.
            reason = why_way_is_open_to_others(root / name)
            directory = root.resolve() / name
            reason = reason or _why_untrusted_dir(directory, makes=False)
        except (OSError, RuntimeError):  # links in a circle, or a status that cannot be read
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
    """Return the directories of this process; searched, and warned about, once."""
    return find_cache_places(f"kernels-{cache_key(TARGET, bounds_checked=BOUNDS_CHECKED)}")
