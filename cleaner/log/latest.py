"""
The last value of every key at one moment: how state is restored from a compacted log.

All segments are opened first, and the end offset is read afterwards. Records that a cleaner removed before that were
removed because of records below that offset; records removed later are still in the open files. So the result is the
state at exactly that offset: following from there misses nothing and repeats nothing.

`LatestByKey` finds these records; a second pass hands them out. A dict takes the records of the clean section in one
pass, each in the place of the one before: there, few keys should come again. The cleaner's checkpoint only says where
that is quicker. If it is wrong, the dict is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from cleaner.base.closing import Closing
from cleaner.base.remote_path import is_remote
from cleaner.errors import CleanerError, LogChangedError, LogTruncatedError
from cleaner.format.chunks import TRANSACTIONAL_FLAG, Chunk, Flags, Mask, control_batches
from cleaner.format.key_digests import Words
from cleaner.format.layout import Layout, cut_out, lay_out
from cleaner.format.records import Block, Unpacker
from cleaner.log.columns import Columns
from cleaner.log.record import Record
from cleaner.log.stream import Isolation, reach
from cleaner.policy.survivor_rule import LATEST_OFFSET, SurvivorRule
from cleaner.read.aborted import AbortedTransactions
from cleaner.read.cursor import Cursor
from cleaner.read.held_files import HeldFiles
from cleaner.read.latest import Digest, LatestByKey
from cleaner.read.partition_files import PartitionFiles
from cleaner.read.view import ReadView
from cleaner.storage.files.checkpoint import read_offset_checkpoint
from cleaner.storage.files.leader_epochs import read_leader_epochs
from cleaner.storage.lock.waiting import go_on
from cleaner.storage.segment.names import CLEANER_CHECKPOINT, LEADER_EPOCHS

_MAX_TRIES = 100
_UNKNOWN: tuple[int, bytes] | None = (-1, b"")
_MIN_KEYS = 1 << 20
_MOST_DIRTY = 1 / 3  # bytes to those of the clean section: above this, too many of its records are superseded
_USUAL_RECORD_BYTES = 16  # small, well compressed; if there are more records, a larger map is made


class Latest(Closing):
    """
    The state of a log at one offset. Close it, or use it in a `with` block: it holds the segments' files open.

    It may be iterated several times, by one thread at a time. A writer that cuts the log cuts these same files:
    `LogTruncatedError` is then raised at the end, and the records handed out before are not valid.

    Attributes:
        next_offset: where to follow from.
        check_done: called before each chunk; may raise to stop.
    """

    def __init__(
        self,
        held: HeldFiles,
        aborted: AbortedTransactions | None,
        start_offset: int,
        next_offset: int,
        rule: SurvivorRule,
        checkpoint: Callable[[], int],
        has_changed: Callable[[], bool],
        latest_epoch: int | None,
    ) -> None:
        self._rule = rule
        self._has_changed = has_changed
        self._latest_epoch = latest_epoch
        self._checkpoint = checkpoint
        self.next_offset = next_offset
        self.check_done: Callable[[], None] = go_on
        self._held = held
        self._aborted = aborted
        self._start_offset = start_offset
        self._last_batch = _UNKNOWN

    def close(self) -> None:
        """Close the files; a second call does nothing. Later reads raise LogClosedError."""
        self._held.close()

    def to_dict(self) -> dict[bytes, bytes]:
        """
        Return key and value of all keys that have one, in no order. Records without a key are left out.

        Raises:
            CorruptLogError: damage.
        """
        found: dict[bytes | None, bytes | None] = {}
        removed: list[bytes | None] = []
        clean_end = self._clean_end()
        for layout, is_wanted in chain(self._all(clean_end), self._last(clean_end, keeps=False)):
            if clean_end == self._start_offset:
                is_wanted &= layout.value_sizes >= 0  # there is nothing to remove
            rows = np.flatnonzero(is_wanted)
            sizes = layout.value_sizes[rows]
            keys = cut_out(layout.data, layout.key_starts[rows], layout.key_sizes[rows])
            found.update(zip(keys, cut_out(layout.data, layout.value_starts[rows], sizes), strict=True))
            removed += [keys[row] for row in np.flatnonzero(sizes < 0).tolist()]
        for key in removed:
            if found.get(key, b"") is None:
                del found[key]
        return found  # type: ignore[return-value]  # all have both

    def __iter__(self) -> Iterator[Record]:
        """Yield the last record of each key that has a value, in offset order."""
        for columns in self.columns():
            yield from columns

    def columns(self) -> Iterator[Columns]:
        """Yield the same records as columns."""
        for layout, is_last in self._last(self._start_offset, keeps=True):
            is_wanted = is_last & (layout.value_sizes >= 0)
            if is_wanted.any():
                yield Columns.of(layout, self.next_offset).where(is_wanted)

    def _clean_end(self) -> int:
        """Return the end of what is read without finding out its last records before: a segment's start, or the end."""
        if self._rule is not LATEST_OFFSET:
            return self._start_offset
        checkpoint, sizes = self._checkpoint(), self._held.sizes()
        end = max((base for base in sizes if base <= checkpoint), default=0)
        clean_bytes = sum(size for base, size in sizes.items() if base < end)
        if sum(sizes.values()) - clean_bytes > _MOST_DIRTY * clean_bytes:
            return self._start_offset
        return min(max(end, self._start_offset), self.next_offset)

    def _all(self, end_offset: int) -> Iterator[tuple[Layout, Mask]]:
        """Yield all records below an offset, and which of them have a key."""
        if end_offset > self._start_offset:
            for path, block, hidden in self._blocks(self._start_offset, end_offset, keeps=False):
                layout = lay_out(path, block, hidden, self._start_offset, end_offset)
                yield layout, layout.key_sizes >= 0

    def _last(self, offset: int, *, keeps: bool) -> Iterator[tuple[Layout, Mask]]:
        """Yield records from an offset on, and which of them are the last ones of their keys there."""
        end_offset = self.next_offset
        if offset >= end_offset > self._start_offset:
            return
        # One offset per key would be enough, but offsets may be sparse: memory is reserved for all keys of a full map.
        expected = max(_MIN_KEYS, self._held.size // _USUAL_RECORD_BYTES)

        def digest_all(digest: Digest) -> Iterator[Words]:
            for path, block, hidden in self._blocks(offset, end_offset, keeps=False):
                yield digest(path, block, hidden)

        last = LatestByKey(digest_all, offset, end_offset, expected, max(1, end_offset - offset), self._rule)
        for path, block, hidden in self._blocks(offset, end_offset, keeps=keeps, last=last):
            layout = lay_out(path, block, hidden, offset, end_offset, last.bits)
            yield layout, last.has(layout.offsets)

    def _blocks(
        self, offset: int, end_offset: int, *, keeps: bool, last: LatestByKey | None = None
    ) -> Iterator[tuple[Path, Block, Flags]]:
        """
        Read a range of the log: blocks, and which of their batches are hidden.

        Args:
            keeps: the caller keeps the blocks' data; else it is valid until the next step.
            last: batches without any of these records are hidden.
        """
        cursor, unpacker = Cursor(self._held, offset, reuses=not keeps), Unpacker(self._held.batch_limit_bytes)
        epoch = -1
        try:
            while (chunk := cursor.next_chunk(end_offset)) is not None:
                self.check_done()
                epochs = chunk.batches["leader_epoch"][chunk.batches["base_offset"] < end_offset]
                epoch = max(epoch, int(epochs.max(initial=-1)))
                hidden = self._hidden(chunk, cursor)
                if last is not None:
                    hidden[~last.may_be_in(chunk.batches)] = 1
                for block in unpacker.blocks(cursor.path, chunk, unwanted=hidden != 0):
                    yield cursor.path, block, hidden[block.first : block.first + len(block.batches)]
            self._require_uncut(cursor, end_offset, epoch)
        finally:
            cursor.close()

    def _require_uncut(self, cursor: Cursor, end_offset: int, epoch: int) -> None:
        """
        Make sure, after a pass, that the files were not cut since they were opened; `epoch`: the latest met.

        A cut begins a leader epoch. The log may have grown again since, with records that are undecided.
        """
        is_same = cursor.next_offset >= end_offset
        if self._latest_epoch is not None and epoch > self._latest_epoch and self._has_changed():
            is_same = False
        if end_offset == self.next_offset:
            if self._last_batch is _UNKNOWN:
                self._last_batch = cursor.last_batch
            is_same = is_same and cursor.last_batch == self._last_batch
        if not (is_same and self._held.is_uncut()):
            raise LogTruncatedError(self._held.directory, self.next_offset)

    def _hidden(self, chunk: Chunk, cursor: Cursor) -> Flags:
        rows = chunk.batches
        hidden: Flags = control_batches(rows).astype(np.uint8)
        hidden[rows["last_offset"] < self._start_offset] = 1
        if self._aborted is not None and chunk.kinds & TRANSACTIONAL_FLAG and cursor.segment is not None:
            hidden |= self._aborted.hidden(rows, self._held.listing().holder_of(cursor.segment.base_offset))
        return hidden


def take_latest(files: PartitionFiles, view: ReadView, isolation: Isolation, rule: SurvivorRule) -> Latest:
    """
    Open a log's files and find out how far to read them; `rule` says which record of a key is the last one.

    Raises:
        LogChangedError: its segments were swapped at every attempt.
        LogDirOfflineError: the disk failed, or there are more segments than files may be open.
    """
    for _ in range(_MAX_TRIES):
        listing, held = files.open_all(partial(HeldFiles.hold, files))
        try:
            latest_epoch = _latest_epoch_of(files)
            # After the listing: records cleaned away before it were superseded by records below this offset.
            start_offset, next_offset = view.log_start_offset, reach(view, isolation, "high_watermark")
            aborted = None
            if isolation == "read_committed":
                aborted = AbortedTransactions(files.fs, listing.places, view.unlisted_aborts())
                aborted.read_all()
            if files.is_unchanged(listing):
                end_offset = max(start_offset, next_offset)
                has_changed = partial(_is_of_another_generation, files, listing.generation)
                checkpoint = partial(_checkpoint_of, files)
                return Latest(held, aborted, start_offset, end_offset, rule, checkpoint, has_changed, latest_epoch)
        except BaseException:
            held.close()
            raise
        held.close()
    raise LogChangedError(f"{files.directory}: its segments change faster than they can be opened")


def _checkpoint_of(files: PartitionFiles) -> int:
    """Return how far the log was cleaned, by the cleaner's checkpoint; 0 if it does not say."""
    try:
        offsets = read_offset_checkpoint(files.fs, files.log_dir / CLEANER_CHECKPOINT)
    except CleanerError:
        return 0
    return offsets.get(files.topic_partition, 0)


def _latest_epoch_of(files: PartitionFiles) -> int | None:
    """Return the latest leader epoch, -1 for none; None if nothing says, or nobody cuts the log: in a bucket."""
    if is_remote(files.log_dir):
        return None
    try:
        entries = read_leader_epochs(files.fs, files.directory / LEADER_EPOCHS)
    except CleanerError:
        return None
    return entries[-1].epoch if entries else -1


def _is_of_another_generation(files: PartitionFiles, generation: int) -> bool:
    """Tell whether the log was swapped or cut since: that an epochs' file is behind says nothing in a log at rest."""
    return files.generation() != generation
