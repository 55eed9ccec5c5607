"""The numbers that a survivor rule compares: timestamps of records, or what is in a header (`cleaner.survivor`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.format.chunks import Flags
from cleaner.format.layout import Layout, lay_out
from cleaner.format.records import Block
from cleaner.kernels import valued_map as kernel

_END = 2**63 - 1
_BIAS = np.uint64(1 << 63)


@dataclass(frozen=True)
class RecordNumbers:
    """
    Which number of a record counts.

    Attributes:
        header: the header that has it; None: the record's timestamp.
    """

    header: bytes | None = None

    def of(self, path: Path, block: Block, skipped: Flags, first_offset: int) -> npt.NDArray[np.uint64]:
        """
        Return the number of each record that has a key, from an offset on: signed numbers + 2^63.

        A timestamp is the one that consumers see: of a batch with log append time that of the batch, -1 in magic 0. A
        record without a number in the header has 0, the smallest.

        Args:
            path: of the block's file, for errors.
            skipped: uint8 for each batch; 1 if its records are not read.
        Raises:
            CorruptBatchError: a damaged record.
        """
        layout = lay_out(path, block, skipped, first_offset, _END)
        return self.of_layout(layout)[layout.key_sizes >= 0]

    def of_layout(self, layout: Layout) -> npt.NDArray[np.uint64]:
        """Return the number of each record, as `of` does, also of those without a key."""
        if self.header is None:
            return layout.timestamps_ms.astype(np.uint64) + _BIAS
        numbers = np.zeros(len(layout), np.uint64)
        kernel.header_numbers(layout.data, layout.header_starts, np.frombuffer(self.header, np.uint8), numbers)
        return numbers
