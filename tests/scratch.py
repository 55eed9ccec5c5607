"""Where tests write when they clean hundreds of small logs: memory, if there is some, since every round syncs files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")  # noqa: S108  a file system in memory, on Linux


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Give a directory that is gone afterwards, in memory where the machine has that."""
    where = _MEMORY if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where, prefix="cleaner-test-") as directory:
        yield Path(directory)
