"""
Entries of many records on their way into a table's index, put aside in a file.

Digests are random, so records that are put as they are read change pages all over the index: of an index above the
system's limit for changed pages (`vm.dirty_ratio`) each would be written many times. So entries are gathered in runs,
each run is written in order of the digests' groups, and the index takes group after group, each from all runs: every
part of it is changed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.errors import CorruptIndexError
from cleaner.format.key_digests import Words
from cleaner.kernels import table as kernel
from cleaner.storage.fs.file_system import FileSystem

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

RUN_ENTRIES = 1 << 20
ENTRY_BYTES = 8 * kernel.ENTRY_WORDS


class TableRuns:
    """
    Some runs. Close it, which removes the file. Memory: 64 bytes for each of RUN_ENTRIES, and two groups.

    Args:
        fs: the file system.
        path: of the file; one that an earlier life has left is removed.
        secret: words under which keys are digested.
    Raises:
        NoSpaceError, LogDirOfflineError: the disk; all methods.
        CorruptIndexError: the file was cut off.
    """

    def __init__(self, fs: FileSystem, path: Path, secret: Words) -> None:
        self._fs, self._path, self._secret = fs, path, secret
        self._rows = np.zeros(RUN_ENTRIES * kernel.ENTRY_WORDS, np.uint64)
        self._grouped = np.zeros_like(self._rows)
        self._used = self._written = 0
        self._bounds: list[list[int]] = []  # by runs: between its groups, in entries from the beginning of the file
        fs.remove(path)
        self._file = fs.create(path, like=None)
        try:
            fs.set_mode(path, 0o600)
        except BaseException:
            self.close()
            raise

    def add(self, keys: tuple[Bytes, Longs, Longs], offsets: Longs, places: Longs) -> None:
        """Add records; arguments as of `TableFile.put`."""
        begin = 0
        while True:
            begin, self._used = kernel.digest_entries(
                self._secret, *keys, offsets, places, begin, self._rows, self._used
            )
            if begin == len(offsets):
                return
            self._write_run()

    def groups(self) -> Iterator[Words]:
        """Yield the entries group by group, in order of their digests, and in one group as they were added."""
        self._write_run()
        for group in range(kernel.GROUPS):
            places = [(bounds[group], bounds[group + 1]) for bounds in self._bounds]
            rows = np.zeros(sum(end - begin for begin, end in places) * kernel.ENTRY_WORDS, np.uint64)
            to = memoryview(rows.data).cast("B")
            for begin, end in places:
                size, position = (end - begin) * ENTRY_BYTES, begin * ENTRY_BYTES
                if self._file.read_into(to[:size], position) < size:
                    raise CorruptIndexError(self._path, position, "something has cut the file off")
                to = to[size:]
            yield rows

    def close(self) -> None:
        """Remove the file; a second call does nothing."""
        self._file.close()
        self._fs.remove(self._path)

    def _write_run(self) -> None:
        ends = np.zeros(kernel.GROUPS, np.int64)
        kernel.group_entries(self._rows, self._used, self._grouped, ends)
        self._file.write(
            memoryview(self._grouped[: self._used * kernel.ENTRY_WORDS].data).cast("B"), self._written * ENTRY_BYTES
        )
        self._bounds.append([self._written, *(self._written + ends).tolist()])
        self._written += self._used
        self._used = 0
