"""
A table's index follows its log: which records it has, and in which files they are.

The log is read in offset order, as a reader of committed records does. Each segment's file gets a number and is held
open, so it stays what it was, whatever its name in the directory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cleaner.errors import CleanerError, LogChangedError, LogTruncatedError
from cleaner.format.chunks import Bytes
from cleaner.format.layout import Longs
from cleaner.kernels import table as kernel
from cleaner.log.columns import Columns
from cleaner.log.stream import RecordStream
from cleaner.read.open_segment import OpenSegment, SegmentFiles
from cleaner.read.partition_files import PartitionFiles, PartitionListing
from cleaner.read.view import ReadView
from cleaner.state.table_file import IndexedFile, TableFacts, TableFile
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import LOG

MANY_OFFSETS = 1 << 20
"""From so many to read on, entries are gathered: one by one they would change pages all over the index."""
_MAX_TRIES = 100
_LOOK_NS = 10_000_000

_Keys = tuple[Bytes, Longs, Longs]
_Done = Callable[[int, int], None]  # the next offset; the leader epoch of the batch before it
_Take = Callable[[_Keys, Longs, Longs, int, int], None]  # keys, offsets and places of records; then as `_Done`


class Numbered(NamedTuple):
    """A segment's file that entries name by its number; `identity` is its device and inode."""

    number: int
    segment: OpenSegment
    identity: tuple[int, int]


class _SwappedError(Exception):
    """The file that is read is not the one that has a number."""


def _keys_of(columns: Columns) -> _Keys:
    """Return the keys of columns as a stream hands them out: with spare bytes behind them, which a digest may read."""
    return columns.data, columns.key_starts, columns.key_sizes


