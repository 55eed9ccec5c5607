"""What the endpoint answers, asked with the messages of another implementation of the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.record import MemoryRecords

from cleaner.app.serve_log_dirs import ServedLogDirs, serve_log_dirs
from cleaner.base.clock import SystemClock
from cleaner.base.model import TopicPartition
from cleaner.errors import ListenError, LogChangedError, UsageError
from cleaner.log.manager import LogManager
from cleaner.log.record import Record
from cleaner.read.directory_view import DirectoryView
from cleaner.serve import catalog as served_catalog
from cleaner.serve.api import load_apis
from cleaner.serve.codes import READ_ONLY, Code
from cleaner.serve.partition import FileRecords, Partition
from cleaner.storage.files.kafka_uuid import parse_uuid
from cleaner.storage.fs.file_system import FileSystem
from tests.support.batch_builder import Producer
from tests.support.log_builder import START_MS, TOPIC_ID, LogBuilder, write_log_dir
from tests.support.served import serving
from tests.support.wire_client import WireClient, message_class, parsed

PRICES = TopicPartition("prices", 0)


def prices() -> LogBuilder:
    """Return a log of three segments: offsets 0-2 a committed transaction, 3-5 an aborted one, 6-9 packed."""
    log = LogBuilder(PRICES, index_interval_bytes=1)
    log.append(("k0", "v0"), ("k1", "v1"), producer=Producer(7, 0, 0, transactional=True))
    log.end_transaction(7, 0, commit=True)
    log.roll()
    log.append(("k2", "a0"), ("k3", "a1"), producer=Producer(8, 0, 0, transactional=True))
    log.end_transaction(8, 0, commit=False)
    log.leader_epoch = 3
    log.append(*((f"k{n}", "v") for n in range(4)), codec="gzip")
    log.roll()
    log.skip(5)
    log.append(("k9", "last"))
    return log


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    log_dir = tmp_path_factory.mktemp("served")
    write_log_dir(log_dir, prices(), LogBuilder(TopicPartition("empty", 2)))
    with serving(log_dir) as port:
        yield port


@pytest.fixture
def client(port: int) -> Iterator[WireClient]:
    with WireClient(port) as client:
        yield client


def offsets_in(fetched: Any) -> list[int]:
    records = MemoryRecords(bytes(fetched.records or b""))
    found = []
    while records.has_next():
        batch = records.next_batch()
        found += [] if batch.is_control_batch else [record.offset for record in batch]
    return found


@pytest.mark.parametrize("is_late", ["begin", "end"])
def test_interrupt_leaves_no_server_at_work_behind_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_late: str
) -> None:
    """Neither one that comes while it begins, nor one that comes while it is waited for."""
    write_log_dir(tmp_path, LogBuilder(PRICES))
    real = ServedLogDirs.run

    def run(served: ServedLogDirs, *started: Any) -> None:
        time.sleep(0.3 if is_late == "begin" else 0)
        real(served, *started)
        time.sleep(0.3 if is_late == "end" else 0)

    monkeypatch.setattr(ServedLogDirs, "run", run)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            if is_late == "begin":
                signal.setitimer(signal.ITIMER_REAL, 0.1)
            with serve_log_dirs(tmp_path):
                assert is_late == "end"
                signal.setitimer(signal.ITIMER_REAL, 0.1)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not [thread for thread in threading.enumerate() if thread.name == "cleaner-serve"]


def test_last_stable_offset_is_not_below_a_log_start_that_rises_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer of committed records is told of no end in front of the log (R-407)."""
    log = LogBuilder(PRICES)
    log.append(("k0", "v0"), ("k1", "v1"), producer=Producer(7, 0, 0, transactional=True))
    log.roll()
    log.append(("k2", "v2"))
    write_log_dir(tmp_path, log)
    real: property = vars(DirectoryView)["last_stable_offset"]

    def last_stable_offset(view: DirectoryView) -> int:
        found: int = real.__get__(view)
        (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nprices 0 2\n")
        return found

    monkeypatch.setattr(DirectoryView, "last_stable_offset", property(last_stable_offset))
    with contextlib.closing(Partition(FileSystem(), tmp_path, PRICES, SystemClock(), tmp_path)) as partition:
        reach = partition.reach(committed=True)
    assert (reach.start, reach.last_stable, reach.high_watermark) == (2, 2, 3)


def test_versions(client: WireClient) -> None:
    """What is offered is named, from the first to the last version; an unknown version gets the oldest answer."""
    apis = load_apis()
    for version in range(5):
        rows = client.ask("ApiVersions", version, client_software_name="t", client_software_version="1").api_keys
        offered = {row.api_key: (row.min_version, row.max_version) for row in rows}
        assert offered == {number: api.versions for number, api in apis.items()}
    client.socket.sendall((10 + 2).to_bytes(4, "big") + bytes((0, 18, 0, 99, 0, 0, 0, 7, 0, 1)) + b"tx")
    answer = message_class("ApiVersionsResponse").decode(client.frame(), version=0, header=True)
    assert answer.error_code == Code.UNSUPPORTED_VERSION and answer.api_keys


@pytest.mark.parametrize("version", range(13))
def test_metadata(client: WireClient, version: int, port: int) -> None:
    """Every version has the one broker, at the address under which the client came, and all topics."""
    answer = client.ask("Metadata", version, topics=[] if version == 0 else None)
    assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [(0, "127.0.0.1", port)]
    topics = {each.name: [row.partition_index for row in each.partitions] for each in answer.topics}
    assert topics == {"prices": [0], "empty": [2]}
    if version >= 7:
        epochs = {each.name: each.partitions[0].leader_epoch for each in answer.topics}
        assert epochs == {"prices": 3, "empty": -1}


def test_bytes_behind_a_request(client: WireClient) -> None:
    """They are ignored, as by a broker: librdkafka's list of topics is such a request."""
    frame = bytes.fromhex("0003000c00000007000772646b61666b61" + "0000000000010000")
    client.socket.sendall(len(frame).to_bytes(4, "big") + frame)
    topics = parsed("Metadata", 12, client.frame()).topics
    assert {each.name for each in topics} == {"prices", "empty"}


def test_metadata_of_named_topics(client: WireClient) -> None:
    """By name and by id, and what is not here is said so."""
    asked = message_class("MetadataRequest").MetadataRequestTopic
    topics = [asked(name="prices", topic_id=None), asked(name="nothing", topic_id=None)]
    topics += [asked(name=None, topic_id=uuid.UUID(int=5))]
    answer = client.ask("Metadata", 12, topics=topics).topics
    assert [(each.name, each.error_code) for each in answer] == [
        ("prices", 0),
        ("nothing", Code.UNKNOWN_TOPIC_OR_PARTITION),
        (None, Code.UNKNOWN_TOPIC_ID),
    ]
    by_id = client.ask("Metadata", 12, topics=[asked(name=None, topic_id=answer[0].topic_id)]).topics
    assert [each.name for each in by_id] == ["prices"]


@pytest.mark.parametrize("version", [4, 7, 11, 12])
def test_fetch_in_every_version(client: WireClient, version: int) -> None:
    """An answer has the batches from the one with the wanted offset on, up to the end of its segment."""
    assert offsets_in(client.fetch("prices", 0, version)) == [0, 1]
    first = client.fetch("prices", 4, version)
    assert offsets_in(first) == [3, 4, 6, 7, 8, 9]
    assert (first.error_code, first.high_watermark) == (0, 16)
    assert offsets_in(client.fetch("prices", 10, version)) == [15]
    assert offsets_in(client.fetch("prices", 16, version)) == []


@pytest.mark.parametrize("version", [13, 16])
def test_fetch_by_id(client: WireClient, version: int) -> None:
    """From version 13 on topics are named by their ids, also when the directories have none of their own."""
    ids = {each.name: each.topic_id for each in client.ask("Metadata", 12, topics=None).topics}
    assert parse_uuid(TOPIC_ID) in ids.values() and ids["empty"] != ids["prices"]
    assert offsets_in(client.fetch(ids["prices"], 0, version)) == [0, 1]
    assert client.fetch(uuid.UUID(int=9), 0, version).error_code == Code.UNKNOWN_TOPIC_ID


def test_fetch_refusals(client: WireClient) -> None:
    """Offsets outside of the log, unknown partitions and sessions have Kafka's codes."""
    assert client.fetch("prices", 17).error_code == Code.OFFSET_OUT_OF_RANGE
    assert client.fetch("prices", -1).error_code == Code.OFFSET_OUT_OF_RANGE
    assert client.fetch("prices", 0, partition=1).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert client.fetch("nothing", 0).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert client.fetch("prices", 0, session_id=4, session_epoch=1).error_code == Code.FETCH_SESSION_ID_NOT_FOUND


def test_fetch_within_its_bytes(client: WireClient) -> None:
    """The first batch is whole, whatever the client allows; what is behind it may be cut."""
    tiny = client.fetch("prices", 4, max_bytes=1, one={"partition_max_bytes": 1})
    assert offsets_in(tiny) == [3, 4]
    whole = len(client.fetch("prices", 4).records)
    cut = client.fetch("prices", 4, one={"partition_max_bytes": whole - 1})
    assert len(cut.records) == whole - 1


def test_read_committed(client: WireClient) -> None:
    """An answer names the aborted transactions of its batches, and no others."""
    assert client.fetch("prices", 0, isolation_level=1).aborted_transactions == []
    fetched = client.fetch("prices", 4, isolation_level=1)
    assert [(each.producer_id, each.first_offset) for each in fetched.aborted_transactions] == [(8, 3)]
    assert fetched.last_stable_offset == 16
    assert client.fetch("prices", 4).aborted_transactions is None


def test_open_transaction_and_high_watermark(tmp_path: Path) -> None:
    """Committed records end before an open transaction; all records end at the high watermark, within a segment."""
    log = LogBuilder(PRICES)
    log.append(("a", "1"))
    log.append(("b", "2"), producer=Producer(7, 0, 0, transactional=True))
    log.append(("c", "3"))
    log.append(("d", "4"))
    write_log_dir(tmp_path, log, high_watermarks={PRICES: 3}, log_start_offsets={PRICES: 1})
    with serving(tmp_path) as port, WireClient(port) as client:
        assert client.fetch("prices", 0).error_code == Code.OFFSET_OUT_OF_RANGE
        assert offsets_in(client.fetch("prices", 1)) == [1, 2]
        # Somebody may have read so far before a crash lowered the high watermark: there is nothing yet, as in a broker.
        beyond = client.fetch("prices", 4)
        assert (beyond.error_code, beyond.records) == (0, b"")
        assert client.fetch("prices", 5).error_code == Code.OFFSET_OUT_OF_RANGE
        committed = client.fetch("prices", 1, isolation_level=1)
        assert (offsets_in(committed), committed.last_stable_offset) == ([], 1)
        assert [latest(client, level) for level in (0, 1)] == [3, 1]


def latest(client: WireClient, isolation_level: int) -> int:
    return offset_at(client, -1, isolation_level)[0]


def offset_at(client: WireClient, timestamp: int, isolation_level: int = 0) -> tuple[int, int]:
    topic = message_class("ListOffsetsRequest").ListOffsetsTopic
    one = topic.ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)
    answer = client.ask(
        "ListOffsets",
        8,
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[topic(name="prices", partitions=[one])],
    )
    row = answer.topics[0].partitions[0]
    assert row.error_code == 0
    return row.offset, row.timestamp


