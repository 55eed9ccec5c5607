"""
Logs as DataFrames: records a second, in one session of Spark on two cores, each turn all the ways after one another.

    all columns       `spark.read.format("kafkalog")`, the seven columns of Spark's own Kafka source
    key, value        the same, `columns=key,value`
    Parquet           the same rows as Parquet files with Spark's defaults, all seven columns
    Python            a data source that reads the same files in plain Python, row by row; of the first segments only
    without Spark     our tasks on one core, to Arrow's record batches that nobody takes

Everything goes to Spark's `noop` sink. A first turn warms up and does not count. The log has 16-byte keys and 100-byte
values, uncompressed, and lies in the page cache.

`python -m benchmarks.frames LOG_DIR RUNS` is the session, in a process of its own; it prints seconds as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.generate import Shape, generate
from benchmarks.tables import HELD_TO, Bounds, table
from benchmarks.turns import Way, take_turns
from cleaner.base.model import TopicPartition
from cleaner.spark.clean.available import why_not_available

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITION = TopicPartition("generated", 0)
_SIZE_BYTES = 1_000_000_000
_KEYS = 1_000_000
_VALUE_BYTES = 100
_PYTHON_SEGMENTS = 2

SPEED = Bounds(2.0)  # million records a second
ALL, PAIR, PARQUET, PYTHON, BARE = "all columns", "key, value", "Parquet", "Python", "without Spark, one core"


def frames_table(scratch: Path, runs: int, size_bytes: int = _SIZE_BYTES) -> str:
    """Measure and lay out; says so where there is no Spark."""
    if reason := why_not_available():
        return f"Logs as DataFrames: LEFT OUT: {reason}\n"
    log_dir = scratch / "frames"
    generate(log_dir, PARTITION, Shape(size_bytes, _KEYS, value_bytes=_VALUE_BYTES))
    command = [sys.executable, "-m", "benchmarks.frames", str(log_dir), str(runs)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    speeds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    held = SPEED.cells(speeds[ALL] / 1e6, " M/s")
    rows = [[ALL, *held]]
    rows += [[way, f"{speed / 1e6:.2f} M/s", "", "", ""] for way, speed in speeds.items() if way != ALL]
    return table("Logs as DataFrames, records a second on two cores", ["", "figure", *HELD_TO], rows)


def _records_in(log_dir: Path) -> int:
    from cleaner import open_reader

    with open_reader(log_dir, *PARTITION) as reader:
        return reader.log_end_offset


def _timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _discard_rows(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _bare(log_dir: Path) -> None:
    from cleaner.spark.source.filters import Pruning
    from cleaner.spark.source.options import read_options
    from cleaner.spark.source.plan import plan
    from cleaner.spark.source.task import run_task
    from cleaner.storage.fs.file_system import FileSystem

    options = read_options({"path": str(log_dir)})
    for task in plan(FileSystem(), options, Pruning()):
        for _ in run_task(FileSystem(), options, task):
            pass


def _register_plain_python(spark: SparkSession) -> None:
    """Make `format("plainpython")` known: the reader of tests, which knows nothing but the format."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class _Reader(DataSourceReader):
        def __init__(self, path: str) -> None:
            self.path = path

        def partitions(self) -> Sequence[InputPartition]:
            return [InputPartition(str(log)) for log in sorted(Path(self.path).glob("*.log"))[:_PYTHON_SEGMENTS]]

        def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
            from datetime import UTC, datetime, timedelta

            from tests.reference.batches import read_batches, read_records

            epoch = datetime(1970, 1, 1, tzinfo=UTC)
            for batch in read_batches(Path(partition.value).read_bytes()):
                for record in read_records(batch):
                    moment = epoch + timedelta(milliseconds=record.timestamp)
                    yield record.key, record.value, "generated", 0, record.offset, moment, 0

    class _Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "plainpython"

        def schema(self) -> str:
            from cleaner.spark.source.columns import ddl, usual_columns

            return ddl(usual_columns(headers=False))

        def reader(self, schema: Any) -> DataSourceReader:
            return _Reader(self.options["path"])

    spark.dataSource.register(_Source)


def _session(log_dir: Path, runs: int) -> dict[str, float]:
    """Return records a second of each way, the median of the runs."""
    from cleaner.spark import register
    from cleaner.spark.clean.session import make_spark

    # Workers unpickle the plain reader by name.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    # Both of Java's compilers, as in a session of Spark's own.
    java = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}
    spark = register(make_spark("benchmark", {"spark.master": "local[2]", "spark.log.level": "ERROR", **java}))
    _register_plain_python(spark)
    ours = spark.read.format("kafkalog")
    parquet = str(log_dir.with_name("frames.parquet"))
    ours.load(str(log_dir)).write.parquet(parquet)
    plain = spark.read.format("plainpython").load(str(log_dir / str(PARTITION)))
    works: dict[str, Callable[[], Any]] = {
        ALL: lambda: _discard_rows(spark.read.format("kafkalog").load(str(log_dir))),
        PAIR: lambda: _discard_rows(spark.read.format("kafkalog").option("columns", "key,value").load(str(log_dir))),
        PARQUET: lambda: _discard_rows(spark.read.parquet(parquet)),
        BARE: lambda: _bare(log_dir),
    }
    ways: dict[str, Way] = {name: lambda _, work=work: _timed(work) for name, work in works.items()}  # type: ignore[misc]
    seconds = take_turns(ways, runs, log_dir.parent)
    records = _records_in(log_dir)
    speeds = {way: records / took for way, took in seconds.items()}
    # Once will do: it takes long, and is far from all others.
    count = plain.count()
    speeds[PYTHON] = count / _timed(lambda: _discard_rows(plain))
    spark.stop()
    return speeds


if __name__ == "__main__":
    print(json.dumps(_session(Path(sys.argv[1]), int(sys.argv[2]))))
