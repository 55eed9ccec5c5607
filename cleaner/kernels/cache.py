"""
Where the machine code of kernels is kept between runs, and who is trusted to have put it there.

numba keys its cache by the function's own source file only, so a kernel whose callee changed would run old code. Here
the directory's name carries a hash of all kernel sources, of the versions of what compiles them, and of the target;
bounds-checked code (NUMBA_BOUNDSCHECK=1) has a directory of its own. No path is part of it: a cache made in one place
serves an installation in another.

The files are pickles: whoever can write them can run code as us. So a directory counts only if it and its files belong
to the user or to root and nobody else may write there. Code is read from every such directory, in order, and written
to the first that takes it; numba's own cache wants to write wherever it reads, and lets an error doing so end the
computation. Without any place kernels are compiled at every start: some seconds later, still right.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import stat
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import llvmlite
import numba
import numpy as np
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator

from cleaner.kernels.announce import announce_compiling
from cleaner.kernels.target import TARGET

BOUNDS_CHECKED = bool(config.BOUNDSCHECK)

# What pickle and LLVM raise for a file that was cut short, as a power cut leaves it: numba writes without fsync.
_DAMAGE = (
    EOFError,
    pickle.UnpicklingError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ImportError,
    RuntimeError,
)


class CachePlaces(NamedTuple):
    """Directories for compiled kernels."""

    readable: tuple[Path, ...]
    writable: Path | None


def _cache_key() -> str:
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    versions = (numba.__version__, llvmlite.__version__, np.__version__, str(BOUNDS_CHECKED))
    digest.update(" ".join((*versions, *TARGET)).encode())
    return digest.hexdigest()[:20]


def _cache_roots() -> list[Path]:
    roots = [Path(os.environ[name]) for name in ("NUMBA_CACHE_DIR", "CACHE_DIRECTORY") if os.environ.get(name)]
    if os.environ.get("XDG_CACHE_HOME"):
        roots.append(Path(os.environ["XDG_CACHE_HOME"]) / "cleaner")
    if os.environ.get("HOME"):
        roots.append(Path(os.environ["HOME"]) / ".cache" / "cleaner")
    return roots


def _reason_against(path: Path, has_expected_type: Callable[[int], bool]) -> str | None:
    """Say why what lies at `path` cannot be trusted; None if it can."""
    about = path.lstat()
    if not has_expected_type(about.st_mode):
        return f"{path} is a link or something else that does not belong there"
    if about.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to user {about.st_uid}"
    if about.st_mode & 0o022:
        return f"others may write to {path}"
    return None


def _reason_against_directory(directory: Path) -> str | None:
    """Say why code in a directory cannot be trusted, for its own sake or a file's; None if it can."""
    reason = _reason_against(directory, stat.S_ISDIR)
    if reason is None:
        for path in directory.iterdir():
            # Another process may have just given a file its final name.
            with contextlib.suppress(FileNotFoundError):
                reason = reason or _reason_against(path, stat.S_ISREG)
    return reason


def _is_trusted(directory: Path) -> bool:
    """Make `directory` where that can be done, and tell whether it is there and safe to load code from."""
    try:
        # Readable for everybody: what root compiles into an image is for users of lower rank.
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        reason = _reason_against_directory(directory)
    except OSError:
        return False
    if reason is not None:
        warnings.warn(f"compiled kernels in {directory} are not used: {reason}", RuntimeWarning, stacklevel=2)
    return reason is None


def find_cache_places() -> CachePlaces:
    """
    Return the directories for compiled kernels, made on first use; none where no place is safe.

    One that is somebody else's, or open to others, is passed over with a `RuntimeWarning`.
    """
    readable = []
    for root in dict.fromkeys(_cache_roots()):
        directory = root / f"kernels-{_cache_key()}"
        if not _is_trusted(directory) or not os.access(directory, os.R_OK | os.X_OK):
            continue
        readable.append(directory)
        if os.access(directory, os.W_OK):
            return CachePlaces(tuple(readable), directory)
    return CachePlaces(tuple(readable), None)


class _KernelLocator(_CacheLocator):
    """Tells numba what an entry is named; the sources' hash is in the directory's name."""

    def __init__(self, kernel, path):
        self._line = kernel.__code__.co_firstlineno

    @classmethod
    def from_function(cls, kernel, path):
        return cls(kernel, path)

    def get_cache_path(self):
        return str(PLACES.writable or "")

    def ensure_cache_path(self):
        """Nothing: who saves an entry is ready for a directory that does not take it."""

    def get_source_stamp(self):
        return ""

    def get_disambiguator(self):
        return str(self._line)


class _KernelCacheImplementation(CompileResultCacheImpl):
    _locator_classes = [_KernelLocator]  # noqa: RUF012 (numba's own field)


class _KernelCacheFile(IndexDataCacheFile):
    """The files of one kernel in one directory; never open to others, whatever the umask."""

    @contextlib.contextmanager
    def _open_for_write(self, path):
        with super()._open_for_write(path) as file:
            os.fchmod(file.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode) & ~0o022)
            yield file


class KernelCache(FunctionCache):
    """A kernel's compiled versions, in directories of which all but the last may be read-only."""

    _impl_class = _KernelCacheImplementation

    def __init__(self, kernel):
        super().__init__(kernel)
        self.saved = 0
        name = self._impl.filename_base
        self._files = [_KernelCacheFile(str(directory), name, "") for directory in PLACES.readable]

    def _load_overload(self, signature, target_context):
        key = self._index_key(signature, target_context.codegen())
        for file in self._files:
            try:
                data = file.load(key)
                if data is not None:
                    return self._impl.rebuild(target_context, data)
            except (OSError, *_DAMAGE):
                continue  # compiled again, and saved over what is damaged
        announce_compiling(PLACES.writable)
        return None

    def _save_overload(self, signature, result):
        if PLACES.writable is None or not self._impl.check_cachable(result):
            return
        key, data = self._index_key(signature, result.codegen), self._impl.reduce(result)
        try:
            try:
                self._files[-1].save(key, data)
            except _DAMAGE:  # an index that was cut short
                self._files[-1].flush()
                self._files[-1].save(key, data)
            self.saved += 1
        except OSError as error:
            warnings.warn(f"compiled kernels are not kept in {PLACES.writable}: {error}", RuntimeWarning, stacklevel=2)


PLACES = find_cache_places()