def test_the_system_sends_no_pages_of_a_file_that_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a client has not taken yet would change with a cut; without a writer that is quicker, and sound."""
    sent: list[int] = []
    real = asyncio.BaseEventLoop.sendfile

    def sendfile(*args: Any, **named: Any) -> Any:
        sent.append(1)
        return real(*args, **named)

    monkeypatch.setattr(asyncio.BaseEventLoop, "sendfile", sendfile)
    with LogManager(tmp_path, create=True, cleaner=False) as manager:
        manager.create_topic("prices")
        manager.log("prices").append([Record(b"k", bytes(20_000))]).durable.result(10)
        with serving(tmp_path) as port, WireClient(port) as client:
            written = bytes(client.fetch("prices", 0).records)
    assert (len(written) > 20_000, sent) == (True, [])
    with serving(tmp_path) as port, WireClient(port) as client:
        assert bytes(client.fetch("prices", 0).records) == written
    assert sent == [1]


@pytest.mark.parametrize("size", [10, 4096, 20_000])
def test_log_that_is_cut_while_it_is_sent_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Before the last bytes, so that the client has no answer, and asks again."""
    log = LogBuilder(PRICES)
    log.append(("key", "x" * size))
    write_log_dir(tmp_path, log)
    real, voids = FileRecords.read_end, [LogChangedError("cut")]

    def read_end(records: FileRecords, size: int) -> bytes:
        if voids:
            raise voids.pop()
        return real(records, size)

    monkeypatch.setattr(FileRecords, "read_end", read_end)
    with serving(tmp_path) as port:
        with WireClient(port) as client, pytest.raises(EOFError):
            client.fetch("prices", 0)
        with WireClient(port) as client:
            assert bytes(client.fetch("prices", 0).records) == (tmp_path / str(PRICES) / f"{0:020}.log").read_bytes()


