"""All partitions of a topic as one: Kafka's partitioner, serdes, and followers of all of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.errors import LogClosedError, OffsetOutOfRangeError, UndecodableRecordError, UnknownTopicError, UsageError
from cleaner.log.manager import LogManager
from cleaner.log.partitioner import partition_of
from cleaner.log.record import Record
from cleaner.log.serde import Serde

KEYS = [f"key-{number}" for number in range(40)]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    """Give log dirs with a topic of three partitions."""
    with LogManager(tmp_path, create=True, cleaner=False, tasks=False) as made:
        made.create_topic("orders", 3)
        yield made


def flush(manager: LogManager) -> None:
    """Have readers see what was appended."""
    for log in manager.logs().values():
        log.flush()


def test_keys_go_where_kafkas_producer_sends_them(manager: LogManager) -> None:
    """And come back as what they were; each partition answers for its own records."""
    orders = manager.topic("orders", key=Serde.str, value=Serde.json)
    answers = orders.append((key, {"number": number}) for number, key in enumerate(KEYS))
    assert sum(each.last_offset - each.base_offset + 1 for each in answers.values()) == len(KEYS)
    flush(manager)
    with orders.follow_all() as follower:
        found = follower.poll()
    assert {record.key: record.value["number"] for record in found} == {key: at for at, key in enumerate(KEYS)}
    assert {record.topic for record in found} == {"orders"}
    assert all(record.partition == partition_of(record.key.encode(), 3) for record in found)
    raw = next(iter(manager.log("orders", found[0].partition).read(found[0].offset)))
    assert (raw.key, raw.value) == (found[0].key.encode(), b'{"number":%d}' % found[0].value["number"])


def test_record_with_headers_and_tombstone_pass_the_serdes(manager: LogManager) -> None:
    """None is no key or a tombstone, and nothing that a serde is asked for."""
    orders = manager.topic("orders", key=Serde.str, value=Serde.json)
    orders.append(Record("k", None, (("h", b"1"),), 1_700_000_000_000))  # type: ignore[arg-type]
    flush(manager)
    with orders.follow_all() as follower:
        [record] = follower.poll()
    assert (record.key, record.value, record.headers, record.timestamp_ms) == (
        "k",
        None,
        (("h", b"1"),),
        1_700_000_000_000,
    )


@pytest.mark.parametrize(
    "records", [("k", 1), [("k", object())], [(1, "v")], "kv", {"k": "v"}, [("k", "v"), ("k", float("nan"))], [5]]
)
def test_what_cannot_be_written_is_refused_as_a_whole(manager: LogManager, records: object) -> None:
    """Before the first record is appended anywhere."""
    with pytest.raises(UsageError):
        manager.topic("orders", key=Serde.str, value=Serde.json).append(records)  # type: ignore[arg-type]
    assert {log.log_end_offset for log in manager.logs().values()} == {0}


def test_what_cannot_be_read_is_named_and_may_be_passed_over(manager: LogManager) -> None:
    """Nothing before it is lost, and nothing behind it."""
    log = manager.log("orders", 1)
    log.append([Record(b"k", b"1"), Record(b"k", b"no json"), Record(b"k", b"3")])
    flush(manager)
    with manager.topic("orders", value=Serde.json).follow_all() as follower:
        assert [record.value for record in follower.poll()] == [1]
        for _ in range(2):
            with pytest.raises(UndecodableRecordError, match="orders-1: the value of offset 1 cannot be read"):
                follower.poll()
        follower.seek(1, 2)
        assert [record.value for record in follower.poll()] == [3]


def test_group_goes_on_where_it_was(manager: LogManager) -> None:
    """With and without a transaction; what is appended in it is seen with the offsets."""
    orders = manager.topic("orders", key=Serde.str, value=Serde.str)
    orders.append((key, "1") for key in KEYS)
    flush(manager)
    producer = manager.producer("service")
    with orders.follow_all(group="billing") as follower:
        assert len(follower.poll(max_records=10)) == 10
        follower.commit()
        first = follower.next_offsets
        with producer.transaction():
            orders.append([("answer", "2")], transaction=producer)
            assert len(follower.poll(max_records=5)) == 5
            follower.commit(producer)
        second = follower.next_offsets
    assert sum(first.values()) == 10
    assert sum(second.values()) == 15
    with orders.follow_all(group="billing", isolation="read_committed") as follower:
        assert follower.next_offsets == second
        assert len(follower.poll()) == len(KEYS) - 15 + 1
    with orders.follow_all(group="billing", offsets={0: 0}) as follower:
        assert follower.next_offsets == second | {0: 0}
    with orders.follow_all() as follower, pytest.raises(UsageError, match="commit without a group"):
        follower.commit()


def test_paused_partitions_rest_and_others_go_on(manager: LogManager) -> None:
    """Until they are resumed."""
    orders = manager.topic("orders", key=Serde.str, value=Serde.str)
    orders.append((key, "1") for key in KEYS)
    flush(manager)
    with orders.follow_all() as follower:
        follower.pause(0, 2)
        assert {record.partition for record in follower.poll()} == {1}
        assert follower.poll() == []
        follower.resume(0)
        assert {record.partition for record in follower.poll()} == {0}
        for call in (lambda: follower.pause(3), lambda: follower.resume(-1), lambda: follower.seek(7, 0)):
            with pytest.raises(UsageError):
                call()
        for wrong in ([], {}, "1", None, True):
            for of_one in (follower.pause, follower.resume, lambda each: follower.seek(each, 0)):
                with pytest.raises(UsageError, match="partition"):
                    of_one(wrong)  # type: ignore[arg-type]
        with pytest.raises(OffsetOutOfRangeError):
            follower.seek(1, 1000)


def test_waiting_follower_wakes_for_any_partition_and_for_its_close(manager: LogManager) -> None:
    """In a thread, without a time of its own."""
    orders, found = manager.topic("orders"), []
    follower = orders.follow_all()
    reading = threading.Thread(target=lambda: found.extend(follower))
    reading.start()
    for partition in (2, 0):
        manager.log("orders", partition).append(Record(b"k", b"v")).durable.result()
    for _ in range(1000):
        if len(found) == 2:
            break
        threading.Event().wait(0.01)
    follower.close()
    reading.join(20)
    assert not reading.is_alive()
    assert sorted(record.partition for record in found) == [0, 2]
    assert follower.poll(1) == []


def test_unknown_topic_and_closed_logs_are_refused(manager: LogManager) -> None:
    """As by the manager and the logs themselves."""
    with pytest.raises(UnknownTopicError):
        manager.topic("other")
    orders = manager.topic("orders")
    manager.close()
    for call in (lambda: orders.append([(b"k", b"v")]), orders.follow_all, lambda: manager.topic("orders")):
        with pytest.raises(LogClosedError):
            call()


def test_coroutine_waits_until_its_records_are_on_disk(manager: LogManager) -> None:
    """Many at once share fsyncs; each gets its own answer."""
    log = manager.log("orders")

    async def append_all() -> list[int]:
        answers = await asyncio.gather(*(log.append_durable(Record(b"k", b"%d" % number)) for number in range(20)))
        return [each.base_offset for each in answers]

    assert asyncio.run(append_all()) == list(range(20))
    assert log.high_watermark == 20
