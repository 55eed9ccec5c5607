"""
Checks one partition: every file in its directory.

It locks and writes nothing, so a writer may be active: if a file is gone, the directory is listed again. If a segment
was replaced while it was read, the caller begins again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cleaner.errors import CorruptIndexError, LogChangedError, LogDirOfflineError
from cleaner.format.key_digests import NO_OFFSET
from cleaner.read.summary import MOST_LOOKS
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loaded_log import list_segments
from cleaner.storage.log_dir import OffsetKind
from cleaner.storage.segment.indexes import Aborts, abort_rows, read_txn_index
from cleaner.storage.segment.segment import Segment
from cleaner.verification.check.findings import Finding, FindingKind
from cleaner.verification.check.log_file import CheckLaneMemory
from cleaner.verification.check.segment import KeyWatch, SegmentCheck, SegmentContext
from cleaner.verification.check.small_files import check_small_files
from cleaner.verification.check.transactions import TransactionFollower
from cleaner.verification.check.twice import DEFAULT_MEMORY_BYTES, MAX_TWICE, KeySieve, TwiceFinder


@dataclass(frozen=True)
class Surveyed:
    """
    What the log dir records about a partition.

    Attributes:
        name: from its directory's name.
        directory: of the partition.
        log_start_offset, recovery_point: its lines in the checkpoints, 0 without one.
        cleaner_offset: the offset up to which it is clean; None without a line.
        is_clean: the log dir has its clean-shutdown marker.
        is_in_use: a process that may write to the log holds the log dir's lock.
    """

    name: str
    directory: Path
    log_start_offset: int = 0
    recovery_point: int = 0
    cleaner_offset: int | None = None
    is_clean: bool = True
    is_in_use: bool = False


@dataclass(frozen=True)
class CheckContext:
    """
    The context of a check, the same for every partition.

    Attributes:
        fs: access to the disk.
        lanes: memory.
        progress: called with a phase, bytes done and total bytes.
        check_done: called before each chunk; raises CleaningAborted to stop.
        clean_section: also search for keys that occur twice below the checkpoint.
        memory_bytes: memory for that search.
    """

    fs: FileSystem
    lanes: Sequence[CheckLaneMemory]
    progress: Callable[[str, int, int], None]
    check_done: Callable[[], None]
    clean_section: bool = False
    memory_bytes: int = DEFAULT_MEMORY_BYTES


@dataclass(frozen=True)
class CheckedPartition:
    """
    A partition that was checked.

    Attributes:
        partition: from its directory's name.
        segments, bytes: of its `.log` files.
        log_end_offset: after the last good batch.
        in_use: another process could write to it during the check, so the result describes a past state.
        findings: file by file.
    """

    partition: str
    directory: Path
    segments: int
    bytes: int
    log_end_offset: int
    in_use: bool
    findings: tuple[Finding, ...]


class PartitionCheck:
    """Checks one partition."""

    def __init__(self, context: CheckContext, surveyed: Surveyed) -> None:
        self._context = context
        self._surveyed = surveyed
        self._findings: list[Finding] = []
        self._bytes = 0
        self._segments = 0
        self._next_offset = 0
        self._end_is_known = True

    def run(self) -> CheckedPartition:
        """
        Check the partition.

        Raises:
            CleaningAborted: from `check_done`.
            FileNotFoundError, LogChangedError: files were exchanged, so that what was read is not of one log.
        """
        here = self._surveyed
        transactions = TransactionFollower(self._context.fs, here.directory, here.log_start_offset)
        sieve = self._new_sieve(0)
        self._walk(transactions, sieve)
        # What lies beyond the end of a log that cannot be read is not known; nothing of it is left over.
        end = self._next_offset if self._end_is_known else NO_OFFSET
        self._findings += check_small_files(self._context.fs, here.directory, end, here.is_in_use)
        if self._end_is_known:
            self._check_checkpoint()
        size, count, end = self._bytes, self._segments, self._next_offset
        if sieve is not None:
            self._check_keys(sieve)
        return CheckedPartition(here.name, here.directory, count, size, end, here.is_in_use, tuple(self._findings))

    def _check_checkpoint(self) -> None:
        here, end = self._surveyed, self._next_offset
        if here.cleaner_offset is not None and here.cleaner_offset > end and not here.is_in_use:
            path = here.directory.parent / OffsetKind.CLEANER.value
            reason = f"{here.name} ends at {end}, and is clean up to {here.cleaner_offset}: the next round begins anew"
            self._findings.append(
                Finding(FindingKind.CHECKPOINT, path, reason, offset=here.cleaner_offset, is_damage=False)
            )

    # ---- segments --------------------------------------------------------------------------------------------------

    def _walk(
        self, transactions: TransactionFollower | None, keys: KeyWatch | None, *, only_keys: bool = False
    ) -> None:
        """Check the segments one after the other; if one vanishes, list the directory again."""
        self._bytes = self._segments = 0
        read_end = misses = 0
        while misses < MOST_LOOKS:
            try:
                segments = self._list(only_keys)
                number = bisect_left(segments, read_end, key=lambda segment: segment.base_offset)
                if read_end and number and (number == len(segments) or segments[number].base_offset != read_end):
                    raise LogChangedError(f"{segments[number - 1].log_path}: what came behind it is in it now")
                total = sum(segment.size for segment in segments)
                for at in range(number, len(segments)):
                    self._context.progress(f"{self._surveyed.name} check", self._bytes, total)
                    self._check(segments[at], self._segment_context(segments, at), transactions, keys, only_keys)
                    read_end = segments[at + 1].base_offset if at + 1 < len(segments) else NO_OFFSET
                    misses = 0
            except FileNotFoundError as error:
                gone, misses = error, misses + 1
                continue
            self._context.progress(f"{self._surveyed.name} check", total, total)
            return
        raise gone

    def _list(self, only_keys: bool = False) -> list[Segment]:
        segments = list_segments(self._context.fs, self._surveyed.directory)
        clean_end = (self._surveyed.cleaner_offset or 0) if only_keys else NO_OFFSET
        return [segment for segment in segments if segment.base_offset < clean_end]

    def _segment_context(self, segments: Sequence[Segment], number: int) -> SegmentContext:
        here = self._surveyed
        holder = max((s.base_offset for s in segments if s.base_offset <= here.recovery_point), default=0)
        is_active = number == len(segments) - 1
        return SegmentContext(
            end_offset=NO_OFFSET if is_active else segments[number + 1].base_offset,
            is_active=is_active,
            is_in_use=here.is_in_use,
            is_remade=not here.is_clean and not here.is_in_use and segments[number].base_offset >= holder,
        )

    def _check(
        self,
        segment: Segment,
        segment_context: SegmentContext,
        transactions: TransactionFollower | None,
        keys: KeyWatch | None,
        only_keys: bool,
    ) -> None:
        """Check a segment. Raises FileNotFoundError: it has gone; LogChangedError: what was read is of two files."""
        in_section = segment.base_offset < (self._surveyed.cleaner_offset or 0)
        check = SegmentCheck(
            self._context.fs,
            segment,
            segment_context,
            self._context.lanes,
            transactions=transactions,
            keys=keys if in_section else None,
            check_done=self._context.check_done,
        )
        try:
            check.run()
        except LogDirOfflineError as error:
            self._findings.append(Finding(FindingKind.UNREADABLE, error.path, error.reason))
            self._end_is_known = False
        else:
            if check.findings and self._was_replaced(segment):
                # Its keys and transactions are noted; to note them again would be wrong.
                raise LogChangedError(f"{segment.log_path}: another file has taken its place")
            self._findings += [] if only_keys else check.findings
        self._bytes += segment.size
        self._segments += 1
        self._next_offset = max(self._next_offset, check.next_offset)

    def _was_replaced(self, segment: Segment) -> bool:
        """Tell whether a cleaner has replaced the files that were read."""
        try:
            return self._context.fs.stat(segment.log_path).st_ino != segment.inode
        except FileNotFoundError:
            return True

    # ---- keys ------------------------------------------------------------------------------------------------------

    def _new_sieve(self, low: int) -> KeySieve | None:
        here = self._surveyed
        if not self._context.clean_section or here.cleaner_offset is None:
            return None
        memory = self._context.memory_bytes
        return KeySieve(here.log_start_offset, here.cleaner_offset, self._all_aborts(), low, memory)

    def _check_keys(self, sieve: KeySieve) -> None:
        """Continue after the first pass, which covered the first range of digests."""
        here, found = self._surveyed, [sieve.twice()]
        limit = sieve.limit
        while limit < 1 << 64:
            following = self._new_sieve(limit)
            if following is None:
                break
            self._walk(None, following, only_keys=True)
            found.append(following.twice())
            limit = following.limit
        twice = np.concatenate(found)
        if len(twice) > MAX_TWICE:
            reason = f"{len(twice)} keys occur twice below offset {here.cleaner_offset}; {MAX_TWICE} of them are listed"
            self._findings.append(Finding(FindingKind.KEY_TWICE, here.directory, reason))
        if len(twice):
            args = (here.log_start_offset, here.cleaner_offset or 0, self._all_aborts(), np.sort(twice[:MAX_TWICE]))
            self._walk(None, TwiceFinder(*args, self._findings.append), only_keys=True)

    def _all_aborts(self) -> Aborts:
        def pass_over(_error: CorruptIndexError) -> None:
            """The check of the segment reported it."""

        found = [abort_rows(())]
        for segment in self._list(only_keys=True):
            try:
                found.append(
                    read_txn_index(self._context.fs, segment.txn_index_path, pass_over, log_bytes=segment.size)
                )
            except FileNotFoundError:
                continue
        return np.concatenate(found)
