"""
Collects a row for every record below the cleaned range's end, to be sorted: its key's digest, its offset, its flags.

Rows stay in memory if they fit. Otherwise they go to a file, split into parts by the first bits of the digest, which
are practically random; each part is then sorted alone. A part larger than memory, because one key has most of the
records, is read in slices from its end to its start, and only the last offset of each key is kept from slice to slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from cleaner.storage.fs.file_system import File

Rows = npt.NDArray[np.uint64]

# Columns of a row, all 64 bits wide.
DIGEST, DIGEST_REST, OFFSET, FLAGS, NUMBER = range(5)
COLUMNS = 4  # or 5, where records are compared by a number
# Bits of FLAGS: the record is in the log after; its value is null, and it may, or must, be removed for that alone; the
# row is not a record, but a key's last offset from later slices; it supersedes nothing, or perhaps nothing.
KEPT, MAY_GO, MUST_GO, REMEMBERED, PASSED_OVER, DOUBTFUL = 1, 2, 4, 8, 16, 32

_PART_BITS = 7
_PARTS = 1 << _PART_BITS
# Sorting needs copies: an order, the sorted rows, and results for each key.
_COPIES = 6


class KeyRows:
    """
    Args:
        memory_bytes: approximate limit of the memory used.
        make_file: creates the file for rows that do not fit.
        columns: of each row; with NUMBER one more than usual.

    Attributes:
        count: rows added.
        columns: as given.
    """

    def __init__(self, memory_bytes: int, make_file: Callable[[], File], columns: int = COLUMNS) -> None:
        self.count, self.columns = 0, columns
        self._row_bytes = 8 * columns
        self._max_rows = max(1024, memory_bytes // (_COPIES * self._row_bytes))
        self._make_file = make_file
        self._held: list[Rows] = []
        self._held_rows = 0
        self._file: File | None = None
        # For each spill to the file: its start there, in rows, and the number of rows of each part.
        self._extents: list[tuple[int, npt.NDArray[np.int64]]] = []
        self._written_rows = 0

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def add(self, rows: Rows) -> None:
        """Add rows, shape (n, columns), offsets ascending from call to call."""
        self.count += len(rows)
        self._held.append(rows)
        self._held_rows += len(rows)
        if self._held_rows > self._max_rows:
            self._spill()

    def _spill(self) -> None:
        rows = np.concatenate(self._held)
        self._held, self._held_rows = [], 0
        if self._file is None:
            self._file = self._make_file()
        part = (rows[:, DIGEST] >> np.uint64(64 - _PART_BITS)).astype(np.uint8)
        sizes = np.bincount(part, minlength=_PARTS)
        # Stable: within a part offsets keep ascending.
        rows = rows[np.argsort(part, kind="stable")]
        self._file.write(rows.data.cast("B"), self._written_rows * self._row_bytes)
        self._extents.append((self._written_rows, sizes))
        self._written_rows += len(rows)

    def parts(self) -> Iterator[Iterator[Rows]]:
        """Return the parts, each as slices from the last to the first; a key's rows are all in one part."""
        if self._file is None:
            yield iter([np.concatenate(self._held)] if self._held else [])
            return
        if self._held:
            self._spill()
        for part in range(_PARTS):
            yield self._slices(self._file, part)

    def _slices(self, file: File, part: int) -> Iterator[Rows]:
        slices: list[Rows] = []
        rows = 0
        for first, sizes in reversed(self._extents):
            start = first + int(sizes[:part].sum())
            end = start + int(sizes[part])
            while start < end:
                taken = min(end - start, self._max_rows - rows)
                end -= taken
                slices.append(self._read(file, end, taken))
                rows += taken
                if rows == self._max_rows:
                    yield np.concatenate(slices[::-1])
                    slices, rows = [], 0
        if slices:
            yield np.concatenate(slices[::-1])

    def _read(self, file: File, first: int, count: int) -> Rows:
        rows: Rows = np.empty((count, self.columns), np.uint64)
        if file.read_into(rows.data.cast("B"), first * self._row_bytes) != rows.nbytes:
            raise AssertionError(f"{file.path}: what was written to it is not there")
        return rows
