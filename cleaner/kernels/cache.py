"""
The compiled versions of a kernel, kept in the directories of `places.py`, one file each: a hash, and numba's reduced
form of a compiled function.

numba's own cache (`cache=True`) is not usable. It identifies a kernel by its own source file only, so a kernel whose
callee changed would run old code. It uses a directory that other users can write to. It fails permanently on a file
that a power cut left empty, and a full disk ends the computation. Its files have numbers from an index: two processes
that compile different versions of one kernel at the same time can take the same number, and then run each other's
machine code.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import warnings

from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from cleaner.kernels.announce import announce_compiling
from cleaner.kernels.places import cache_places, make_place

_HASH_BYTES = 32
_SUFFIX = ".kernel"


def _read(path):
    """Return the content written to a file; None if it is missing or incomplete."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    is_whole = hashlib.sha256(content[_HASH_BYTES:]).digest() == content[:_HASH_BYTES]
    return content[_HASH_BYTES:] if is_whole else None


def _write(path, content):
    """Write a file that others cannot write to, whatever the umask; it gets its name once it is complete."""
    temporary = path.with_name(f"{path.name}.{os.urandom(8).hex()}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(hashlib.sha256(content).digest() + content)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


class KernelCache:
    """
    Loads and saves the versions of one kernel for numba; replaces its `FunctionCache`.

    Args:
        kernel: a function of this package: the directories' names depend on its source.

    Attributes:
        saved: how many versions were saved.
    """

    cache_path = None  # for numba's statistics

    def __init__(self, kernel):
        self._name = f"{kernel.__module__.rpartition('.')[2]}.{kernel.__qualname__}"
        self.saved = 0

    def load_overload(self, signature, target_context):
        """Return the version for some types of arguments; None, and an announcement, if it must be compiled."""
        target_context.refresh()
        for directory in cache_places().readable:
            content = _read(directory / self._file_name(signature))
            if content is not None:
                name, kept_signature, parts = pickle.loads(content)  # noqa: S301 (see places.py)
                if (name, kept_signature) == (self._name, signature):
                    return CompileResult._rebuild(target_context, *parts)
        announce_compiling(cache_places().writable)
        return None

    def save_overload(self, signature, result):
        """Save a version; if that fails, the next process compiles it again."""
        directory = cache_places().writable
        # Code with addresses of this process is useless for another one.
        if directory is None or result.lifted or result.library.has_dynamic_globals:
            return
        try:
            make_place(directory)
            _write(directory / self._file_name(signature), dumps((self._name, signature, result._reduce())))
            self.saved += 1
        except OSError as error:
            warnings.warn(f"compiled kernels are not kept in {directory}: {error}", RuntimeWarning, stacklevel=2)

    def _file_name(self, signature):
        return f"{self._name}-{hashlib.sha256(str(signature).encode()).hexdigest()[:16]}{_SUFFIX}"

    def flush(self):
        """Do nothing: numba calls it for `recompile`, which is not used."""
