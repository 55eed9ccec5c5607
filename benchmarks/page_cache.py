"""The page cache: how much of some files is in it, putting them out of it, and how fast the disk reads them then."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from pathlib import Path

import numpy as np

_LIBC = ctypes.CDLL(None, use_errno=True)
_READ_BYTES = 4 << 20


def files_of(directory: Path) -> list[Path]:
    """Return all files below a directory."""
    return [path for path in directory.rglob("*") if path.is_file()]


def drop(directory: Path) -> None:
    """Put all files out of the page cache; what is not on disk yet goes there first."""
    os.sync()
    for path in files_of(directory):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def resident_bytes(directory: Path) -> int:
    """Return how many bytes of all files are in the page cache; the files have to be one's own."""
    return sum(_resident_bytes(path) for path in files_of(directory))


def _resident_bytes(path: Path) -> int:
    size = path.stat().st_size
    if size == 0:
        return 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as mapped:
        pages = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
        address = ctypes.c_void_p(np.frombuffer(mapped, np.uint8).ctypes.data)
        if _LIBC.mincore(address, ctypes.c_size_t(size), pages.ctypes.data_as(ctypes.c_void_p)) != 0:
            raise OSError(ctypes.get_errno(), f"mincore: {path}")
    return int((pages & 1).sum()) * mmap.PAGESIZE


def read_through(directory: Path) -> float:
    """Read all files from front to back and return the seconds it takes."""
    began = time.perf_counter()
    buffer = bytearray(_READ_BYTES)
    for path in files_of(directory):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return time.perf_counter() - began


def cached_bytes() -> int:
    """Return the size of the machine's page cache."""
    return _meminfo("Cached")


def available_bytes() -> int:
    """Return how much memory the system could still give away."""
    return _meminfo("MemAvailable")


def _meminfo(name: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)
