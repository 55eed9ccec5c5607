"""Transactions over partitions and topics, and stored places of readers: what is seen, fenced, and left by errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.errors import (
    CorruptCheckpointError,
    InvalidTxnStateError,
    LogClosedError,
    NoSpaceError,
    ProducerFencedError,
    UsageError,
)
from cleaner.format.coordinator_records import TransactionRecord, TransactionStatus, coordinator_partition, read_commit
from cleaner.log.log import Log
from cleaner.log.manager import LogManager
from cleaner.log.manager_producer import ManagerProducer
from cleaner.log.reader import open_reader
from cleaner.log.record import Record
from cleaner.storage.fs.file_system import FileSystem
from tests.support.manual_clock import ManualClock
from tests.support.watched_fs import Operation, WatchedFileSystem

ONE = Record(b"k", b"1")


class Refusing(WatchedFileSystem):
    """A disk on which writes, or fsyncs, of some directory fail."""

    refused: tuple[str, str] | None = None  # the kind of change, and the directory's name

    def before(self, operation: Operation) -> None:
        """Fail."""
        if self.refused == (operation.kind, operation.path.parent.name):
            raise OSError(28, "No space left on device")


def opened(path: Path, fs: FileSystem | None = None) -> LogManager:
    """Open log dirs with two topics, made if they are not there."""
    manager = LogManager(path, create=True, cleaner=False, tasks=False, fs=fs, clock=ManualClock())
    if "orders" not in manager.topics():
        manager.create_topic("orders", 2)
        manager.create_topic("payments", 1, {"cleanup.policy": "compact"})
    return manager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    """Give log dirs, abandoned at the end: some tests leave what cannot be closed."""
    made = opened(tmp_path / "data")
    yield made
    made.abandon()


def logs_of(manager: LogManager) -> list[Log]:
    """Return the three logs."""
    return [manager.log("orders"), manager.log("orders", 1), manager.log("payments")]


def committed(manager: LogManager) -> list[list[bytes | None]]:
    """Return what readers of committed records see in each log; none of them may have to wait."""
    logs = logs_of(manager)
    assert [log.last_stable_offset for log in logs] == [log.high_watermark for log in logs]
    return [[record.value for record in log.read(0, isolation="read_committed")] for log in logs]


def append_all(producer: ManagerProducer, manager: LogManager, value: bytes) -> None:
    """Append a record to each log."""
    for log in logs_of(manager):
        producer.append(log, Record(b"k", value))


def states(manager: LogManager) -> list[int]:
    """Return the states that the transaction log has had."""
    found = []
    for record in manager.log("__transaction_state").read(0, until="end"):
        read = TransactionRecord.read(record.key, record.value or b"")
        assert read is not None
        found.append(read.status)
    return found


# ---- what is visible -----------------------------------------------------------------------------------------------


def test_committed_in_all_partitions_or_in_none(manager: LogManager) -> None:
    """Several transactions of one producer, one of them empty; another process sees the same."""
    producer = manager.producer("service")
    for value in (b"1", b"2"):
        with producer.transaction():
            append_all(producer, manager, value)
            append_all(producer, manager, value)
        with producer.transaction():
            pass
        with pytest.raises(ZeroDivisionError), producer.transaction():
            append_all(producer, manager, b"aborted")
            raise ZeroDivisionError
    for log in logs_of(manager):
        log.flush()
    assert committed(manager) == [[b"1", b"1", b"2", b"2"]] * 3
    with open_reader(manager.log_dirs[0], "payments") as reader:
        assert [record.value for record in reader.read(0, isolation="read_committed")] == [b"1", b"1", b"2", b"2"]
    assert set(states(manager)) == {
        TransactionStatus.ONGOING,
        TransactionStatus.PREPARE_COMMIT,
        TransactionStatus.COMPLETE_COMMIT,
        TransactionStatus.COMPLETE_ABORT,
    }
    manager.close()


def test_what_a_kill_left_open_is_aborted_and_noted_so(manager: LogManager) -> None:
    """A broker would wait for its coordinator; here nothing hangs once the logs are open."""
    producer = manager.producer("service")
    producer.begin()
    append_all(producer, manager, b"1")
    manager.abandon()
    with opened(manager.log_dirs[0]) as again:
        assert committed(again) == [[]] * 3
        assert states(again)[-1] == TransactionStatus.COMPLETE_ABORT


def test_order_of_calls_is_checked(manager: LogManager) -> None:
    """As with the producer of one log."""
    producer = manager.producer("service")
    for call in (lambda: producer.append(manager.log("orders"), ONE), producer.commit, producer.abort):
        with pytest.raises(InvalidTxnStateError, match=r"service: .* outside of a transaction"):
            call()
    producer.begin()
    with pytest.raises(InvalidTxnStateError, match="a transaction open already"):
        producer.begin()
    assert producer.is_in_transaction
    producer.commit()
    assert not producer.is_in_transaction
    for bad in ("", 7):
        with pytest.raises(UsageError):
            manager.producer(bad)  # type: ignore[arg-type]


def test_log_of_another_manager_is_refused(manager: LogManager, tmp_path: Path) -> None:
    """It would have no decision in its own transaction log."""
    producer = manager.producer("service")
    producer.begin()
    with opened(tmp_path / "other") as other, pytest.raises(UsageError, match="orders-0 is a log of another manager"):
        producer.append(other.log("orders"), ONE)


# ---- instances and time --------------------------------------------------------------------------------------------


def test_newer_instance_fences_the_older_and_ends_its_transaction(manager: LogManager) -> None:
    """Its records are aborted at once; every later call of the older one says so."""
    older = manager.producer("service")
    older.begin()
    append_all(older, manager, b"1")
    newer = manager.producer("service")
    for log in logs_of(manager):
        log.flush()
    assert committed(manager) == [[]] * 3
    for call in (older.commit, older.abort, older.begin, lambda: older.append(manager.log("orders"), ONE)):
        with pytest.raises(ProducerFencedError, match="a newer producer has its id"):
            call()
    with newer.transaction():
        append_all(newer, manager, b"2")
    assert committed(manager) == [[b"2"]] * 3


def test_transaction_that_takes_too_long_is_aborted(manager: LogManager) -> None:
    """By the upkeep, which also runs for the producers of single logs."""
    producer = manager.producer("service", transaction_timeout_ms=1000)
    producer.begin()
    append_all(producer, manager, b"1")
    clock = producer._coordinator.clock
    clock.sleep(1)
    manager.upkeep.end_late_transactions()
    assert producer.is_in_transaction
    clock.sleep(1)
    manager.upkeep.end_late_transactions()
    with pytest.raises(ProducerFencedError, match="took longer than 1000 ms"):
        producer.commit()


def test_commit_of_what_was_cut_off_aborts_the_rest(manager: LogManager) -> None:
    """Half of it would be a lie to readers of the other half."""
    producer = manager.producer("service")
    producer.begin()
    append_all(producer, manager, b"1")
    manager.log("payments").truncate_to(0)
    with pytest.raises(InvalidTxnStateError, match="what it has appended to payments-0 was cut off or aborted"):
        producer.commit()
    for log in logs_of(manager):
        log.flush()
    assert committed(manager) == [[]] * 3
    with producer.transaction():
        append_all(producer, manager, b"2")
    assert committed(manager) == [[b"2"]] * 3


# ---- errors on the way ---------------------------------------------------------------------------------------------


def test_no_room_for_the_decision_leaves_it_open_and_it_may_be_tried_again(tmp_path: Path) -> None:
    """Nothing was decided, so an abort would do as well."""
    fs = Refusing()
    with opened(tmp_path, fs) as manager:
        producer = manager.producer("service")
        producer.begin()
        append_all(producer, manager, b"1")
        fs.refused = ("write", "__transaction_state-0")
        with pytest.raises(NoSpaceError):
            producer.commit()
        fs.refused = None
        assert producer.is_in_transaction
        producer.commit()
        assert committed(manager) == [[b"1"]] * 3


def test_no_room_for_a_marker_does_not_undo_what_is_committed(tmp_path: Path) -> None:
    """It is written later: at the next begin, by the upkeep, at the close, or when the logs are opened again."""
    for later in ("begin", "upkeep", "close", "open"):
        fs = Refusing()
        manager = opened(tmp_path / later, fs)
        producer = manager.producer("service")
        producer.begin()
        append_all(producer, manager, b"1")
        producer._force_to_disk()
        fs.refused = ("write", "payments-0")
        producer.commit()
        assert manager.log("payments").last_stable_offset == 0
        fs.refused = None
        if later == "begin":
            producer.begin()
        elif later == "upkeep":
            manager.upkeep.end_late_transactions()
        elif later == "close":
            manager.close()
        else:
            manager.abandon()
        if later in ("close", "open"):
            manager = opened(tmp_path / later)
            assert states(manager)[-1] == TransactionStatus.COMPLETE_COMMIT
        assert committed(manager) == [[b"1"]] * 3
        manager.abandon()


def test_failed_fsync_of_the_decision_leaves_it_in_doubt_until_the_next_opening(tmp_path: Path) -> None:
    """Neither a commit nor an abort is written to any partition, not at the close either."""
    fs = Refusing()
    manager = opened(tmp_path, fs)
    producer = manager.producer("service")
    producer.begin()
    append_all(producer, manager, b"1")
    fs.refused = ("fsync", "__transaction_state-0")
    with pytest.raises(LogClosedError):
        producer.commit()
    fs.refused = None
    for call in (producer.abort, lambda: producer.append(manager.log("orders"), ONE)):
        with pytest.raises(InvalidTxnStateError, match="committed, or may be: call commit once more"):
            call()
    with pytest.raises(LogClosedError):
        producer.commit()
    with pytest.raises(LogClosedError):
        manager.close()
    with opened(tmp_path) as again:
        found = committed(again)
        assert found in ([[b"1"]] * 3, [[]] * 3)


def test_damaged_transaction_log_ends_no_transaction(manager: LogManager) -> None:
    """What it decided is unknown: logs with an open transaction are not opened, all others are."""
    producer = manager.producer("service")
    producer.begin()
    producer.append(manager.log("orders"), ONE)
    manager.log("__transaction_state").append(Record(b"\0\0\0\1x", b"\0\0 no such record"))
    manager.abandon()
    with opened(manager.log_dirs[0]) as again:
        assert set(again.failed) == {TopicPartition("orders", 0)}
        assert isinstance(again.failed[TopicPartition("orders", 0)], CorruptCheckpointError)
        again.abandon()


# ---- stored places -------------------------------------------------------------------------------------------------


def test_offset_of_a_group_survives_and_may_go_back(manager: LogManager) -> None:
    """Each group and each log has its own; the format is Kafka's."""
    orders, payments = manager.log("orders", 1), manager.log("payments")
    place = orders.offsets("billing")
    assert (place.load(), place.metadata) == (None, "")
    place.commit(5)
    place.commit(3, metadata="once more").durable.result()
    payments.offsets("billing").commit(8)
    orders.offsets("other").commit(1)
    expected = (3, "once more", 8, 1, None)
    for life in range(2):
        found = (
            *(manager.log("orders", 1).offsets("billing").load(), manager.log("orders", 1).offsets("billing").metadata),
            *(manager.log("payments").offsets("billing").load(), manager.log("orders", 1).offsets("other").load()),
            manager.log("orders", 0).offsets("billing").load(),
        )
        assert found == expected, life
        manager.abandon()
        manager = opened(manager.log_dirs[0])
    [first, *_] = manager.log("__consumer_offsets").read(0)
    assert first.key == b"\0\1\0\7billing\0\6orders\0\0\0\1"
    assert read_commit(first.key, first.value or b"") == ("billing", TopicPartition("orders", 1), 5, "")
    manager.close()


