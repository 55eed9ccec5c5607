"""
`cleaner serve` as the source of others' programs.

MirrorMaker 2 copies a backup into a broker, Spark reads it, and Kafka's own consumer logs in over TLS.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cleaner
from cleaner import LogManager, Record
from cleaner.app.options import CallContext
from cleaner.present.http.endpoint import access_of
from tests.kafka.broker import Broker, BrokerFailed, Client, ClientFailed, Consumed, wait_until
from tests.kafka.rig import MIRROR, SPARK, Rig, Unavailable
from tests.support.served import running
from tests.unit.present.test_passwords import hashed
from tests.unit.present.test_web_config import certificate as certificate

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPIC = "prices"


def backup(log_dir: Path) -> None:
    """Write every kind of record, and transactions of both outcomes."""
    with LogManager(log_dir, create=True, cleaner=False) as manager:
        manager.create_topic(TOPIC, 1)
        log = manager.log(TOPIC)
        for number in range(3000):
            headers = (("n", str(number).encode()), ("null", None)) if number % 7 == 0 else ()
            value = None if number % 11 == 0 else b"v" * (number % 300)
            log.append([Record(f"k{number % 97}".encode(), value, headers, 1_700_000_000_000 + number)])
            if number % 1000 == 500:
                log.roll()
        producer = log.producer("payments")
        for number in range(6):
            try:
                with producer.transaction():
                    producer.append([Record(b"t%d" % number, b"in a transaction")])
                    1 // (number % 2)
            except ZeroDivisionError:
                continue
        log.append([Record(b"last", b"one", (), 1_700_000_009_000)])


def expected(log_dir: Path, isolation: str = "read_committed") -> list[tuple[object, ...]]:
    """Return what a consumer must find, besides offsets."""
    with cleaner.open_reader(log_dir, TOPIC, 0) as reader:
        return [
            (each.timestamp_ms, each.key, each.value, tuple(each.headers))
            for each in reader.read(0, isolation=isolation)
        ]


def found_in(records: list[Consumed]) -> list[tuple[object, ...]]:
    """Return the same of what a broker has."""
    return [(each.timestamp, each.key, each.value, each.headers) for each in records]


def test_mirror_maker_copies_a_backup_into_a_broker(
    kafka: Rig, clients: Callable[[Rig], Client], tmp_path: Path
) -> None:
    """Every record, with key, value, headers and time, in order; of transactions what was committed."""
    try:
        mirror = Rig.load_tools(MIRROR)
    except Unavailable as error:
        pytest.skip(str(error))
    backup(tmp_path / "backup")
    wanted = expected(tmp_path / "backup")
    with running(tmp_path / "backup") as served, Broker(kafka, clients(kafka), tmp_path / "broker") as broker:
        settings = tmp_path / "mm2.properties"
        settings.write_text(
            "\n".join(
                (
                    "clusters=backup,cluster",
                    f"backup.bootstrap.servers={served.address}",
                    f"cluster.bootstrap.servers={broker.address}",
                    "backup->cluster.enabled=true",
                    "cluster->backup.enabled=false",
                    f"backup->cluster.topics={TOPIC}",
                    # What it would write to its source goes to its target.
                    "backup->cluster.offset-syncs.topic.location=target",
                    "backup->cluster.emit.heartbeats.enabled=false",
                    "cluster->backup.emit.heartbeats.enabled=false",
                    "backup->cluster.sync.topic.acls.enabled=false",
                    "replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
                    "replication.factor=1",
                    "offset-syncs.topic.replication.factor=1",
                    "checkpoints.topic.replication.factor=1",
                    "heartbeats.topic.replication.factor=1",
                    "offset.storage.replication.factor=1",
                    "config.storage.replication.factor=1",
                    "status.storage.replication.factor=1",
                    "backup.consumer.isolation.level=read_committed",
                    "consumer.auto.offset.reset=earliest",
                    "dedicated.mode.enable.internal.rest=false",
                )
            )
        )
        command = mirror.command(
            "org.apache.kafka.connect.mirror.MirrorMaker", settings, "--clusters", "cluster", log_level="info"
        )
        with (tmp_path / "mirror.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                wait_until(lambda: len(found(broker)) >= len(wanted), "not all copied", lambda: process.poll() is None)
            except BrokerFailed as error:
                said = (tmp_path / "mirror.log").read_text()[-6000:]
                pytest.fail(f"{error}: {len(found(broker))} of {len(wanted)}\n{said}")
            finally:
                process.terminate()
                process.wait(60)
        assert found(broker) == wanted


def found(broker: Broker) -> list[tuple[object, ...]]:
    """Return what was copied so far."""
    if not list(broker.log_dir.glob(f"{TOPIC}-0")):
        return []
    return found_in(broker.read([TOPIC], committed=True)[TOPIC])


def test_kafkas_consumer_logs_in_over_tls(
    each_kafka: Rig, clients: Callable[[Rig], Client], certificate: Path, tmp_path: Path
) -> None:
    """Beyond loopback, as one of the users; with another password it is told why it may not."""
    backup(tmp_path / "backup")
    access = tmp_path / "access.yml"
    access.write_text(
        f"tls_server_config:\n  cert_file: {certificate}/a.crt\n  key_file: {certificate}/a.key\n"
        f"basic_auth_users:\n  ann: {hashed('one')}\n"
    )
    more = {"access": access_of(access, CallContext.of()), "listen_at": ("0.0.0.0", 0)}  # noqa: S104
    with running(tmp_path / "backup", **more) as served:

        def read(password: str) -> int:
            settings = {
                "isolation.level": "read_committed",
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(certificate / "a.crt"),
                "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
                f'username="ann" password="{password}";',
            }
            order = {"verb": "read", "bootstrap": f"127.0.0.1:{served.address.port}", "topics": [TOPIC]}
            return len(clients(each_kafka).ask(order | {"settings": settings}))

        assert read("one") == len(expected(tmp_path / "backup"))
        with pytest.raises(ClientFailed, match="SaslAuthenticationException"):
            read("two")


_JOB = """
import json, sys
from pyspark.sql import SparkSession

address, topic, isolation, *jars = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]").config("spark.jars", ",".join(jars)).config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
)
frame = (
    spark.read.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic)
    .option("includeHeaders", "true").option("kafka.isolation.level", isolation).load()
)
shown = lambda value: None if value is None else bytes(value).hex()
for row in frame.orderBy("offset").collect():
    headers = [(each.key, shown(each.value)) for each in row.headers or ()]
    print(json.dumps([round(row.timestamp.timestamp() * 1000), shown(row.key), shown(row.value), headers]))
"""


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_sparks_kafka_source_reads_a_backup(tmp_path: Path, isolation: str) -> None:
    """Every record, with key, value, headers and time."""
    pytest.importorskip("pyspark")
    try:
        source = Rig.load_tools(SPARK)
    except Unavailable as error:
        pytest.skip(str(error))
    wanted = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
    jars = [path for path in source.jars.iterdir() if path.name.startswith(wanted)]
    backup(tmp_path / "backup")
    with running(tmp_path / "backup") as served:
        command = [sys.executable, "-c", _JOB, served.address, TOPIC, isolation, *jars]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    rows = (json.loads(line) for line in done.stdout.splitlines())
    assert [(at, _raw(key), _raw(value), _headers(more)) for at, key, value, more in rows] == expected(
        tmp_path / "backup", isolation
    )


def _raw(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _headers(rows: list[tuple[str, str | None]]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, _raw(value)) for name, value in rows)
