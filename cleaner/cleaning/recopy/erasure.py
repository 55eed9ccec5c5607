"""
Recopies segments without some records, for `erase`: those of some keys, or of some offsets.

A round asks which record of a key is the last; here nothing depends on other records, on time or on transactions. So
aborted data, tombstones and legacy batches stay as they are, byte for byte, unless a record of theirs is erased.
Markers are never erased. Batches that hold up the log's end, a producer's sequence or an open transaction stay, without
records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.cleaning.passes.lane_memory import LaneMemory
from cleaner.cleaning.passes.segment_chunks import Claim
from cleaner.cleaning.recopy.batch_retention import ActiveProducers
from cleaner.cleaning.recopy.cleaned_segment import CleanedSegment
from cleaner.cleaning.recopy.group import GroupRecopier, RecopyRules
from cleaner.cleaning.recopy.survivors import BlockRetention
from cleaner.errors import CorruptBatchError, UncleanableError
from cleaner.format.chunks import CONTROL_FLAG, HEADER_BYTES, Chunk, Flags
from cleaner.format.key_digests import Words, new_secret, require_good
from cleaner.format.records import Block
from cleaner.kernels import PAD_BYTES, retain
from cleaner.kernels import erase as kernel
from cleaner.kernels.batch_header import MAGIC
from cleaner.storage.segment.indexes import Aborts, abort_rows

Longs = npt.NDArray[np.int64]

_KEYS_AT_ONCE = 1 << 14
# Nearly every key that stays meets an empty slot at once where few are erased; all slots fit a processor's cache.
_MIN_SLOTS = 1 << 14
_NEVER = RecopyRules(
    kept_end_offset=0, reads_every_index=True, legacy_horizon_ms=0, now_ms=0, removal_ms=0, delete_retention_ms=0
)


class ErasedRecords:
    """
    Which records are erased: those with one of these keys, or at one of these offsets. Only digests of keys are kept.

    Args:
        keys: whole keys; 16 bytes of memory each, and 8 to 16 for the table.
        prefixes: every key that begins with one of them.
        offsets: the first and the last offset, both inclusive; None: no record is erased by its offset.
    Attributes:
        key_count: how many different keys.
    """

    def __init__(
        self, keys: Iterable[bytes] = (), prefixes: Collection[bytes] = (), offsets: tuple[int, int] | None = None
    ) -> None:
        self.first_offset, self.last_offset = (0, -1) if offsets is None else offsets
        self.secret = new_secret()
        self.digests = self._digests_of(iter(keys))
        count = len(self.digests) // kernel.DIGEST_WORDS
        slots = max(_MIN_SLOTS, 1 << (2 * count).bit_length())
        self.slots: npt.NDArray[np.int32] = np.full(slots, kernel.EMPTY, np.int32)
        self.key_count = int(kernel.fill_slots(self.digests, self.slots))
        self.text, self.prefix_starts, self.prefix_sizes = _joined(sorted(set(prefixes)))

    def _digests_of(self, keys: Iterable[bytes]) -> Words:
        parts = [np.zeros(0, np.uint64)]
        while some := list(islice(keys, _KEYS_AT_ONCE)):
            text, starts, sizes = _joined(some)
            digests = np.zeros(kernel.DIGEST_WORDS * len(some), np.uint64)
            kernel.digest_keys(text, starts, sizes, self.secret, digests)
            parts.append(digests)
        return np.concatenate(parts)

    @property
    def has_keys(self) -> bool:
        """Whether every record has to be read, as its key may be one to erase."""
        return bool(len(self.digests) or len(self.prefix_starts))

    def passed_over(self, chunk: Chunk) -> Flags:
        """Return uint8 for each batch of a chunk: 1 if nothing in it can be erased, whatever its records are."""
        rows = chunk.batches
        passed = (rows["magic"] == MAGIC) & (rows["attributes"] & CONTROL_FLAG != 0)
        if not self.has_keys:
            is_modern = rows["magic"] == MAGIC  # others say only their last offset
            passed |= (rows["last_offset"] < self.first_offset) | (is_modern & (rows["base_offset"] > self.last_offset))
        flags: Flags = passed.astype(np.uint8)
        return flags


def _joined(texts: Sequence[bytes]) -> tuple[npt.NDArray[np.uint8], Longs, Longs]:
    """Return byte strings one after the other, with padding, and where they begin and how long they are."""
    sizes: Longs = np.fromiter(map(len, texts), np.int64, len(texts))
    starts: Longs = np.cumsum(sizes) - sizes
    return np.frombuffer(bytearray(b"".join(texts) + bytes(PAD_BYTES)), np.uint8), starts, sizes


class ErasingSurvivors:
    """
    Verdicts for `erase`; see `Survivors`. One instance for each thread.

    Args:
        wanted: what is erased.
    Attributes:
        positions: of the batches so far with something to erase.
    """

    def __init__(self, wanted: ErasedRecords) -> None:
        self._wanted = wanted
        self._state = np.zeros(kernel.STATE_CELLS, np.int64)
        self.positions = list[Longs]()

    @property
    def touched_batches(self) -> int:
        """Batches so far with something to erase."""
        return int(self._state[kernel.STATE_TOUCHED])

    @property
    def erased_records(self) -> int:
        """Records to erase so far."""
        return int(self._state[kernel.STATE_ERASED])

    def judge(self, path: Path, block: Block, retention: BlockRetention, verdicts: Flags) -> None:
        """Fill `verdicts` for batches with something to erase, and have all others copied unchanged."""
        wanted = self._wanted
        status = kernel.judge_erased(
            block.data,
            block.unpacked,
            block.batches,
            retention.unread,
            retention.batches,
            wanted.first_offset,
            wanted.last_offset,
            wanted.secret,
            wanted.digests,
            wanted.slots,
            wanted.text,
            wanted.prefix_starts,
            wanted.prefix_sizes,
            verdicts,
            self._state,
        )
        require_good(status, path, block, self._state)
        is_touched = (retention.unread == 0) & (retention.batches != retain.BATCH_COPY)
        if is_touched.any():
            self.positions.append(block.batches["position"][is_touched])


class TrialSegment(CleanedSegment):
    """
    The output of a segment that is only counted: its size, its batches and its indexes; nothing is written.

    Attributes:
        refusal: why it could not be written.
    """

    refusal: UncleanableError | None = None

    def reserve(self, size: int, written: np.ndarray, largest_offset: int, *, is_equal: bool = False) -> None:
        """Count the next batches."""
        if self.refusal is None:
            try:
                super().reserve(size, written, largest_offset, is_equal=True)
            except UncleanableError as error:
                self.refusal = error

    def close(self) -> None:
        """Close the indexes."""
        try:
            self.indexes.close()
        except UncleanableError as error:
            self.refusal = self.refusal or error


class ErasingRecopier(GroupRecopier):
    """
    Recopies segments one by one, each as a group of its own, without the erased records.

    Args:
        wanted: what is erased.
        kept_ends: last offsets of batches that stay even if all their records go: the last batch of the log, and of
            each active producer.
        kept_starts: base offsets of such batches: the first one of each open transaction.
        lanes, before_read, before_chunk, after_write, most_bytes: as for `GroupRecopier`.
    Attributes:
        touched: where the batches of the next segment are that have something to erase, if a search has found them: all
            others are copied without being unpacked; None: all are judged.
    """

    def __init__(
        self,
        wanted: ErasedRecords,
        *,
        kept_ends: Collection[int],
        kept_starts: Collection[int],
        lanes: Sequence[LaneMemory],
        **named: object,
    ) -> None:
        self._wanted = wanted
        self._kept_ends = np.array(sorted(kept_ends), np.int64)
        self._kept_starts = np.array(sorted(kept_starts), np.int64)
        survivors = self._survivors = list[ErasingSurvivors]()

        def make() -> ErasingSurvivors:
            survivors.append(ErasingSurvivors(wanted))
            return survivors[-1]

        self.touched: Longs | None = None
        super().__init__(
            rules=_NEVER,
            make_survivors=make,
            producers=ActiveProducers({}),
            collect_aborted=lambda _from, _to: (),
            lanes=lanes,
            **named,  # type: ignore[arg-type]  # named as there
        )

    def take_counts(self) -> tuple[int, int, Longs]:
        """Return how many batches were touched, how many records erased, and where, since the last call."""
        touched = sum(each.touched_batches for each in self._survivors)
        erased = sum(each.erased_records for each in self._survivors)
        positions = [np.zeros(0, np.int64), *(each for one in self._survivors for each in one.positions)]
        self._survivors.clear()
        return touched, erased, np.sort(np.concatenate(positions))

    def _enter(self, number: int) -> None:
        """Follow no transactions: aborted records are records like all others here."""

    def _aborts(self) -> Aborts:
        """Return the transaction index as it is: every marker stays."""
        return abort_rows(self._group[0].aborted_txns())

    def _retention(self, claim: Claim, chunk: Chunk) -> BlockRetention:
        rows = chunk.batches
        hidden = (rows["magic"] == MAGIC) & (rows["count"] == 0) & (rows["size"] > HEADER_BYTES)
        if hidden.any():
            position = int(rows["position"][np.argmax(hidden)])
            raise CorruptBatchError(claim.path, position, "a batch that has bytes of records, and says it has none")
        stays = np.isin(rows["last_offset"], self._kept_ends) | np.isin(rows["base_offset"], self._kept_starts)
        unread = self._wanted.passed_over(chunk)
        if self.touched is not None:
            at = np.minimum(np.searchsorted(self.touched, rows["position"]), len(self.touched) - 1)
            unread |= self.touched[at] != rows["position"]
        batches = np.where(stays, retain.BATCH_KEEP_END, retain.BATCH_KEEP_IF_NOT_EMPTY).astype(np.int8)
        batches[unread != 0] = retain.BATCH_COPY
        return replace(BlockRetention.undecided(len(rows), legacy_deletes_stay=True), batches=batches, unread=unread)
