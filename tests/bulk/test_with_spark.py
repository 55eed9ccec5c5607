"""Bulk rounds with Spark itself: Kafka's files on `local[2]`, in one session."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cleaner
from cleaner.base.model import TopicPartition
from cleaner.config.values import CleanerConfig
from cleaner.errors import CorruptLogError, LogDirOfflineError, SparkJobError
from cleaner.policy.survivor_rule import LATEST_OFFSET, SurvivorRule, survivor_rule_of
from cleaner.spark.clean.digest_task import DigestRows
from cleaner.spark.clean.plan import OUTRANKING
from cleaner.spark.clean.small_log import surviving_codes
from cleaner.spark.clean.spark_jobs import (
    DigestResult,
    DigestWork,
    SessionJobs,
    _as_job_errors,
    _by_number,
    _joined,
    _reduced,
)
from tests.bulk.local_jobs import bulk_clean
from tests.golden.comparison import contents, differences
from tests.golden.scenario import Step, steps
from tests.reference.batches import read_batches
from tests.support.batch_builder import Record
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir
from tests.unit.kernels.collisions import colliding_keys
from tests.unit.policy.survivor_rules import RULES

CLEANED = [step for step in steps() if step.kind in ("byte-identical", "logically-identical")]
REFUSED = [step for step in steps() if step.kind == "refuse"]
# Aborted and open transactions; tombstones past their horizon in a log cleaned before; an emptied batch at the end of
# the range that 4.3 keeps and 4.4 drops; an index that only 4.3 looks at.
SHORT = (
    "transactions-1",
    "tombstones-2",
    "watermark-unkeyed-2",
    "watermark-unkeyed-2-4.4",
    "index-of-earlier-source-1-4.4",
)
SETTINGS = {"cleanup.policy": "compact", "internal.segment.bytes": "4000", "index.interval.bytes": "200"}
PARTITION = TopicPartition("topic", 0)
NOW_MS = START_MS + 10**9
_SCHEMA = "sip bigint, murmur bigint, code bigint"


def long_but(names: tuple[str, ...], all_steps: list[Step]) -> list[object]:
    """Return all steps as parameters; those not in `names` are marked slow."""
    marks = {str(step): () if str(step) in names else (pytest.mark.slow,) for step in all_steps}
    return [pytest.param(step, id=str(step), marks=marks[str(step)]) for step in all_steps]


@pytest.mark.parametrize("step", long_but(SHORT, CLEANED))
def test_bulk_on_golden_input_leaves_kafkas_files(
    step: Step, unpacked: Callable[[str], Path], tmp_path: Path, local_spark: SessionJobs
) -> None:
    """Files, checkpoint and times are Kafka's, with ranges cut wherever the index allows."""
    home = unpacked(step.scenario)
    work = step.prepare(home, tmp_path / "logs")
    source = contents(work)
    entries = CleanerConfig.from_mapping(step.settings).key_limit
    report = bulk_clean(
        work,
        step.partition,
        dict(step.settings),
        work_dir=tmp_path / "work",
        now_ms=step.now_ms,
        jobs=local_spark,
        range_bytes=2000,
        map_entries=entries if step.expected["end_offset"] < step.expected["first_uncleanable"] else None,
        retention=step.retention,
    )
    found = differences(
        contents(home / step.output),
        contents(work),
        compressed=step.kind == "logically-identical",
        source_batches={b.raw for name, data in source.items() if name.endswith(".log") for b in read_batches(data)},
        index_interval_bytes=int(step.settings.get("index.interval.bytes", 4096)),
    )
    assert found == []
    assert report.end_offset == step.expected["end_offset"]
    assert report.messages_written == step.expected["stats"]["messages_written"]


@pytest.mark.parametrize("step", long_but((), REFUSED))
def test_bulk_on_damaged_directory_names_the_damage_and_changes_nothing(
    step: Step, unpacked: Callable[[str], Path], tmp_path: Path, local_spark: SessionJobs
) -> None:
    """The same error as the engine's, however the segment is cut; the directory is unchanged."""
    work = step.prepare(unpacked(step.scenario), tmp_path / "logs")
    before = contents(work)
    with pytest.raises(CorruptLogError) as theirs:
        cleaner.clean(work, step.partition, dict(step.settings), now_ms=step.now_ms)
    with pytest.raises(CorruptLogError) as mine:
        bulk_clean(
            work,
            step.partition,
            dict(step.settings),
            work_dir=tmp_path / "work",
            now_ms=step.now_ms,
            jobs=local_spark,
            range_bytes=2000,
        )

    assert (type(mine.value), str(mine.value)) == (type(theirs.value), str(theirs.value))
    assert contents(work) == before
    assert list((tmp_path / "work").glob("*")) == []


def clean_both(log: LogBuilder, tmp_path: Path, jobs: SessionJobs, clean_until: int = 0) -> list[str]:
    """Clean a log with the engine and in bulk, and list what differs."""
    for name in ("engine", "bulk"):
        write_log_dir(tmp_path / name, log, cleaner_offsets={PARTITION: clean_until} if clean_until else {})
    cleaner.clean(tmp_path / "engine", str(PARTITION), SETTINGS, now_ms=NOW_MS)
    bulk_clean(
        tmp_path / "bulk",
        str(PARTITION),
        SETTINGS,
        work_dir=tmp_path / "work",
        now_ms=NOW_MS,
        jobs=jobs,
        range_bytes=500,
        task_memory_bytes=200,
    )
    return differences(contents(tmp_path / "engine"), contents(tmp_path / "bulk"))


