"""
numba's cache of compiled kernels, in the directories of `places.py`; what it keeps is kept as bare machine code, too.

Its entries are all numba needs to go on compiling with a kernel. Running one takes much less: see `linker.py`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import stat
import sys
import warnings

from numba import types
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator
from numba.np.numpy_support import as_dtype

from cleaner.kernels.announce import announce_compiling
from cleaner.kernels.baseline import numba_is_as_always
from cleaner.kernels.linker import is_known_symbol
from cleaner.kernels.machine_code import MachineCode, code_path, read_code, write_code, write_constants
from cleaner.kernels.object_file import read_symbols
from cleaner.kernels.parameters import BOOLEAN, INT64, describe_array
from cleaner.kernels.places import places_for
from cleaner.kernels.ready import __all__ as CALLED_FROM_ABOVE
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

PLACES = places_for(TARGET, bounds_checked=BOUNDS_CHECKED)


def _describe(argument_type):
    """Return a parameter's description for `parameters.py`; None if there is none."""
    if argument_type == types.int64:
        return INT64
    if argument_type == types.boolean:
        return BOOLEAN
    if type(argument_type) is types.Array and argument_type.layout == "C":
        with contextlib.suppress(NotImplementedError, ValueError):
            return describe_array(as_dtype(argument_type.dtype), argument_type.ndim, writable=argument_type.mutable)
    return None


def _is_self_contained(lifted, reload_init, environments):
    """Tell whether machine code runs without anything Python would have to prepare."""
    return not lifted and not reload_init and not any(environment.consts for environment in environments)


@functools.cache
def _keep_constants(directory, module):
    write_constants(directory, module.__name__.rpartition(".")[2], vars(module))


class _MachineCodeKeeper:
    """Keeps what numba has compiled of one kernel as bare machine code, if rooms above may call it."""

    def __init__(self, kernel):
        package, _, module = kernel.__module__.rpartition(".")
        self._kernel = f"{module}.{kernel.__name__}"
        is_ours = package == __package__ and module in CALLED_FROM_ABOVE
        self._is_wanted = is_ours and not kernel.__name__.startswith("_")

    def keep(self, directory, data):
        """Write the files that are not there and sound. `data` is an entry of numba's cache; an unusual one is left."""
        if not self._is_wanted or not numba_is_as_always():
            return
        (_, kind, binary), description, own, signature, object_mode, lifted, _, reload_init, others = data
        parameters = [_describe(argument) for argument in signature.args]
        is_usual = kind == "object" and not object_mode and None not in parameters
        if not is_usual:
            return
        # Of all modules: rooms above ask for the constants of those, too, that they may never call.
        for name in CALLED_FROM_ABOVE:
            if f"{__package__}.{name}" in sys.modules:
                _keep_constants(directory, sys.modules[f"{__package__}.{name}"])
        if read_code(code_path(directory, self._kernel, parameters)) is not None:
            return
        environments = {environment.env_name: environment for environment in (own, *others)}
        symbols = read_symbols(binary[0])
        entry = description.llvm_cpython_wrapper_name
        if (
            _is_self_contained(lifted, reload_init, environments.values())
            and symbols.defined.issuperset({entry, *environments})
            and all(map(is_known_symbol, symbols.needed))
        ):
            needed = sorted(symbols.needed)
            write_code(directory, MachineCode(self._kernel, entry, list(environments), needed, parameters, binary[0]))


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
        self._keeper = _MachineCodeKeeper(kernel)
        name = self._impl.filename_base
        self._files = [_KernelCacheFile(str(directory), name, "") for directory in PLACES.readable]

    def _load_overload(self, signature, target_context):
        key = self._index_key(signature, target_context.codegen())
        for file in self._files:
            try:
                data = file.load(key)
                if data is not None:
                    result = self._impl.rebuild(target_context, data)
                    self._keep_machine_code(data)
                    return result
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
            self._keep_machine_code(data)
        except OSError as error:
            warnings.warn(f"compiled kernels are not kept in {PLACES.writable}: {error}", RuntimeWarning, stacklevel=2)

    def _keep_machine_code(self, data):
        """Make later starts faster; whatever is in the way of that harms nothing."""
        if PLACES.writable is not None:
            with contextlib.suppress(OSError, *_DAMAGE):
                self._keeper.keep(PLACES.writable, data)
