"""
A partition's directory as its readers see it, while others swap, roll, cut and delete in it.

Whoever changes names there holds the partition's lock, and a reader lists under it, shared, so that it never sees half
a swap. Where there is no lock to be had (an archive, another system than Linux, a broker that keeps everybody out) a
listing counts only when the directory stood still around it and no swap was to be seen.

A cleaner that died in the middle of a swap leaves `.swap` files; whoever loads the log next completes the swap or drops
it, and a reader sees the log as it will be then (R-630 to R-634).

A listing is good until the partition's generation number or the directory's time changes; asking costs two system
calls. The number is raised before a swap's first rename, so what was found under an unchanged number is of one piece.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from cleaner.base import concurrency
from cleaner.base.clock import Clock
from cleaner.base.model import TopicPartition
from cleaner.errors import CleanerError, LogChangedError, LogDirLockedError, LogDirOfflineError
from cleaner.format.chunks import Chunk, ReadableFile
from cleaner.format.headers import HeaderReader
from cleaner.read.log_end import end_of
from cleaner.read.open_segment import OpenSegment, SegmentFiles
from cleaner.storage.files.leader_epochs import read_leader_epochs
from cleaner.storage.files.partition_metadata import LIMIT_BYTES
from cleaner.storage.fs.file_system import FileSystem, is_local_disk
from cleaner.storage.fs.readable import FileStatus, OpenedFile, ReadableFiles
from cleaner.storage.load.leftovers import split_swaps
from cleaner.storage.lock.lock_bytes import PRESENCE_BYTE, slot_of
from cleaner.storage.segment import names
from cleaner.storage.segment.names import GENERATIONS, LEADER_EPOCHS, LOCK, PARTITION_METADATA

_NUMBER_BYTES = 8
# File systems keep times by the kernel's ticks, 10 ms at most; a change within the same one would not show.
_TICK_NS = 20_000_000
_PAUSE_SECONDS = 0.002
_PATIENCE_NS = 1_000_000_000  # a swap takes a dozen fsyncs; what lasts longer nobody is at work on

MAX_BATCH_BYTES = 1 << 30
"""What a batch may unpack to where nobody knows its topic's settings; more is damage or an attack."""

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class FoundFiles:
    """
    What is in a partition's directory.

    Attributes:
        places: the segments, ascending.
        snapshots: offsets of the producer snapshots, ascending.
        has_swap: a swap is under way, or was when somebody died.
    """

    places: tuple[SegmentFiles, ...]
    snapshots: tuple[int, ...]
    has_swap: bool


def find_files(fs: ReadableFiles, directory: Path) -> FoundFiles:
    """
    List a partition's segments by their names.

    Raises:
        FileNotFoundError: there is no such directory; or a `.swap` file was renamed meanwhile, then try again.
    """
    parsed = {name: file for name in fs.list_files(directory) if (file := names.parse_file_name(name)) is not None}
    swaps = [parsed[name] for name in split_swaps(list(parsed))[0]]
    swapped = {
        base: frozenset(file.suffix for file in swaps if file.offset == base) for base in {f.offset for f in swaps}
    }
    logs = _after_swap(fs, directory, set(names.offsets_of(parsed, names.LOG)), swapped)
    return FoundFiles(
        places=tuple(SegmentFiles(directory, base, swapped.get(base, frozenset())) for base in sorted(logs)),
        snapshots=tuple(names.offsets_of(parsed, names.SNAPSHOT)),
        has_swap=any(file.temporary == names.SWAP for file in parsed.values()),
    )


def _after_swap(fs: ReadableFiles, directory: Path, logs: set[int], decided: dict[int, frozenset[str]]) -> set[int]:
    """Return the base offsets there will be when a swap that was decided is completed (R-631, R-632)."""
    new = [base for base, suffixes in decided.items() if names.LOG in suffixes]
    if not new:
        return logs
    # Of one that is damaged the old segments stay in sight; reading the new one will name the damage.
    end = max(_end_of_swap(fs, directory, base) for base in new)
    return {base for base in logs if not min(new) <= base < end} | set(new)


def _end_of_swap(fs: ReadableFiles, directory: Path, base_offset: int) -> int:
    with OpenSegment(fs, SegmentFiles(directory, base_offset, frozenset({names.LOG}))) as segment:
        return end_of(segment, segment.file.size(), _in_any_order, [0]).offset


