"""
Makes tombstones of records that are older than `cleaner.record.ttl.ms` (D-19).

A record that would stay, and is too old, keeps its place, key, time and headers, and loses its value. Its batch gets a
new delete horizon: replicas and readers have as long to see the tombstone as they have for any other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.cleaning.recopy.survivors import BlockRetention
from cleaner.format.chunks import DELETE_HORIZON_FLAG, Flags, control_batches
from cleaner.format.layout import Layout, lay_out
from cleaner.format.records import Block
from cleaner.kernels import PAD_BYTES
from cleaner.kernels.expire import GROWTH_BYTES, remove_values
from cleaner.kernels.offset_map import KEEP, KEEP_TOMBSTONE

_ALL = (-(2**63), 2**63 - 1)


@dataclass(frozen=True)
class Expiry:
    """
    Which records expire in a round.

    Attributes:
        before_ms: those whose timestamp is at or below it; one without a time (-1) never does.
        latest_offset: and at or below this offset, the last one of the map: what the round does not judge stays.
    """

    before_ms: int
    latest_offset: int

    def finds(self, layout: Layout) -> npt.NDArray[np.bool_]:
        """Tell which records are too old, whether or not they stay; markers too."""
        found: npt.NDArray[np.bool_] = (layout.value_sizes >= 0) & (layout.key_sizes >= 0)
        found &= (layout.timestamps_ms >= 0) & (layout.timestamps_ms <= self.before_ms)
        return found & (layout.offsets <= self.latest_offset)

    def apply(self, path: Path, block: Block, retention: BlockRetention, verdicts: Flags) -> tuple[Block, int]:
        """
        Remove the values of the block's expired records, and change their verdicts to those of tombstones.

        Args:
            path: the source, for errors.
            block, retention: the batches and the decisions on them.
            verdicts: one for each record of the batches that are read.
        Returns:
            The block; another one, with memory of its own, if a record has expired. And how many have.
        """
        rows = block.batches
        if int(rows["base_offset"].min(initial=_ALL[1])) > self.latest_offset:
            return block, 0
        layout = lay_out(path, block, retention.unread, *_ALL)
        is_read = retention.unread == 0
        of = np.repeat(np.flatnonzero(is_read), rows["count"][is_read])
        expired = self.finds(layout) & (verdicts[: len(layout)] == KEEP) & ~control_batches(rows)[of]
        if not expired.any():
            return block, 0
        verdicts[: len(layout)][expired] = KEEP_TOMBSTONE
        changed = np.zeros(len(rows), np.uint8)
        changed[of[expired]] = 1
        return _without_values(block, changed, is_read.astype(np.uint8), expired.astype(np.uint8)), int(expired.sum())


def _without_values(block: Block, changed: Flags, is_read: Flags, expired: Flags) -> Block:
    """Return a block whose changed batches have their records, without the values of expired ones, in new memory."""
    rows = block.batches.copy()
    mine = rows[changed != 0]
    # What other batches have unpacked stays where it is, and the changed ones follow.
    kept = int(rows["body_end"][(rows["unpacked"] != 0)].max(initial=0))
    room = kept + int((mine["body_end"] - mine["body_start"]).sum() + GROWTH_BYTES * mine["count"].sum())
    unpacked = np.zeros(room + PAD_BYTES, np.uint8)
    unpacked[:kept] = block.unpacked[:kept]
    remove_values(block.data, block.unpacked, rows, changed, is_read, expired, unpacked, kept)
    # The time of a batch with a horizon is that horizon; its records' times are counted from it, with the flag or not.
    rows["attributes"][(changed != 0) & (rows["magic"] == 2)] &= ~DELETE_HORIZON_FLAG
    return replace(block, unpacked=unpacked, batches=rows)
