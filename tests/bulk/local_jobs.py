"""The jobs of a round without Spark: the same tasks one after the other, and where Spark's SQL would reduce, numpy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cleaner.app.clean_log_dir import Outcome, clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.reports import CleanReport, Refusal
from cleaner.settings.sources import Sources
from cleaner.spark.clean.digest_task import digest_range
from cleaner.spark.clean.plan import CopyRules, JobSettings
from cleaner.spark.clean.probe import at_work
from cleaner.spark.clean.recopy_task import GroupResult, GroupWork, recopy_group
from cleaner.spark.clean.reduction import Result, Work, digest_in_memory
from cleaner.spark.clean.round import BulkCleaner, BulkOptions
from cleaner.spark.clean.small_log import digest_small_log, save_verdicts, surviving_codes
from cleaner.spark.clean.spark_jobs import DigestResult, DigestWork, SparkJobs
from cleaner.storage.fs.file_system import FileSystem


def _one_by_one(task: Callable[[Work], Result], works: Sequence[Work]) -> list[Result]:
    return [task(work) for work in works]


def _nothing(_what: str) -> None:
    """Go on."""


@dataclass
class LocalJobs:
    """
    Runs jobs in this process.

    Attributes:
        fs: the tasks' access to the disk.
        on_job: called with `digest` or `recopy` before each job; may raise.
        told: the jobs reported so far.
    """

    fs: FileSystem = field(default_factory=FileSystem)
    on_job: Callable[[str], None] = _nothing
    told: list[str] = field(default_factory=list)

    @property
    def slots(self) -> int:
        """One task at a time."""
        return 1

    def digest(self, work: DigestWork, name: str) -> DigestResult:
        """Digest all ranges."""
        self._tell("digest")
        with at_work(self.fs, work.settings):
            return self._digest(work)

    def _digest(self, work: DigestWork) -> DigestResult:
        settings, bases = work.settings, work.base_offsets
        if work.is_small and (bits := digest_small_log(self.fs, settings, work.starts, bases)) is not None:
            return DigestResult(bits, is_skewed=False)
        bits = digest_in_memory(settings, work.starts, bases, slots=2, in_tasks=_one_by_one, make_fs=lambda: self.fs)
        if bits is not None:
            return DigestResult(bits, is_skewed=False)
        held = [rows for start in work.starts for rows in digest_range(self.fs, settings, start)]
        asking = Counter(
            (sip, murmur)
            for rows in held
            for sip, murmur, code in zip(*(column.tolist() for column in rows[:3]), strict=True)
            if not code & 1
        )
        is_skewed = not work.is_skewed and any(count > 2 for count in asking.values())
        bits = save_verdicts(self.fs, settings.work_dir, bases, surviving_codes(held, settings.rule))
        return DigestResult(bits, is_skewed)

    def recopy(self, settings: JobSettings, rules: CopyRules, work: GroupWork, name: str) -> GroupResult:
        """Recopy a group."""
        self._tell("recopy")
        with at_work(self.fs, settings):
            return recopy_group(self.fs, settings, rules, work, name)

    def cancel(self, name: str) -> None:
        """Do nothing: no job runs in the background."""

    def _tell(self, what: str) -> None:
        self.told.append(what)
        self.on_job(what)


def bulk_clean(
    log_dir: Path,
    partition: str,
    settings: dict[str, str],
    *,
    work_dir: Path,
    now_ms: int,
    jobs: SparkJobs | None = None,
    range_bytes: int | None = None,
    task_memory_bytes: int = 1 << 20,
    groups_in_flight: int = 2,
    map_entries: int | None = None,
    retention: bool = False,
    fs: FileSystem | None = None,
    config: dict[str, str] | None = None,
    keep_tombstones: bool = False,
) -> CleanReport:
    """
    Clean one partition in bulk, as `cleaner.clean` does with the engine; raises the error of a refusal.

    Args:
        config: the settings of a process that trusts its defaults and cleans all partitions; None: this one is named.
    """
    work_dir.mkdir(exist_ok=True)
    options = BulkOptions(work_dir, groups_in_flight, task_memory_bytes, range_bytes, map_entries)
    cleaner = BulkCleaner(lambda _: jobs or LocalJobs(), lambda _config, _log_dir: options)
    topic = partition.rpartition("-")[0]
    outcomes: list[Outcome] = list(
        clean_log_dir(
            log_dir,
            [partition] if config is None else None,
            Sources.of_call(topic, settings, None, None)
            if config is None
            else Sources(config, trust_default_policy=True),
            CleanOptions(clean_round=cleaner.clean, retention=retention, keep_tombstones=keep_tombstones),
            CallContext.of(fs=fs, now_ms=now_ms),
        )
    )
    (outcome,) = outcomes
    if isinstance(outcome, Refusal):
        try:
            raise outcome.error
        finally:
            del outcome, outcomes  # breaks a reference cycle of the error and this function
    assert isinstance(outcome, CleanReport)
    return outcome
