"""
Lists a partition's directory for readers, while other processes swap, roll, cut and delete in it.

A process that changes names there holds the partition's lock. A reader lists under the same lock, shared, and so never
sees half a swap. If no lock is available (an archive, a system other than Linux, a broker that locks the whole log
dir), a listing counts only if the directory did not change around it and no swap was under way.

A cleaner that died in the middle of a swap leaves `.swap` files. The next load completes or undoes that swap; a reader
sees the log as it will be after that load (R-630 to R-634).

A listing is valid until the partition's generation number or the directory's time changes; the check takes two system
calls. The number is raised before a swap's first rename, so a listing made under one number is consistent.
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
from cleaner.base.remote_path import is_remote
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
_PATIENCE_NS = 1_000_000_000  # a swap takes a dozen fsyncs; one that lasts longer was interrupted

MAX_BATCH_BYTES = 1 << 30
"""The most bytes a batch may unpack to if its topic's settings are unknown; more is damage or an attack."""

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class FoundFiles:
    """
    The files of a partition's directory.

    Attributes:
        places: the segments, ascending.
        snapshots: offsets of the producer snapshots, ascending.
        has_swap: a swap is under way, or was interrupted.
    """

    places: tuple[SegmentFiles, ...]
    snapshots: tuple[int, ...]
    has_swap: bool


def find_files(fs: ReadableFiles, directory: Path) -> FoundFiles:
    """
    List a partition's segments by their names.

    Raises:
        FileNotFoundError: there is no such directory; or a `.swap` file was just renamed: then try again.
    """
    parsed = {name: file for name in fs.list_files(directory) if (file := names.parse_file_name(name)) is not None}
    swaps = [parsed[name] for name in split_swaps(list(parsed))[0]]
    swapped = {
        base: frozenset(file.suffix for file in swaps if file.offset == base) for base in {f.offset for f in swaps}
    }
    final = [file for file in parsed.values() if not file.temporary]
    logs = _after_swap(fs, directory, {file.offset for file in final if file.suffix == names.LOG}, swapped)
    return FoundFiles(
        places=tuple(SegmentFiles(directory, base, swapped.get(base, frozenset())) for base in sorted(logs)),
        snapshots=tuple(sorted(file.offset for file in final if file.suffix == names.SNAPSHOT)),
        has_swap=any(file.temporary == names.SWAP for file in parsed.values()),
    )


def topic_id_in(fs: ReadableFiles, directory: Path) -> bytes:
    """Return the content of `partition.metadata`, which tells logs of one name apart; empty without the file."""
    try:
        file = fs.open(directory / PARTITION_METADATA)
    except FileNotFoundError:
        return b""
    with file:
        return file.read(LIMIT_BYTES, 0)


def _after_swap(fs: ReadableFiles, directory: Path, logs: set[int], decided: dict[int, frozenset[str]]) -> set[int]:
    """Return the base offsets that will exist after a decided swap is completed (R-631, R-632)."""
    new = [base for base, suffixes in decided.items() if names.LOG in suffixes]
    if not new:
        return logs
    # If the new segment is damaged, the old ones behind the damage stay visible; reading the new one reports it.
    end = max(_end_of_swap(fs, directory, base) for base in new)
    return {base for base in logs if not min(new) <= base < end} | set(new)


def _end_of_swap(fs: ReadableFiles, directory: Path, base_offset: int) -> int:
    with OpenSegment(fs, SegmentFiles(directory, base_offset, frozenset({names.LOG}))) as segment:
        return end_of(segment, segment.file.size(), _in_any_order, [0]).offset


def _in_any_order(file: ReadableFile, *, size: int, start: int, check_order_from: int | None = None) -> Iterable[Chunk]:
    # The load that completes the swap does not check the order either.
    return HeaderReader(file, size=size, start=start)


class _NoLock(CleanerError):
    """The lock is held for as long as its holder runs, as by a broker."""


