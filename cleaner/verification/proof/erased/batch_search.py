"""Looks for keys in the batches of a chunk: those of its records, or else in all of its bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from cleaner.errors import CorruptBatchError
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.chunks import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER_BYTES,
    Batches,
    Bytes,
    Chunk,
    Mask,
)
from cleaner.format.compression import decompress
from cleaner.format.layout import Layout, lay_out
from cleaner.format.records import Block, Unpacker, leave_out
from cleaner.kernels import PAD_BYTES
from cleaner.kernels.batch_header import LEGACY_KEY_AT, MAGIC
from cleaner.kernels.codec_table import CODEC_NAMES, LAST_CODEC, NONE
from cleaner.verification.proof.erased.findings import Doubt, FileAccount, LeftOver, Level, Unsure
from cleaner.verification.proof.erased.legacy_sets import entries_of
from cleaner.verification.proof.erased.wanted import WantedKeys, header_sizes

_FIRST, _END = -(2**63), 2**63 - 1
_TYPE_BYTES = 4  # a version and a number, in the place of a marker's key

OnFind = Callable[[LeftOver], None]


class BatchSearch:
    """
    Args:
        keys: what is looked for.
        limit_bytes: most bytes a batch may unpack to.
        with_mentions: also search values and headers.
    """

    def __init__(self, keys: WantedKeys, *, limit_bytes: int, with_mentions: bool) -> None:
        self._keys = keys
        self._limit_bytes = limit_bytes
        self._with_mentions = with_mentions
        self._unpacker = Unpacker(limit_bytes)

    def search(self, path: Path, chunk: Chunk, account: FileAccount, on_find: OnFind) -> None:
        """Search a chunk of batches with right checksums, and count them."""
        rows = chunk.batches
        codecs = np.unique(rows["attributes"] & COMPRESSION_MASK).tolist()
        account.codecs.update(CODEC_NAMES[codec] for codec in codecs if codec < len(CODEC_NAMES))
        account.batches += len(rows)
        headers = rows.copy()  # unpacking changes rows
        odd = ~_is_consistent(rows)
        while True:
            found: list[LeftOver] = []
            try:
                records = self._search_records(path, chunk, odd, found)
                break
            except CorruptBatchError as error:
                leave_out(rows, odd, error)
        account.records += records
        for left_over in found:
            on_find(left_over)
        is_wrapper = (headers["magic"] < MAGIC) & (headers["attributes"] & COMPRESSION_MASK != NONE)
        for row in np.flatnonzero(is_wrapper & ~odd):
            self._search_wrapper(chunk, headers[row], on_find)
        for row in np.flatnonzero(odd):
            self._search_odd(chunk, headers[row], account, on_find)

    def _search_records(self, path: Path, chunk: Chunk, odd: Mask, found: list[LeftOver]) -> int:
        """
        Search the records of all batches that are not odd; returns their number.

        Raises:
            CorruptBatchError: a batch whose records cannot be read.
        """
        count = 0
        for block in self._unpacker.blocks(path, chunk, unwanted=odd):
            skipped = odd[block.first : block.first + len(block.batches)].astype(np.uint8)
            layout = lay_out(path, block, skipped, _FIRST, _END)
            count += len(layout)
            self._search_layout(block, skipped == 0, layout, found)
        return count

    def _search_layout(self, block: Block, is_read: Mask, layout: Layout, found: list[LeftOver]) -> None:
        rows = block.batches
        # The records of batch b end before `ends[b]`.
        ends = np.cumsum(np.where(is_read, rows["count"], 0))
        numbers = self._keys.of_records(layout)
        is_control = (rows["magic"] == MAGIC) & (rows["attributes"] & CONTROL_FLAG != 0)
        for record in np.flatnonzero(numbers >= 0).tolist():
            batch = int(np.searchsorted(ends, record, side="right"))
            is_type = is_control[batch] and layout.key_sizes[record] == _TYPE_BYTES  # of a marker, and no key
            if not is_type:
                number, offset = int(numbers[record]), int(layout.offsets[record])
                found.append(LeftOver(Level.RECORD, int(rows["position"][batch]), offset, number))
        if self._with_mentions:
            starts = np.concatenate([layout.value_starts, layout.header_starts])
            sizes = np.concatenate([layout.value_sizes, header_sizes(layout)])
            for hit in self._keys.in_parts(layout.data, starts, sizes):
                record = hit.part % len(layout)
                batch = int(np.searchsorted(ends, record, side="right"))
                offset = int(layout.offsets[record])
                found.append(LeftOver(Level.MENTION, int(rows["position"][batch]), offset, hit.number))

    def _search_wrapper(self, chunk: Chunk, row: np.void, on_find: OnFind) -> None:
        """Look at a compressed entry's own key, which readers ignore."""
        entry = _bytes_of(chunk, row)
        at = LEGACY_KEY_AT[int(row["magic"])]
        size = int.from_bytes(entry[at : at + 4].tobytes(), "big", signed=True)
        if 0 <= size <= len(entry) - at - 4:
            number = self._keys.number_of(entry[at + 4 : at + 4 + size].tobytes())
            if number >= 0:
                on_find(LeftOver(Level.RECORD, int(row["position"]), int(row["last_offset"]), number))

    def _search_odd(self, chunk: Chunk, row: np.void, account: FileAccount, on_find: OnFind) -> None:
        """Search a batch whose checksum is right, but whose records cannot be read."""
        entry, position = _bytes_of(chunk, row), int(row["position"])
        codec = int(row["attributes"]) & COMPRESSION_MASK
        if row["magic"] < MAGIC:
            try:
                count = self._search_nested(entry, row, on_find)
            except ValueError as error:
                reason = f"records that cannot be read ({error}): only their bytes were searched, as they are"
                account.unsure.append(Unsure(Doubt.NOT_SEARCHED, position, reason))
            else:
                account.records += count
                return
        elif codec == NONE:
            reason = "records that cannot be read: only their bytes were searched"
            account.unsure.append(Unsure(Doubt.DAMAGED, position, reason))
        else:
            unpacked = GrowingBuffer()
            try:
                length = decompress(codec, MAGIC, entry[HEADER_BYTES:].data, unpacked, 0, self._limit_bytes)
            except ValueError as error:
                reason = f"a compressed batch that cannot be unpacked: {error}"
                account.unsure.append(Unsure(Doubt.NOT_SEARCHED, position, reason))
            else:
                reason = "records that cannot be read: only their bytes were searched, unpacked"
                account.unsure.append(Unsure(Doubt.DAMAGED, position, reason))
                for hit in self._keys.in_bytes(unpacked.array, length):
                    on_find(LeftOver(Level.RAW, position, None, hit.number))
        for hit in self._keys.in_bytes(_padded(entry), len(entry)):
            on_find(LeftOver(Level.RAW, position + hit.position, None, hit.number))

    def _search_nested(self, entry: Bytes, row: np.void, on_find: OnFind) -> int:
        """Search compressed entries within others; returns how many records there are."""
        position, offset, count = int(row["position"]), int(row["last_offset"]), 0
        for key, value in list(entries_of(entry.data, self._limit_bytes)):
            count += 1
            number = self._keys.number_of(key)
            if number >= 0:
                on_find(LeftOver(Level.RECORD, position, offset, number))
            if self._with_mentions and value is not None:
                for hit in self._keys.in_bytes(_padded(np.frombuffer(value, np.uint8)), len(value)):
                    on_find(LeftOver(Level.MENTION, position, offset, hit.number))
        return count


def _bytes_of(chunk: Chunk, row: np.void) -> Bytes:
    return chunk.data[int(row["start"]) : int(row["start"] + row["size"])]


def _padded(data: Bytes) -> Bytes:
    """Return a copy behind which kernels may read."""
    return np.concatenate([data, np.zeros(PAD_BYTES, np.uint8)])


def _is_consistent(rows: Batches) -> Mask:
    """Tell which headers fit themselves, which a checksum does not say; records of others are not read as such."""
    is_modern = rows["magic"] == MAGIC
    base, count = rows["base_offset"], rows["count"]
    delta = rows["last_offset"] - base
    codec = rows["attributes"] & COMPRESSION_MASK
    fits: Mask = codec <= np.take(LAST_CODEC, rows["magic"])
    fits &= ~is_modern | (
        (delta >= 0) & (count >= 0) & (count <= delta + 1) & (base < 2**63 - 1 - np.maximum(delta, 0))
    )
    # The records of a batch without any are not read at all.
    fits &= ~is_modern | (count > 0) | (rows["size"] == HEADER_BYTES)
    return fits
