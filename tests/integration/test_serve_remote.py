"""`cleaner serve` of log dirs in buckets: the same answers as from a disk, whatever the service does meanwhile."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

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
    """A `with` block serves a bucket; copies are not put into one."""
    bucket[1].upload(write_log_dir(tmp_path / "logs", keyed_log()), "kafka")
    url = f"s3://{BUCKET}/kafka"
    with cleaner.serve_log_dirs([url]) as address:
        assert len(all_of(int(address.rpartition(":")[2]), committed=False)) == keyed_log().next_offset
    with pytest.raises(UsageError, match="--compacted: no topic here is known to be compacted"):
        cleaner.serve_log_dirs(url, compacted=True).__enter__()
    command = ["serve", url, "--compacted", "--listen", "127.0.0.1:0", "--as-root", "--scratch", url]
    assert main([*command, "--set", "topic:cleanup.policy=compact"]) == 2
    assert "a bucket is only read" in capsys.readouterr().err


COMPACTED: dict[str, Any] = {"settings": {"log.cleanup.policy": "compact"}, "compacted": True}


def records_at(port: int, *, committed: bool) -> list[tuple[int, bytes | None, bytes | None, int]]:
    """Return offset, key, value and time of all records that a client gets."""
    level = "read_committed" if committed else "read_uncommitted"
    with contextlib.closing(
        KafkaConsumer(bootstrap_servers=f"127.0.0.1:{port}", isolation_level=level, check_crcs=True)
    ) as consumer:
        place = TopicPartition("topic", 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        end, found = consumer.end_offsets([place])[place], []
        until = time.monotonic() + 30
        while consumer.position(place) < end and time.monotonic() < until:
            for each in consumer.poll(timeout_ms=200).get(place, ()):
                found.append((each.offset, each.key, each.value, each.timestamp))
        assert consumer.position(place) == end
        return found


def a_packed_log(*codecs: str) -> LogBuilder:
    """A segment of each codec, with transactions, one of them open, and tombstones."""
    log = LogBuilder()
    for codec in codecs:
        for number in range(12):
            log.append(*((f"k{(number + each) % 9}", f"{codec}{number}" * 30) for each in range(3)), codec=codec)
        log.append((f"gone-{codec}", "v"), codec=codec)
        log.append((f"gone-{codec}", None), codec=codec)
        for number, commits in enumerate((True, False)):
            log.append((f"t{number}", codec), producer=Producer(7 + number, 0, 0, transactional=True), codec=codec)
            log.end_transaction(7 + number, 0, commit=commits)
        log.roll()
    log.append(("k0", "open"), producer=Producer(9, 0, 0, transactional=True))
    log.append(("k1", "behind it"))
    return log


@pytest.mark.parametrize("fault", [None, faults.busy, faults.cut, faults.short, faults.silent, faults.trickling])
def test_compacted_bucket_is_served_as_a_compacted_disk_is(
    bucket: tuple[str, S3Server], tmp_path: Path, fault: Callable[[Answer], None] | None
) -> None:
    """The same records, of compressed and transactional data, and each key once; whatever comes between."""
    url, server = bucket
    if fault is not None and not url.startswith("s3:"):
        return
    log_dir, scratch = write_log_dir(tmp_path / "logs", a_packed_log("gzip", "none")), tmp_path / "scratch"
    scratch.mkdir()
    server.upload(log_dir, tmp_path.name)
    server.faults[:] = [] if fault is None else [first(1, fault)]
    warnings: list[str] = []
    try:
        with (
            running(log_dir, **COMPACTED) as disk,
            running(
                any_path(f"{url}/{tmp_path.name}"),
                fs=RemoteFiles(LIMITS),
                scratch=scratch,
                warn=warnings.append,
                **COMPACTED,
            ) as served,
        ):
            for committed in (True, False):
                found = records_at(served.address[1], committed=committed)
                assert found == records_at(disk.address[1], committed=committed)
                assert found
            keys = [key for _, key, _, _ in records_at(served.address[1], committed=True)]
            assert len(keys) == len(set(keys))
            asked = len(server.requests)
            assert all_of(served.address[1], committed=True)
            assert len(server.requests) == asked, "clients are served from the copies"
            assert served.compacted == 1
        assert warnings == []
        assert list(scratch.iterdir()) == []
    finally:
        server.faults.clear()


@only_s3
def test_compacted_bucket_of_each_codec(bucket: tuple[str, S3Server], tmp_path: Path) -> None:
    """The same batches, but for those that get a horizon: it is in the times of their records."""
    url, server = bucket
    log_dir = write_log_dir(tmp_path / "logs", a_packed_log("snappy", "lz4", "zstd"))
    server.upload(log_dir, tmp_path.name)
    found = []
    for place in (log_dir, any_path(f"{url}/{tmp_path.name}")):
        with running(place, fs=RemoteFiles(LIMITS), **COMPACTED) as served, WireClient(served.address[1]) as client:
            data, batches = bytes(client.fetch("topic", 0).records), []
            while data:
                size = 12 + int.from_bytes(data[8:12], "big")
                batches.append((data[:8], data[61:size] if not data[22] & 0x40 else b""))
                data = data[size:]
            found.append(batches)
    assert found[0] == found[1]
    assert len(found[0]) > 6


def check_no_copy_of_two_objects(bucket: tuple[str, S3Server], tmp_path: Path, change: str) -> None:
    """An object that changes while it is copied: the partition is not served, and named; the other one is."""
    url, server = bucket
    log_dir = write_log_dir(tmp_path / "logs", a_log(), keyed_log("other-0"))
    server.upload(log_dir, tmp_path.name)
    later = sorted(path.name for path in (log_dir / "topic-0").glob("*.log"))[1]  # read when the first one is copied
    data = (log_dir / "topic-0" / later).read_bytes()
    left = [1]

    def strike(answer: Answer) -> None:
        if left[0] and answer.is_read and f"topic-0/{LOG}" in unquote(answer.path):
            left[0] = 0
            if change == "removed":
                server.remove(f"{tmp_path.name}/topic-0/{later}")
            else:
                server.put(f"{tmp_path.name}/topic-0/{later}", data.replace(b"v", b"w"))

    server.faults[:] = [strike]
    warnings: list[str] = []
    try:
        with (
            running(
                any_path(f"{url}/{tmp_path.name}"), fs=RemoteFiles(LIMITS), warn=warnings.append, **COMPACTED
            ) as served,
            WireClient(served.address[1]) as client,
        ):
            assert served.compacted == 1
            assert [each.name for each in client.ask("Metadata", 9, topics=None).topics] == ["other"]
    finally:
        server.faults.clear()
        if change == "removed":
            server.put(f"{tmp_path.name}/topic-0/{later}", data)
    words = "was (removed|replaced|replaced or changed) since it was listed"
    assert any(re.search(f"topic-0 is not served, because .*{words}", each) for each in warnings), warnings
    assert faults.SECRET not in str(warnings)


@pytest.mark.parametrize("change", ["replaced", "removed"])
def test_object_that_changes_while_it_is_copied(bucket: tuple[str, S3Server], tmp_path: Path, change: str) -> None:
    check_no_copy_of_two_objects(bucket, tmp_path, change)


@only_s3
def test_service_that_stays_away_while_copies_are_made(bucket: tuple[str, S3Server], tmp_path: Path) -> None:
    """Its partitions are named and not served; nothing is left, and nothing of its text is shown."""
    url, server = bucket
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    server.upload(write_log_dir(tmp_path / "logs", a_log()), tmp_path.name)
    server.faults[:] = [lambda answer: faults.busy(answer) if answer.is_read and LOG in answer.path else None]
    warnings: list[str] = []
    with running(
        any_path(f"{url}/{tmp_path.name}"), fs=RemoteFiles(LIMITS), scratch=scratch, warn=warnings.append, **COMPACTED
    ) as served:
        server.faults.clear()
        assert served.compacted == 0
        with WireClient(served.address[1]) as client:
            assert client.ask("Metadata", 9, topics=None).topics == []
    assert any("topic-0 is not served, because" in each and "SlowDown (HTTP 503)" in each for each in warnings)
    assert faults.SECRET not in str(warnings)
    assert list(scratch.iterdir()) == []


@only_s3
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_ends_while_the_bucket_is_silent(bucket: tuple[str, S3Server], tmp_path: Path, number: int) -> None:
    """While a client waits for records, and another for the list of topics: exit code 0, at once, without a word."""
    url, server = bucket
    server.upload(write_log_dir(tmp_path / "logs", a_log()), "kafka")
    with started(f"cleaner serve {url}/kafka --listen 127.0.0.1:0 --as-root") as (process, line):
        port = int(line.partition("127.0.0.1:")[2].partition(",")[0])
        with WireClient(port) as client, WireClient(port) as other:
            time.sleep(1.1)  # the catalog is looked at again once a second
            server.requests.clear()
            server.faults[:] = [lambda answer: setattr(answer, "silent_seconds", 60)]
            client.socket.sendall(frame_of("Fetch", 12, fetch_values()))
            other.socket.sendall(frame_of("Metadata", 9, {"topics": None}))
            wait_until(lambda: bool(server.requests), "a request")
            began = time.monotonic()
            process.send_signal(number)
            assert process.wait(30) == 0
            assert time.monotonic() - began < 5, "on an idle machine it is half a second; silence is borne for 24"
            assert process.stderr is not None
            assert process.stderr.read() == ""
    server.faults.clear()


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
