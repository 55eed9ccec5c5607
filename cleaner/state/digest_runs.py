"""Sorts the digests of a segment's keys in bounded memory: sorted runs, and a file that keeps them until the end."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.base.closing import Closing
from cleaner.errors import LogDirOfflineError
from cleaner.storage.fs.file_system import File, FileSystem

Digests = npt.NDArray[np.uint64]

RUN_KEYS = 1 << 20
"""Digests in memory at once, of 8 bytes each."""

PART_BITS = 5
"""Runs are merged in parts, by so many of a digest's first bits; a part has a 32nd of all digests."""

_PARTS = 1 << PART_BITS
_BYTES = 8


class DigestRuns(Closing):
    """
    Digests of one segment; use it in a `with` block, which removes the file.

    Args:
        fs: access to the disk.
        path: of the file; created when more than one run is needed.
        run_keys: how many digests a run has.
    """

    def __init__(self, fs: FileSystem, path: Path, run_keys: int = RUN_KEYS) -> None:
        self._fs = fs
        self._path = path
        self._run_keys = run_keys
        self._run: Digests = np.empty(0, np.uint64)
        self._filled = 0
        self._file: File | None = None
        self._bounds: list[npt.NDArray[np.int64]] = []  # of the parts of each run in the file
        self._written = 0

    def __len__(self) -> int:
        return self._written + self._filled

    @property
    def are_in_memory(self) -> bool:
        """Whether there is only one part."""
        return self._file is None

    def add(self, digests: Digests) -> None:
        """Add digests, in any order."""
        while len(digests):
            if not len(self._run):
                self._run = np.empty(self._run_keys, np.uint64)
            count = min(len(digests), self._run_keys - self._filled)
            self._run[self._filled : self._filled + count] = digests[:count]
            self._filled += count
            digests = digests[count:]
            if len(digests):
                self._write_run()

    def _write_run(self) -> None:
        run = self._run[: self._filled]
        run.sort()
        if self._file is None:
            self._fs.remove(self._path)
            self._file = self._fs.create(self._path, like=None)
        self._file.write(run.data.cast("B"), self._written * _BYTES)
        first_of_part = np.arange(1, _PARTS, dtype=np.uint64) << np.uint64(64 - PART_BITS)
        inner = np.searchsorted(run, first_of_part)
        self._bounds.append(np.concatenate([[0], inner, [len(run)]]).astype(np.int64) + self._written)
        self._written += len(run)
        self._filled = 0

    def sorted_parts(self) -> Iterator[Digests]:
        """Yield all digests, ascending: in one part if they fit into memory, else in 2**PART_BITS; each valid alone."""
        file = self._file
        if file is None:
            run = self._run[: self._filled]
            run.sort()
            yield run
            return
        self._write_run()
        self._run = np.empty(0, np.uint64)
        for number in range(_PARTS):
            ends = [(int(bounds[number]), int(bounds[number + 1])) for bounds in self._bounds]
            part = np.concatenate([self._read(file, first, last) for first, last in ends])
            part.sort()
            yield part

    @staticmethod
    def _read(file: File, first: int, last: int) -> Digests:
        digests: Digests = np.empty(last - first, np.uint64)
        if file.read_into(digests.data.cast("B"), first * _BYTES) != digests.nbytes:
            raise LogDirOfflineError(file.path, OSError(errno.EIO, "shorter than what was written to it"))
        return digests

    def close(self) -> None:
        """Give everything up; a second call does nothing."""
        self._run, self._filled = np.empty(0, np.uint64), 0
        if self._file is not None:
            self._file.close()
            self._file = None
            self._fs.remove(self._path)