class TableIndex:
    """
    The index of one log, for one thread at a time. Close it.

    Args:
        fs: the file system.
        files, view: of the log.
        directory: of the index, links followed.
    Attributes:
        file: the index.
        by_number: the files that are in it and were not replaced.
        descriptors: int64, theirs by number; -1: none.
        end_offset: records below it are in the index.
    Raises:
        StateDirLockedError, ConfigError, LogDirOfflineError, NoSpaceError: as `TableFile`.
    """

    def __init__(self, fs: FileSystem, files: PartitionFiles, view: ReadView, directory: Path) -> None:
        self._fs, self._files, self._view = fs, files, view
        self.file = TableFile(fs, directory)
        self.by_number: dict[int, Numbered] = {}
        self.descriptors = np.full(64, -1, np.int64)
        self.end_offset = 0
        self._by_base: dict[int, Numbered] = {}
        self._next_number = self._look_ns = 0
        self._signal, self._seen, self._seen_high_watermark = view.signal, -1, -1
        self._monotonic_ns = files.clock.monotonic_ns
        self._epoch = -1
        self._view_epoch: int | None = None
        self._listing: PartitionListing | None = None
        self._must_begin = False  # a beginning, or what was put last, has failed in the middle
        try:
            self._log = files.listing()
            self._open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all files; a second call does nothing."""
        self._look_ns = 0
        for base in list(self._by_base):
            self._drop(base)
        self.file.close()

    def save(self) -> None:
        """Force the index to disk, for its next life; not one that has not begun."""
        if not self._must_begin:
            self.file.save(self._facts())

    def is_fresh(self) -> bool:
        """Tell, at little cost, that the log's writer in this process has changed nothing since the last look."""
        signal = self._signal
        return (
            signal is not None
            and signal.version == self._seen
            # A flush in the background signals after the log says how far it reaches.
            and self._view.high_watermark == self._seen_high_watermark
            and self._monotonic_ns() < self._look_ns
        )

    def catch_up(self, *, now: bool = False) -> None:
        """
        Catch up with the log; replaced files are looked for every 10 ms, or `now`.

        Raises:
            CorruptLogError: damage.
            LogTruncatedError: the topic was deleted and made again.
            LogChangedError: the files change all the time.
        """
        seen = -1 if self._signal is None else self._signal.version, self._view.high_watermark
        is_caught_up = self._view.last_stable_offset == self.end_offset and self._view.leader_epoch == self._view_epoch
        if is_caught_up and not now and self._monotonic_ns() < self._look_ns:
            self._seen, self._seen_high_watermark = seen
            return
        self._look_ns = 0  # until it has succeeded
        for _ in range(_MAX_TRIES):
            try:
                if self._is_caught_up():
                    self._look_ns = self._monotonic_ns() + _LOOK_NS
                    self._seen, self._seen_high_watermark = seen
                    return
            except _SwappedError:
                self._listing = None
            except LogTruncatedError:
                self._require_same_log(self._files.listing())
                self.begin()
        raise LogChangedError(f"{self._files.directory}: its segments change faster than they can be read")

    def stream(self, offset: int) -> RecordStream:
        """Return the log's committed records from an offset on."""
        return RecordStream(self._files, self._view, offset, "read_committed")

    def are_current(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Tell which records are the last ones of their keys."""
        current, scratch = np.zeros(len(columns), bool), np.zeros(kernel.SCRATCH_WORDS, np.uint64)
        keys, file = _keys_of(columns), self.file
        kernel.are_current(file.words, file.slots, file.secret, *keys, columns.offsets, scratch, current)
        return current

    def _is_caught_up(self) -> bool:
        """Catch up; False if the files have changed meanwhile."""
        listing = self._files.listing()
        self._require_same_log(listing)
        view = self._view
        end = max(view.last_stable_offset, view.log_start_offset)
        is_other = end < self.end_offset or view.leader_epoch != self._view_epoch
        if self._must_begin or is_other or self._is_cut():
            self.begin()
        if listing is not self._listing and not self._follow_files(listing):
            return False
        if self.end_offset < end:
            self._read(max(self.end_offset, view.log_start_offset), end, listing, self._note_end)
            # A round meanwhile may have removed a record for one that is above this end.
            return self._files.is_unchanged(listing)
        return True

    def _require_same_log(self, listing: PartitionListing) -> None:
        if not listing.is_of_same_log(self._log):
            raise LogTruncatedError(self._files.directory, self.end_offset, is_another=True)

    def _is_cut(self) -> bool:
        """Tell whether the epoch of the last known record ended below it: a cut begins a new one."""
        end = self._files.end_of_epoch(self._epoch) if self._epoch >= 0 else None
        return end is not None and end < self.end_offset

    def begin(self) -> None:
        """Begin with an empty index; after an error the next `catch_up` does."""
        self._must_begin, self._look_ns = True, 0
        self.end_offset, self._epoch, self._listing = 0, -1, None
        for base in list(self._by_base):
            self._drop(base)
        self.file.clear()
        self.end_offset = self._view.log_start_offset
        self._view_epoch = self._view.leader_epoch
        self._must_begin = False

    def _follow_files(self, listing: PartitionListing) -> bool:
        """Read the files that are new in a listing, up to the known end; False if it has changed meanwhile."""
        there: dict[int, tuple[int, int]] = {}
        for place in listing.places:
            try:
                about = self._fs.stat(place.path(LOG))
            except FileNotFoundError:
                return False
            there[place.base_offset] = (about.st_dev, about.st_ino)
        for base, known in list(self._by_base.items()):
            if there.get(base) != known.identity:
                self._drop(base)
        ends = [*(place.base_offset for place in listing.places[1:]), self.end_offset]
        new = [at for at in zip(listing.places, ends, strict=True) if at[0].base_offset not in self._by_base]
        is_whole = False
        try:
            for place, end in new:
                if place.base_offset < self.end_offset:
                    self._read(place.base_offset, min(end, self.end_offset), listing, lambda *_: None)
            is_whole = self._files.is_unchanged(listing)
        finally:
            if not is_whole:  # a file that has a number counts as read
                for place, _ in new:
                    self._drop(place.base_offset)
        self._listing = listing if is_whole else None
        return is_whole

    def _note_end(self, next_offset: int, epoch: int) -> None:
        self.end_offset, self._epoch = next_offset, max(self._epoch, epoch)

    def _read(self, offset: int, end: int, listing: PartitionListing, done: _Done) -> None:
        """Put the records of [offset, end) into the index, fewer if the log was cut since the listing."""
        if end - offset >= MANY_OFFSETS:
            self._gather(offset, end, listing, done)
            return

        def take(keys: _Keys, offsets: Longs, places: Longs, next_offset: int, epoch: int) -> None:
            with self._putting():
                self.file.put(keys, offsets, places)
                done(next_offset, epoch)

        self._hand_on(offset, end, listing, take, done)

    def _gather(self, offset: int, end: int, listing: PartitionListing, done: _Done) -> None:
        """Do as `_read` for many records."""
        read_to = offset, -1

        def take(keys: _Keys, offsets: Longs, places: Longs, next_offset: int, epoch: int) -> None:
            gathered.add(keys, offsets, places)
            reach(next_offset, epoch)

        def reach(next_offset: int, epoch: int) -> None:
            nonlocal read_to
            read_to = next_offset, epoch

        def put() -> None:
            with self._putting():
                self.file.put_gathered(gathered)
                done(*read_to)

        with contextlib.closing(self.file.gather()) as gathered:
            try:
                self._hand_on(offset, end, listing, take, reach)
            except (CleanerError, _SwappedError):
                put()  # or nothing would ever be reached while a round swaps one file after the other
                raise
            put()

    @contextlib.contextmanager
    def _putting(self) -> Iterator[None]:
        """Put, and note the end of it: if that fails in the middle, a cut below what was put would not be seen."""
        self._must_begin = True
        yield
        self._must_begin = False

    def _hand_on(self, offset: int, end: int, listing: PartitionListing, take: _Take, reach: _Done) -> None:
        """Have the records of [offset, end) taken piece by piece, and what else was read of each chunk reached."""
        stream = self.stream(offset)
        stream.stop_at(end, listing.generation)
        try:
            while stream.next_offset < stream.end_offset:
                before = stream.next_offset
                for columns in stream.next_columns():
                    places = self._places(stream, columns)
                    take(_keys_of(columns), columns.offsets, places, stream.next_offset, stream.epoch)
                reach(stream.next_offset, stream.epoch)
                if stream.next_offset == before:
                    return
        finally:
            stream.close()

    def _places(self, stream: RecordStream, columns: Columns) -> npt.NDArray[np.int64]:
        """Return the places of the records that a stream has just handed out."""
        segment, block = stream.segment, stream.block
        assert segment is not None and block is not None  # noqa: S101 - there are records
        rows = block.batches
        if rows["unpacked"].any():
            row = np.searchsorted(rows["last_offset"], columns.offsets)
            places = rows["position"][row] | kernel.PACKED
        else:
            places = columns.key_starts + stream.position
        number = self._number(segment)
        found: npt.NDArray[np.int64] = (
            places | columns.value_is_null * np.int64(kernel.TOMBSTONE) | np.int64(number << kernel.NUMBER_SHIFT)
        )
        return found

    # ---- files -----------------------------------------------------------------------------------------------------

    def _number(self, segment: OpenSegment) -> int:
        """Return the number of a file that is read; raises _SwappedError if another has its name now."""
        known = self._by_base.get(segment.base_offset)
        if known is None:
            known = self._take(segment.place, self._next_number)
            self._next_number += 1
        about = segment.file.stat()
        if known.identity != (about.st_dev, about.st_ino):
            self._drop(segment.base_offset)
            raise _SwappedError
        return known.number

    def _take(self, place: SegmentFiles, number: int) -> Numbered:
        """Open a file and give it a number."""
        try:
            segment = self._files.open(self._log, place)
        except FileNotFoundError as error:
            raise _SwappedError from error
        about = segment.file.stat()
        numbered = Numbered(number, segment, (about.st_dev, about.st_ino))
        if number >= len(self.descriptors):
            more = np.full(number + 1, -1, np.int64)
            self.descriptors = np.concatenate([self.descriptors, more])
        self.descriptors[number] = segment.file.fileno()  # type: ignore[attr-defined]  # of a local disk
        self._by_base[place.base_offset] = self.by_number[number] = numbered
        return numbered

    def _drop(self, base_offset: int) -> None:
        numbered = self._by_base.pop(base_offset, None)
        if numbered is not None:
            del self.by_number[numbered.number]
            self.descriptors[numbered.number] = -1
            numbered.segment.close()

    # ---- between lives ---------------------------------------------------------------------------------------------

    def _identity(self) -> str:
        log = self._log
        return f"{self._files.directory} {log.topic_id.hex() or log.inode}"

    def _facts(self) -> TableFacts:
        files = []
        for base, (number, segment, (device, inode)) in self._by_base.items():
            about = segment.file.stat()
            files.append(IndexedFile(number, base, device, inode, about.st_size, about.st_mtime_ns))
        return TableFacts(self._identity(), self.end_offset, self._epoch, self._next_number, tuple(files))

    def _open(self) -> None:
        """Go on with the index of an earlier table, as far as it is of the files that are there; else begin."""
        facts = self.file.load()
        if facts is None or facts.log != self._identity():
            self.begin()
            return
        self.end_offset, self._epoch, self._next_number = facts.end_offset, facts.epoch, facts.next_number
        self._view_epoch = self._view.leader_epoch
        last = max((file.base_offset for file in facts.files), default=-1)
        for file in facts.files:
            try:
                numbered = self._take(SegmentFiles(self._files.directory, file.base_offset), file.number)
            except _SwappedError:
                continue
            about = numbered.segment.file.stat()
            is_same = (about.st_size, about.st_mtime_ns) == (file.size, file.mtime_ns)
            is_grown = file.base_offset == last and about.st_size > file.size
            if numbered.identity != (file.device, file.inode) or not (is_same or is_grown):
                self._drop(file.base_offset)