def test_offset_in_a_transaction_counts_with_it(manager: LogManager) -> None:
    """And not at all if it is aborted; of two the later record wins, whichever is committed later."""
    producer, place = manager.producer("service"), manager.log("orders").offsets("billing")
    with producer.transaction():
        producer.append(manager.log("payments"), ONE)
        place.commit(1, transaction=producer)
        assert place.load() is None
    assert place.load() == 1
    with pytest.raises(ZeroDivisionError), producer.transaction():
        place.commit(2, transaction=producer)
        raise ZeroDivisionError
    assert place.load() == 1
    with producer.transaction():
        place.commit(3, transaction=producer)
        place.commit(4)
    assert place.load() == 4
    manager.abandon()
    with opened(manager.log_dirs[0]) as again:
        assert again.log("orders").offsets("billing").load() == 4


@pytest.mark.parametrize(
    ("group", "offset", "metadata"), [("", 0, ""), (7, 0, ""), ("g", -1, ""), ("g", "1", ""), ("g", 0, "x" * 4097)]
)
def test_bad_offsets_are_refused(manager: LogManager, group: str, offset: int, metadata: str) -> None:
    """As Kafka would."""
    with pytest.raises(UsageError):
        manager.log("orders").offsets(group).commit(offset, metadata=metadata)


def test_group_is_in_the_partition_where_kafka_looks_for_it() -> None:
    """Java's hash of a string, made positive as Kafka does; its own values."""
    assert coordinator_partition("", 50) == 0
    assert coordinator_partition("abc", 50) == 96354 % 50
    assert coordinator_partition("polygenelubricants", 50) == 0, "its hash has no positive number"
    assert coordinator_partition("\U0001f600", 1 << 30) == 1772899 % (1 << 30), "two UTF-16 units"


def test_defaults_of_a_manager_are_not_for_what_it_keeps(tmp_path: Path) -> None:
    """With `cleanup.policy=delete` for all topics, decisions and offsets would expire."""
    with LogManager(tmp_path / "data", {"log.cleanup.policy": "delete"}, create=True, cleaner=False) as manager:
        manager.create_topic("orders")
        manager.log("orders").offsets("billing").commit(1)
        manager.producer("service")
        for name in ("__consumer_offsets", "__transaction_state"):
            assert manager.topic_config(name).cleanup_policy == {"compact"}
