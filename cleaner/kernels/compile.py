"""
The decorator all kernels use, and where their machine code is kept between runs.

numba keys its cache by the function's own source file only, so a kernel whose callee changed would run old code. The
cache directory's name therefore carries a hash of all kernel sources and of the versions of numba, llvmlite and numpy;
bounds-checked code (NUMBA_BOUNDSCHECK=1) has a directory of its own. Without any writable place kernels are compiled at
every start: some seconds later, still right. The files are pickles, so the directory is private to its owner.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import llvmlite
import numba
import numpy as np
from numba.core import config

BOUNDS_CHECKED = bool(config.BOUNDSCHECK)


def _cache_key() -> str:
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    versions = (numba.__version__, llvmlite.__version__, np.__version__, str(BOUNDS_CHECKED))
    digest.update(" ".join(versions).encode())
    return digest.hexdigest()[:20]


def _cache_roots() -> list[Path]:
    roots = [Path(os.environ[name]) for name in ("NUMBA_CACHE_DIR", "CACHE_DIRECTORY") if os.environ.get(name)]
    if os.environ.get("XDG_CACHE_HOME"):
        roots.append(Path(os.environ["XDG_CACHE_HOME"]) / "cleaner")
    if os.environ.get("HOME"):
        roots.append(Path(os.environ["HOME"]) / ".cache" / "cleaner")
    return roots


def _usable(directory: Path) -> bool:
    """Make `directory` and tell whether it is ours alone: whoever can write there can run code as us."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = directory.lstat()
    except OSError:
        return False
    private = stat.S_ISDIR(about.st_mode) and not about.st_mode & 0o022
    return private and about.st_uid == os.geteuid() and os.access(directory, os.W_OK)


def find_cache_directory() -> Path | None:
    """Return the directory for compiled kernels, made on first use; None where no place is private and writable."""
    for root in _cache_roots():
        directory = root / f"kernels-{_cache_key()}"
        if _usable(directory):
            return directory
    return None


CACHE_DIRECTORY = find_cache_directory()


def jit(function: Callable) -> Callable:
    """Compile a kernel on first use, from the cache where there is one; it runs without the GIL."""
    # numba reads the directory while decorating; other users of numba in this process keep theirs.
    before = config.CACHE_DIR
    if CACHE_DIRECTORY is not None:
        config.CACHE_DIR = str(CACHE_DIRECTORY)
    try:
        return numba.njit(function, nogil=True, error_model="numpy", cache=CACHE_DIRECTORY is not None)
    finally:
        config.CACHE_DIR = before
