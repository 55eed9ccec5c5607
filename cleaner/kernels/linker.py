"""
Machine code made callable without numba.

Importing numba and building its tables of types takes longer than cleaning 200 MB, and none of it is needed to run what
is compiled. A compiled version of a kernel is an object file with an entry of the form CPython calls: it takes the
arguments out of Python's objects, gives up the GIL, runs, and makes a Python object of the result. What such an entry
relies on is not numba's public interface but how it is built:

- It calls functions of three of numba's extension modules. These need nothing of the Python side of numba; they are
  loaded under their own names, so that a later import of numba gets the same ones. They list their functions' addresses
  in `c_helpers`, and the names under which compiled code knows them are numba's own rules.
- `PyExc_X` in it is the exception, not C's variable of that name.
- It looks for an `Environment` in a variable of its own. Kernels use none of what one can hold: an empty one will do.

That is why it is done for releases of numba only with which it has been tried (`is_proven`), why code is kept under the
exact versions of all involved, why only code is kept whose every need is in a list (`is_known_symbol`), and why each
piece is linked apart from all others. A need that is not met is an error of the linker, after which numba does the work
as it always has.
"""

from __future__ import annotations

import builtins
import ctypes
import importlib.util
import re
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import Any

from llvmlite import binding

from cleaner.kernels.machine_code import MachineCode
from cleaner.kernels.places import numba_directory, numba_version

_PROVEN_NUMBA = ("0.68.",)  # one more when all tests have passed with it, those of `ready.py` above all
_DYNFUNC, _HELPERLIB, _RUNTIME = "_dynfunc", "_helperlib", "core.runtime._nrt_python"
_EXCEPTION_PREFIX = "PyExc_"
# Functions of CPython and of the C library mean the same to everybody.
_SYSTEM_FUNCTIONS = re.compile(r"(?:Py[A-Z]\w*_|Py_)[A-Z]\w*|mem(?:cpy|move|set|cmp)")
_HELPER_PREFIXES = ("NRT_", "numba_")


def is_proven() -> bool:
    """Tell whether the numba that is installed is known to be built as it is said above."""
    return numba_version().startswith(_PROVEN_NUMBA)


def is_known_symbol(name: str) -> bool:
    """Tell whether the linker knows what numba means by a name."""
    if name.startswith(_EXCEPTION_PREFIX):
        return name.removeprefix(_EXCEPTION_PREFIX) in vars(builtins)
    return name == "_Py_NoneStruct" or name.startswith(_HELPER_PREFIXES) or bool(_SYSTEM_FUNCTIONS.fullmatch(name))


def _load_extension(directory: Path, name: str) -> ModuleType:
    """Load one of numba's extension modules, without the packages around it."""
    parent = directory.joinpath(*name.split(".")[:-1])
    for suffix in EXTENSION_SUFFIXES:
        path = parent / (name.rpartition(".")[2] + suffix)
        if path.is_file():
            spec = importlib.util.spec_from_file_location(f"numba.{name}", path)
            if spec is None or spec.loader is None:
                break
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    raise ImportError(f"no extension module {name} in {directory}")


class Linker:
    """Makes callables of machine code; what it has linked stays for the rest of the process."""

    def __init__(self) -> None:
        """
        Load what all kernels need.

        Raises:
            ImportError: numba is not installed as it should be.
            RuntimeError: LLVM cannot link for this processor.
        """
        directory = numba_directory()
        if directory is None:
            raise ImportError("numba is not in a directory")
        self._dynfunc = _load_extension(directory, _DYNFUNC)
        self._symbols = {"_Py_NoneStruct": id(None)}
        for module in (_load_extension(directory, _HELPERLIB), self._dynfunc):
            self._symbols |= {f"numba_{name}": address for name, address in module.c_helpers.items()}
        for name, address in _load_extension(directory, _RUNTIME).c_helpers.items():
            self._symbols[name if name.startswith("_") else f"NRT_{name}"] = address
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        self._compiler = binding.create_lljit_compiler(suppress_errors=True)
        self._count = 0
        self._linked: list[Any] = []

    def link(self, code: MachineCode) -> Any:
        """
        Return the callable of one version of a kernel. Not for two threads at a time.

        It must be called with what `code.parameters` describe, and nothing else.

        Raises:
            RuntimeError: something the code needs is missing, or LLVM does not take it.
        """
        library = binding.JITLibraryBuilder().add_object_img(code.object_file).add_current_process()
        for symbol in code.needed:
            address = self._address(symbol)
            if address is not None:
                library.import_symbol(symbol, address)
        for symbol in (code.entry, *code.environments):
            library.export_symbol(symbol)
        self._count += 1
        tracker = library.link(self._compiler, f"{code.kernel}-{self._count}")
        environment = self._dynfunc.Environment({"__builtins__": builtins})
        for symbol in code.environments:
            ctypes.c_void_p.from_address(tracker[symbol]).value = id(environment)
        name = code.kernel.rpartition(".")[2]
        function = self._dynfunc.make_function(self._dynfunc, name, "", tracker[code.entry], environment, tracker)
        self._linked.append((function, environment, tracker))
        return function

    def _address(self, symbol: str) -> int | None:
        """Return what numba means by a symbol; None if it is what the process means by it."""
        if symbol.startswith(_EXCEPTION_PREFIX):
            return id(getattr(builtins, symbol.removeprefix(_EXCEPTION_PREFIX)))
        address = self._symbols.get(symbol)
        if address is None and symbol.startswith(_HELPER_PREFIXES):
            raise RuntimeError(f"numba has no {symbol}")
        return address
