"""
Keeps numba from reading `.numba_config.yaml` in the current directory.

numba takes its compiler's settings from that file, and an operator, root too, may stand in a directory of another user:
such a file could keep every kernel from being loaded, or change how they are made. So numba's settings come only from
the environment (NUMBA_*). A process that uses numba before it imports kernels keeps the settings that it has.
"""

from __future__ import annotations

import builtins
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

_MODULE = "numba.core.config"


class _Finder(MetaPathFinder):
    """Finds numba's settings, to be loaded by `_Loader`; nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        found = PathFinder.find_spec(fullname, path, target)
        if found is not None and found.origin is not None:
            found.loader = _Loader(fullname, found.origin)
        return found


class _Loader(SourceFileLoader):
    """Loads the module as if there were no package to read YAML with: then it only warns of a file."""

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import_without_yaml}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "A Numba config file is found")
            super().exec_module(module)
        vars(module)["_config_fname"] = os.devnull  # numba looks again whenever it compiles


def _import_without_yaml(name: str, *arguments: object) -> ModuleType:
    if name == "yaml":
        raise ImportError(name)
    module: ModuleType = builtins.__import__(name, *arguments)  # type: ignore[arg-type]
    return module


def pass_over() -> None:
    """Pass the file over when this process loads numba, unless it has already."""
    if _MODULE not in sys.modules:
        sys.meta_path.insert(0, _Finder())