def _in_any_order(file: ReadableFile, *, size: int, start: int, check_order_from: int | None = None) -> Iterable[Chunk]:
    # Who completes the swap does not ask for the order either.
    return HeaderReader(file, size=size, start=start)


class _NoLock(CleanerError):
    """The lock belongs to somebody who does not give it back, like a broker."""


@dataclass(frozen=True)
class PartitionListing:
    """
    What was found, and when.

    Attributes:
        places: the segments, ascending.
        snapshots: offsets of producer snapshots, ascending.
        topic_id: `partition.metadata` as it stands there, empty without.
        inode: device and number of the directory.
    """

    places: tuple[SegmentFiles, ...]
    snapshots: tuple[int, ...]
    generation: int
    mtime_ns: int
    is_settled: bool
    topic_id: bytes
    inode: tuple[int, int]

    def is_of_same_log(self, other: PartitionListing) -> bool:
        """Tell whether both are of one log, and not of one deleted and another created under its name."""
        # A number may be given out again, and a directory may get its id later on.
        if self.topic_id and other.topic_id:
            return self.topic_id == other.topic_id
        return self.inode == other.inode

    def holder_of(self, offset: int) -> int:
        """Return the number of the place that holds an offset, 0 for one below all; -1 when there are none."""
        found = bisect_right(self.places, offset, key=lambda place: place.base_offset) - 1
        return max(found, 0) if self.places else -1

    def after(self, base_offset: int) -> SegmentFiles | None:
        """Return the first place above a base offset; None when there is none."""
        found = bisect_right(self.places, base_offset, key=lambda place: place.base_offset)
        return self.places[found] if found < len(self.places) else None


