"""Logs as DataFrames in a real session: the source is found, and each query gives the same records as without Spark."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cleaner import LogManager
from cleaner.base.model import TopicPartition
from cleaner.spark import register
from cleaner.spark.source.columns import usual_columns
from tests.golden.fixtures import unpacked
from tests.golden.scenario import Step, steps
from tests.golden.test_reading import as_consumer
from tests.support.batch_builder import Producer, Record
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir
from tests.unit.spark_source.reading import Row, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["unpacked"]

pytest.importorskip("pyspark", reason="needs the extra `spark`")
pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="needs Java"),
    pytest.mark.xdist_group("spark"),
]
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "spark.md"
USUAL = usual_columns(headers=False)
SCENARIOS = ("broker-transactions", "headers-and-nulls", "legacy-magic")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Give one session for all tests here."""
    from cleaner.spark.clean.session import make_spark

    yield (session := register(make_spark("test", {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"})))
    session.stop()


def read(spark: SparkSession, path: Path | str, **options: str) -> DataFrame:
    """Return a log as a DataFrame."""
    return spark.read.format("kafkalog").options(**options).load(str(path))


def plain(frame: DataFrame) -> list[Row]:
    """Collect rows as `rows_of` has them: no Row, no bytearray, times as UTC."""
    return frame.toArrow().to_pylist()


def a_log(topic: str = "prices", partition: int = 0) -> LogBuilder:
    """Two segments of records with headers, one transaction aborted."""
    log = LogBuilder(TopicPartition(topic, partition), index_interval_bytes=0)
    for number in range(40):
        if number == 20:
            log.roll()
        log.append(Record(b"k%d" % (number % 5), b"v%d" % number, headers=((b"h", None),)), ("k", None), codec="lz4")
    log.append(("x", "aborted"), producer=Producer(9, 0, 0, transactional=True))
    log.end_transaction(9, 0, commit=False)
    return log


# ---- sessions and columns -------------------------------------------------------------------------------------------

ANY_SESSION = """
import sys
from pyspark.sql import SparkSession
import cleaner.spark

settings = {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
spark = SparkSession.builder.config(map=settings).getOrCreate()
for session in (spark, spark, spark.newSession()):
    reader = cleaner.spark.register(session).read.format("kafkalog").option("subscribe", "prices")
    logs = reader.option("kafka.bootstrap.servers", "broker:9092").option("groupIdPrefix", "g").load(sys.argv[1])
    print("rows", logs.count(), logs.selectExpr("min(offset)").first()[0])
"""


def test_registered_session_reads_logs_whatever_python_is_on_the_path(tmp_path: Path) -> None:
    """
    No virtual environment is active, no variable names a Python, and the directory is not a checkout.

    Options of Spark's Kafka source that ask for a broker may stay, and a line says that they do nothing.
    """
    write_log_dir(tmp_path / "logs", a_log())
    java = shutil.which("java")
    assert java is not None
    kept = ("HOME", "JAVA_HOME", "LANG", "SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"PATH": f"{Path(java).parent}:/usr/bin:/bin", "SPARK_LOCAL_IP": "127.0.0.1"}
    script = tmp_path / "query.py"
    script.write_text(f"import sys; sys.path.append({str(ROOT)!r})\n{ANY_SESSION}")
    command = [sys.executable, str(script), str(tmp_path / "logs")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    rows = [line for line in done.stdout.splitlines() if line.startswith("rows")]
    assert rows == ["rows 81 0"] * 3, done.stderr[-3000:]
    note = "kafkalog: no broker is asked; ignored: groupIdPrefix, kafka.bootstrap.servers\n"
    assert done.stderr.count(note) == 3  # once a frame


def columns_read(frame: DataFrame) -> set[str]:
    """Return the columns of each scan of a query."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return {" ".join(re.findall(r"(\w+)#", scan)) for scan in re.findall(r"BatchScan kafkalog\[(.*?)\]", plan)}


USES = {
    "SELECT sum(length(value)) FROM logs": {"value"},
    "SELECT count(*) FROM logs": {"partition"},
    "SELECT key FROM logs WHERE offset >= 30 AND value IS NOT NULL": {"key value offset"},
    "SELECT * FROM logs WHERE offset < 5": {" ".join(USUAL)},
    "SELECT offset, topic, timestamp FROM logs UNION ALL SELECT length(value), 'x', now() FROM logs WHERE false": {
        "topic offset timestamp"
    },
    "SELECT a.value, b.offset FROM logs a JOIN logs b ON a.key = b.key AND a.offset < 3": {
        "key value offset",
        "key offset",
    },
    "SELECT value FROM logs WHERE offset = (SELECT max(offset) - 2 FROM logs)": {"value offset", "offset"},
}


def test_query_reads_only_the_columns_it_uses(spark: SparkSession, tmp_path: Path) -> None:
    """Its answer is that of the same rows in memory, where Spark has all columns."""
    write_log_dir(tmp_path, a_log())
    frame = read(spark, tmp_path)
    frame.createOrReplaceTempView("logs")
    asked = {query: spark.sql(query) for query in USES}
    answers = {query: plain(rows) for query, rows in asked.items()}
    assert {query: columns_read(rows) for query, rows in asked.items()} == USES
    spark.createDataFrame(frame.toArrow()).createOrReplaceTempView("logs")
    for query, answer in answers.items():
        assert sorted(answer, key=str) == sorted(plain(spark.sql(query)), key=str)
        assert answer


def test_damage_is_counted_whatever_columns_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """With `report` a count has as many rows as a query of all columns."""
    log = write_log_dir(tmp_path, a_log()) / "prices-0" / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[80] ^= 1
    log.write_bytes(content)
    frame = read(spark, tmp_path, badBatches="report")
    assert frame.count() == len(frame.collect()) == 80
    assert frame.where("badBatch IS NULL").count() == 79


def test_session_that_takes_no_rule_warns_and_reads_all_columns(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's classes are its own, and may be other ones one day."""
    from cleaner.spark.source import prune

    write_log_dir(tmp_path, a_log())
    monkeypatch.setattr(prune, "rule_source", lambda: "public class PruneColumns extends of.Another.Version {}")
    with pytest.warns(UserWarning, match="reads all columns of a log; name those in use with the option columns"):
        session = register(spark.newSession())
    assert columns_read(read(session, tmp_path).select("key")) == {" ".join(USUAL)}
    assert columns_read(read(session, tmp_path, columns="key").select("key")) == {"key"}


# ---- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_brokers_log_is_read_as_its_consumer_reads_it(
    spark: SparkSession, scenario: str, unpacked: Callable[[str], Path]
) -> None:
    """Keys, values, times and headers, over many tasks, aborted records left out."""
    step: Step = next(each for each in steps() if each.scenario == scenario)
    log_dir = unpacked(scenario) / step.input
    topic, partition = TopicPartition.parse(step.partition)
    options = {"topics": topic, "partitions": str(partition), "maxPartitionBytes": "20k", "includeHeaders": "true"}
    rows = plain(read(spark, log_dir, isolationLevel="read_committed", **options).orderBy("offset"))
    assert rows == sorted(rows_of(log_dir, isolationLevel="read_committed", **options), key=lambda row: row["offset"])
    expected = [(r.key, r.value, r.offset) for r in as_consumer(log_dir / step.partition, committed=True)]
    assert [(row["key"], row["value"], row["offset"]) for row in rows] == expected


def test_filters_reach_the_plan_if_the_session_lets_them(spark: SparkSession, tmp_path: Path) -> None:
    """With Spark's own default they are asked of every record, and the answer is the same."""
    write_log_dir(tmp_path, a_log(), a_log("other", 3))
    shutil.copy(tmp_path / "prices-0" / f"{0:020d}.log", tmp_path / "sound.log")
    pushed = {"pushFilters": "true"}
    asked = "topic = 'prices' AND partition IN (0, 7) AND offset >= 50 AND offset < 60 AND timestamp > '2023-01-01'"
    (tmp_path / "prices-0" / f"{0:020d}.log").write_bytes(b"damage, which a plan that follows the filters never meets")
    assert [row["offset"] for row in plain(read(spark, tmp_path, **pushed).where(asked))] == list(range(50, 60))
    (tmp_path / "sound.log").rename(tmp_path / "prices-0" / f"{0:020d}.log")
    assert read(spark, tmp_path, **pushed).where("timestamp >= '2023-11-14T22:13:20.041Z'").count() == 2
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert [row["offset"] for row in plain(read(spark, tmp_path, **pushed).where(asked))] == list(range(50, 60))
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_frame_can_be_asked_again_whatever_was_asked_of_it_before(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would reuse the rows that one query's filters have left."""
    write_log_dir(tmp_path, a_log(), a_log(partition=1))
    frame = read(spark, tmp_path)
    counts = [frame.where(asked).count() for asked in ("partition = 0", "true", "offset < 10", "true")]
    assert counts == [81, 162, 20, 162]


def test_pattern_reads_all_log_dirs_and_refuses_a_partition_twice(spark: SparkSession, tmp_path: Path) -> None:
    """The error message with its advice reaches the user."""
    for name in ("a", "b"):
        write_log_dir(tmp_path / name, a_log(), a_log(name, 1))
    with pytest.raises(Exception, match=r"prices-0 is in 2 directories .*replica=longest"):
        read(spark, f"{tmp_path}/*").count()
    counts = read(spark, f"{tmp_path}/*", replica="longest").groupBy("topic").count().collect()
    assert {row["topic"]: row["count"] for row in counts} == {"prices": 81, "a": 81, "b": 81}


def test_damage_is_an_error_with_its_place_or_a_row(spark: SparkSession, tmp_path: Path) -> None:
    """`fail`, `skip` and `report`."""
    log = write_log_dir(tmp_path, a_log()) / "prices-0" / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[80] ^= 1
    log.write_bytes(content)
    with pytest.raises(Exception, match=r"at byte 0: the CRC-32C does not match.*badBatches=skip"):
        read(spark, tmp_path).count()
    assert read(spark, tmp_path, badBatches="skip").count() == 79
    (told,) = plain(read(spark, tmp_path, badBatches="report").where("badBatch IS NOT NULL"))
    assert (told["badBatch"]["file"], told["badBatch"]["position"]) == (str(log), 0)


def test_latest_per_key_is_one_row_a_key(spark: SparkSession, tmp_path: Path) -> None:
    """Of each partition, tombstones on request."""
    write_log_dir(tmp_path, a_log(), a_log(partition=1))
    latest = read(spark, tmp_path, latestPerKey="true", isolationLevel="read_committed")
    assert sorted((row["partition"], row["key"]) for row in plain(latest)) == [
        (partition, b"k%d" % number) for partition in (0, 1) for number in range(5)
    ]
    options: dict[str, Any] = {"latestPerKey": "true", "isolationLevel": "read_committed", "includeTombstones": "true"}
    assert read(spark, tmp_path, **options).where("value IS NULL").count() == 2


def test_unknown_option_is_refused_with_the_nearest(spark: SparkSession, tmp_path: Path) -> None:
    """When the DataFrame is made, before anything is read."""
    write_log_dir(tmp_path, a_log())
    with pytest.raises(Exception, match="no option 'topic'; the nearest is 'topics'"):
        read(spark, tmp_path, topic="prices")


def test_empty_log_dir_is_an_empty_frame(spark: SparkSession, tmp_path: Path) -> None:
    """With the usual schema."""
    write_log_dir(tmp_path, LogBuilder(timestamp_ms=START_MS))
    frame = read(spark, tmp_path, columns="offset,key")
    assert (frame.count(), frame.columns) == (0, ["offset", "key"])


# ---- writing and following ------------------------------------------------------------------------------------------


def test_frame_is_written_and_read_back(spark: SparkSession, tmp_path: Path) -> None:
    """By several tasks; rows that were read can be written unchanged, and get new offsets."""
    write_log_dir(tmp_path / "from", a_log(), a_log("other", 3))
    frame = read(spark, tmp_path / "from", isolationLevel="read_committed", includeHeaders="true")
    frame.repartitionByRange(3, "offset").sortWithinPartitions("topic", "offset").write.format("kafkalog").mode(
        "append"
    ).option("compression", "zstd").save(str(tmp_path / "to"))
    written = plain(read(spark, tmp_path / "to", includeHeaders="true").orderBy("topic", "offset"))
    assert written == plain(frame.orderBy("topic", "offset"))
    with LogManager(tmp_path / "to", cleaner=False) as manager:
        assert (manager.failed, sorted(manager.topics())) == ({}, ["other", "prices"])


def test_write_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Neither a task that dies, nor an existing partition; and nothing is replaced."""
    frame = spark.sql("SELECT 'v' AS value, IF(id = 3, -5, 0) AS partition, 't' AS topic FROM range(0, 4, 1, 4)")
    writer = frame.write.format("kafkalog").option("meta", "leave")
    with pytest.raises(Exception, match="partition -5: they count from 0"):
        writer.mode("append").save(str(tmp_path / "to"))
    # Tasks that were still running when the first one failed may leave directories that wait for their removal.
    assert not [path for path in (tmp_path / "to").iterdir() if not path.name.endswith("-delete")]
    with pytest.raises(Exception, match=r"does not replace a log; use mode\('append'\)"):
        writer.mode("overwrite").save(str(tmp_path / "to"))
    sound = frame.where("partition = 0").write.format("kafkalog").mode("append")
    sound.save(str(tmp_path / "to"))
    with pytest.raises(Exception, match="t-0: exists already"):
        sound.save(str(tmp_path / "to"))
    assert read(spark, tmp_path / "to").count() == 3
    assert [path.name for path in (tmp_path / "to").glob("t-*[0-9]")] == ["t-0"]


def test_stream_follows_rolled_segments(spark: SparkSession, tmp_path: Path) -> None:
    """A number of offsets at a time, nothing twice over restarts, and the active segment on request."""
    log = a_log()
    write_log_dir(tmp_path / "logs", log)

    def run(checkpoint: str = "checkpoint", **options: str) -> list[list[int]]:
        stream = spark.readStream.format("kafkalog").options(**options).load(str(tmp_path / "logs"))
        found: list[list[int]] = []
        query = (
            stream.select("offset")
            .writeStream.foreachBatch(lambda rows, _: found.append(sorted(row["offset"] for row in rows.collect())))
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return found

    assert run(maxOffsetsPerTrigger="15") == [list(range(15)), list(range(15, 30)), list(range(30, 40))]
    assert run() == []
    assert run(activeSegment="read") == [list(range(40, 81))]  # the marker behind it is no record
    assert run(activeSegment="read") == []
    log.roll()
    log.append(("later", "waits"))
    log.write(tmp_path / "logs")
    assert run() == []
    shutil.rmtree(tmp_path / "logs")
    other = LogBuilder(log.topic_partition)
    other.leader_epoch = 1
    other.append(*[("other", "log")] * 90)
    write_log_dir(tmp_path / "logs", other)
    with pytest.raises(Exception, match="it was truncated and rewritten; failOnDataLoss=false reads the rest"):
        run(activeSegment="read")


def test_each_line_of_the_page_answers_as_it_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/spark.md, in one session, from the first to the last."""
    monkeypatch.chdir(tmp_path)
    # A fence is no answer, and a doctest would take it for one.
    page = PAGE.read_text().replace("```", "")
    test = doctest.DocTestParser().get_doctest(page, {"spark": spark}, PAGE.name, str(PAGE), 0)
    assert len(test.examples) > 10
    told: list[str] = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append)
    assert results.failed == 0, "".join(told)
