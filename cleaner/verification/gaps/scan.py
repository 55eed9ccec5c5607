"""
Reads one partition and accounts for its offsets.

Nothing is locked or written. If a file vanishes or a segment becomes shorter, a process is at work: the caller reads
again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cleaner.errors import CorruptCheckpointError, CorruptIndexError, NotCleanlyShutDownError
from cleaner.format.key_digests import NO_OFFSET
from cleaner.format.parallel_reader import WindowBuffer
from cleaner.read.open_segment import OpenSegment, SegmentFiles
from cleaner.read.partition_files import find_files
from cleaner.storage.files.leader_epochs import read_leader_epochs
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment import names
from cleaner.storage.segment.indexes import ZEROS, Aborts, abort_rows, read_txn_index
from cleaner.verification.check.batches import CheckedChunk
from cleaner.verification.check.findings import Finding, FindingKind
from cleaner.verification.check.log_file import CheckLaneMemory, LogFileReader
from cleaner.verification.check.order import OffsetOrder
from cleaner.verification.gaps.account import CleanedRange, GapAccount
from cleaner.verification.gaps.batches import GapChecker
from cleaner.verification.gaps.reasons import BAD_REASONS, GapReason
from cleaner.verification.gaps.tally import Tally

MAX_FINDINGS = 1000
"""The most findings that are kept of a partition."""


@dataclass(frozen=True)
class GapLane:
    """Memory of a lane, reused for every file."""

    buffer: WindowBuffer
    checker: GapChecker

    def memory(self) -> CheckLaneMemory:
        """Return it as `LogFileReader` takes it."""
        return CheckLaneMemory(self.buffer, self.checker)


@dataclass(frozen=True)
class LogFacts:
    """
    What is known about a partition from outside of its directory.

    Attributes:
        name: of its directory.
        directory: of the partition.
        log_start_offset: its line in `log-start-offset-checkpoint`; None without one.
        cleaner_offset: its line in `cleaner-offset-checkpoint`; None without one.
        reached: offsets that its log had reached, by the other checkpoints; 0 without any.
        is_clean: the log dir was closed in order.
        is_bare: the directory is not in a log dir: nothing says what was cleaned.
        is_tiered: the log dir has tiered storage, which may hold what is below the first segment.
        is_never_compacted: by a trusted policy, and without a line in that checkpoint.
        is_in_use: a process that may write to the log holds the log dir's lock.
    """

    name: str
    directory: Path
    log_start_offset: int | None = None
    cleaner_offset: int | None = None
    reached: int = 0
    is_clean: bool = True
    is_bare: bool = False
    is_tiered: bool = False
    is_never_compacted: bool = False
    is_in_use: bool = False


@dataclass(frozen=True)
class ScannedGaps:
    """
    The account of a partition.

    Attributes:
        log_start_offset, log_end_offset: of the batches; the end is that of the last good one.
        end_offset: the end of the account: higher than the log's if other files say that the log had come farther.
        begins_at: the log's start by `log-start-offset-checkpoint` and `leader-epoch-checkpoint`; None: neither has it.
        traces_end: the end of the last batch above the checkpoint that only cleaning can have left; 0 without one.
        segments, bytes: of the `.log` files read.
        records: offsets with a record for readers.
        tallies: the other offsets below `end_offset`, by reason.
        findings: damage, and what is no more than a torn end; at most `MAX_FINDINGS`.
        total_findings: how many there are.
    """

    log_start_offset: int
    log_end_offset: int
    end_offset: int
    begins_at: int | None
    traces_end: int
    segments: int
    bytes: int
    records: int
    tallies: dict[GapReason, Tally]
    findings: tuple[Finding, ...]
    total_findings: int

    @property
    def is_sound(self) -> bool:
        """Whether every missing offset is explained, and nothing is damaged."""
        return not self.findings and BAD_REASONS.isdisjoint(self.tallies)


def scan_gaps(
    fs: FileSystem,
    facts: LogFacts,
    lanes: Sequence[GapLane],
    progress: Callable[[str, int, int], None],
    check_done: Callable[[], None],
) -> ScannedGaps:
    """
    Account for the offsets of one partition.

    Args:
        fs: access to the disk.
        facts: the partition, and what is known about it.
        lanes: memory; as many as `lanes_for` returns.
        progress: called with a phase, bytes done and total bytes.
        check_done: called before each chunk; raises CleaningAborted to stop.
    Raises:
        NotCleanlyShutDownError: there is no segment.
        FileNotFoundError, LogChangedError: another process has changed the log meanwhile.
        LogDirOfflineError: the disk refuses.
    """
    return _Scan(fs, facts, lanes, progress, check_done).run()


class _Scan:
    """One reading of one partition."""

    def __init__(
        self,
        fs: FileSystem,
        facts: LogFacts,
        lanes: Sequence[GapLane],
        progress: Callable[[str, int, int], None],
        check_done: Callable[[], None],
    ) -> None:
        self._fs = fs
        self._facts = facts
        self._lanes = lanes
        self._progress = progress
        self._check_done = check_done
        self._findings: list[Finding] = []
        self._total_findings = 0
        self._bytes = 0
        self._begins_at: int | None = None

    def run(self) -> ScannedGaps:
        facts = self._facts
        found = find_files(self._fs, facts.directory)
        if not found.places:
            raise NotCleanlyShutDownError(f"{facts.directory}: no segments; it must be recovered first")
        bases = [place.base_offset for place in found.places]
        start = max(bases[0], facts.log_start_offset or 0)
        self._begins_at = self._recorded_start()
        account = GapAccount(
            start, self._cleaned(bases), self._aborts(found.places), is_never_compacted=facts.is_never_compacted
        )
        self._add_below_start(account, bases[0], start)
        for lane in self._lanes:
            lane.checker.start_offset = start
        places = [
            place
            for place, following in zip(found.places, [*bases[1:], NO_OFFSET], strict=True)
            if following > start  # no reader is given what lies below
        ]
        total = sum(self._fs.stat(place.path(names.LOG)).st_size for place in places)
        for number, place in enumerate(places):
            self._progress(f"{facts.name} gaps", self._bytes, total)
            following = places[number + 1].base_offset if number + 1 < len(places) else None
            account.begin_segment(place.base_offset, is_closed=following is not None)
            self._read(place, following, account)
        log_end = account.next_offset
        # A running process writes its checkpoints at moments of its own.
        reached = log_end if facts.is_in_use else max(facts.reached, *found.snapshots, 0)
        account.end_of_log(reached)
        return ScannedGaps(
            log_start_offset=start,
            log_end_offset=log_end,
            end_offset=account.next_offset,
            begins_at=self._begins_at,
            traces_end=account.traces_end,
            segments=len(places),
            bytes=self._bytes,
            records=account.records,
            tallies=account.tallies(),
            findings=tuple(self._findings),
            total_findings=self._total_findings,
        )

    # ---- what is known besides the batches -------------------------------------------------------------------------

    def _cleaned(self, bases: Sequence[int]) -> CleanedRange:
        end = self._facts.cleaner_offset or 0
        return CleanedRange(end, next((base for base in bases if base >= end), end))

    def _recorded_start(self) -> int | None:
        """Return the log's start by the files that follow it: retention raises both."""
        starts = [] if self._facts.log_start_offset is None else [self._facts.log_start_offset]
        path = self._facts.directory / names.LEADER_EPOCHS
        try:
            starts += [entry.start_offset for entry in read_leader_epochs(self._fs, path)[:1]]
        except CorruptCheckpointError as error:
            self._note(Finding(FindingKind.LEADER_EPOCHS, path, error.reason, error.position))
        return max(starts, default=None)

    def _add_below_start(self, account: GapAccount, first_base: int, start: int) -> None:
        begins_at, facts = self._begins_at, self._facts
        if begins_at is None or begins_at >= first_base:
            account.add_known(GapReason.RETENTION, 0, start)
            return
        is_sure = facts.is_clean and not facts.is_bare and not facts.is_tiered and not facts.is_in_use
        account.add_known(GapReason.RETENTION, 0, begins_at)
        account.add_known(GapReason.LOST if is_sure else GapReason.UNEXPLAINED, begins_at, start)

    def _aborts(self, places: Sequence[SegmentFiles]) -> Aborts:
        found = [abort_rows(())]
        for place in places:
            path = place.path(names.TXN_INDEX)

            def note(error: CorruptIndexError, path: Path = path) -> None:
                self._note(Finding(FindingKind.TRANSACTION_INDEX, path, error.reason, error.position))

            log_bytes = self._fs.stat(place.path(names.LOG)).st_size
            try:
                found.append(read_txn_index(self._fs, path, note, log_bytes=log_bytes))
            except FileNotFoundError:
                continue  # a segment without aborted transactions has none
        return np.concatenate(found)

    # ---- segments --------------------------------------------------------------------------------------------------

    def _read(self, place: SegmentFiles, following: int | None, account: GapAccount) -> None:
        path = place.path(names.LOG)
        noted: list[Finding] = []
        end_offset = NO_OFFSET if following is None else following
        order = OffsetOrder(path, place.base_offset, end_offset, noted.append)
        good_end = 0

        def take(checked: CheckedChunk) -> None:
            nonlocal good_end
            order.add(checked)
            rows, good = checked.chunk.batches, checked.good
            whole = np.flatnonzero(good)
            if len(whole):
                good_end = int(rows["position"][whole[-1]] + rows["size"][whole[-1]])
            wanted = ~good | (rows["last_offset"] >= self._lanes[0].checker.start_offset)
            if not wanted.all():  # rows are wide, and their copies would take most of the time
                rows, good = rows[wanted], good[wanted]
            account.add(rows, good)

        with OpenSegment(self._fs, place) as segment:
            size = segment.file.size()
            reader = LogFileReader(
                segment.file,
                size,
                [lane.memory() for lane in self._lanes],
                base_offset=place.base_offset,
                digest_from=NO_OFFSET,
                on_chunk=take,
                on_gap=lambda _start, _end: account.note_damage(),
                check_done=self._check_done,
            )
            reader.run()
        self._bytes += size
        damage = sorted([*reader.findings, *noted], key=lambda finding: finding.position or 0)
        is_end = following is None and (self._facts.is_in_use or not self._facts.is_clean)
        for finding in damage:
            if is_end and (finding.position or 0) >= good_end:
                if not self._facts.is_in_use:
                    reason = f"torn: {finding.reason}; the next start cuts it off"
                    torn = Finding(FindingKind.TORN_END, path, reason, finding.position, is_damage=False)
                    self._note(torn)
                break
            if following is None and finding.reason == ZEROS:
                account.forget_damage()
            self._note(finding)

    def _note(self, finding: Finding) -> None:
        self._total_findings += 1
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(finding)
