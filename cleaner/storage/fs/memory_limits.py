"""
How much memory the process may use (the machine's, or less if a control group limits it), and how much it uses.

A container or a systemd unit with a memory limit is a control group. A process that exceeds the limit is killed, or
slowed beyond use, at any moment. Each group above ours has a limit too, and the lowest one counts.

    version 2     /sys/fs/cgroup/<group>/memory.max                       a number, or "max"
    version 1     /sys/fs/cgroup/memory/<group>/memory.limit_in_bytes     a number; unlimited is one near 2**63

In a container, the group's path in `/proc/self/cgroup` is often the host's and does not exist; then the mount's top
directory is the container's own group.

Source: cgroups(7), proc(5); Linux's `Documentation/admin-guide/cgroup-v2.rst`, `cgroup-v1/memory.rst`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cleaner.errors import CleanerError
from cleaner.storage.fs.file_system import FileSystem

_LIMIT_BYTES = 1 << 20  # largest file read; these hold a number, or a line for each controller
_UNLIMITED_BYTES = 1 << 60
_ANONYMOUS = re.compile(r"^RssAnon:\s+([0-9]+) kB$", re.MULTILINE)
_MEM_TOTAL = re.compile(r"^MemTotal:\s+([0-9]+) kB$", re.MULTILINE)


@dataclass(frozen=True, order=True)
class MemoryLimit:
    """
    A bound of the process's memory.

    Attributes:
        size: bytes.
        source: the file it was read from, for the operator.
    """

    size: int
    source: str


def lowest_memory_limit(fs: FileSystem, root: Path = Path("/")) -> MemoryLimit | None:
    """
    Return the lowest limit; None if none can be read (no `/proc`).

    Args:
        fs: the file system.
        root: where `proc` and `sys` are found.
    """
    return min(_limits(fs, root), default=None)


def anonymous_bytes(fs: FileSystem, root: Path = Path("/")) -> int | None:
    """
    Return the process's anonymous memory, bytes; None if it cannot be read.

    Pages of files, such as programs and logs, are not counted: the system may drop them at any time.
    """
    found = _ANONYMOUS.search(read_text(fs, root / "proc" / "self" / "status"))
    return int(found.group(1)) << 10 if found else None


def _limits(fs: FileSystem, root: Path) -> Iterator[MemoryLimit]:
    meminfo = root / "proc" / "meminfo"
    total = _MEM_TOTAL.search(read_text(fs, meminfo))
    if total:
        yield MemoryLimit(int(total.group(1)) << 10, str(meminfo))
    for path in _limit_files(fs, root):
        text = read_text(fs, path).strip()
        if text.isascii() and text.isdigit() and int(text) < _UNLIMITED_BYTES:
            yield MemoryLimit(int(text), str(path))


def _limit_files(fs: FileSystem, root: Path) -> Iterator[Path]:
    """List the files that may hold a limit of our group or of one above it."""
    mounts = root / "sys" / "fs" / "cgroup"
    for line in read_text(fs, root / "proc" / "self" / "cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers == "":
            tops, name = [mounts, mounts / "unified"], "memory.max"
        elif "memory" in controllers.split(","):
            tops, name = [mounts / "memory"], "memory.limit_in_bytes"
        else:
            continue
        parts = [part for part in group.split("/") if part]
        if ".." in parts:  # a group outside our namespace: not visible from here
            parts = []
        for top in tops:
            for depth in range(len(parts), -1, -1):
                yield top.joinpath(*parts[:depth], name)


def read_text(fs: FileSystem, path: Path) -> str:
    """Return the text of a file that the kernel generates; empty if it is missing or must not be read."""
    try:
        with fs.open(path) as file:
            # Not `read_bytes`: the status of a generated file says that it has 0 bytes.
            return file.read(_LIMIT_BYTES, 0).decode("utf-8", "replace")
    except (FileNotFoundError, CleanerError):
        return ""