class PartitionFiles:
    """
    The files of a partition. Safe to share between threads.

    Args:
        fs: the door to the file system.
        log_dir: the log dir, links followed.
        topic_partition: whose.
        clock: to wait by.
        batch_limit: tells the most bytes that one batch may unpack to; None: `MAX_BATCH_BYTES`.
    """

    def __init__(
        self,
        fs: ReadableFiles,
        log_dir: Path,
        topic_partition: TopicPartition,
        clock: Clock,
        batch_limit: Callable[[], int] | None = None,
    ) -> None:
        self.fs = fs
        self.log_dir = log_dir
        self.topic_partition = topic_partition
        self.directory = log_dir / str(topic_partition)
        self.clock = clock
        self._batch_limit = batch_limit
        self._guard = concurrency.RLock()
        # Guarded by _guard.
        self._listing: PartitionListing | None = None
        self._generations: OpenedFile | None = None
        self._is_closed = False

    @property
    def batch_limit_bytes(self) -> int:
        """The most bytes that one batch may unpack to, as things stand."""
        return MAX_BATCH_BYTES if self._batch_limit is None else self._batch_limit()

    def close(self) -> None:
        """Let go of what is open; a second call does nothing. Iterators that are under way go on."""
        with self._guard:
            self._is_closed = True
            if self._generations is not None:
                self._generations.close()
                self._generations = None
            self._listing = None

    def listing(self) -> PartitionListing:
        """
        Return the segments as they are now.

        Raises:
            LogDirOfflineError: the directory is gone, or the disk refuses.
        """
        with self._guard:
            if self._listing is None or not self._is_current(self._listing):
                self._listing, _ = self._look_quietly(lambda _: None)
            return self._listing

    def is_current(self, listing: PartitionListing) -> bool:
        """Tell whether nothing has changed since."""
        with self._guard:
            return self._is_current(listing)

    def is_unchanged(self, listing: PartitionListing) -> bool:
        """Tell the same of a listing that is too young for its directory's time to tell: by looking again."""
        with self._guard:
            if self._is_current(listing):
                return True
            now, _ = self._look_quietly(lambda _: None)
            self._listing = now
            return (now.places, now.generation, now.mtime_ns) == (listing.places, listing.generation, listing.mtime_ns)

    def open(self, place: SegmentFiles) -> OpenSegment:
        """Open a segment. Raises FileNotFoundError: it has gone, or was renamed."""
        return OpenSegment(self.fs, place)

    def end_of_epoch(self, epoch: int) -> int | None:
        """Return where the leader epoch behind this one begins; None for the latest."""
        entries = read_leader_epochs(self.fs, self.directory / LEADER_EPOCHS)
        return next((entry.start_offset for entry in entries if entry.epoch > epoch), None)

    def open_all(self, opened: Callable[[PartitionListing], _Result]) -> tuple[PartitionListing, _Result]:
        """
        List, and open what is wanted while no name changes.

        Args:
            opened: called with the listing, maybe more than once; FileNotFoundError makes it be called again.
        """
        with self._guard:
            return self._look_quietly(opened)

    def _is_current(self, listing: PartitionListing) -> bool:
        if not listing.is_settled:
            return False
        return (self._generation(), self._stat().st_mtime_ns) == (listing.generation, listing.mtime_ns)

    def _generation(self) -> int:
        file = self._generations
        if file is None:
            try:
                file = self.fs.open(self.log_dir / GENERATIONS)
            except FileNotFoundError:
                return 0
        try:
            return int.from_bytes(file.read(_NUMBER_BYTES, slot_of(self.topic_partition) * _NUMBER_BYTES), "little")
        finally:
            if self._is_closed:
                file.close()
            else:
                self._generations = file

    def _stat(self) -> FileStatus:
        try:
            return self.fs.stat(self.directory)
        except FileNotFoundError as error:
            raise LogDirOfflineError(self.directory, error) from error

    def _topic_id(self) -> bytes:
        try:
            file = self.fs.open(self.directory / PARTITION_METADATA)
        except FileNotFoundError:
            return b""
        with file:
            return file.read(LIMIT_BYTES, 0)

    # ---- looking ---------------------------------------------------------------------------------------------------

    def _look_quietly(self, opened: Callable[[PartitionListing], _Result]) -> tuple[PartitionListing, _Result]:
        """Look under the lock, or else while nothing moves."""
        # Elsewhere nobody swaps under a reader; and the lock needs Linux's kind of locks.
        if not is_local_disk(self.fs):
            return self._look_unlocked(opened)
        try:
            from cleaner.storage.lock.partition_lock import partition_lock
        except ImportError:
            return self._look_unlocked(opened)
        try:
            with partition_lock(
                self.fs,
                self.log_dir,
                self.topic_partition,
                self.clock,
                shared=True,
                check_done=partial(self._require_hope, self.fs),
            ):
                listing, _ = self._look()
                return listing, opened(listing)
        except (_NoLock, LogChangedError, LogDirLockedError, LogDirOfflineError, FileNotFoundError):
            return self._look_unlocked(opened)

    def _require_hope(self, fs: FileSystem) -> None:
        """Do not wait for a lock that covers the whole file: that is held for days."""
        from cleaner.storage.lock.byte_ranges import READ, holder_of

        with fs.open(self.log_dir / LOCK) as file:
            if holder_of(file, READ, PRESENCE_BYTE, 1) is not None:
                raise _NoLock(f"{file.path}: locked as a whole")

    def _look_unlocked(self, opened: Callable[[PartitionListing], _Result]) -> tuple[PartitionListing, _Result]:
        """
        Look without a lock.

        Between a swap's first rename and its last a `.swap` is there; a swap that nobody goes on with is one that
        somebody died in.
        """
        until_ns = self.clock.monotonic_ns() + _PATIENCE_NS
        while True:
            is_patient = self.clock.monotonic_ns() < until_ns
            try:
                listing, has_swap = self._look()
                if not (has_swap and is_patient):
                    result = opened(listing)
                    again, _ = self._look()
                    if again.places == listing.places and again.mtime_ns == listing.mtime_ns:
                        return listing, result
            except FileNotFoundError as error:
                if not is_patient:
                    raise LogDirOfflineError(self.directory, error) from error
            self.clock.sleep(_PAUSE_SECONDS)

    def _look(self) -> tuple[PartitionListing, bool]:
        # Before the names: what changes while they are listed is then seen as a change.
        generation, about = self._generation(), self._stat()
        mtime_ns, inode, topic_id = about.st_mtime_ns, (about.st_dev, about.st_ino), self._topic_id()
        is_settled = self.clock.now_ms() * 1_000_000 - mtime_ns > _TICK_NS
        found: FoundFiles = find_files(self.fs, self.directory)
        listing = PartitionListing(found.places, found.snapshots, generation, mtime_ns, is_settled, topic_id, inode)
        return listing, found.has_swap