def test_offsets_by_time(client: WireClient) -> None:
    """Earliest, latest, the first that is not older, the largest time, and none."""
    assert offset_at(client, -2) == (0, -1)
    assert offset_at(client, -4) == (0, -1)
    assert offset_at(client, -1) == (16, -1)
    assert offset_at(client, -3) == (15, START_MS + 6)
    assert offset_at(client, START_MS + 4) == (5, START_MS + 4)
    assert offset_at(client, START_MS + 7) == (-1, -1)
    assert offset_at(client, -5) == (-1, -1)


@pytest.mark.parametrize(("epoch", "expected"), [(0, (0, 6)), (1, (0, 6)), (3, (3, 16)), (4, (-1, -1))])
def test_ends_of_epochs(client: WireClient, epoch: int, expected: tuple[int, int]) -> None:
    """As Kafka answers: the known epoch at or below, and where the next one begins."""
    request = message_class("OffsetForLeaderEpochRequest").OffsetForLeaderTopic
    one = request.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
    for version in (2, 4):
        answer = client.ask(
            "OffsetForLeaderEpoch", version, replica_id=-1, topics=[request(topic="prices", partitions=[one])]
        )
        row = answer.topics[0].partitions[0]
        assert (row.leader_epoch, row.end_offset) == expected


