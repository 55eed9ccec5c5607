"""Holds tombstones and markers back whose time has come: a replica may not have seen them yet (D-17)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cleaner.cleaning.recopy.survivors import BlockRetention
from cleaner.format.batch import Batches
from cleaner.format.chunks import Flags
from cleaner.format.key_digests import NO_OFFSET
from cleaner.format.layout import lay_out
from cleaner.format.records import Block
from cleaner.kernels import retain
from cleaner.kernels.offset_map import EXPIRED_TOMBSTONE, KEEP_TOMBSTONE


def hold_markers(batches: Batches, retention: BlockRetention, held_from: int) -> int:
    """
    Change the decisions on markers that would go now, from an offset on: they stay as before their horizon.

    Returns:
        How many there are.
    """
    held = (retention.is_empty_marker != 0) & (retention.discarded != 0) & (batches["last_offset"] >= held_from)
    retention.discarded[held] = retention.unread[held] = 0
    dropped = held & (retention.batches == retain.BATCH_DROP)
    retention.batches[dropped] = retain.BATCH_KEEP_IF_NOT_EMPTY
    return int(held.sum())


def hold_tombstones(path: Path, block: Block, retention: BlockRetention, verdicts: Flags, held_from: int) -> int:
    """
    Change the verdicts on tombstones that would go now for their age alone, from an offset on.

    Args:
        path: the source, for errors.
        block, retention: the batches and the decisions on them.
        verdicts: one for each record of the batches that are read.
    Returns:
        How many there are.
    """
    expired = np.flatnonzero(verdicts == EXPIRED_TOMBSTONE)
    if not len(expired) or int(block.batches["last_offset"][-1]) < held_from:
        return 0
    offsets = lay_out(path, block, retention.unread, -(2**63), NO_OFFSET).offsets
    held = expired[offsets[expired] >= held_from]
    verdicts[held] = KEEP_TOMBSTONE
    return len(held)
