"""
One partition that is served: how far it reaches, its batches, times and epochs.

Everything comes from the directory, as for any reader (`read/`): no lock is held, and a writer or a cleaner may be at
work. Calls may block on the disk; they are made in threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cleaner.base.clock import Clock
from cleaner.base.model import TopicPartition
from cleaner.base.remote_path import is_remote
from cleaner.errors import LogChangedError, LogDirOfflineError
from cleaner.read.aborted import AbortedTransactions
from cleaner.read.directory_view import DirectoryView
from cleaner.read.extent import Extent, find_extent
from cleaner.read.partition_files import PartitionFiles, PartitionListing
from cleaner.read.time_search import find_record_by_time, largest_timestamp
from cleaner.storage.files.leader_epochs import EpochEnd, end_of_epoch, read_leader_epochs
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import LEADER_EPOCHS, LOG
from cleaner.verification.proof.side import LogSide

_FRESH_NS = 100_000_000
_MAX_TRIES = 1000


@dataclass(frozen=True)
class Reach:
    """
    How far a partition can be read.

    Attributes:
        start: first offset.
        high_watermark: behind the last one.
        last_stable: the same for committed records; None: all are asked for.
        generation: the partition's number before that was found; with another one the log may have been cut since.
    """

    start: int
    high_watermark: int
    last_stable: int | None = None
    generation: int = 0

    @property
    def end(self) -> int:
        """The offset behind the last one that can be read."""
        return self.high_watermark if self.last_stable is None else self.last_stable


@dataclass(frozen=True)
class FileRecords:
    """
    Records in a segment that is open until they are closed.

    Swaps and appends leave them as they are. A writer that cuts its log may put others in their place, undecided ones;
    it raises the partition's generation number before the cut, and begins a leader epoch before it appends again.

    Attributes:
        extent: where they are.
        files: of the partition.
        generation: the partition's number when they were chosen.
        epochs: the state of the leader epochs' file before.
        must_be_copied: before they are sent, because a writer is at work. `sendfile` passes on the system's pages of
            the file: what a client has not taken yet would change with them.
    """

    extent: Extent
    files: PartitionFiles
    generation: int
    epochs: tuple[int, int] | None
    must_be_copied: bool

    @property
    def size(self) -> int:
        """Bytes of them."""
        return self.extent.size

    def read(self, position: int, size: int) -> bytes:
        """Return some of the bytes; raises LogDirOfflineError: the disk failed."""
        return self.extent.segment.file.read(size, self.extent.position + position)

    def read_end(self, size: int) -> bytes:
        """
        Read the last bytes, all before them having been read.

        Raises:
            LogChangedError: the log was cut since they were chosen, and some of them may be others.
            LogDirOfflineError: the disk failed.
        """
        data = self.read(self.size - size, size)
        if self.files.generation() != self.generation and self.files.epochs_state() != self.epochs:
            raise LogChangedError(f"{self.files.directory}: its log was cut while it was read")
        return data

    def close(self) -> None:
        """Close the segment."""
        self.extent.close()


class Partition:
    """
    Args:
        log_dir: links resolved.
        clock: for how long an answer is a fresh one.
        files_in: the log dir in which its files are.
    """

    def __init__(
        self, fs: FileSystem, log_dir: Path, topic_partition: TopicPartition, clock: Clock, files_in: Path
    ) -> None:
        self.topic_partition = topic_partition
        self.log_dir = log_dir
        self.is_remote = is_remote(files_in)
        self._fs = fs
        self._files = PartitionFiles(fs, files_in, topic_partition, clock)
        self.directory = self._files.directory
        self._clock = clock
        self._view = DirectoryView(self._files)
        self._aborted: tuple[PartitionListing, AbortedTransactions] | None = None
        self._reaches: dict[bool, tuple[int, Reach]] = {}
        self._first: PartitionListing | None = None  # the first that was read of

    def is_replaced(self) -> bool:
        """Tell whether another topic has its name and place since it was first read."""
        try:
            return self._first is not None and not self._files.listing().is_of_same_log(self._first)
        except LogDirOfflineError:
            return not self.is_remote  # a bucket that does not answer now has it all the same

    def _require_same(self, listing: PartitionListing) -> None:
        self._first = self._first or listing
        if not listing.is_of_same_log(self._first):
            raise LogChangedError(f"{self.directory}: its topic was deleted, and made again")

    def reach(self, *, committed: bool) -> Reach:
        """
        Return how far it reaches now, or did a moment ago.

        Raises:
            CleanerError: the directory is gone, or damaged.
        """
        now = self._clock.monotonic_ns()
        found_ns, found = self._reaches.get(committed, (0, None))
        if found is None or now - found_ns >= _FRESH_NS:
            view = self._view
            self._require_same(self._files.listing())
            generation = self._files.generation()
            stable = view.last_stable_offset if committed else None
            start, high_watermark = view.log_start_offset, view.high_watermark
            if stable is not None:
                stable = max(start, stable)  # retention may have raised the log start since
            found = Reach(start, max(start, high_watermark), stable, generation)
            self._reaches[committed] = (now, found)
        return found

    def has(self, offset: int, reach: Reach) -> bool:
        """
        Tell whether an offset is one of the log's, or the next one.

        When a writer was killed, readers know the checkpoint's high watermark, below what some of them have read.
        """
        return reach.start <= offset and (offset <= reach.high_watermark or offset <= self._view.log_end_offset)

    def extent(
        self, offset: int, reach: Reach, max_bytes: int, *, whole_batch: bool
    ) -> tuple[FileRecords | None, Sequence[tuple[int, int]]]:
        """
        Return the records from an offset on, which the caller closes, and producers and first offsets of the aborted
        transactions in them, if committed ones are asked for.

        Raises:
            CleanerError: damage; the directory is gone.
        """
        end, generation, committed = reach.end, reach.generation, reach.last_stable is not None
        for _ in range(_MAX_TRIES):
            epochs = self._files.epochs_state()
            found = find_extent(self._files, offset, end, max_bytes, whole_batch=whole_batch)
            if found is None:
                return None, ()
            try:
                self._require_same(found.listing)
                aborted = self._aborted_in(found, offset) if committed else ()
                # A swap drops from the transaction index what it drops from the log: both must be of one listing. After
                # a cut other records may be below the end, and undecided.
                if self._files.generation() != generation:
                    self._reaches.clear()
                    now = self.reach(committed=committed)
                    end, generation = min(end, now.end), now.generation
                elif not committed or self._files.is_unchanged(found.listing):
                    is_written = self._view.is_beside_writer
                    return FileRecords(found, self._files, generation, epochs, is_written), aborted
            except BaseException:
                found.close()
                raise
            found.close()
        raise LogChangedError(f"{self.directory}: its segments change faster than they can be read")

    def _aborted_in(self, extent: Extent, offset: int) -> list[tuple[int, int]]:
        listing = extent.listing
        if self._aborted is None or self._aborted[0] is not listing:
            self._aborted = (listing, AbortedTransactions(self._fs, listing.places, self._view.unlisted_aborts()))
        number = listing.holder_of(extent.segment.base_offset)
        rows = self._aborted[1].within(offset, extent.upper_offset, number)
        return list(dict.fromkeys((int(row[0]), int(row[1])) for row in rows))

    def offset_at(self, timestamp_ms: int, *, committed: bool) -> tuple[int, int]:
        """Return offset and time of the first record that is not older, -1 for none; special times are Kafka's."""
        match timestamp_ms:
            case -1:
                return self.reach(committed=committed).end, -1
            case -2 | -4:
                return self.reach(committed=False).start, -1
            case -3:
                timestamp_ms, committed = largest_timestamp(self._files), False
        if timestamp_ms < 0:
            return -1, -1  # no record has a time, or it is a special time of tiered storage, which is not here
        reach, listing = self.reach(committed=committed), self._files.listing()
        return find_record_by_time(self._files, listing, reach.start, reach.end, timestamp_ms) or (-1, -1)

    def latest_epoch(self) -> int:
        """Return the last leader epoch; -1 if none is known."""
        entries = read_leader_epochs(self._fs, self.directory / LEADER_EPOCHS)
        return entries[-1].epoch if entries else -1

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Return where a leader epoch ended."""
        entries = read_leader_epochs(self._fs, self.directory / LEADER_EPOCHS)
        return end_of_epoch(entries, epoch, self._view.log_end_offset)

    def side(self) -> LogSide:
        """Return its files as they are between two swaps; raises CleanerError."""
        start = self.reach(committed=False).start
        return self._files.open_all(lambda _: LogSide(self._fs, self.directory, start))[1]

    def log_bytes(self) -> int:
        """Return the bytes of its `.log` files; raises CleanerError."""
        sizes = self._files.open_all(lambda found: [self._fs.stat(place.path(LOG)).st_size for place in found.places])
        return sum(sizes[1])

    def close(self) -> None:
        """Close its files; answers under way keep theirs."""
        self._view.close()
        self._files.close()
