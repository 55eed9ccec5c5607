"""`cleaner serve` of log dirs in buckets: the same answers as from a disk, whatever the service does meanwhile."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

import cleaner
from cleaner.app.serve_log_dirs import ServedLogDirs
from cleaner.base.remote_path import any_path
from cleaner.cli.main import main
from cleaner.errors import UsageError
from cleaner.serve import catalog, reading
from cleaner.serve.catalog import Catalog
from cleaner.serve.codes import Code
from cleaner.storage.fs.remote import RemoteFile, RemoteFiles
from cleaner.storage.fs.store import Limits
from tests.cleaner_run import wait_until
from tests.integration.log_dirs import keyed_log
from tests.integration.test_serve_command import started
from tests.support import s3_server as faults
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.object_servers import KINDS, environment_of, object_server, url_of
from tests.support.s3_server import BUCKET, Answer, S3Server, first
from tests.support.served import running
from tests.support.tiered_uploads import move, remove_local
from tests.support.wire_client import WireClient, frame_of, message_class, records_of

LIMITS = Limits(attempts=2, pause_seconds=0.01, silence_seconds=0.4, listing_seconds=0.2, least_ahead=4 << 10)
LOG = "00000000000000000000.log"


def a_log() -> LogBuilder:
    """Three segments, with transactions."""
    log = LogBuilder()
    for number in range(90):
        if number in (30, 60):
            log.roll()
        if number % 10 == 3:
            log.append((f"k{number % 7}", "t" * 300), producer=Producer(7, 0, number, transactional=True))
            log.end_transaction(7, 0, commit=number % 20 == 3)
        log.append((f"k{number % 7}", f"v{number}" * 40))
    return log


@pytest.fixture(scope="module", params=KINDS)
def bucket(request: pytest.FixtureRequest) -> Iterator[tuple[str, S3Server]]:
    kind = request.param
    with object_server(kind) as server, pytest.MonkeyPatch.context() as patch:
        server.make_bucket()
        for name, value in environment_of(kind, server).items():
            patch.setenv(name, value)
        yield url_of(kind, server), server


only_s3 = pytest.mark.parametrize("bucket", ["s3"], indirect=True)


@pytest.fixture
def served(bucket: tuple[str, S3Server], tmp_path: Path) -> Iterator[ServedLogDirs]:
    url, server = bucket
    server.upload(write_log_dir(tmp_path / "logs", a_log()), "kafka")
    with running(any_path(f"{url}/kafka"), fs=RemoteFiles(LIMITS)) as found:
        yield found
        server.faults.clear()
        room = found._server._parts.reader._room  # given back a moment after the client has its answer
        wait_until(lambda: room._taken == 0, "what was read and sent takes no room")


def all_of(port: int, *, committed: bool, at_once: int = 1 << 20) -> list[tuple[int, bytes | None]]:
    """Fetch a log to its end; offsets and keys."""
    found, offset = [], 0
    with WireClient(port) as client:
        while True:
            answer = client.fetch("topic", offset, isolation_level=int(committed), max_bytes=at_once)
            assert answer.error_code == Code.NONE
            records, behind = records_of(answer, offset, committed=committed)
            if behind == offset:
                return found
            found, offset = found + records, behind


def consumed(port: int, count: int) -> list[int]:
    """Read so many records with kafka-python; their offsets."""
    with contextlib.closing(
        KafkaConsumer(bootstrap_servers=f"127.0.0.1:{port}", retry_backoff_ms=20, reconnect_backoff_ms=20)
    ) as consumer:
        place = TopicPartition("topic", 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        found: list[int] = []
        for _ in range(200):
            found += [each.offset for each in consumer.poll(timeout_ms=300).get(place, ())]
            if len(found) >= count:
                break
        return found


@pytest.mark.parametrize("at_once", [1, 5000, 1 << 20])
def test_bucket_is_served_as_a_disk_is(served: ServedLogDirs, tmp_path: Path, at_once: int) -> None:
    """All records, those of aborted transactions, offsets by time, and the sizes."""
    with running(tmp_path / "logs") as disk:
        for committed in (True, False):
            found = all_of(served.address[1], committed=committed, at_once=at_once)
            assert found == all_of(disk.address[1], committed=committed, at_once=at_once)
        answers = []
        for port in (served.address[1], disk.address[1]):
            with contextlib.closing(KafkaConsumer(bootstrap_servers=f"127.0.0.1:{port}")) as consumer:
                place = TopicPartition("topic", 0)
                answers.append((consumer.end_offsets([place]), consumer.offsets_for_times({place: 1_700_000_000_050})))
        assert answers[0] == answers[1]
    assert len(all_of(served.address[1], committed=True)) == 95


@only_s3
def test_client_of_kafka_reads_on_through_faults(bucket: tuple[str, S3Server], served: ServedLogDirs) -> None:
    """Of all kinds; and of one that lasts for many fetches, which the client tries again by itself."""
    offsets = [offset for offset, _ in all_of(served.address[1], committed=False)]
    for fault in (faults.busy, faults.cut, faults.short, faults.silent):
        bucket[1].faults[:] = [first(7, fault)]
        assert consumed(served.address[1], len(offsets)) == offsets, fault.__name__
    assert served._server.counts["internal errors", ""] == 0


@only_s3
@pytest.mark.parametrize("fault", [faults.busy, faults.cut, faults.short, faults.silent, faults.denied])
def test_fault_that_stays_is_an_error_that_clients_repeat(
    bucket: tuple[str, S3Server], served: ServedLogDirs, fault: Callable[[Answer], None]
) -> None:
    """On the same connection; the topic is still there, and when it is over, so are its records."""
    check_fault_that_stays(bucket[1], served, fault)


def check_fault_that_stays(server: S3Server, served: ServedLogDirs, fault: Callable[[Answer], None]) -> None:
    """See above."""
    with WireClient(served.address[1]) as client:
        client.fetch("topic", 0, one={"partition_max_bytes": 1})  # what is found out once is known
        time.sleep(2 * LIMITS.listing_seconds)
        server.faults[:] = [fault_of_all(fault)]
        for _ in range(2):
            assert client.fetch("topic", 0).error_code == Code.KAFKA_STORAGE_ERROR
            assert [each.name for each in client.ask("Metadata", 9, topics=None).topics] == ["topic"]
        server.faults.clear()
        answer = client.fetch("topic", 0)
        assert answer.error_code == Code.NONE
        assert records_of(answer, 0, committed=False)[0][0] == (0, b"k0")
    assert served._server.counts["internal errors", ""] == 0
    assert served._server.counts["errors", "KAFKA_STORAGE_ERROR"] == 2


def _records_are_read_while_they_are_sent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reading, "_read", lambda extent, _room: extent)


def _topics_are_gone_with_the_service(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Catalog, "refresh", lambda self: self._look(is_first=False))


def _every_failure_is_damage(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(catalog, "code_of", lambda _error: Code.CORRUPT_MESSAGE)


def _failures_end_the_connection(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reading, "CleanerError", KeyError)


@only_s3
@pytest.mark.parametrize(
    "defect",
    [
        _records_are_read_while_they_are_sent,
        _topics_are_gone_with_the_service,
        _every_failure_is_damage,
        _failures_end_the_connection,
    ],
)
def test_planted_defect_is_found(
    bucket: tuple[str, S3Server],
    served: ServedLogDirs,
    defect: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check above fails with it."""
    defect(monkeypatch)
    with pytest.raises((AssertionError, EOFError)):
        check_fault_that_stays(bucket[1], served, faults.busy)


