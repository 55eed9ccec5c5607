"""
A task recopies one group into files whose names are unique to the attempt, and forces them to disk.

It touches no live file. A task that runs twice, late, or after its job ended leaves files that every loader removes.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cleaner.cleaning.passes.lane_memory import LaneMemory, borrowed_lanes
from cleaner.cleaning.recopy.batch_retention import ActiveProducers
from cleaner.cleaning.recopy.cleaned_segment import CleanedSegment
from cleaner.cleaning.recopy.group import GroupRecopier, MappedBatches
from cleaner.cleaning.recopy.retained import CopyCounts
from cleaner.cleaning.recopy.survivors import BitmapSurvivors
from cleaner.errors import UncleanableError
from cleaner.spark.clean.damage import REPORTED, ErrorValue, to_value
from cleaner.spark.clean.plan import CopyRules, GroupPlan, JobSettings, Source
from cleaner.spark.clean.transactions import PassState
from cleaner.spark.clean.verdicts import GroupBits, read_bits
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.ownership import can_own
from cleaner.storage.load.aborted_walk import AbortedWalk
from cleaner.storage.segment.indexes import Aborts
from cleaner.storage.segment.segment import Segment

PRODUCERS_NAME = "producers.npy"


@dataclass(frozen=True)
class GroupWork:
    """
    A group and what a task needs to recopy it.

    Attributes:
        group: the group.
        bits: the verdicts on its records; None if no bit is set.
        copied, mapped: state of the second and the first pass at the group's start. `mapped` is None if the first pass
            does not read the group.
    """

    group: GroupPlan
    bits: GroupBits | None
    copied: PassState
    mapped: PassState | None


@dataclass(frozen=True)
class GroupResult:
    """
    How the recopying of a group ended.

    Attributes:
        attempt: the part of the files' names that identifies the attempt.
        size, batch_count, offset_sum: of the written segment; the driver compares them when it reads the segment back.
        counts: what was read and what was retained.
        was_cold: a source was not in the page cache.
        error: why the group cannot be recopied; then there are no files.
    """

    attempt: str
    size: int = 0
    batch_count: int = 0
    offset_sum: int = 0
    counts: CopyCounts | None = None
    was_cold: bool = False
    error: ErrorValue | None = None


def save_producers(fs: FileSystem, work_dir: Path, last_records: Aborts) -> None:
    """Save the last records of all active producers in the job's directory, for the tasks."""
    data = io.BytesIO()
    np.save(data, last_records, allow_pickle=False)
    fs.write_atomically(work_dir / PRODUCERS_NAME, data.getvalue())


def recopy_group(fs: FileSystem, settings: JobSettings, rules: CopyRules, work: GroupWork, job: str) -> GroupResult:
    """
    Recopy a group.

    Args:
        job: the job's name, the first part of the attempt's name.
    Returns:
        What was written, or why the group cannot be recopied. Raises errors of the disk.
    """
    attempt = f"{job}-{os.urandom(6).hex()}"
    try:
        with borrowed_lanes(1, settings.batch_limit_bytes, max_kept=1) as lanes:
            return _recopy(fs, settings, rules, work, attempt, lanes)
    except REPORTED as error:
        return GroupResult(attempt, error=to_value(error))


def _recopy(
    fs: FileSystem,
    settings: JobSettings,
    rules: CopyRules,
    work: GroupWork,
    attempt: str,
    lanes: Sequence[LaneMemory],
) -> GroupResult:
    group = [_open(fs, settings.directory, source) for source in work.group.sources]
    recopier = _make_recopier(fs, settings, rules, work, group, lanes)
    target = CleanedSegment(
        fs,
        settings.directory,
        work.group.base_offset,
        like=_model(fs, group[0].log_path),
        interval_bytes=rules.interval_bytes,
        max_index_bytes=rules.max_index_bytes,
        attempt=attempt,
    )
    try:
        aborts = recopier.recopy(group, work.group.end_offset, target)
        target.finish(aborts, mtime_ns=group[-1].mtime_ms * 1_000_000)
    except BaseException:
        target.discard()
        raise
    return GroupResult(
        attempt,
        target.size,
        target.batch_count,
        target.offset_sum,
        counts=recopier.counts,
        was_cold=recopier.found_cold,
    )


def _open(fs: FileSystem, directory: Path, source: Source) -> Segment:
    segment = Segment.open(fs, directory, source.base_offset)
    if Source.of(segment) != source:
        raise UncleanableError(segment.log_path, "not the file any more that the job was planned for; run it again")
    return segment


def _model(fs: FileSystem, log_path: Path) -> Path | None:
    """Return the file whose owner the new files get; None if only the driver may set the owner."""
    return log_path if can_own(fs.stat(log_path)) else None


def _make_recopier(
    fs: FileSystem,
    settings: JobSettings,
    rules: CopyRules,
    work: GroupWork,
    group: Sequence[Segment],
    lanes: Sequence[LaneMemory],
) -> GroupRecopier:
    bits = read_bits(fs, settings.work_dir, work.group, work.bits)
    mapped = None
    if work.mapped is not None:
        mapped = MappedBatches(work.mapped.begin(), rules.first_dirty_base, rules.first_dirty_position)
    producers = np.load(io.BytesIO(fs.read_bytes(settings.work_dir / PRODUCERS_NAME)), allow_pickle=False)
    throttle = settings.throttle()
    return GroupRecopier(
        rules=rules.rules,
        expiry=rules.rules.expiry(settings.latest_offset),
        make_survivors=lambda: BitmapSurvivors(
            bits, settings.first_dirty_offset, settings.latest_offset, rules.rules.removal_ms
        ),
        producers=ActiveProducers(producers),
        collect_aborted=_AbortedOfGroup(fs, settings, rules, group).collect,
        lanes=lanes,
        before_read=throttle,
        before_chunk=_pass_over,
        after_write=throttle,
        transactions=work.copied.begin(),
        mapped=mapped,
    )


class _AbortedOfGroup:
    """The aborted transactions of a group, from its own transaction indexes and later ones."""

    def __init__(self, fs: FileSystem, settings: JobSettings, rules: CopyRules, group: Sequence[Segment]) -> None:
        last = group[-1].base_offset
        behind = [base for base in rules.with_aborts if base > last]
        self._segments = [*group, *(Segment(fs, settings.directory, base, size=0, mtime_ns=0) for base in behind)]
        self._walk = AbortedWalk()
        self._log_start_offset = rules.log_start_offset

    def collect(self, from_offset: int, upper_offset: int) -> Aborts:
        return self._walk.collect(self._segments, from_offset, upper_offset, self._log_start_offset)


def _pass_over(_bytes: int) -> None:
    """Ignore progress: a task does not report each chunk."""
