"""
A broker starts on a directory with our transactions over partitions, and with the offsets that we have committed.

The broker makes the topics, its own two among them with several partitions. We open its log dir, go on from the offset
of its consumer, commit and abort transactions over topics and partitions, and are killed: one transaction is decided
and has no marker in any partition, another one is open. The broker has to end both by its own coordinator, and its
tools to list our groups. Another copy of the same directory is opened by us, and must hold the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from cleaner import LogManager, Record
from cleaner.errors import LogClosedError
from cleaner.format.coordinator_records import TransactionStatus
from tests.kafka.broker import Broker, Client, Outgoing, wait_until
from tests.kafka.rig import Rig, Unavailable

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ORDERS, PAYMENTS = "orders", "payments"
PARTITIONS = [(ORDERS, 0), (ORDERS, 1), (ORDERS, 2), (PAYMENTS, 0)]
SETTINGS = {
    "offsets.topic.num.partitions": "7",
    "transaction.state.log.num.partitions": "5",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
}
COMMITTED = ["1", "2", "decided"]


@dataclass
class Story:
    """What happened, for the tests to judge."""

    brokers_offset: int | None
    by_consumer: dict[tuple[str, int], list[str]]
    by_us: dict[tuple[str, int], list[str]]
    our_offsets: list[int | None]
    groups: list[str]
    described: str
    left: str


def tool(tools: Rig, main: str, broker: Broker, *arguments: object) -> str:
    """Run one of Kafka's tools; returns what it says."""
    done = tools.run(main, "--bootstrap-server", broker.address, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def consume(tools: Rig, broker: Broker, *arguments: object) -> list[str]:
    """Run the console consumer until nothing comes; returns the values."""
    main = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    return tool(tools, main, broker, "--timeout-ms", 6000, *arguments).split()


def write_in_transactions(manager: LogManager) -> None:
    """Commit two, abort one, leave one decided and one open."""
    logs = [manager.log(*partition) for partition in PARTITIONS]
    for name in ("1", "aborted", "2"):
        producer = manager.producer(f"service-{name}")
        producer.begin()
        for log in logs:
            producer.append(log, [Record(b"k", name.encode()), Record(b"k2", name.encode())])
        manager.log(ORDERS, 1).offsets("billing").commit(7 if name == "aborted" else int(name), transaction=producer)
        if name == "aborted":
            producer.abort()
        else:
            producer.commit()
    manager.log(PAYMENTS).offsets("watching").commit(3, metadata="once").durable.result()
    for name, is_decided in (("decided", True), ("open", False)):
        producer = manager.producer(f"service-{name}", transaction_timeout_ms=1000)
        producer.begin()
        for log in logs:
            producer.append(log, Record(b"k", name.encode()))
        manager.log(ORDERS, 2).offsets("billing").commit(11 if is_decided else 99, transaction=producer)
        if is_decided:
            producer._force_to_disk()
            producer._coordinator.decide(producer._record(TransactionStatus.PREPARE_COMMIT, producer._partitions))


@pytest.fixture(scope="module")
def story(
    cleaning_broker_rig: Rig, clients: Callable[[Rig], Client], tmp_path_factory: pytest.TempPathFactory
) -> Story:
    """Run the whole story once with each version of the broker."""
    try:
        tools = Rig.load_tools()
    except Unavailable as error:
        pytest.skip(f"no Kafka tools: {error}")
    home = tmp_path_factory.mktemp("transactions")
    broker = Broker(cleaning_broker_rig, clients(cleaning_broker_rig), home / "broker", settings=SETTINGS)
    topics = "org.apache.kafka.tools.TopicCommand"
    with broker:
        tool(tools, topics, broker, "--create", "--topic", ORDERS, "--partitions", 3, "--replication-factor", 1)
        room = ("--config", "preallocate=true")  # which our writer leaves behind its batches when it is killed
        tool(
            tools, topics, broker, "--create", "--topic", PAYMENTS, "--partitions", 1, "--replication-factor", 1, *room
        )
        first = [Outgoing("k", "of-the-broker"), Outgoing("k", "of-the-broker", "commit")]
        broker.write(PAYMENTS, first, {"transactional.id": "of-the-broker"})
        consume(tools, broker, "--topic", PAYMENTS, "--from-beginning", "--group", "console")

    manager = LogManager(broker.log_dir, cleaner=False)
    brokers_offset = manager.log(PAYMENTS).offsets("console").load()
    write_in_transactions(manager)
    manager.abandon()
    with pytest.raises(LogClosedError):
        manager.log(PAYMENTS)
    copy = home / "copy"
    shutil.copytree(broker.log_dir, copy)

    groups_tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    transactions_tool = "org.apache.kafka.tools.TransactionsCommand"
    with broker:
        ids = [f"service-{name}" for name in ("1", "2", "aborted", "decided", "open")]

        def listed() -> dict[str, str]:
            rows = [line.split() for line in tool(tools, transactions_tool, broker, "list").splitlines()]
            return {row[0]: row[-1] for row in rows if row and row[0] in ids}

        wait_until(lambda: set(listed().values()) <= {"CompleteCommit", "CompleteAbort"}, "a transaction hangs")
        left = repr(sorted(listed().items()))
        by_consumer = {
            (topic, partition): consume(
                *(tools, broker, "--topic", topic, "--partition", partition, "--offset", "earliest"),
                *("--isolation-level", "read_committed"),
            )
            for topic, partition in PARTITIONS
        }
        groups = tool(tools, groups_tool, broker, "--list").split()
        described = tool(tools, groups_tool, broker, "--describe", "--group", "billing")
    with LogManager(copy, cleaner=False) as manager:
        by_us = {
            partition: [
                (record.value or b"").decode() for record in manager.log(*partition).read(0, isolation="read_committed")
            ]
            for partition in PARTITIONS
        }
        our_offsets = [
            manager.log(ORDERS, 1).offsets("billing").load(),
            manager.log(ORDERS, 2).offsets("billing").load(),
            manager.log(PAYMENTS).offsets("watching").load(),
            manager.log(PAYMENTS).offsets("console").load(),
        ]
    return Story(brokers_offset, by_consumer, by_us, our_offsets, groups, described, left)


def test_we_go_on_from_the_offset_of_a_brokers_consumer(story: Story) -> None:
    """Two records and their marker; the consumer has read the records."""
    assert story.brokers_offset in (2, 3)


def test_broker_ends_what_a_crash_left_as_we_do(story: Story) -> None:
    """What was decided is committed in all partitions, what was open is aborted in all; consumers see the same."""
    expected = {
        partition: (["of-the-broker"] * 2 if partition == (PAYMENTS, 0) else []) + ["1", "1", "2", "2", "decided"]
        for partition in PARTITIONS
    }
    assert story.by_us == expected
    assert story.by_consumer == expected
    assert "('service-decided', 'CompleteCommit')" in story.left
    assert "('service-open', 'CompleteAbort')" in story.left


def test_brokers_tools_list_our_groups_with_their_offsets(story: Story) -> None:
    """Also those that were committed in a transaction; not those of one that was aborted."""
    assert {"billing", "watching", "console"} <= set(story.groups)
    rows = [line.split() for line in story.described.splitlines() if line.startswith("billing")]
    assert sorted((row[1], row[2], row[3]) for row in rows) == [(ORDERS, "1", "2"), (ORDERS, "2", "11")]
    assert story.our_offsets == [2, 11, 3, story.brokers_offset]