def test_descriptions(client: WireClient, port: int) -> None:
    """The cluster, the settings of a topic, and the log dirs."""
    cluster = client.ask("DescribeCluster", 1, endpoint_type=1)
    assert [(each.broker_id, each.port) for each in cluster.brokers] == [(0, port)]
    resource = message_class("DescribeConfigsRequest").DescribeConfigsResource
    asked = [
        resource(resource_type=2, resource_name=name, configuration_keys=keys)
        for name, keys in (("prices", ["cleanup.policy"]), ("nothing", None))
    ]
    results = client.ask("DescribeConfigs", 4, resources=asked).results
    assert [(each.name, each.value, each.read_only) for each in results[0].configs] == [
        ("cleanup.policy", "delete", True)
    ]
    assert results[1].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    (place,) = client.ask("DescribeLogDirs", 4, topics=None).results
    assert {each.name: each.partitions[0].partition_size > 0 for each in place.topics} == {
        "prices": True,
        "empty": False,
    }


def test_everything_that_writes_is_refused(client: WireClient) -> None:
    """A producer, an administrator and a transaction are told, for each thing they named, and the connection stays."""
    produce = message_class("ProduceRequest").TopicProduceData
    data = [produce(name="prices", partition_data=[produce.PartitionProduceData(index=4, records=b"x")])]
    answer = client.ask("Produce", 9, transactional_id=None, acks=-1, timeout_ms=1, topic_data=data)
    row = answer.responses[0].partition_responses[0]
    assert (answer.responses[0].name, row.index) == ("prices", 4)
    assert (row.error_code, row.error_message) == (Code.TOPIC_AUTHORIZATION_FAILED, READ_ONLY)

    topic = message_class("CreateTopicsRequest").CreatableTopic
    new = topic(name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    created = client.ask("CreateTopics", 7, topics=[new], timeout_ms=1, validate_only=False).topics[0]
    assert (created.name, created.error_code) == ("new", Code.CLUSTER_AUTHORIZATION_FAILED)

    for version in (1, 5):
        deleted = client.ask("DeleteTopics", version, topic_names=["prices"], timeout_ms=1).responses[0]
        assert (deleted.name, deleted.error_code) == ("prices", Code.TOPIC_AUTHORIZATION_FAILED)

    started = client.ask("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1)
    assert (started.error_code, started.producer_id) == (Code.CLUSTER_AUTHORIZATION_FAILED, -1)

    records = message_class("DeleteRecordsRequest").DeleteRecordsTopic
    one = records(name="prices", partitions=[records.DeleteRecordsPartition(partition_index=3, offset=1)])
    cut = client.ask("DeleteRecords", 2, topics=[one], timeout_ms=1).topics[0].partitions[0]
    assert (cut.partition_index, cut.error_code) == (3, Code.TOPIC_AUTHORIZATION_FAILED)

    resource = message_class("IncrementalAlterConfigsRequest").AlterConfigsResource
    altered = client.ask(
        "IncrementalAlterConfigs",
        1,
        resources=[resource(resource_type=2, resource_name="prices", configs=[])],
        validate_only=False,
    ).responses[0]
    assert (altered.resource_name, altered.error_code) == ("prices", Code.CLUSTER_AUTHORIZATION_FAILED)

    more = message_class("CreatePartitionsRequest").CreatePartitionsTopic
    grown = client.ask(
        "CreatePartitions",
        3,
        topics=[more(name="prices", count=2, assignments=None)],
        timeout_ms=1,
        validate_only=False,
    ).results[0]
    assert (grown.name, grown.error_code) == ("prices", Code.TOPIC_AUTHORIZATION_FAILED)


def test_topic_that_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that knows the old one by its id is told that it is gone; by name it gets the new one."""
    monkeypatch.setattr(served_catalog, "_FRESH_NS", 0)
    old, new = LogBuilder(PRICES), LogBuilder(PRICES)
    old.append(("k", "old"))
    new.append(("k", "new"), ("k", "newer"))
    for name, log in (("old", old), ("new", new)):
        write_log_dir(tmp_path / name, log)
    metadata = tmp_path / "new" / "prices-0" / "partition.metadata"
    metadata.write_text(metadata.read_text().replace(TOPIC_ID, "A" * 20 + "BQ"))
    with serving(tmp_path / "old") as port, WireClient(port) as client:
        assert offsets_in(client.fetch("prices", 0)) == [0]
        known = client.ask("Metadata", 12, topics=None).topics[0].topic_id
        shutil.rmtree(tmp_path / "old" / "prices-0")
        (tmp_path / "new" / "prices-0").rename(tmp_path / "old" / "prices-0")
        assert client.fetch(known, 0, 13).error_code == Code.KAFKA_STORAGE_ERROR
        assert client.ask("Metadata", 12, topics=None).topics[0].topic_id == uuid.UUID(int=5)
        assert client.fetch(known, 0, 13).error_code == Code.UNKNOWN_TOPIC_ID
        assert offsets_in(client.fetch("prices", 0)) == [0, 1]


def test_where_it_does_not_begin(tmp_path: Path) -> None:
    """Not for addresses of others, not with a partition twice, not at a port that is taken, not without a log dir."""
    from cleaner.app.options import CallContext
    from cleaner.app.serve_log_dirs import ServedLogDirs
    from cleaner.settings.sources import Sources

    for name in ("a", "b"):
        write_log_dir(tmp_path / name, prices())

    def begin(*names: str, host: str = "127.0.0.1", port: int = 0) -> None:
        directories = [tmp_path / name for name in names]
        ServedLogDirs(directories, Sources(), CallContext.of(), listen_at=(host, port)).close()

    with pytest.raises(UsageError, match="--access FILE"):
        begin("a", host="0.0.0.0")  # noqa: S104 - refused
    with pytest.raises(UsageError, match=r"prices-0 is in .*a and in .*b"):
        begin("a", "b")
    with pytest.raises(UsageError, match="no such directory"):
        begin("c")
    with serving(tmp_path / "a") as port, pytest.raises(ListenError, match=f"--listen 127.0.0.1:{port}"):
        begin("a", port=port)


def test_topics_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is copied in is found, one that is removed is gone, and its reader is told."""
    monkeypatch.setattr("cleaner.serve.catalog._FRESH_NS", 0)
    write_log_dir(tmp_path, prices())
    with serving(tmp_path) as port, WireClient(port) as client:
        LogBuilder(TopicPartition("later", 0)).write(tmp_path)
        assert {each.name for each in client.ask("Metadata", 9, topics=None).topics} == {"prices", "later"}
        (tmp_path / "prices-0").rename(tmp_path.parent / "elsewhere")
        assert client.fetch("prices", 0).error_code == Code.KAFKA_STORAGE_ERROR
        assert {each.name for each in client.ask("Metadata", 9, topics=None).topics} == {"later"}
        assert client.fetch("prices", 0).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_partition_that_is_a_link_is_named_once(tmp_path: Path) -> None:
    """It is not served: nobody would know why."""
    log_dir = write_log_dir(tmp_path / "logs", prices())
    (log_dir / "other-0").symlink_to(log_dir / "prices-0")
    said: list[str] = []
    with serving(log_dir, warn=said.append):
        pass
    assert len(said) == 1 and "logs/other-0: left out: a symbolic link" in said[0]