@dataclass(frozen=True)
class PartitionListing:
    """
    A partition's files at one moment.

    Attributes:
        places: the segments, ascending.
        snapshots: offsets of producer snapshots, ascending.
        generation: the partition's generation number.
        mtime_ns: modification time of the directory.
        proves_unchanged: that time is old enough to prove, if unchanged, that the directory is unchanged.
        topic_id: content of `partition.metadata`; empty without the file.
        inode: device and number of the directory.
    """

    places: tuple[SegmentFiles, ...]
    snapshots: tuple[int, ...]
    generation: int
    mtime_ns: int
    proves_unchanged: bool
    topic_id: bytes
    inode: tuple[int, int]

    def is_of_same_log(self, other: PartitionListing) -> bool:
        """Tell whether both are of the same log, and not one of a log created later under the same name."""
        return self.is_of(other.inode, other.topic_id)

    def is_of(self, inode: tuple[int, int], topic_id: bytes) -> bool:
        """Tell whether this is of the log in a directory."""
        # An inode number may be reused, and a directory may get its topic id later.
        if self.topic_id and topic_id:
            return self.topic_id == topic_id
        return self.inode == inode

    def holder_of(self, offset: int) -> int:
        """Return the number of the segment that holds an offset, 0 for an offset below all; -1 without segments."""
        found = bisect_right(self.places, offset, key=lambda place: place.base_offset) - 1
        return max(found, 0) if self.places else -1

    def after(self, base_offset: int) -> SegmentFiles | None:
        """Return the first segment above a base offset; None if there is none."""
        found = bisect_right(self.places, base_offset, key=lambda place: place.base_offset)
        return self.places[found] if found < len(self.places) else None


