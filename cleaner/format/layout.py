"""The places of records in memory, and their offsets and times, as arrays instead of objects."""

from __future__ import annotations

import marshal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.format.chunks import Bytes, Flags
from cleaner.format.records import Block, bad_record
from cleaner.kernels import PAD_BYTES
from cleaner.kernels import columns as kernel
from cleaner.kernels import records as record_kernel

Longs = npt.NDArray[np.int64]
_NO_BYTES: Bytes = np.zeros(PAD_BYTES, np.uint8)
_NO_BITS: Flags = np.zeros(0, np.uint8)


@dataclass(frozen=True, eq=False)
class Layout:
    """
    Some adjacent records of a log, in offset order.

    Attributes:
        data: uint8, bytes with keys, values and headers, and other bytes between and behind them.
        offsets, timestamps_ms: int64, shape (n,).
        key_starts, key_sizes, value_starts, value_sizes: int64, shape (n,), in bytes of `data`; a size of -1 is null.
        header_starts: start of a record's headers in `data`, with their count.
    """

    data: Bytes
    offsets: Longs
    timestamps_ms: Longs
    key_starts: Longs
    key_sizes: Longs
    value_starts: Longs
    value_sizes: Longs
    header_starts: Longs

    def __len__(self) -> int:
        return len(self.offsets)


def lay_out(
    path: Path, block: Block, skipped: Flags, first_offset: int, end_offset: int, bits: Flags = _NO_BITS
) -> Layout:
    """
    Lay out a block's records within [first_offset, end_offset).

    Args:
        path: of the block's file, for errors.
        block: the result shares its `data`; `unpacked` bytes are copied. Behind the last record there are `PAD_BYTES`
            spare bytes, so that kernels can read the keys where they are.
        skipped: uint8 for each batch; 1 if its records are hidden.
        bits: one for each offset from `first_offset` on, lowest of a byte first: records whose bit is 0 are left out.
    Raises:
        CorruptBatchError: a damaged record.
    """
    rows = block.batches
    read = skipped == 0
    columns = np.empty((kernel.COLUMNS, block.record_count(skipped)), np.int64)
    state: Longs = np.zeros(kernel.STATE_CELLS, np.int64)
    unpacked = rows["unpacked"] != 0
    data, shift = _joined(block, bool((read & unpacked).any()), bool((read & ~unpacked).any()))
    status = kernel.fill_columns(
        block.data, block.unpacked, shift, rows, skipped, first_offset, end_offset, bits, columns, state
    )
    if status != record_kernel.RECORD_GOOD:
        row = rows[int(state[kernel.STATE_BATCH])]
        raise bad_record(path, row, int(status), int(state[kernel.STATE_RECORD_POSITION]))
    return Layout(data, *columns[:, : int(state[kernel.STATE_ROWS])])


def cut_out(data: Bytes, starts: Longs, sizes: Longs) -> list[bytes | None]:
    """
    Return parts of an array as bytes, None for a size of -1.

    A kernel writes a marshalled list of them: reading that list is four times as fast as slicing in Python.
    """
    target = np.empty(kernel.MARSHAL_HEAD_BYTES * (len(starts) + 1) + int(np.maximum(sizes, 0).sum()), np.uint8)
    used = int(kernel.marshal_fields(data, starts, sizes, target))
    # Written just above, with known lengths: no foreign data is interpreted here.
    parts: list[bytes | None] = marshal.loads(target[:used].data)  # noqa: S302
    return parts


def _joined(block: Block, uses_unpacked: bool, uses_data: bool) -> tuple[Bytes, int]:
    """Return the bytes that hold the records of a block, and the number to add to positions in `unpacked`."""
    rows = block.batches
    in_unpacked = rows["unpacked"] != 0
    data = _NO_BYTES
    if uses_data:
        data = _with_spare(block.data, int(rows["body_end"][~in_unpacked].max()))
    if not uses_unpacked:
        return data, 0
    unpacked = _with_spare(block.unpacked, int(rows["body_end"][in_unpacked].max()))
    return (np.concatenate([data, unpacked]), len(data)) if uses_data else (unpacked.copy(), 0)


def _with_spare(data: Bytes, end: int) -> Bytes:
    """Return the bytes up to a position and spare ones behind it: those of the buffer, which has some."""
    found = data[: end + PAD_BYTES]
    return found if len(found) == end + PAD_BYTES else np.concatenate([data[:end], _NO_BYTES])
