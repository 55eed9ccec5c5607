"""
The last value of every key at one moment: how state is restored from a compacted log.

All segments are opened first, and the end offset is read afterwards. Records that a cleaner removed before that were
removed because of records below that offset; records removed later are still in the open files. So the result is the
state at exactly that offset: following from there misses nothing and repeats nothing.

`LatestByKey` finds these records; a second pass hands them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType

import numpy as np

from cleaner.errors import LogChangedError, LogTruncatedError
from cleaner.format.chunks import TRANSACTIONAL_FLAG, Chunk, Flags, control_batches
from cleaner.format.key_digests import Words
from cleaner.format.layout import lay_out
from cleaner.format.records import Block, Unpacker
from cleaner.log.columns import Columns
from cleaner.log.record import Record
from cleaner.log.stream import Isolation, reach
from cleaner.policy.survivor_rule import SurvivorRule
from cleaner.read.aborted import AbortedTransactions
from cleaner.read.cursor import Cursor
from cleaner.read.held_files import HeldFiles
from cleaner.read.latest import Digest, LatestByKey
from cleaner.read.partition_files import PartitionFiles
from cleaner.read.view import ReadView
from cleaner.storage.lock.waiting import go_on

_MAX_TRIES = 100
_UNKNOWN: tuple[int, bytes] | None = (-1, b"")
_MIN_KEYS = 1 << 20
_USUAL_RECORD_BYTES = 16  # small, well compressed; if there are more records, a larger map is made


class Latest:
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
    ) -> None:
        self._rule = rule
        self.next_offset = next_offset
        self.check_done: Callable[[], None] = go_on
        self._held = held
        self._aborted = aborted
        self._start_offset = start_offset
        self._last_batch = _UNKNOWN

    def __enter__(self) -> Latest:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; a second call does nothing. Later reads raise LogClosedError."""
        self._held.close()

    def to_dict(self) -> dict[bytes, bytes]:
        """
        Return key and value of all keys that have one. Records without a key are left out.

        Raises:
            CorruptLogError: damage.
        """
        found: dict[bytes, bytes] = {}
        for columns in self.columns():
            # All records handed out have both.
            found.update(zip(columns.keys(), columns.values(), strict=True))  # type: ignore[arg-type]
        return found

    def __iter__(self) -> Iterator[Record]:
        """Yield the last record of each key that has a value, in offset order."""
        for columns in self.columns():
            yield from columns

    def columns(self) -> Iterator[Columns]:
        """Yield the same records as columns."""
        most = max(1, self.next_offset - self._start_offset)
        # One offset per key would be enough, but offsets may be sparse: memory is reserved for all keys of a full map.
        expected = max(_MIN_KEYS, self._held.size // _USUAL_RECORD_BYTES)
        last = LatestByKey(self._digest_all, self._start_offset, self.next_offset, expected, most, self._rule)
        for path, block, hidden in self._blocks():
            columns = Columns.of(lay_out(path, block, hidden, self._start_offset, self.next_offset), self.next_offset)
            is_wanted = last.has(columns.offsets) & ~columns.value_is_null
            if is_wanted.any():
                yield columns.where(is_wanted)

    def _digest_all(self, digest: Digest) -> Iterator[Words]:
        for path, block, hidden in self._blocks():
            yield digest(path, block, hidden)

    def _blocks(self) -> Iterator[tuple[Path, Block, Flags]]:
        """Read the log: blocks, and which of their batches are hidden."""
        cursor, unpacker = Cursor(self._held, self._start_offset), Unpacker(self._held.batch_limit_bytes)
        try:
            while (chunk := cursor.next_chunk(self.next_offset)) is not None:
                self.check_done()
                hidden = self._hidden(chunk, cursor)
                for block in unpacker.blocks(cursor.path, chunk, unwanted=hidden != 0):
                    yield cursor.path, block, hidden[block.first : block.first + len(block.batches)]
            self._require_uncut(cursor)
        finally:
            cursor.close()

    def _require_uncut(self, cursor: Cursor) -> None:
        """Make sure, after a pass, that the files were not cut since they were opened."""
        if self._last_batch is _UNKNOWN:
            self._last_batch = cursor.last_batch
        is_same = cursor.next_offset >= self.next_offset and cursor.last_batch == self._last_batch
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
            # After the listing: records cleaned away before it were superseded by records below this offset.
            start_offset, next_offset = view.log_start_offset, reach(view, isolation, "high_watermark")
            aborted = None
            if isolation == "read_committed":
                aborted = AbortedTransactions(files.fs, listing.places, view.unlisted_aborts())
                aborted.read_all()
            if files.is_unchanged(listing):
                return Latest(held, aborted, start_offset, max(start_offset, next_offset), rule)
        except BaseException:
            held.close()
            raise
        held.close()
    raise LogChangedError(f"{files.directory}: its segments change faster than they can be opened")
