"""
The jobs of a round on Spark: digest all ranges and reduce by key, and recopy a group.

    ranges -> digest_range -> rows of 24 bytes -> by digest: the code that stays -> by group: bits of offsets

For a small log one task does all of this, without a reduction by Spark (`small_log.py`). In a log of up to 128 GB each
reducer holds all rows of some shares of the keys (`reduction.py`), and reads them from files: through Spark they would
take longer than all other work. Where a reducer would hold too many rows, and in larger logs, Spark's own aggregation
reduces them; it sorts rows, and spills them if they do not fit into memory.

Keys and values never leave their task; the driver gets one row for each group.

If all records of a key count for its last offset (`plan.py`), one number is enough: the code of the highest rank is the
record that stays (`policy/survivor_rule.py`). Records of the clean section and of aborted transactions only ask. In a
log that was cleaned before, a key has at most one such record, so the same reduction answers up to two. If a key has
more, the rows say so, and the job runs again with a join that answers any number.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cleaner.errors import CleanerError, SparkJobError
from cleaner.policy.survivor_rule import SurvivorRule
from cleaner.spark.clean.digest_task import RangeStart, digest_range
from cleaner.spark.clean.plan import GROUP_SHIFT, OUTRANKING, CopyRules, JobSettings
from cleaner.spark.clean.probe import at_work, require_probes
from cleaner.spark.clean.recopy_task import GroupResult, GroupWork, recopy_group
from cleaner.spark.clean.reduction import SHARE_BYTES, Result, Work, digest_in_memory
from cleaner.spark.clean.session import make_spark
from cleaner.spark.clean.small_log import digest_small_log
from cleaner.spark.clean.verdicts import SKEWED, GroupBits, Verdicts
from cleaner.storage.fs.file_system import FileSystem

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

_COLUMNS = ("sip", "murmur", "code", "number")
_GROUP_SCHEMA = "group bigint, name string, count bigint, checksum bigint, outranked bigint, skewed bigint"
_KEY = ("sip", "murmur")

_MAX_SHARES = 4000
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_MAX_REASON_CHARACTERS = 500
_TASKS_THAT_LOAD = 2


@dataclass(frozen=True)
class DigestWork:
    """
    All ranges of a job.

    Attributes:
        settings: of the job.
        starts: the ranges, by number.
        base_offsets: of the groups, by number.
        has_asking: there are records that only ask.
        is_small: one task digests all ranges, if it can hold their keys.
        is_skewed: some key has more than two records that only ask.
    """

    settings: JobSettings
    starts: tuple[RangeStart, ...]
    base_offsets: tuple[int, ...]
    has_asking: bool
    is_small: bool
    is_skewed: bool = False


@dataclass(frozen=True)
class DigestResult:
    """
    The verdicts of a job.

    Attributes:
        bits: of every group that has any.
        is_skewed: the result is void: try again with `DigestWork.is_skewed`.
    """

    bits: tuple[GroupBits, ...]
    is_skewed: bool


class SparkJobs(Protocol):
    """Runs jobs, in this process or in another one. All methods may be called by several threads at once."""

    @property
    def slots(self) -> int:
        """How many tasks run at the same time. Raises SparkJobError."""

    def digest(self, work: DigestWork, name: str) -> DigestResult:
        """Digest all ranges. Raises SparkJobError."""

    def recopy(self, settings: JobSettings, rules: CopyRules, work: GroupWork, name: str) -> GroupResult:
        """Recopy a group. Raises SparkJobError."""

    def cancel(self, name: str) -> None:
        """Cancel all jobs of this name; their callers get a SparkJobError."""


class SessionJobs:
    """
    Runs jobs in a Spark session of this process.

    Args:
        spark: the session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._seen: set[tuple[Path, Path]] = set()
        self._fixes_reducers = spark.sparkContext.getConf().contains(_SHUFFLE_PARTITIONS)

    @property
    def slots(self) -> int:
        """How many tasks run at the same time. Raises SparkJobError."""
        with _as_job_errors("Spark is gone"):
            return self._spark.sparkContext.defaultParallelism

    def digest(self, work: DigestWork, name: str) -> DigestResult:
        """Digest all ranges. Raises SparkJobError."""
        digest = self._digest_small if work.is_small else self._digest

        def job() -> DigestResult:
            self._require_same_files(work.settings)
            return digest(work)

        return self._run(name, job)

    def _require_same_files(self, settings: JobSettings) -> None:
        """
        Check that the current executors see the driver's files, once for each pair of directories.

        The task returns the reason instead of raising it: Spark tries a failing task several times.
        """
        places = (settings.directory.parent, settings.work_dir.parent)
        if places in self._seen:
            return
        slots = self.slots
        answers = (
            self._spark.sparkContext.parallelize(range(slots), slots).map(partial(_why_no_access, settings)).collect()
        )
        for reason in filter(None, answers):
            raise SparkJobError(reason)
        self._seen.add(places)

    def _digest_small(self, work: DigestWork) -> DigestResult:
        bits = self._in_one_task(_digest_alone, work)
        return self._digest(work) if bits is None else DigestResult(bits, is_skewed=False)

    def _digest(self, work: DigestWork) -> DigestResult:
        total_bytes = sum(start.range.bytes for start in work.starts)
        if not work.is_skewed and total_bytes <= _MAX_SHARES * SHARE_BYTES:
            bits = digest_in_memory(
                work.settings, work.starts, work.base_offsets, slots=self.slots, in_tasks=self._in_tasks
            )
            if bits is not None:
                return DigestResult(bits, is_skewed=False)
        return self._digest_by_sql(work)

    def _digest_by_sql(self, work: DigestWork) -> DigestResult:
        spark = self._spark.newSession()  # has its own settings: several jobs may run at a time
        if not self._fixes_reducers:
            spark.conf.set(_SHUFFLE_PARTITIONS, self._reducers(work))
        count = len(work.starts)
        numbers = spark.range(0, count, 1, numPartitions=count)
        rule = work.settings.rule
        columns = _COLUMNS if rule.numbers is not None else _COLUMNS[:-1]
        schema = ", ".join(f"{column} bigint" for column in columns)
        rows = numbers.mapInArrow(partial(_digest_batches, work.settings, work.starts), schema)
        if rule.numbers is not None:
            codes = _by_number(rows, rule)
        else:
            codes = _joined(rows, rule) if work.is_skewed else _reduced(rows, rule, has_asking=work.has_asking)
        found = (
            codes.repartitionById(len(work.base_offsets), _group_of("code"))
            .mapInArrow(partial(_gather_batches, work.settings, work.base_offsets), _GROUP_SCHEMA)
            .collect()
        )
        bits = tuple(
            GroupBits(row.group, row.name, row["count"], row.checksum, row.outranked) for row in found if row.name
        )
        return DigestResult(bits, is_skewed=any(row.skewed for row in found))

    def _reducers(self, work: DigestWork) -> int:
        if self._fixes_reducers:
            return int(self._spark.sparkContext.getConf().get(_SHUFFLE_PARTITIONS) or 1)
        total_bytes = sum(start.range.bytes for start in work.starts)
        return max(self.slots, min(_MAX_SHARES, total_bytes // SHARE_BYTES))

    def recopy(self, settings: JobSettings, rules: CopyRules, work: GroupWork, name: str) -> GroupResult:
        """Recopy a group. Raises SparkJobError."""
        task = partial(_recopy, settings, rules, name)
        return self._run(name, partial(self._in_one_task, task, work))

    def _in_one_task(self, task: Callable[[Work], Result], work: Work) -> Result:
        return self._in_tasks(task, [work])[0]

    def _in_tasks(self, task: Callable[[Work], Result], works: Sequence[Work]) -> list[Result]:
        return self._spark.sparkContext.parallelize(works, max(1, len(works))).map(partial(_do, task)).collect()

    def cancel(self, name: str) -> None:
        """Cancel all jobs of this name."""
        self._spark.sparkContext.cancelJobGroup(name)

    def _run(self, name: str, job: Callable[[], Result]) -> Result:
        with _as_job_errors("a Spark job failed"):
            # Python and JVM threads are paired: the tag applies to the jobs of this thread.
            self._spark.sparkContext.setJobGroup(name, name, interruptOnCancel=True)
            return job()


def start_jobs(name: str, given: Mapping[str, str]) -> SessionJobs:
    """
    Start Spark in this process.

    Args:
        name: as the cluster shows it.
        given: `spark.*` keys, see `session.spark_settings`.
    Raises:
        SparkJobError: Spark does not start.
    """
    with _as_job_errors("Spark does not start"):
        return SessionJobs(make_spark(name, given))


@contextmanager
def _as_job_errors(what: str) -> Iterator[None]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        raise SparkJobError(f"{what}: {_reason(error)}") from error


def _why_no_access(settings: JobSettings, _: int) -> str | None:
    """Return why a task cannot work on the driver's files, None if it can; in a task."""
    try:
        with at_work(FileSystem(), settings):
            return None
    except CleanerError as error:
        return str(error)


_tasks = itertools.count(1)


def _spare_the_collector() -> None:
    """
    Let the garbage collector pass over what a worker has loaded for its first task, and keeps; begins each task.

    Spark's workers collect all garbage after each task; walking over the modules each time took 0.1 s, as long as many
    a task. What is not imported but compiled or read, kernels above all, is there from the second task on.
    """
    if next(_tasks) <= _TASKS_THAT_LOAD:
        gc.freeze()


def _do(task: Callable[[Work], Result], work: Work) -> Result:
    """Do a task's work; in the task."""
    _spare_the_collector()
    return task(work)


def _digest_batches(
    settings: JobSettings, starts: Sequence[RangeStart], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Digest the ranges of the given numbers; in a task."""
    import pyarrow as pa

    _spare_the_collector()
    with at_work(fs := FileSystem(), settings):
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in digest_range(fs, settings, starts[number]):
                    columns = rows.columns
                    names = list(_COLUMNS[: len(columns)])
                    yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names)


def _gather_batches(
    settings: JobSettings, base_offsets: tuple[int, ...], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Collect the codes of a group in a file; in a task."""
    import pyarrow as pa

    _spare_the_collector()
    fs = FileSystem()
    require_probes(fs, settings)
    verdicts = Verdicts(base_offsets)
    for batch in batches:
        verdicts.add(batch.column(0).to_numpy())
    saved = verdicts.save(fs, settings.work_dir) or GroupBits(-1, "", 0, 0)
    row = (saved.group, saved.name, saved.count, saved.checksum, saved.outranked, verdicts.skewed)
    names = ["group", "name", "count", "checksum", "outranked", "skewed"]
    yield pa.RecordBatch.from_arrays([pa.array([value]) for value in row], names)


def _digest_alone(work: DigestWork) -> tuple[GroupBits, ...] | None:
    """Digest a small log; in a task."""
    with at_work(fs := FileSystem(), work.settings):
        return digest_small_log(fs, work.settings, work.starts, work.base_offsets)


def _recopy(settings: JobSettings, rules: CopyRules, name: str, work: GroupWork) -> GroupResult:
    """Recopy a group; in a task."""
    with at_work(fs := FileSystem(), settings):
        return recopy_group(fs, settings, rules, work, name)


def _group_of(code: str) -> Column:
    from pyspark.sql import functions as f

    return f.greatest(f.lit(0), f.shiftright(f.col(code), GROUP_SHIFT)).cast("int")


def _reduced(rows: DataFrame, rule: SurvivorRule, *, has_asking: bool) -> DataFrame:
    """Return the codes to store as bits, by one reduction; a key with too many records that ask gives `SKEWED`."""
    from pyspark.sql import functions as f

    puts, rank = f.col("code").bitwiseAND(1) == 1, rule.rank(f.col("code"))
    last = f.max(f.when(puts, rank)).alias("last")
    if not has_asking:
        return rows.groupBy(*_KEY).agg(last).select(rule.offset_of(f.col("last")).alias("code"))
    asks = f.when(~puts, rank)
    by_key = rows.groupBy(*_KEY).agg(
        last, f.min(asks).alias("lowest"), f.max(asks).alias("highest"), f.count(asks).alias("asking")
    )
    low, high = f.col("lowest"), f.col("highest")
    codes = f.array(
        rule.offset_of(f.col("last")),
        f.when(low < f.col("last"), rule.offset_of(low)),
        f.when((high < f.col("last")) & (high != low), rule.offset_of(high)),
        f.when(f.col("asking") > 2, f.lit(SKEWED)),
    )
    return by_key.select(f.explode(codes).alias("code")).where(f.col("code").isNotNull())


def _joined(rows: DataFrame, rule: SurvivorRule) -> DataFrame:
    """Return the same for any number of records that ask."""
    from pyspark.sql import functions as f

    puts, rank = f.col("code").bitwiseAND(1) == 1, rule.rank(f.col("code"))
    last = rows.where(puts).groupBy(*_KEY).agg(f.max(rank).alias("last"))
    asking = rows.where(~puts).join(last, list(_KEY)).where(rank < f.col("last"))
    return last.select(rule.offset_of(f.col("last")).alias("code")).union(asking.select("code"))


def _by_number(rows: DataFrame, rule: SurvivorRule) -> DataFrame:
    """Return the same where the greatest number wins: a record that only asks is superseded by any other of its key."""
    from pyspark.sql import functions as f

    puts = f.col("code").bitwiseAND(1) == 1
    greatest = f.max(f.struct(f.col("number"), rule.rank(f.col("code")).alias("rank")))
    last = rows.where(puts).groupBy(*_KEY).agg(greatest.alias("last"), f.max("code").alias("latest"))
    asking = rows.where(~puts).join(last, list(_KEY))
    code = rule.offset_of(f.col("last.rank"))
    outranking = f.when(f.col("latest") > code, f.lit(OUTRANKING)).otherwise(f.lit(0))
    return last.select(code.bitwiseOR(outranking).alias("code")).union(asking.select("code"))


def _reason(error: Exception) -> str:
    """Return the error in one line; of a task's traceback, the last line that names an error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [
        line for line in lines if line.startswith(("cleaner.errors.", "OSError", "PermissionError", "MemoryError"))
    ]
    if named:
        return named[-1][:_MAX_REASON_CHARACTERS]
    return (lines or [type(error).__name__])[0][:_MAX_REASON_CHARACTERS]
