"""A log dir of many small logs, cleaned in parallel: the engine's files, figures and errors."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

from cleaner.app.clean_log_dir import Outcome, clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.reports import CleanReport, Refusal, Skipped
from cleaner.base.model import TopicPartition
from cleaner.errors import SparkJobError
from cleaner.settings.sources import SetOption, Sources
from cleaner.spark.clean.round import BulkCleaner, BulkOptions
from cleaner.spark.clean.spark_jobs import SessionJobs, SparkJobs
from tests.bulk.local_jobs import LocalJobs
from tests.bulk.test_beside_engine import figures
from tests.golden.comparison import contents, differences
from tests.support.batch_builder import Producer, Record
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir

DAY_MS = 86_400_000
PATIENCE_SECONDS = 60.0
SETTINGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "600",
    "index.interval.bytes": "200",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1000",
}
DAMAGED, CLEAN = 13, 6


def fill(log: LogBuilder, kind: int) -> None:
    """Append some rounds of keys: plain, packed, old, deleted, in transactions, with gaps."""
    for i in range(12):
        pairs = [(f"k{(i * j) % 7}", f"v{i}-{j}") for j in range(1, 4)]
        match kind:
            case 0:
                log.append(*pairs)
            case 1:
                log.append(*pairs, codec=("gzip", "lz4", "snappy", "zstd")[i % 4])
            case 2:
                log.append(*pairs, magic=1)
            case 3:
                log.append(*pairs, Record(f"k{i % 7}".encode(), None))
                log.skip(i % 3)
            case _:
                producer = Producer(i % 2 + 1, 0, i // 2 * 3, transactional=True)
                log.append(*pairs, producer=producer)
                if i % 3 and i < 10:
                    log.end_transaction(i % 2 + 1, 0, commit=i % 4 != 1)
        if i % 5 == 4:
            log.roll()


def write_logs(log_dir: Path, count: int) -> None:
    """Write small logs of all kinds; some are cleaned up to their middle, one is damaged, one is clean."""
    logs, offsets = [], {}
    for number in range(count):
        log = LogBuilder(TopicPartition("topic", number), index_interval_bytes=200)
        fill(log, number % 5)
        if number % 3 == 0:
            offsets[log.topic_partition] = log.next_offset if number == CLEAN else log.base_offsets[1]
        if number == DAMAGED:
            log.append_damaged(bytes(80))
        log.roll()
        logs.append(log)
    write_log_dir(log_dir, *logs, cleaner_offsets=offsets)


def clean_all(log_dir: Path, cleaner: BulkCleaner | None) -> list[Outcome]:
    """Clean what is due."""
    options = CleanOptions()
    if cleaner is not None:
        options = CleanOptions(clean_round=cleaner.clean, side_by_side=cleaner.side_by_side)
    sources = Sources(sets=tuple(SetOption("topic", key, value) for key, value in SETTINGS.items()))
    return list(clean_log_dir(log_dir, None, sources, options, CallContext.of(now_ms=START_MS + DAY_MS)))


def told(outcome: Outcome, log_dir: Path) -> object:
    """Return what two outcomes must have in common."""
    if isinstance(outcome, Refusal):
        return outcome.partition, figures(outcome.error, log_dir)  # type: ignore[arg-type]
    return figures(outcome, log_dir) if isinstance(outcome, CleanReport) else outcome


def clean_both(tmp_path: Path, jobs: SparkJobs, count: int) -> list[Outcome]:
    """Clean with the engine and in parallel, compare both, and return the outcomes of the latter."""
    work_dir = tmp_path / "work"
    work_dir.mkdir()
    cleaner = BulkCleaner(lambda _: jobs, lambda _config, _log_dir: BulkOptions(work_dir, 2, 1 << 20))
    results = []
    for log_dir, how in ((tmp_path / "engine", None), (tmp_path / "bulk", cleaner)):
        write_logs(log_dir, count)
        outcomes = clean_all(log_dir, how)
        results.append([told(outcome, log_dir) for outcome in outcomes])
    assert results[0] == results[1]
    assert differences(contents(tmp_path / "engine"), contents(tmp_path / "bulk")) == []
    assert list(work_dir.iterdir()) == []
    return outcomes


@dataclass
class FourJobs(LocalJobs):
    """Runs four tasks at a time; the first two digests wait until both have begun."""

    met: threading.Barrier = field(default_factory=lambda: threading.Barrier(2, timeout=PATIENCE_SECONDS))
    digests: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.on_job = self.meet

    @property
    def slots(self) -> int:
        """Four tasks at a time."""
        return 4

    def meet(self, what: str) -> None:
        """Make the first two digests wait for each other."""
        with self.lock:
            self.digests += what == "digest"
            is_early = what == "digest" and self.digests <= 2
        if is_early:
            self.met.wait()


def test_many_small_logs_side_by_side_leave_the_engines_files(tmp_path: Path) -> None:
    """A damaged one is refused in the engine's words and stops no other; a clean one is skipped."""
    jobs = FourJobs()
    outcomes = clean_both(tmp_path, jobs, 20)
    (refused,) = {outcome.partition for outcome in outcomes if isinstance(outcome, Refusal)}
    assert refused == f"topic-{DAMAGED}"
    assert f"topic-{CLEAN}" in {outcome.partition for outcome in outcomes if isinstance(outcome, Skipped)}
    assert (
        sum(isinstance(outcome, CleanReport) for outcome in outcomes) == 17
    )  # of 20; one has nothing but an open transaction


class GoneJobs(LocalJobs):
    """A session that has ended."""

    @property
    def slots(self) -> int:
        """Unknown: the session has ended."""
        raise SparkJobError("Spark is gone")


def test_many_small_logs_without_a_session_any_more_are_refused_one_by_one(tmp_path: Path) -> None:
    """Every log that is due has the reason in its outcome, and is unchanged."""
    write_logs(tmp_path / "logs", 5)
    before = contents(tmp_path / "logs")
    options = BulkOptions(tmp_path, 2, 1 << 20)
    outcomes = clean_all(tmp_path / "logs", BulkCleaner(lambda _: GoneJobs(), lambda _config, _log_dir: options))
    assert [str(outcome.error) for outcome in outcomes if isinstance(outcome, Refusal)] == ["Spark is gone"] * 5
    assert contents(tmp_path / "logs") == before


def test_many_small_logs_on_spark_leave_the_engines_files(tmp_path: Path, local_spark: SessionJobs) -> None:
    """Jobs of several logs run at a time in one session."""
    outcomes = clean_both(tmp_path, local_spark, 6)
    assert not any(isinstance(outcome, Refusal) for outcome in outcomes)
