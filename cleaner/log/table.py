"""
Lookup by key: an index on disk says where the last record of each key is; values are read from the log itself.

The index (`state/table_file.py`) follows the log in offset order, as a reader of committed records: what is put later
is the value. Each segment's file has a number, is held open, and stays what it was, whatever its name in the directory.
A file that was replaced, by a cleaning round or an erasure, loses its number, and the one in its place is read:

    the entry of a record that is still there    gets the new file's number
    of a tombstone that was removed              keeps a number without a file: the key has no value
    of another record that was removed           likewise: the index is made again

A value is handed out after its key was compared with the record's own. So a wrong index costs time: it is made again,
and if it is wrong after that, the log is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cleaner.base import arguments, concurrency
from cleaner.base.closing import Closing
from cleaner.errors import CorruptBatchError, LogClosedError, UsageError
from cleaner.format.batch import SegmentReader
from cleaner.format.chunks import LOG_OVERHEAD_BYTES, Bytes, ReadBuffer
from cleaner.format.layout import cut_out, lay_out
from cleaner.format.records import Unpacker
from cleaner.kernels import PAD_BYTES
from cleaner.kernels import table as kernel
from cleaner.kernels.batch_header import size_of
from cleaner.log.columns import Columns
from cleaner.log.table_index import Numbered, TableIndex
from cleaner.log.unpacked_batches import UnpackedBatches
from cleaner.read.open_segment import OpenSegment
from cleaner.read.partition_files import PartitionFiles
from cleaner.read.view import ReadView
from cleaner.state.state_dir import require_outside_log_dirs
from cleaner.state.table_file import WHAT, table_directory
from cleaner.storage.fs.file_system import is_local_disk, real_path

if TYPE_CHECKING:
    from cleaner.log.reader import LogReader

_FIRST_OUT_BYTES = 64 << 10
_KEPT_OUT_BYTES = 4 << 20
_KEYS_AT_ONCE = 1 << 16
_LAST_OFFSET = 2**63 - 1
_PAD = bytes(PAD_BYTES)
_SHORT_KEY_BYTES = 1024


class _Lookup:
    """Arrays in which a kernel looks up some keys."""

    def __init__(self, room: int) -> None:
        self.keys = np.zeros(0, np.uint8)
        self.starts, self.sizes = np.zeros(room, np.int64), np.zeros(room, np.int64)
        self.statuses, self.values = np.zeros(room, np.uint8), np.zeros((3, room), np.int64)
        self.state = np.zeros(2, np.int64)


class _OneLookup(_Lookup):
    """The same for one short key, with memory views of the arrays."""

    def __init__(self) -> None:
        super().__init__(1)
        self.keys = np.zeros(_SHORT_KEY_BYTES + PAD_BYTES, np.uint8)
        self.key_cells = self.keys.data
        self.size_cells, self.state_cells, self.status_cells = self.sizes.data, self.state.data, self.statuses.data
        self.value_cells = self.values.reshape(-1).data


class Table(Closing):
    """
    The values of a log's keys, looked up one by one; made by `log.table()`. Safe to share between threads. Close it, or
    use it in a `with` block: it holds the segments' files and its index open.

    Each call sees every committed record that this process can read at that moment. What others change in the files
    without appending (an erasure) is looked for every 10 ms, and by `refresh()`.

    Args:
        reader: of the log.
        files, view: the reader's.
        directory: for the index; None: `<log dir>.tables/<topic>-<partition>`.
    Raises:
        UsageError: the log is in a bucket.
        ConfigError: the directory is in the log dir, or others may write to it.
        StateDirLockedError: another table has the index.
    """

    def __init__(self, reader: LogReader, files: PartitionFiles, view: ReadView, directory: Path | None) -> None:
        fs = files.fs
        if not is_local_disk(fs, files.log_dir):
            raise UsageError(f"{files.directory}: a table needs a log on a local disk")
        if directory is None:
            directory = table_directory(files.log_dir, files.topic_partition)
        require_outside_log_dirs(directory, [files.log_dir], WHAT)
        self._reader, self._files = reader, files
        self._guard = concurrency.RLock()
        # All guarded by _guard.
        self._index = TableIndex(fs, files, view, real_path(directory))
        self._is_closed = False
        self._batches = UnpackedBatches()
        self._last_batch: tuple[int, Columns] | None = None
        self._may_distrust = True
        self._out = self._one_out = np.zeros(_FIRST_OUT_BYTES, np.uint8)
        self._out_cells = self._one_out.data
        self._scratch = np.zeros(kernel.SCRATCH_WORDS, np.uint64)
        self._one = _OneLookup()
        self._one_arguments: tuple[object, ...] = ()
        try:
            self._sync()
        except BaseException:
            self._is_closed = True
            self._index.close()
            raise

    def close(self) -> None:
        """
        Force the index to disk, for the next table, and close the files; a second call does nothing.

        Raises:
            NoSpaceError, LogDirOfflineError: the index could not be kept, and will be made again.
        """
        with self._guard:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self._index.save()
            finally:
                self._index.close()

    @property
    def next_offset(self) -> int:
        """The first offset that the table does not know yet."""
        return self._index.end_offset

    def refresh(self) -> None:
        """Catch up with the log, and look for replaced files now."""
        with self._guard:
            self._sync(now=True)

    def get(self, key: bytes) -> bytes | None:
        """
        Return the value of a key; None if it has none.

        Raises:
            UsageError: the key is not of bytes.
            CorruptLogError: damage.
            LogTruncatedError: the topic was deleted and made again.
            LogClosedError, ForkedError: the table or the log is closed, or is the parent's.
        """
        one = self._one
        with self._guard:
            if not self._index.is_fresh():
                self._sync()
            if type(key) is not bytes or len(key) > _SHORT_KEY_BYTES:
                return self._many([key])[0]
            # Without an object of numpy: each takes as long as all of the lookup.
            one.key_cells[: len(key)] = key
            one.size_cells[0] = len(key)
            one.state_cells[kernel.STATE_DONE] = one.state_cells[kernel.STATE_USED] = 0
            short = kernel.read_values(*self._one_arguments)
            status = kernel.LOOK_CLOSER if short else one.status_cells[0]
            if status == kernel.NO_VALUE:
                return None
            if status == kernel.LOOK_CLOSER:
                return self._many([key])[0]
            start = one.value_cells[0]
            return self._out_cells[start : start + one.value_cells[1]].tobytes()

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of keys, in order, all of one moment; otherwise as `get`."""
        found: list[bytes | None] = []
        if not isinstance(keys, list | tuple):
            keys = arguments.byte_strings("keys", keys)
        with self._guard:
            self._sync()
            for first in range(0, len(keys), _KEYS_AT_ONCE):
                found += self._many(keys[first : first + _KEYS_AT_ONCE])
        return found

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """
        Yield the keys that have a value, and it, in the order of their records.

        A key that changes meanwhile may come again, with its later value; one deleted meanwhile may have come.
        """
        with self._guard:
            stream = self._index.stream(self._sync())
            end_offset = self._index.end_offset
        try:
            while stream.next_offset < end_offset:
                before = stream.next_offset
                stream.stop_at(end_offset, None)  # only what the index has is handed out
                for columns in stream.next_columns():
                    with self._guard:
                        if self._index.end_offset < end_offset:
                            self._sync()  # it was begun again by a lookup, which failed
                        end_offset = max(end_offset, self._index.end_offset)
                        current = self._index.are_current(columns)
                    # Records handed out have both.
                    wanted = columns.where(current & ~columns.value_is_null)
                    yield from zip(wanted.keys(), wanted.values(), strict=True)
                if stream.next_offset == before:
                    break
        finally:
            stream.close()

    def watch(self, key: bytes, *, timeout_seconds: float | None = None) -> Iterator[bytes | None]:
        """
        Yield the value of a key, then each later one as it comes; None when there is none, or it was deleted.

        It ends when the log is closed, or when no record of any key came for `timeout_seconds`.
        """
        (key,) = arguments.byte_strings("key", [key])
        with self._guard:
            value, end = self.get(key), self._index.end_offset
        with self._reader.follow(end, isolation="read_committed", timeout_seconds=timeout_seconds) as follower:
            yield value
            for record in follower:
                if record.key == key:
                    yield record.value

    # ---- lookups ---------------------------------------------------------------------------------------------------

    def _many(self, keys: Sequence[bytes], *, is_new: bool = False) -> list[bytes | None]:
        """Return the values of keys; with a wrong entry the index is made again, unless it `is_new`."""
        lookup = _Lookup(len(keys))
        self._load(lookup, keys)
        self._look_up(lookup)
        starts, sizes, offsets = lookup.values
        closer = np.flatnonzero(lookup.statuses == kernel.LOOK_CLOSER).tolist()
        sizes[closer] = -1
        values = cut_out(self._out, starts, sizes)
        if self._out.size > _KEPT_OUT_BYTES:
            self._out = np.zeros(_FIRST_OUT_BYTES, np.uint8)
        closer.sort(key=starts.__getitem__)  # a batch that several of them need is unpacked once
        for row in closer:
            place = int(starts[row])
            numbered = self._index.by_number.get(place >> kernel.NUMBER_SHIFT)
            if numbered is None and place & kernel.TOMBSTONE:
                continue  # a round has removed it
            try:
                values[row] = self._read_packed(numbered, keys[row], place, int(offsets[row]))
            except LookupError:
                # A removed record is seldom; what is not the key stays so, if two keys have one digest.
                if not is_new and (numbered is None or self._may_distrust):
                    self._may_distrust = self._may_distrust and numbered is None
                    self._index.begin()
                    self._sync()
                    return self._many(keys, is_new=True)
                values[row] = self._scan(keys[row])
        return values

    def _arguments(self, lookup: _Lookup, start_offset: int, out: Bytes) -> tuple[object, ...]:
        """Return the arguments of the kernel."""
        index, file = self._index, self._index.file
        return (
            *(file.words, file.slots, file.secret, index.descriptors, start_offset, *self._batches.arguments),
            *(lookup.keys, lookup.starts, lookup.sizes, self._scratch, out),
            *(lookup.statuses, lookup.values, lookup.state),
        )

    def _load(self, lookup: _Lookup, keys: Sequence[bytes]) -> None:
        try:
            lookup.keys = np.frombuffer(bytearray(b"".join((*keys, _PAD))), np.uint8)
            lookup.sizes[:] = np.fromiter(map(len, keys), np.int64, len(keys))
        except TypeError:
            arguments.byte_strings("keys", keys)
            raise
        np.cumsum(lookup.sizes[:-1], out=lookup.starts[1:])

    def _look_up(self, lookup: _Lookup) -> None:
        start_offset = self._reader.log_start_offset
        lookup.state[:] = 0
        while True:
            short = kernel.read_values(*self._arguments(lookup, start_offset, self._out))
            if not short:
                return
            used = int(lookup.state[kernel.STATE_USED])
            grown = np.zeros(max(2 * self._out.size, used + int(short)), np.uint8)
            grown[:used] = self._out[:used]
            self._out = grown

    def _read_packed(self, numbered: Numbered | None, key: bytes, place: int, offset: int) -> bytes | None:
        """Return the value of a record that has to be unpacked; raises LookupError if it is not there."""
        if numbered is None or not place & kernel.PACKED:
            raise LookupError
        try:
            columns = self._unpacked(numbered, place & ~kernel.TOMBSTONE)
        except CorruptBatchError as error:
            raise LookupError from error  # damage is reported when the log is read for a new index
        row = int(np.searchsorted(columns.offsets, offset))
        record = columns.where(slice(row, row + 1))
        if record.offsets.tolist() != [offset] or record.keys() != [key]:
            raise LookupError
        return record.values()[0]

    def _scan(self, key: bytes) -> bytes | None:
        """Return the value of a key by reading the log: two keys have one digest."""
        found: bytes | None = None
        start = self._reader.log_start_offset
        for columns in self._reader.columns(start, isolation="read_committed"):
            for mine, value in zip(columns.keys(), columns.values(), strict=True):
                found = value if mine == key else found
        return found

    def _unpacked(self, numbered: Numbered, place: int) -> Columns:
        """Return the records of a packed batch, and keep them for the next lookups."""
        if self._last_batch is None or self._last_batch[0] != place:
            columns = _unpack(numbered.segment, place & kernel.POSITION_MASK, self._files.batch_limit_bytes)
            self._batches.add(place, columns)
            self._last_batch = place, columns
        return self._last_batch[1]

    def _sync(self, *, now: bool = False) -> int:
        """Catch up with the log, if it has changed; returns its start. Raises LogClosedError, ForkedError."""
        start_offset = self._reader.log_start_offset
        if self._is_closed:
            raise LogClosedError(self._files.directory, "the table is closed")
        self._index.catch_up(now=now)
        self._one_arguments = self._arguments(self._one, start_offset, self._one_out)
        return start_offset


def _unpack(segment: OpenSegment, position: int, limit_bytes: int) -> Columns:
    """Read one batch and return its records."""
    path = segment.file.path
    head = segment.file.read(LOG_OVERHEAD_BYTES, position)
    size = size_of(head) if len(head) == LOG_OVERHEAD_BYTES else 0
    if size <= LOG_OVERHEAD_BYTES or position + size > segment.file.size():
        raise CorruptBatchError(path, position, "the file ends within this batch")
    reader = SegmentReader(segment.file, size=position + size, start=position, buffer=ReadBuffer(size))
    chunk = next(iter(reader), None)
    if chunk is None:
        raise CorruptBatchError(path, position, "no batch is here")
    (block,) = Unpacker(limit_bytes).blocks(path, chunk)
    layout = lay_out(path, block, np.zeros(len(block.batches), np.uint8), 0, _LAST_OFFSET)
    return Columns.of(layout, _LAST_OFFSET)
