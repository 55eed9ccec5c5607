"""
Records as columns: a megabyte or so of a log as numpy arrays, without an object a record.

The bytes of keys, values and headers stay where they were read or unpacked; columns hold their positions. Objects are
made on request, record by record (`iter`) or column by column (`keys()`, `values()`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
import numpy.typing as npt

from cleaner.format.layout import Layout, cut_out
from cleaner.format.rewrite import java_utf8
from cleaner.format.varints import read_varint
from cleaner.log.record import Record

Headers = tuple[tuple[str, bytes | None], ...]

# Made at a time: their bytes are still in the processor's cache when they are used.
_PIECE_RECORDS = 256


@dataclass(frozen=True, eq=False)
class Columns(Layout):
    """
    Consecutive records of a log, in offset order, possibly none: compaction leaves gaps. It owns its memory and can be
    kept for any time.

    Attributes:
        next_offset: where to read on after these records.
        others: see `Layout`.
    """

    next_offset: int

    @staticmethod
    def of(layout: Layout, next_offset: int) -> Columns:
        """Make columns of a layout, without a copy."""
        return Columns(**vars(layout), next_offset=next_offset)

    @property
    def key_is_null(self) -> npt.NDArray[np.bool_]:
        """Which records have no key."""
        return self.key_sizes < 0

    @property
    def value_is_null(self) -> npt.NDArray[np.bool_]:
        """Which records have no value: tombstones."""
        return self.value_sizes < 0

    @property
    def has_headers(self) -> npt.NDArray[np.bool_]:
        """Which records have headers."""
        has_headers: npt.NDArray[np.bool_] = self.data[self.header_starts] != 0
        return has_headers

    def keys(self) -> list[bytes | None]:
        """Return the records' keys."""
        return cut_out(self.data, self.key_starts, self.key_sizes)

    def values(self) -> list[bytes | None]:
        """Return the records' values."""
        return cut_out(self.data, self.value_starts, self.value_sizes)

    def headers(self, row: int) -> Headers:
        """Return the headers of one record, in order. Names are read as UTF-8, as Java reads them."""
        data = self.data.data
        count, at = read_varint(data, int(self.header_starts[row]))
        found = []
        for _ in range(count):
            name, at = _read_field(data, at)
            value, at = _read_field(data, at)
            found.append((java_utf8(name or b"").decode(), value))
        return tuple(found)

    def where(self, wanted: npt.NDArray[np.bool_] | slice) -> Columns:
        """Return some of the records, on the same bytes."""
        return Columns(
            self.data,
            self.offsets[wanted],
            self.timestamps_ms[wanted],
            self.key_starts[wanted],
            self.key_sizes[wanted],
            self.value_starts[wanted],
            self.value_sizes[wanted],
            self.header_starts[wanted],
            self.next_offset,
        )

    def __iter__(self) -> Iterator[Record]:
        """Make the records."""
        pieces = (slice(first, first + _PIECE_RECORDS) for first in range(0, len(self), _PIECE_RECORDS))
        return chain.from_iterable(self.where(piece)._made() for piece in pieces)

    def _made(self) -> Iterator[Record]:
        headers: Iterator[Headers] = repeat(())
        with_headers = np.flatnonzero(self.has_headers).tolist()
        if with_headers:
            all_headers: list[Headers] = [()] * len(self)
            for row in with_headers:
                all_headers[row] = self.headers(row)
            headers = iter(all_headers)
        return map(Record, self.keys(), self.values(), headers, self.timestamps_ms.tolist(), self.offsets.tolist())


def _read_field(data: memoryview, at: int) -> tuple[bytes | None, int]:
    size, at = read_varint(data, at)
    return (None, at) if size < 0 else (bytes(data[at : at + size]), at + size)
