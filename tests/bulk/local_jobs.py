"""The jobs of a round without Spark: the same tasks one after the other, and the reduction as a dictionary."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cleaner.api.clean_log_dir import Outcome, clean_log_dir
from cleaner.api.options import CleanOptions, Sources, Surroundings
from cleaner.api.reports import CleanReport, Refusal
from cleaner.bulk.digest_task import digest_range
from cleaner.bulk.plan import GROUP_SHIFT, CopyRules, JobSettings
from cleaner.bulk.probe import require_probes
from cleaner.bulk.recopy_task import GroupResult, GroupWork, recopy_group
from cleaner.bulk.round import BulkCleaner, BulkOptions
from cleaner.bulk.spark_jobs import DigestResult, DigestWork, SparkJobs
from cleaner.bulk.verdicts import GroupBits, Verdicts
from cleaner.storage.fs import FileSystem


def _nothing(_what: str) -> None:
    """Go on."""


@dataclass
class LocalJobs:
    """
    Runs jobs in this process.

    Attributes:
        fs: the tasks' door to the disk.
        on_job: told `digest` or `recopy` before each job; may raise.
        told: what it was told so far.
        rows: rows that tasks have emitted.
    """

    fs: FileSystem = field(default_factory=FileSystem)
    on_job: Callable[[str], None] = _nothing
    told: list[str] = field(default_factory=list)
    rows: int = 0

    @property
    def slots(self) -> int:
        """One task at a time."""
        return 1

    def digest(self, work: DigestWork, name: str) -> DigestResult:
        """Digest all ranges."""
        self._tell("digest")
        require_probes(self.fs, work.settings)
        puts: dict[tuple[int, int], int] = {}
        asks: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for start in work.starts:
            for rows in digest_range(self.fs, work.settings, start):
                self.rows += len(rows.codes)
                for sip, murmur, code in zip(*(column.tolist() for column in rows), strict=True):
                    if code & 1:
                        puts[sip, murmur] = max(code, puts.get((sip, murmur), 0))
                    else:
                        asks[sip, murmur].append(code)
        is_crowded = not work.is_crowded and any(len(codes) > 2 for codes in asks.values())
        codes = [*puts.values(), *(code for key, some in asks.items() for code in some if code < puts.get(key, 0))]
        return DigestResult(tuple(self._gather(work, codes)), is_crowded)

    def _gather(self, work: DigestWork, codes: Sequence[int]) -> list[GroupBits]:
        by_group = defaultdict(list)
        for code in codes:
            by_group[code >> GROUP_SHIFT].append(code)
        saved = []
        for some in by_group.values():
            verdicts = Verdicts(work.base_offsets)
            verdicts.add(np.array(some, np.int64))
            bits = verdicts.save(self.fs, work.settings.work_dir)
            assert bits is not None
            saved.append(bits)
        return saved

    def recopy(self, settings: JobSettings, rules: CopyRules, work: GroupWork, name: str) -> GroupResult:
        """Recopy a group."""
        self._tell("recopy")
        require_probes(self.fs, settings)
        return recopy_group(self.fs, settings, rules, work, name)

    def cancel(self, name: str) -> None:
        """Nothing is under way."""

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
    verify: bool = True,
    fs: FileSystem | None = None,
) -> CleanReport:
    """Clean one partition in bulk, as `cleaner.clean` does it with the engine; raises why it was refused."""
    work_dir.mkdir(exist_ok=True)
    options = BulkOptions(work_dir, groups_in_flight, task_memory_bytes, range_bytes, map_entries)
    cleaner = BulkCleaner(lambda _: jobs or LocalJobs(), lambda _config, _log_dir: options)
    topic = partition.rpartition("-")[0]
    outcomes: list[Outcome] = list(
        clean_log_dir(
            log_dir,
            [partition],
            Sources.of_call(topic, settings, None, None),
            CleanOptions(clean_round=cleaner.clean, retention=retention, verify=verify),
            Surroundings.of(fs=fs, now_ms=now_ms),
        )
    )
    (outcome,) = outcomes
    if isinstance(outcome, Refusal):
        raise outcome.error
    assert isinstance(outcome, CleanReport)
    return outcome
