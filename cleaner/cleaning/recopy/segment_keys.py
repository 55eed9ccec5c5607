"""
Collects the keys and batches of a segment for its key index (`state/key_index.py`).

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
from cleaner.kernels.offset_map import KEEP
from cleaner.policy.unread import LEAST_BYTES_A_KEY, NO_HORIZON
from cleaner.state.digest_runs import DigestRuns, Digests

_MAGIC = 2
_MOST_OF_CHUNK = 1 << 19  # 4 MiB of digests a lane; only batches that unpack to far more than usual have more keys


def are_simple(batches: Batches) -> bool:
    """Tell whether batches are of magic 2, have records, and are of no transaction."""
    attributes = batches["attributes"]
    is_odd = (batches["magic"] != _MAGIC) | (batches["count"] == 0)
    is_odd |= attributes & (TRANSACTIONAL_FLAG | CONTROL_FLAG) != 0
    return not is_odd.any()


class BatchFacts:
    """
    What a key index says of a segment's batches.

    Args:
        due_ms: horizons up to it have had their effect.
    Attributes:
        earliest_horizon_ms: the first horizon above `due_ms`.
        last_position, last_offset: of the last batch; -1 before the first.
        is_simple: whether the segment can have an index, so far.
    """

    def __init__(self, due_ms: int) -> None:
        self._due_ms = due_ms
        self.earliest_horizon_ms = NO_HORIZON
        self.last_position = self.last_offset = -1
        self.is_simple = True

    def add(self, batches: Batches) -> None:
        """Add the next batches."""
        if not len(batches):
            return
        self.is_simple = self.is_simple and are_simple(batches)
        horizons = batches["base_timestamp"][batches["attributes"] & DELETE_HORIZON_FLAG != 0]
        horizons = horizons[horizons > self._due_ms]
        if len(horizons):
            self.earliest_horizon_ms = min(self.earliest_horizon_ms, int(horizons.min()))
        self.last_position, self.last_offset = int(batches["position"][-1]), int(batches["last_offset"][-1])


class SegmentKeys:
    """
    The keys that one segment keeps, and its batches, chunk by chunk.

    Args:
        runs: an empty place for the digests.
        keys: the digest key.
        segment_bytes: size of the `.log`.
        removal_ms: horizons up to it are due in this round.
    Attributes:
        runs: with all digests, in the end.
        facts: of the batches.
        is_simple: whether the segment can have an index, so far.
        refusal: the disk's, after which there is no index.
    """

    def __init__(self, runs: DigestRuns, keys: Words, *, segment_bytes: int, removal_ms: int) -> None:
        self.runs = runs
        self.facts = BatchFacts(removal_ms)
        self.is_simple = True
        self.refusal: CleanerError | None = None
        self._keys = keys
        self._most_keys = segment_bytes // LEAST_BYTES_A_KEY

    def digest(
        self, path: Path, block: Block, unread: Flags, verdicts: Flags, memory: GrowingBuffer, chunk: list[Digests]
    ) -> None:
        """
        Digest the keys that stay of a block of good records; several lanes may call it at once.

        Args:
            path, block: which.
            unread: uint8 for each batch; 1 if it is not read.
            verdicts: uint8 for each record of the others.
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
            chunk.append(rows[:, FIRST][verdicts[: len(rows)] & KEEP != 0])

    def add(self, batches: Batches, digests: list[Digests]) -> None:
        """Add a chunk with all its digests; call in the order of the chunks."""
        self.facts.add(batches)
        if not self.facts.is_simple:
            self.give_up()
        for each in digests:
            self.add_digests(each)

    def add_digests(self, digests: Digests) -> None:
        """Add some digests of the chunk whose batches come next, or came last."""
        if self.is_simple and len(self.runs) + len(digests) > self._most_keys:
            self.give_up()
        if not self.is_simple:
            return
        try:
            self.runs.add(digests)
        except CleanerError as error:
            self.refusal = error
            self.give_up()

    def give_up(self) -> None:
        """Make no index of this segment."""
        self.is_simple = False
