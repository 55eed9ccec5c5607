"""
The first pass of a bulk round: tasks digest the keys of all ranges, and the driver evaluates their reports.

Usually that is one job. It runs again if a range began with a wrong state of transactions, if a segment was cut where
its index is wrong, or if a key has more records that only ask than one reduction can answer. Each of these happens only
in unusual logs, and each time the next job has the correction.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace

from cleaner.base.json_values import from_json, parse_json
from cleaner.errors import SparkJobError
from cleaner.policy.cleanable import Cleanable
from cleaner.spark.clean.damage import ErrorValue, from_value
from cleaner.spark.clean.digest_task import RangeDigester, RangeReport, RangeStart, report_path
from cleaner.spark.clean.plan import JobSettings, Range, plan_ranges
from cleaner.spark.clean.spark_jobs import DigestResult, DigestWork
from cleaner.spark.clean.transactions import PassState, assume_states, follow
from cleaner.spark.clean.verdicts import GroupBits
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.segment.indexes import Aborts, abort_rows
from cleaner.storage.segment.segment import Segment

_MIN_RANGE_BYTES = 64 << 20
_MAX_RANGES = 20_000

_OUT_OF_ORDER = {"kind": "CorruptBatchError", "path": "", "reason": "its offset is not above the one before"}


@dataclass(frozen=True)
class FirstPass:
    """
    The result of the first pass.

    Attributes:
        ranges, reports: the ranges, and a report for each.
        bits: verdicts of each group that has any, by its number.
        copied, mapped: state of the second and the first pass at the start of each group; `mapped` is None if the first
            pass does not read the group.
        damaged: number of the first group that cannot be recopied; usually None.
        damage: the error in that group.
    """

    ranges: Sequence[Range]
    reports: Sequence[RangeReport]
    bits: dict[int, GroupBits]
    copied: Sequence[PassState]
    mapped: Sequence[PassState | None]
    damaged: int | None = None
    damage: ErrorValue | None = None

    @property
    def bytes_read(self) -> int:
        """Bytes of all ranges."""
        return sum(each.bytes for each in self.ranges)

    @property
    def messages(self) -> int:
        """Records of the dirty section."""
        return sum(report.messages for report in self.reports)

    @property
    def keyless(self) -> int:
        """Records without a key in the dirty section."""
        return sum(report.keyless for report in self.reports)


class FirstPassRunner:
    """
    Runs the first pass of one round.

    Args:
        fs: access to the disk.
        log, cleanable, groups: what to clean.
        settings: of the job.
        run: runs a Spark job.
        range_bytes: the size of a range; None: chosen by the log's size.
        unread_indexes: see `plan_ranges`.
    """

    def __init__(
        self,
        fs: FileSystem,
        log: LoadedLog,
        cleanable: Cleanable,
        groups: Sequence[Sequence[Segment]],
        settings: JobSettings,
        run: Callable[[DigestWork], DigestResult],
        range_bytes: int | None = None,
        unread_indexes: Set[int] = frozenset(),
    ) -> None:
        self._fs = fs
        self._unread_indexes = unread_indexes
        self._log = log
        self._cleanable = cleanable
        self._groups = groups
        self._settings = settings
        self._run = run
        total_bytes = sum(segment.size for group in groups for segment in group)
        self._range_bytes = range_bytes or max(_MIN_RANGE_BYTES, total_bytes // _MAX_RANGES)
        self._unsplit: frozenset[int] = frozenset()

    def run(self) -> FirstPass:
        """
        Run as many jobs as needed.

        Raises:
            CorruptLogError: the first damage in the dirty section.
            SparkJobError: a job failed.
        """
        while True:
            self._plan()
            found = self._run_certain()
            if found is not None:
                return found

    def _plan(self) -> None:
        first_dirty = self._settings.first_dirty_offset
        self._ranges = plan_ranges(
            self._groups,
            first_dirty_offset=first_dirty,
            range_bytes=self._range_bytes,
            unsplit=self._unsplit,
            unread_indexes=self._unread_indexes,
        )
        self._first_dirty = next((each.number for each in self._ranges if each.is_dirty), len(self._ranges))
        nothing = abort_rows(())
        uppers = [segment.base_offset for segment in self._log.segments[1:]] + [self._log.log_end_offset]
        upper_of = dict(zip((segment.base_offset for segment in self._log.segments), uppers, strict=True))
        self._copied_aborts: list[Aborts] = [
            nothing if each.start else self._log.collect_aborted(each.base_offset, upper_of[each.base_offset])
            for each in self._ranges
        ]
        self._mapped_aborts: list[Aborts] = [nothing] * len(self._ranges)
        if self._first_dirty < len(self._ranges):
            end = self._cleanable.first_uncleanable_offset
            self._mapped_aborts[self._first_dirty] = self._log.collect_aborted(first_dirty, end)
        self._copied = assume_states(self._ranges, self._copied_aborts, 0)
        self._mapped = assume_states(self._ranges, self._mapped_aborts, self._first_dirty)

    def _run_certain(self) -> FirstPass | None:
        """Run jobs over the ranges until all transaction states are right; None: cut the log into ranges again."""
        is_skewed = False
        certain = -1
        while True:
            result = self._run(self._work(is_skewed))
            if result.is_skewed and not is_skewed:
                is_skewed = True
                continue
            reports = [self._read_report(each) for each in self._ranges]
            damaged = self._first_damage(reports)
            if damaged is not None and self._look_closely(damaged, reports):
                return None
            copied, copied_until = self._follow(self._copied_aborts, self._copied, reports, 0)
            mapped, mapped_until = self._follow(self._mapped_aborts, self._mapped, reports, self._first_dirty)
            # Nothing after damage is recopied.
            copied_end = len(self._ranges) if damaged is None else damaged
            if copied_until >= copied_end and mapped_until == len(self._ranges):
                return self._found(result, reports, copied, mapped, damaged)
            # Each job settles at least one more range, unless the files change from job to job.
            if copied_until + mapped_until <= certain:
                raise SparkJobError("its tasks disagree about transactions: the log has changed since it began")
            certain = copied_until + mapped_until
            self._copied, self._mapped = copied, mapped

    def _work(self, is_skewed: bool) -> DigestWork:
        starts = tuple(
            RangeStart(each, self._copied[each.number], self._mapped[each.number] if each.is_dirty else None)
            for each in self._ranges
        )
        # The range in which the dirty section begins may also hold earlier records.
        has_asking = self._settings.first_dirty_offset > self._groups[0][0].base_offset
        has_asking |= any(len(aborts) for aborts in self._mapped_aborts)
        bases = tuple(group[0].base_offset for group in self._groups)
        is_small = sum(each.bytes for each in self._ranges) <= self._range_bytes
        return DigestWork(self._settings, starts, bases, has_asking, is_small, is_skewed)

    def _read_report(self, part: Range) -> RangeReport:
        path = report_path(self._settings.work_dir, part.number)
        # Written by our own task; some seven values for each producer, of which there may be a million.
        return from_json(RangeReport, parse_json(self._fs.read_bytes(path), max_values=sys.maxsize))

    def _first_damage(self, reports: Sequence[RangeReport]) -> int | None:
        """
        Return the number of the first damaged range of the dirty section, or else of the clean section.

        Also checks that the offsets of a segment's ranges ascend: no task sees more than one range.
        """
        previous = None
        for part, report in zip(self._ranges, reports, strict=True):
            follows = previous is None or previous[0] != part.base_offset or report.first_offset < 0
            if report.error is None and not follows and previous is not None and report.first_offset <= previous[1]:
                report.error = {**_OUT_OF_ORDER, "position": part.start}
            previous = (part.base_offset, report.last_offset)
        damaged = [part for part, report in zip(self._ranges, reports, strict=True) if report.error is not None]
        return min(damaged, key=lambda part: (not part.is_dirty, part.number)).number if damaged else None

    def _look_closely(self, damaged: int, reports: Sequence[RangeReport]) -> bool:
        """
        Read a damaged segment of the dirty section from where a round of one process does, to get the same error.

        Returns:
            Whether the segment was only cut in the wrong place: then the job must be planned again.
        Raises:
            CorruptLogError: the segment is damaged.
        """
        part = self._ranges[damaged]
        if not part.is_dirty:
            return False
        parts = [each for each in self._ranges if each.base_offset == part.base_offset and each.is_dirty]
        first = parts[0]
        whole = replace(first, end=parts[-1].end, checks_index=part.checks_index)
        start = RangeStart(whole, self._copied[first.number], self._mapped[first.number])
        digester = RangeDigester(self._fs, self._settings, start)
        for _ in digester.rows():
            continue
        if len(parts) == 1 or part.base_offset in self._unsplit:
            raise from_value(reports[damaged].error or {})
        self._unsplit |= {part.base_offset}
        return True

    def _follow(
        self, aborts: Sequence[Aborts], assumed: Sequence[PassState], reports: Sequence[RangeReport], first: int
    ) -> tuple[list[PassState], int]:
        is_copied = aborts is self._copied_aborts
        summaries = [report.copied if is_copied else report.mapped for report in reports]
        last_offsets = [report.first_last_offset for report in reports]
        return follow(self._ranges, aborts, assumed, summaries, last_offsets, first)

    def _found(
        self,
        result: DigestResult,
        reports: Sequence[RangeReport],
        copied: Sequence[PassState],
        mapped: Sequence[PassState],
        damaged: int | None,
    ) -> FirstPass:
        group_starts = {part.group: part for part in reversed(self._ranges)}
        before = [
            copied[group_starts[number].number] if number in group_starts else PassState()
            for number in range(len(self._groups))
        ]
        known = [
            self._mapped_at(mapped, group_starts[number]) if number in group_starts else None
            for number in range(len(self._groups))
        ]
        return FirstPass(
            self._ranges,
            reports,
            {bits.group: bits for bits in result.bits},
            before,
            known,
            None if damaged is None else self._ranges[damaged].group,
            None if damaged is None else reports[damaged].error,
        )

    def _mapped_at(self, mapped: Sequence[PassState], start: Range) -> PassState | None:
        """Return the state of the first pass at the start of a group, or where the pass begins within the group."""
        last = max(part.number for part in self._ranges if part.group == start.group)
        if last < self._first_dirty:
            return None
        return mapped[max(start.number, self._first_dirty)]