def test_bulk_keeps_keys_that_collide_in_murmur(tmp_path: Path, local_spark: SessionJobs) -> None:
    """The shuffled digests are keyed: no attacker can build keys that delete each other's records."""
    log = LogBuilder(PARTITION, index_interval_bytes=200)
    keys = colliding_keys(5)
    for key in keys:
        log.append(Record(key, b"v"))
    log.roll()
    assert clean_both(log, tmp_path, local_spark) == []
    (path,) = (path for path in (tmp_path / "bulk").rglob("*.log") if path.stat().st_size)
    assert sum(batch.count for batch in read_batches(path.read_bytes())) == len(keys)


def test_bulk_over_records_without_keys_leaves_the_engines_files(tmp_path: Path, local_spark: SessionJobs) -> None:
    """No task has a row to hand on, though the log is cut into several ranges."""
    log = LogBuilder(PARTITION, index_interval_bytes=200)
    for _ in range(3):
        for _ in range(20):
            log.append(Record(None, b"v" * 100))
        log.roll()
    assert clean_both(log, tmp_path, local_spark) == []


def test_bulk_on_many_clean_records_of_a_key_goes_on_with_a_join(tmp_path: Path, local_spark: SessionJobs) -> None:
    """A key has more records in the clean section than a cleaned log can have: one dirty record removes them all."""
    log = LogBuilder(PARTITION, index_interval_bytes=200)
    for i in range(30):
        log.append((f"k{i % 3}", f"v{i}"), (f"only-{i}", "v"))
    log.roll()
    clean_until = log.next_offset
    log.append(("k0", "last"), ("k1", "last"), ("new", "v"))
    log.roll()
    assert clean_both(log, tmp_path, local_spark, clean_until) == []


class NamedJobs(SessionJobs):
    """`SessionJobs` that keeps the names of its jobs."""

    names: list[str]

    def digest(self, work: DigestWork, name: str) -> DigestResult:
        """Digest all ranges."""
        self.names.append(name)
        return super().digest(work, name)


def test_executors_that_see_other_files_end_the_job_without_a_task_that_fails(
    tmp_path: Path, local_spark: SessionJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing task would be tried again; here the driver's tokens are missing where tasks look."""
    monkeypatch.setattr("cleaner.spark.clean.round.leave_probes", lambda fs, settings: None)
    log = LogBuilder(PARTITION)
    log.append(("k", "v"), ("k", "w"))
    log.roll()
    write_log_dir(tmp_path / "logs", log)
    jobs = NamedJobs(local_spark._spark)
    jobs.names = []
    with pytest.raises(SparkJobError, match="an executor does not see the driver's files there; log dir and work"):
        bulk_clean(tmp_path / "logs", str(PARTITION), SETTINGS, work_dir=tmp_path / "work", now_ms=NOW_MS, jobs=jobs)
    tracker = local_spark._spark.sparkContext.statusTracker()
    found = [tracker.getJobInfo(job) for name in jobs.names for job in tracker.getJobIdsForGroup(name)]
    assert [each.status for each in found if each is not None] == ["SUCCEEDED"]


def test_error_of_a_task_is_the_last_of_its_traceback() -> None:
    """The lines before it are its cause, and say less."""
    try:
        try:
            raise LogDirOfflineError("/logs/t-0", OSError(2, "No such file or directory"))
        except LogDirOfflineError as error:
            raise SparkJobError("/logs/t-0: an executor does not see it") from error
    except SparkJobError:
        told = f"org.apache.spark.SparkException: Job aborted\n{traceback.format_exc()}\n\tat org.apache.spark"
    with pytest.raises(SparkJobError) as caught, _as_job_errors("a job failed"):
        raise OSError(told)
    assert str(caught.value) == "a job failed: cleaner.errors.SparkJobError: /logs/t-0: an executor does not see it"


@pytest.mark.parametrize("rule", RULES)
def test_reductions_ask_the_survivor_rule(local_spark: SessionJobs, rule: SurvivorRule) -> None:
    """With one reduction or with a join: for each key the code that stays, and the superseded ones that only ask."""
    codes = (2 << 2, 3 << 2 | 1, 4 << 2 | 1, 5 << 2)
    expected = [2 << 2, 4 << 2 | 1] if rule == LATEST_OFFSET else [3 << 2 | 1, 5 << 2]
    rows = local_spark._spark.createDataFrame([(1, 1, code) for code in codes], _SCHEMA)
    for found in (_reduced(rows, rule, has_asking=True), _joined(rows, rule)):
        assert sorted(row.code for row in found.collect()) == expected
    (last,) = _reduced(rows, rule, has_asking=False).collect()
    assert last.code in expected


def test_reduction_by_numbers_asks_the_greatest_first(local_spark: SessionJobs) -> None:
    """Of equal numbers the later, with a mark if a later one lost; any other of its key supersedes one that asks."""
    rows = [(1, 1, 3 << 2 | 1, 7), (1, 1, 4 << 2 | 1, 9), (1, 1, 5 << 2 | 1, -3), (1, 1, 6 << 2, 0)]
    rows += [(2, 1, 7 << 2 | 1, 4), (2, 1, 8 << 2 | 1, 4), (3, 1, 9 << 2, 0)]
    frame = local_spark._spark.createDataFrame(rows, f"{_SCHEMA}, number bigint")
    found = sorted(row.code for row in _by_number(frame, survivor_rule_of("timestamp")).collect())
    assert found == [4 << 2 | OUTRANKING | 1, 6 << 2, 8 << 2 | 1]
    columns = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    assert surviving_codes([DigestRows(*columns)], survivor_rule_of("timestamp")).tolist() == found
