"""
Blocks as a key view sees them: the same batches and offsets, with canonical keys.

Kernels digest the keys of records where these are. For a topic with a view they are given a copy of the records in
which each key is canonical; values are empty, or null as before, and headers are left out. So the digest of a key is
decided in one place for all topics, and the rest of a round knows nothing of views.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from cleaner.base.key_views import KeyView
from cleaner.format.chunks import Bytes, Flags
from cleaner.format.layout import Longs, cut_out, lay_out
from cleaner.format.records import Block
from cleaner.format.varints import encode_varint
from cleaner.kernels import PAD_BYTES

_ALL = (-(2**63), 2**63 - 1)
_NULL, _EMPTY = encode_varint(-1), encode_varint(0)


def viewed_block(path: Path, block: Block, skipped: Flags, view: KeyView) -> Block:
    """
    Return a block of the same batches, whose records have canonical keys; it has memory of its own.

    Args:
        path: of the block's file, for errors.
        skipped: uint8 for each batch; 1 if its records are not read: they stay as they are.
    Raises:
        CorruptBatchError: a damaged record.
    """
    layout = lay_out(path, block, skipped, *_ALL)
    keys = cut_out(layout.data, layout.key_starts, layout.key_sizes) if len(layout) else []
    offsets, nulls = layout.offsets.tolist(), (layout.value_sizes < 0).tolist()
    rows, body, at = block.batches.copy(), bytearray(), 0
    for row in np.flatnonzero(skipped == 0).tolist():
        base, count, start = int(rows[row]["base_offset"]), int(rows[row]["count"]), len(body)
        for record in range(at, at + count):
            body += _record(offsets[record] - base, keys[record], view, is_tombstone=nulls[record])
        at += count
        rows["body_start"][row], rows["body_end"][row], rows["unpacked"][row] = start, len(body), 1
    return replace(block, unpacked=np.frombuffer(body + bytes(PAD_BYTES), np.uint8), batches=rows)


def canonical_keys(data: Bytes, starts: Longs, sizes: Longs, view: KeyView) -> tuple[Bytes, Longs, Longs]:
    """
    Return the canonical forms of keys: their bytes, and start and size of each; a size of -1 is null.

    Args:
        data, starts, sizes: the keys as they are.
    """
    keys = [None if key is None else view.canonical(key) for key in cut_out(data, starts, sizes)]
    found = np.array([-1 if key is None else len(key) for key in keys], np.int64)
    ends = np.cumsum(np.maximum(found, 0))
    joined = np.frombuffer(b"".join(key or b"" for key in keys) + bytes(PAD_BYTES), np.uint8)
    return joined, ends - np.maximum(found, 0), found


def _record(delta: int, key: bytes | None, view: KeyView, *, is_tombstone: bool) -> bytes:
    """Return a record without attributes, time and headers."""
    canonical = None if key is None else view.canonical(key)
    head = _NULL if canonical is None else encode_varint(len(canonical)) + canonical
    fields = b"\0\0" + encode_varint(delta) + head + (_NULL if is_tombstone else _EMPTY) + _EMPTY
    return encode_varint(len(fields)) + fields