class PartitionFiles:
    """
    The files of a partition. Safe to share between threads.

    Args:
        fs: the file system.
        log_dir: the log dir, with links resolved.
        topic_partition: the partition.
        clock: used for waiting.
        batch_limit: returns the most bytes that one batch may unpack to; None: `MAX_BATCH_BYTES`.
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
        """The most bytes that one batch may unpack to, by the current settings."""
        return MAX_BATCH_BYTES if self._batch_limit is None else self._batch_limit()

    def close(self) -> None:
        """Close the open file; a second call does nothing. Running iterators go on."""
        with self._guard:
            self._is_closed = True
            if self._generations is not None:
                self._generations.close()
                self._generations = None
            self._listing = None

    def listing(self) -> PartitionListing:
        """
        Return the current files.

        Raises:
            LogDirOfflineError: the directory is gone, or the disk failed.
        """
        with self._guard:
            if self._listing is None or not self._is_current(self._listing):
                self._listing, _ = self._look_at_rest(lambda _: None)
            return self._listing

    def is_current(self, listing: PartitionListing) -> bool:
        """Tell whether nothing has changed since."""
        with self._guard:
            return self._is_current(listing)

    def generation(self) -> int:
        """Return the generation number, which is raised before segments are swapped or deleted, or a log is cut."""
        with self._guard:
            return 0 if is_remote(self.log_dir) else self._generation()

    def is_unchanged(self, listing: PartitionListing) -> bool:
        """Do as `is_current`, but list again if the directory's time is too recent to prove anything."""
        with self._guard:
            if self._is_current(listing):
                return True
            now, _ = self._look_at_rest(lambda _: None)
            self._listing = now
            return (now.places, now.generation, now.mtime_ns) == (listing.places, listing.generation, listing.mtime_ns)

    def is_of_log(self, listing: PartitionListing) -> bool:
        """Tell whether the log is still the one of a listing; its files may be others."""
        with self._guard:
            if self._is_current(listing):
                return True
            about = self._stat()
            return listing.is_of((about.st_dev, about.st_ino), topic_id_in(self.fs, self.directory))

    def open(self, listing: PartitionListing, place: SegmentFiles) -> OpenSegment:
        """Open a segment of a listing. Raises FileNotFoundError: it has gone, or was renamed, or its directory was."""
        segment = OpenSegment(self.fs, place)
        try:
            about = self.fs.stat(self.directory)
            if (about.st_dev, about.st_ino) != listing.inode:
                raise FileNotFoundError(f"{self.directory}: it is another directory now")
        except BaseException:
            segment.close()
            raise
        return segment

    def end_of_epoch(self, epoch: int) -> int | None:
        """Return where the leader epoch after this one begins; None for the latest."""
        entries = read_leader_epochs(self.fs, self.directory / LEADER_EPOCHS)
        return next((entry.start_offset for entry in entries if entry.epoch > epoch), None)

    def epochs_state(self) -> tuple[int, int] | None:
        """Return inode and time of the leader epochs' file, a new one with each epoch; None: none, or in a bucket."""
        if is_remote(self.log_dir):
            return None
        try:
            about = self.fs.stat(self.directory / LEADER_EPOCHS)
        except FileNotFoundError:
            return None
        return about.st_ino, about.st_mtime_ns

    def open_all(self, opened: Callable[[PartitionListing], _Result]) -> tuple[PartitionListing, _Result]:
        """
        List the directory and open files while no name changes.

        Args:
            opened: opens the files of a listing; called again with a new listing if it raises FileNotFoundError.
        """
        with self._guard:
            return self._look_at_rest(opened)

    def _is_current(self, listing: PartitionListing) -> bool:
        if not listing.proves_unchanged:
            return False
        if self._generation() != listing.generation:
            return False
        about = self._stat()
        # A copy that was put in its place has its time.
        return about.st_mtime_ns == listing.mtime_ns and (about.st_dev, about.st_ino) == listing.inode

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

    # ---- looking ---------------------------------------------------------------------------------------------------

    def _look_at_rest(self, opened: Callable[[PartitionListing], _Result]) -> tuple[PartitionListing, _Result]:
        """List under the lock; without a lock, while nothing changes."""
        # On other file systems no process swaps while logs are read, and the lock needs Linux's kind of locks.
        if not is_local_disk(self.fs, self.log_dir):
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
                check_done=partial(self._refuse_whole_lock, self.fs),
            ):
                listing, _ = self._look()
                return listing, opened(listing)
        except (_NoLock, LogChangedError, LogDirLockedError, LogDirOfflineError, FileNotFoundError):
            return self._look_unlocked(opened)

    def _refuse_whole_lock(self, fs: FileSystem) -> None:
        """Raise _NoLock if the whole lock file is locked: such a lock is held for days, so waiting is useless."""
        from cleaner.storage.lock.byte_ranges import READ, holder_of

        with fs.open(self.log_dir / LOCK) as file:
            if holder_of(file, READ, PRESENCE_BYTE, 1) is not None:
                raise _NoLock(f"{file.path}: locked as a whole")

    def _look_unlocked(self, opened: Callable[[PartitionListing], _Result]) -> tuple[PartitionListing, _Result]:
        """
        List without a lock.

        From a swap's first rename to its last there is a `.swap` file. A swap that does not end within the patience was
        interrupted.
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
        # Read before the names: a change during the listing is then noticed.
        about = self._stat()
        mtime_ns, inode = about.st_mtime_ns, (about.st_dev, about.st_ino)
        if self._generations is not None and self._listing is not None and inode != self._listing.inode:
            # The whole log dir may be another one, with numbers of its own.
            self._generations.close()
            self._generations = None
        generation, topic_id = self._generation(), topic_id_in(self.fs, self.directory)
        is_settled = self.clock.now_ms() * 1_000_000 - mtime_ns > _TICK_NS
        # A directory of a bucket has no time of its own.
        proves_unchanged = is_settled and not is_remote(self.directory)
        found: FoundFiles = find_files(self.fs, self.directory)
        listing = PartitionListing(
            found.places, found.snapshots, generation, mtime_ns, proves_unchanged, topic_id, inode
        )
        return listing, found.has_swap
