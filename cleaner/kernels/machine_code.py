"""
The files from which kernels are started without numba: machine code and what has to be known to call it.

They lie beside the files of numba's cache, of which they are an extract: one for each version of a kernel, and one a
module for its constants, which rooms above ask for before they call anything. Each begins with a hash of the rest: what
a power cut left of a file is not run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

_HASH_BYTES = 32
_LENGTH_BYTES = 4
_CODE_SUFFIX = ".code"
_CONSTANTS_SUFFIX = ".constants"


class MachineCode(NamedTuple):
    """One version of a kernel."""

    kernel: str
    """As `retain.seal_batch`."""
    entry: str
    """The symbol of what takes Python's arguments."""
    environments: list[str]
    """Symbols of the pointers numba's code looks for its environments in."""
    needed: list[str]
    """Symbols that come from elsewhere."""
    parameters: list[str | dict[str, Any]]
    """See `parameters.py`."""
    object_file: bytes


def _write(path: Path, content: bytes) -> None:
    """Write a file that others cannot write to, whatever the umask; it is complete once it has its name."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with temporary.open("wb") as file:
            os.fchmod(file.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode) & ~0o022)
            file.write(hashlib.sha256(content).digest() + content)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _read(path: Path) -> bytes | None:
    """Return what was written to a file; None if it is not there or not whole."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if hashlib.sha256(content[_HASH_BYTES:]).digest() != content[:_HASH_BYTES]:
        return None
    return content[_HASH_BYTES:]


def code_path(directory: Path, kernel: str, parameters: list[str | dict[str, Any]]) -> Path:
    """Return the file of one version of a kernel."""
    version = hashlib.sha256(json.dumps(parameters).encode()).hexdigest()[:16]
    return directory / f"{kernel}-{version}{_CODE_SUFFIX}"


def write_code(directory: Path, code: MachineCode) -> None:
    """Keep one version of a kernel."""
    about = code._asdict()
    del about["object_file"]
    head = json.dumps(about).encode()
    content = len(head).to_bytes(_LENGTH_BYTES, "little") + head + code.object_file
    _write(code_path(directory, code.kernel, code.parameters), content)


def list_codes(directory: Path) -> dict[str, list[Path]]:
    """Return the files of every kernel in a directory."""
    found: dict[str, list[Path]] = {}
    for path in sorted(directory.iterdir()):
        if path.suffix == _CODE_SUFFIX:
            found.setdefault(path.name.rpartition("-")[0], []).append(path)
    return found


def read_code(path: Path) -> MachineCode | None:
    """Return one version of a kernel; None if its file is gone or not whole."""
    content = _read(path)
    if content is None:
        return None
    start = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    return MachineCode(**json.loads(content[_LENGTH_BYTES:start]), object_file=content[start:])


def write_constants(directory: Path, module: str, names: dict[str, Any]) -> None:
    """Keep the numbers among a module's public names, once all of it was executed."""
    path = directory / (module + _CONSTANTS_SUFFIX)
    constants = {name: value for name, value in names.items() if type(value) is int and not name.startswith("_")}
    content = json.dumps(constants, sort_keys=True).encode()
    if _read(path) != content:
        _write(path, content)


def read_constants(directory: Path, module: str) -> dict[str, int] | None:
    """Return a module's constants; None if they are not there."""
    content = _read(directory / (module + _CONSTANTS_SUFFIX))
    return None if content is None else json.loads(content)