def fetch_values() -> dict[str, Any]:
    """Return the fields of a Fetch of all there is."""
    request = message_class("FetchRequest")
    one = request.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [request.FetchTopic(topic="topic", partitions=[one])]
    return {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, "topics": topics}


def fault_of_all(fault: Callable[[Answer], None]) -> Callable[[Answer], None]:
    """Return a fault of reads and listings."""
    return lambda answer: fault(answer) if answer.method == "GET" else None


def test_object_that_is_replaced_is_not_mixed(
    bucket: tuple[str, S3Server], served: ServedLogDirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the search for a batch and its bytes: an error that clients repeat, then the new bytes."""
    _, server = bucket
    other = LogBuilder()
    for number in range(90):
        other.append((f"other{number}", "x" * 300))
    data = other.files()[LOG]
    real, left = reading._read, [1]

    def replaced(*args: Any) -> Any:
        if left[0]:
            left[0] -= 1
            server.put(f"kafka/topic-0/{LOG}", data)
            served_files(args[0].extent.segment.file)._pieces.clear()
        return real(*args)

    monkeypatch.setattr(reading, "_read", replaced)
    with WireClient(served.address[1]) as client:
        assert client.fetch("topic", 0).error_code == Code.KAFKA_STORAGE_ERROR
        answer = client.fetch("topic", 0)
        assert answer.error_code == Code.NONE
        assert records_of(answer, 0, committed=False)[0][0] == (0, b"other0")


def served_files(file: RemoteFile) -> RemoteFiles:
    """Return what reads a file."""
    return file._files


@only_s3
def test_answers_take_bounded_memory(served: ServedLogDirs, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer has no more than its share, or one batch; without room it is empty, and has records a moment later."""
    monkeypatch.setattr(reading, "REMOTE_ANSWER_BYTES", 2000)
    room = served._server._parts.reader._room
    with WireClient(served.address[1]) as client:
        assert 0 < len(client.fetch("topic", 0).records) <= 2000
        wait_until(partial(room.take, reading._REMOTE_BYTES), "all room")  # sent a moment before it is given back
        answer = client.fetch("topic", 0)
        assert (answer.error_code, answer.records or b"") == (Code.NONE, b"")
        timer = threading.Timer(0.3, partial(room.free, reading._REMOTE_BYTES))
        timer.start()
        assert client.fetch("topic", 0, max_wait_ms=10_000).records
        timer.join()
    assert [offset for offset, _ in all_of(served.address[1], committed=False)][-1] == a_log().next_offset - 1


def test_room() -> None:
    """What is taken is within its size, or one thing alone; what is closed twice is given back once."""
    room = reading.Room(10)
    assert room.take(6)
    assert not room.take(5)
    assert room.take(4)
    records = reading.ReadRecords(b"1234", room, 4)
    records.close()
    records.close()
    assert records.size == 4
    assert room.take(4)
    room.free(10)
    assert room.take(50)
    assert not room.take(1)


@only_s3
def test_client_that_goes_leaves_no_room_taken(served: ServedLogDirs) -> None:
    """In the middle of an answer; the fixture looks at the room."""
    for _ in range(5):
        with WireClient(served.address[1]) as client:
            client.socket.sendall(frame_of("Fetch", 12, fetch_values()))
            client.socket.recv(10)
    assert all_of(served.address[1], committed=False)


@only_s3
def test_committed_offsets_that_do_not_come_are_waited_for(
    bucket: tuple[str, S3Server], served: ServedLogDirs, tmp_path: Path
) -> None:
    """While the bucket does not answer, a group is told to ask again, and not that it has no offsets."""
    url, server = bucket
    server.upload(write_log_dir(tmp_path / "more", keyed_log("__consumer_offsets-0")), "groups")
    with running(any_path(f"{url}/groups"), fs=RemoteFiles(LIMITS)) as found, WireClient(found.address[1]) as client:
        server.faults[:] = [fault_of_all(faults.busy)]
        assert client.ask("OffsetFetch", 7, group_id="g", topics=None).error_code == 14
        server.faults.clear()
        assert client.ask("OffsetFetch", 7, group_id="g", topics=None).error_code == 0


@only_s3
def test_joined_log_dir(bucket: tuple[str, S3Server], tmp_path: Path) -> None:
    """Moved segments come from the bucket, the others from the disk."""
    log = a_log()
    log_dir = write_log_dir(tmp_path / "logs", log)
    bases = sorted(int(name[:20]) for name in log.files() if name.endswith(".log"))
    move(log, tmp_path / "moved", bases[:2])
    bucket[1].upload(tmp_path / "moved", "tiered")
    remove_local(log_dir / "topic-0", bases[:2])
    url = any_path(f"tiered+{bucket[0]}/tiered::{log_dir}")
    with running(url, fs=RemoteFiles(LIMITS)) as found, running(write_log_dir(tmp_path / "whole", log)) as whole:
        wanted = all_of(whole.address[1], committed=True)
        assert all_of(found.address[1], committed=True) == wanted
        assert consumed(found.address[1], 3)[:3] == [0, 1, 2]


@only_s3
def test_library_and_refusals(bucket: tuple[str, S3Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A `with` block serves a bucket; cleaned copies are refused with the way around."""
    bucket[1].upload(write_log_dir(tmp_path / "logs", keyed_log()), "kafka")
    url = f"s3://{BUCKET}/kafka"
    with cleaner.serve_log_dirs([url]) as address:
        assert len(all_of(int(address.rpartition(":")[2]), committed=False)) == keyed_log().next_offset
    with pytest.raises(UsageError, match=r"--compacted needs a directory of this machine; .* `rclone copy`"):
        cleaner.serve_log_dirs(url, compacted=True).__enter__()
    assert main(["serve", url, "--compacted", "--listen", "127.0.0.1:0", "--as-root"]) == 2
    assert "copy the log dir to a disk first" in capsys.readouterr().err


@only_s3
def test_page(bucket: tuple[str, S3Server], tmp_path: Path) -> None:
    """docs/serve.md: the command as it stands there serves a bucket, and ends with SIGTERM."""
    bucket[1].upload(write_log_dir(tmp_path / "logs", keyed_log()), "kafka")
    page = (Path(__file__).parents[2] / "docs" / "serve.md").read_text()
    (command,) = (line for line in page.splitlines() if line.startswith("    cleaner serve s3://"))
    with started(f"{command.strip()} --listen 127.0.0.1:0") as (process, line):
        assert line.startswith("serving 1 topic, 1 partition at 127.0.0.1:"), process.communicate()
        port = int(line.partition("127.0.0.1:")[2].partition(",")[0])
        assert consumed(port, keyed_log().next_offset) == list(range(keyed_log().next_offset))
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stderr is not None and process.stderr.read() == ""
