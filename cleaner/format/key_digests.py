"""
The digests of records' keys, block by block; every record is checked on the way.

Rounds, readers of latest values, `check` and estimates all use this, so that a key has the same digest and a damaged
record the same error everywhere. Only the proof computes its own digests: it must not share an error of a round.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.base.key_views import KeyView
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.chunks import Flags
from cleaner.format.record_numbers import RecordNumbers
from cleaner.format.records import Block, bad_record
from cleaner.format.viewed_block import viewed_block
from cleaner.kernels import offset_map as kernel
from cleaner.kernels.digest import SECRET_WORDS

NO_OFFSET = 2**63 - 1
"""A first offset with which records are checked, and none is digested."""

FIRST, SECOND, OFFSET_PLUS_1, MESSAGES_BEFORE, NUMBER = range(kernel.DIGEST_WORDS + 1)
"""
Columns of `rows`: the two words of a digest, the record's offset + 1, the number of messages before it; and, only with
a survivor rule that compares numbers, the record's number.
"""

SEED_BYTES = 16
_ROW_BYTES = 8 * kernel.DIGEST_WORDS

Words = npt.NDArray[np.uint64]


def secret_words(seed: bytes) -> Words:
    """Return the words under which keys are digested, made of 16 random bytes."""
    made = hashlib.shake_256(seed).digest(8 * SECRET_WORDS)
    return np.frombuffer(made, "<u8").astype(np.uint64)


def new_secret() -> Words:
    """Return random words under which keys are digested."""
    return secret_words(os.urandom(SEED_BYTES))


class KeyDigests:
    """
    Digests of keys, in reusable memory.

    Args:
        memory: holds the digests; None: its own.
        view: the digest of a key is that of its canonical form; None: of the key's own bytes.
        numbers: rows have the column NUMBER; None: they do not.
    """

    def __init__(
        self,
        memory: GrowingBuffer | None = None,
        view: KeyView | None = None,
        numbers: RecordNumbers | None = None,
    ) -> None:
        self._memory = GrowingBuffer() if memory is None else memory
        self._view, self._number_of = view, numbers
        self._numbers: list[Words] = []
        self._state = np.zeros(kernel.STATE_CELLS, np.int64)

    @property
    def rows(self) -> Words:
        """A row for each digested record, in offset order: FIRST, SECOND, ... Valid until the next call."""
        words = self._memory.array.view(np.uint64)[: kernel.DIGEST_WORDS * self._filled]
        rows = words.reshape(-1, kernel.DIGEST_WORDS)
        if self._number_of is None:
            return rows
        # A damaged block has rows before its damage, and no numbers: they are put, and the damage is raised.
        numbers = np.concatenate([*self._numbers, np.zeros(len(rows), np.uint64)])[: len(rows)]
        return np.column_stack([rows, numbers])

    @property
    def _filled(self) -> int:
        return int(self._state[kernel.STATE_KEYED])

    @property
    def messages(self) -> int:
        """Records read; skipped batches count whole, markers as one (R-718)."""
        return int(self._state[kernel.STATE_MESSAGES])

    @property
    def keyless(self) -> int:
        """Records without a key, from the first offset on."""
        return int(self._state[kernel.STATE_KEYLESS])

    @property
    def tombstones(self) -> int:
        """Records without a value, in all batches read."""
        return int(self._state[kernel.STATE_TOMBSTONES])

    def clear(self) -> None:
        """Remove all rows, and reset the counts."""
        self._state[:] = 0
        self._numbers.clear()

    def drop_rows(self) -> None:
        """Remove all rows; the counts go on."""
        self._state[kernel.STATE_KEYED] = 0
        self._numbers.clear()

    def add(self, path: Path, block: Block, skipped: Flags, secret: Words, first_offset: int = 0) -> None:
        """
        Check a block's records and add a row for each that has a key.

        Args:
            path: of the block's file.
            skipped: uint8 for each batch; 1 if it is not read.
            secret: from `new_secret` or `secret_words`.
            first_offset: records below it have no row.
        Raises:
            CorruptBatchError: a damaged record. Rows of the records before it are added.
        """
        original = block
        if self._view is not None and first_offset < NO_OFFSET:
            block = viewed_block(path, block, skipped, self._view)
        room = block.record_count(skipped) if first_offset < NO_OFFSET else 0
        filled = self._filled
        self._memory.ensure((filled + room) * _ROW_BYTES, keep=filled * _ROW_BYTES)
        words = self._memory.array.view(np.uint64)
        status = kernel.digest_records(
            block.data, block.unpacked, block.batches, skipped, first_offset, secret, words, self._state
        )
        require_good(status, path, block, self._state)
        if self._number_of is not None:
            self._numbers.append(self._number_of.of(path, original, skipped, first_offset))

    def of(self, path: Path, block: Block, skipped: Flags, secret: Words, first_offset: int = 0) -> Words:
        """Return the rows of one block; as `clear` and `add`."""
        self.clear()
        self.add(path, block, skipped, secret, first_offset)
        return self.rows


def require_good(status: int, path: Path, block: Block, state: npt.NDArray[np.int64]) -> None:
    """Raise CorruptBatchError if a kernel of `kernels/offset_map.py` stopped at a damaged record."""
    if status != kernel.DIGEST_GOOD:
        row = block.batches[int(state[kernel.STATE_BATCH])]
        raise bad_record(path, row, int(state[kernel.STATE_STATUS]), int(state[kernel.STATE_RECORD_POSITION]))
