"""
Collects the keys of a segment while it is recopied, for its key index (`state/key_index.py`).

Only simple segments get one: all batches are of magic 2 and have records, none is of a transaction or a marker, and all
records have keys. What happens to any other segment depends on more than its keys.
"""

from __future__ import annotations

from pathlib import Path

from cleaner.errors import CleanerError
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.chunks import CONTROL_FLAG, DELETE_HORIZON_FLAG, TRANSACTIONAL_FLAG, Batches, Flags
from cleaner.format.key_digests import FIRST, KeyDigests, Words
from cleaner.format.records import Block
from cleaner.policy.unread import LEAST_BYTES_A_KEY, NO_HORIZON
from cleaner.state.digest_runs import DigestRuns, Digests

_MAGIC = 2
_MOST_OF_CHUNK = 1 << 19  # 4 MiB of digests a lane; only batches that unpack to far more than usual have more keys


class SegmentKeys:
    """
    The keys and batches of one segment, chunk by chunk.

    Args:
        runs: an empty place for the digests.
        keys: the digest key.
        segment_bytes: size of the `.log`.
        removal_ms: horizons up to it were due when the segment was read.
    Attributes:
        runs: with all digests, in the end.
        earliest_horizon_ms: the first horizon above `removal_ms`.
        last_position, last_offset: of the last batch; -1 before the first.
        is_simple: whether the segment can have an index, so far.
        refusal: the disk's, after which there is no index.
    """

    def __init__(self, runs: DigestRuns, keys: Words, *, segment_bytes: int, removal_ms: int) -> None:
        self.runs = runs
        self.earliest_horizon_ms = NO_HORIZON
        self.last_position = self.last_offset = -1
        self.is_simple = True
        self.refusal: CleanerError | None = None
        self._keys = keys
        self._most_keys = segment_bytes // LEAST_BYTES_A_KEY
        self._removal_ms = removal_ms

    def digest(self, path: Path, block: Block, unread: Flags, memory: GrowingBuffer, chunk: list[Digests]) -> None:
        """
        Digest a block of good records; several lanes may call it at once.

        Args:
            path, block: which.
            unread: uint8 for each batch; 1 if it is not read.
            memory: of the lane.
            chunk: gets the digests, for `add`.
        """
        if not self.is_simple:
            chunk.clear()
            return
        digests = KeyDigests(memory)
        rows = digests.of(path, block, unread, self._keys)
        if digests.keyless or sum(map(len, chunk)) + len(rows) > _MOST_OF_CHUNK:
            self.give_up()
        else:
            chunk.append(rows[:, FIRST].copy())

    def add(self, batches: Batches, digests: list[Digests]) -> None:
        """Add a chunk with all its digests; call in the order of the chunks."""
        if not self.is_simple or not len(batches):
            return
        attributes = batches["attributes"]
        is_odd = (batches["magic"] != _MAGIC) | (batches["count"] == 0)
        is_odd |= attributes & (TRANSACTIONAL_FLAG | CONTROL_FLAG) != 0
        if is_odd.any() or len(self.runs) + sum(map(len, digests)) > self._most_keys:
            self.give_up()
            return
        horizons = batches["base_timestamp"][attributes & DELETE_HORIZON_FLAG != 0]
        horizons = horizons[horizons > self._removal_ms]
        if len(horizons):
            self.earliest_horizon_ms = min(self.earliest_horizon_ms, int(horizons.min()))
        self.last_position, self.last_offset = int(batches["position"][-1]), int(batches["last_offset"][-1])
        try:
            for each in digests:
                self.runs.add(each)
        except CleanerError as error:
            self.refusal = error
            self.give_up()

    def give_up(self) -> None:
        """Make no index of this segment."""
        self.is_simple = False
