"""Producers with transactions: what is visible, who is fenced, and what a crash leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.errors import (
    CorruptCheckpointError,
    InvalidTxnStateError,
    LogClosedError,
    NoSpaceError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    UsageError,
)
from cleaner.log.log import Log
from cleaner.log.log_producer import LogProducer
from cleaner.log.record import Record
from cleaner.log.transactional_ids import FILE_NAME, FORGOTTEN_AFTER_MS, Identity, TransactionalIds
from cleaner.storage.fs.file_system import FileSystem
from tests.unit.log.writing import Writing, log_of, pair, writing


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Writing]:
    """Give a log dir that is locked for writing."""
    with writing(tmp_path / "log") as made:
        yield made


def open_log(place: Writing) -> Log:
    """Open the partition as after a kill."""
    writer = place.open()
    return log_of(writer, place.clock)


def test_committed_transaction_is_stable_once_it_is_on_disk(place: Writing) -> None:
    """Records, then the marker; readers of committed ones see all of it at once."""
    log = open_log(place)
    producer = log.producer("payments")
    with producer.transaction():
        producer.append([pair("a", "1")])
        producer.append([pair("b", "2")])
        log.flush()
        assert log.last_stable_offset == 0
    assert (log.log_end_offset, log.last_stable_offset) == (3, 3)
    producer.begin()
    assert producer.commit().result() is None
    assert log.log_end_offset == 3, "an empty transaction leaves nothing"


def test_exception_in_a_transaction_aborts_it(place: Writing) -> None:
    """The block's error is raised, and the abort is in the transaction index (R-303)."""
    log = open_log(place)
    producer = log.producer("payments")
    with pytest.raises(ZeroDivisionError), producer.transaction():
        producer.append([pair("a", "1")])
        raise ZeroDivisionError
    assert not producer.is_in_transaction
    index = place.files()["00000000000000000000.txnindex"]
    expected = [0, producer.identity.producer_id, 0, 1, 2]
    widths = (2, 8, 8, 8, 8)
    assert index == b"".join(number.to_bytes(width, "big") for number, width in zip(expected, widths, strict=True))


def test_newer_instance_fences_the_older_and_ends_its_transaction(place: Writing) -> None:
    """The same producer id with the next epoch; the older instance's open transaction is aborted at once."""
    log = open_log(place)
    older = log.producer("payments")
    older.begin()
    older.append([pair("a", "1")])
    newer = log.producer("payments")
    assert newer.identity == (older.identity.producer_id, older.identity.epoch + 1)
    assert log.high_watermark == log.last_stable_offset == 2, "readers of committed records wait for nobody"
    again = lambda: older.append([pair("a", "2")])  # noqa: E731
    for call in (again, older.commit, older.commit, older.abort, again, older.begin):
        with pytest.raises(ProducerFencedError, match=r"epoch 0, which is over: 1 has begun$"):
            call()
    with newer.transaction():
        newer.append([pair("a", "3")])
    assert log.last_stable_offset == 4


def test_older_instance_without_a_transaction_is_fenced_too(place: Writing) -> None:
    """Even before the newer one has appended anything."""
    log = open_log(place)
    older = log.producer("payments")
    log.producer("payments")
    for call in (older.begin, lambda: older.append([pair("a", "1")])):
        with pytest.raises(ProducerFencedError):
            call()


def test_late_transaction_is_aborted_and_its_producer_fenced(place: Writing) -> None:
    """`transaction.timeout.ms` counts from the begin; the next instance goes on above that epoch."""
    log = open_log(place)
    producer = log.producer("payments", transaction_timeout_ms=1000)
    producer.begin()
    producer.append([pair("a", "1")])
    place.clock.move_on(1)
    assert log.end_late_transactions() == 0
    place.clock.move_on(0.001)
    assert log.end_late_transactions() == 1
    assert log.high_watermark == log.last_stable_offset == 2, "readers of committed records wait for nobody"
    with pytest.raises(ProducerFencedError):
        producer.commit()
    assert log.end_late_transactions() == 0
    assert log.producer("payments").identity.epoch == 2


def test_transaction_left_open_by_a_kill_is_aborted_at_the_next_opening(place: Writing) -> None:
    """With a marker; the killed instance's epoch is over when the id is taken again."""
    log = open_log(place)
    producer = log.producer("payments")
    producer.begin()
    producer.append([pair("a", "1")])
    log.abandon()
    for call in (lambda: producer.append([pair("a", "2")]), producer.commit):
        with pytest.raises(LogClosedError):
            call()
    log = open_log(place)
    assert (log.log_end_offset, log.flush(), log.last_stable_offset) == (2, 2, 2)
    assert [batch.attributes for batch in place.batches()] == [0x10, 0x30]
    assert log.producer("payments").identity == (producer.identity.producer_id, 1)


def test_steps_out_of_order_are_refused(place: Writing) -> None:
    """Each says what is wrong, and changes nothing."""
    log = open_log(place)
    plain, producer = log.producer(), log.producer("payments")
    for call in (plain.begin, producer.commit, producer.abort, lambda: producer.append([pair("a", "1")])):
        with pytest.raises(InvalidTxnStateError):
            call()
    producer.begin()
    with pytest.raises(InvalidTxnStateError):
        producer.begin()
    for wrong in (lambda: log.producer(""), lambda: log.producer("x", transaction_timeout_ms=0)):
        with pytest.raises(UsageError):
            wrong()
    assert log.log_end_offset == 0


def test_repeat_by_its_number_is_answered_as_before(place: Writing) -> None:
    """A caller that does not know whether an append was done sends it again."""
    log = open_log(place)
    producer = log.producer()
    first = producer.append([pair("a", "1"), pair("b", "2")])
    again = producer.append([pair("a", "1"), pair("b", "2")], sequence=0)
    assert (again.base_offset, again.last_offset, again.is_repeat) == (first.base_offset, first.last_offset, True)
    assert producer.append([pair("c", "3")]).base_offset == producer.next_sequence - 1 == 2
    with pytest.raises(OutOfOrderSequenceError):
        producer.append([pair("c", "3")], sequence=7)


def test_append_is_durable_on_request(place: Writing) -> None:
    """Reading the future requests the flush."""
    log = open_log(place)
    appended = log.append([pair("a", "1")])
    assert log.high_watermark == 0
    appended.durable.result()
    assert (log.high_watermark, appended.durable) == (1, appended.durable)


def test_epochs_that_are_used_up_bring_another_producer_id(tmp_path: Path) -> None:
    """The last epoch is left to the marker that ends a transaction of the one before."""
    ids = TransactionalIds(FileSystem(), tmp_path)
    first = ids.begin("payments", lambda _id: -1, 0)
    assert ids.begin("payments", lambda _id: 32_765, 0) == (first.producer_id, 32_766)
    following = ids.begin("payments", lambda _id: -1, 0)
    assert (following.producer_id != first.producer_id, following.epoch) == (True, 0)


def test_ids_unused_for_long_are_forgotten(tmp_path: Path) -> None:
    """Unless the log still knows their producer, whose epochs must not be reused."""
    ids = TransactionalIds(FileSystem(), tmp_path)
    kept = ids.begin("kept", lambda _id: -1, 0)
    ids.begin("gone", lambda _id: -1, 0)
    ids.begin("new", lambda producer_id: 0 if producer_id == kept.producer_id else -1, FORGOTTEN_AFTER_MS)
    assert json.loads((tmp_path / FILE_NAME).read_bytes())["ids"].keys() == {"kept", "new"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"format": "cleaner-transactional-ids", "version": 2, "ids": {}}',
        b'{"format": "else", "version": 1, "ids": {}}',
        b'{"format": "cleaner-transactional-ids", "version": 1}',
        b'{"format": "cleaner-transactional-ids", "version": 1, "ids": {"a": 1}}',
        b'{"format": "cleaner-transactional-ids", "version": 1, "ids": {"a": {"producer_id": 1, "epoch": true}}}',
        b'{"format": "cleaner-transactional-ids", "version": 1,'
        b' "ids": {"a": {"producer_id": 1, "epoch": 40000, "used_ms": 1}}}',
    ],
    ids=["empty", "list", "newer", "foreign", "no-ids", "number", "fields", "epoch"],
)
def test_damaged_file_of_ids_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    """Without the epochs in it an older instance could not be fenced off."""
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(CorruptCheckpointError):
        TransactionalIds(FileSystem(), tmp_path).begin("a", lambda _id: -1, 0)
    assert (tmp_path / FILE_NAME).read_bytes() == content


def test_raised_epoch_is_on_disk(tmp_path: Path) -> None:
    """An instance that was fenced off stays so after a crash."""
    ids = TransactionalIds(FileSystem(), tmp_path)
    identity = ids.begin("payments", lambda _id: -1, 0)
    assert ids.raise_epoch("payments", identity, lambda _id: -1, 0) == Identity(identity.producer_id, 1)
    assert TransactionalIds(FileSystem(), tmp_path).begin("payments", lambda _id: -1, 0).epoch == 2


def test_append_after_an_interrupted_one_is_never_its_repeat(place: Writing) -> None:
    """The interrupt comes after the write and before the producer has counted it."""
    log = open_log(place)
    producer = log.producer()
    producer.append([pair("a", "0")])
    real = log.appended_at
    log.appended_at = _interrupted  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        producer.append([pair("a", "1")])
    log.appended_at = real  # type: ignore[method-assign]
    producer._next_sequence = 1  # as if the interrupt had come a line earlier
    appended = producer.append([pair("a", "2")])
    assert (appended.base_offset, appended.is_repeat, producer.next_sequence) == (2, False, 3)
    assert producer.append([pair("a", "2")], sequence=2).is_repeat


def test_transaction_interrupted_behind_an_append_is_aborted_with_a_marker(place: Writing) -> None:
    """The log knows whether a transaction is open; nothing holds up readers of committed records."""
    log = open_log(place)
    producer = log.producer("tx")
    real = log.appended_at
    log.appended_at = _interrupted  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt), producer.transaction():
        try:
            producer.append([pair("a", "1")])
        finally:
            log.appended_at = real  # type: ignore[method-assign]
            producer._has_appended = False
    log.flush()
    assert (log.last_stable_offset, log.log_end_offset) == (2, 2)
    with producer.transaction():
        producer.append([pair("a", "2")])
    log.flush()
    assert [record.value for record in log.read(0, isolation="read_committed")] == [b"2"]


def test_commit_again_after_one_that_was_interrupted_finds_it_done(place: Writing) -> None:
    """The log has one marker, and the producer may begin its next transaction."""
    log = open_log(place)
    producer = log.producer("tx")
    producer.begin()
    producer.append([pair("a", "1")])
    real = log.appended_at
    log.appended_at = _interrupted  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        producer.commit()
    log.appended_at = real  # type: ignore[method-assign]
    producer._began_ms = 0
    end = log.log_end_offset
    producer.commit().result(0)
    assert log.log_end_offset == end
    producer._began_ms = 0
    with pytest.raises(InvalidTxnStateError, match="was committed already"):
        producer.abort()
    producer.begin()


def interrupt_end(producer: LogProducer, *, is_made: bool, error: BaseException | None = None) -> None:
    """Have the next end of a transaction interrupted, before its marker or after it (`is_made`)."""
    real = producer._writer.end_transaction

    def end(*arguments: int, commit: bool) -> int:
        producer._writer.end_transaction = real  # type: ignore[method-assign]
        if is_made:
            real(*arguments, commit=commit)
        raise error or KeyboardInterrupt

    producer._writer.end_transaction = end  # type: ignore[method-assign, assignment]


def test_append_after_a_commit_that_was_interrupted_begins_no_other_transaction(place: Writing) -> None:
    """With the marker written it is refused: a crash would end the records behind the marker in its own way."""
    log = open_log(place)
    producer = log.producer("tx")
    for is_made in (False, True):
        producer.begin()
        producer.append([pair("a", str(is_made))])
        interrupt_end(producer, is_made=is_made)
        with pytest.raises(KeyboardInterrupt):
            producer.commit()
        if is_made:
            with pytest.raises(InvalidTxnStateError, match="was committed already"):
                producer.append([pair("b", "1")])
        else:
            producer.append([pair("b", "1")])
        producer.commit()
    log.flush()
    assert [record.value for record in log.read(0, isolation="read_committed")] == [b"False", b"1", b"True"]


def test_transaction_interrupted_in_its_commit_is_over(place: Writing) -> None:
    """Before the marker it is aborted, after it committed; the next one may begin."""
    log = open_log(place)
    producer = log.producer("tx")
    for is_made in (False, True):
        interrupt_end(producer, is_made=is_made)
        with pytest.raises(KeyboardInterrupt), producer.transaction():
            producer.append([pair("a", str(is_made))])
        assert not producer.is_in_transaction
    log.flush()
    assert log.last_stable_offset == log.log_end_offset
    assert [record.value for record in log.read(0, isolation="read_committed")] == [b"True"]


def test_transaction_whose_commit_fails_is_over(place: Writing) -> None:
    """As with a producer over all logs: it is aborted, unless its marker is written, and the next one may begin."""
    log = open_log(place)
    producer = log.producer("tx")
    for is_made in (False, True):
        interrupt_end(producer, is_made=is_made, error=NoSpaceError(log.directory, 1))
        with pytest.raises(NoSpaceError), producer.transaction():
            producer.append([pair("a", str(is_made))])
        assert not producer.is_in_transaction
    log.flush()
    assert log.last_stable_offset == log.log_end_offset
    assert [record.value for record in log.read(0, isolation="read_committed")] == [b"True"]


def test_commit_after_a_cut_of_its_records_fails(place: Writing) -> None:
    """All of a transaction is committed, or nothing: the producer is fenced off, and another may begin."""
    log = open_log(place)
    producer = log.producer("tx")
    log.append([pair("x", "0")])
    producer.begin()
    producer.append([pair("a", "1")])
    producer.append([pair("a", "2")])
    log.truncate_to(2)
    assert log.log_end_offset == 3, "the marker is behind what is left of the transaction"
    for call in (lambda: producer.append([pair("a", "3")]), producer.commit, producer.begin):
        with pytest.raises(ProducerFencedError, match="over: the log was cut while its transaction was open"):
            call()
    again = log.producer("tx")
    with again.transaction():
        again.append([pair("a", "4")])
    log.flush()
    assert [record.value for record in log.read(0, isolation="read_committed")] == [b"0", b"4"]


def _interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


# ---- resumed by name -----------------------------------------------------------------------------------------------


def test_resumed_producer_goes_on_after_a_kill_and_its_repeat_is_recognised(place: Writing) -> None:
    """Its number is how many records the log has of it; the retried append gets the answer of the first time."""
    log = open_log(place)
    producer = log.producer("importer", resume=True)
    assert log.producer("importer", resume=True) is producer
    producer.append([pair("a", "1"), pair("b", "2")])
    producer.append([pair("a", "3")], sequence=2)
    log.flush()
    log.abandon()
    log = open_log(place)
    again = log.producer("importer", resume=True)
    assert (again.identity, again.next_sequence) == (producer.identity, 3)
    repeat = again.append([pair("a", "3")], sequence=2)
    assert (repeat.base_offset, repeat.is_repeat, log.log_end_offset) == (2, True, 3)
    assert not again.append([pair("c", "4")], sequence=3).is_repeat
    with pytest.raises(OutOfOrderSequenceError, match="sequence 1 where 4"):
        again.append([pair("b", "2")], sequence=1)


def test_resumed_producer_is_found_in_the_log_when_its_records_are_too_old_to_be_known(place: Writing) -> None:
    """A log forgets a producer by its records' times: an importer of old records would begin at 0, and append twice."""
    log = open_log(place)
    producer = log.producer("importer", resume=True)
    producer.append([Record(b"a", b"1", timestamp_ms=1), Record(b"a", b"2", timestamp_ms=2)])
    log.roll()
    producer.append([Record(b"a", b"3", timestamp_ms=3)])
    log.roll()
    log.append([pair("other", "1")])
    log.close()
    log = log_of(place.open(was_closed=True), place.clock)
    producer = log.producer("importer", resume=True)
    assert producer.next_sequence == 3
    assert producer.append([Record(b"a", b"3", timestamp_ms=3)], sequence=2).is_repeat
    assert log.log_end_offset == 4
    log._writer.expire_producers()
    assert producer.next_sequence == 3, "forgotten once more, while it is open"
    with pytest.raises(OutOfOrderSequenceError, match=r"the log knows none of its appends; 3 is expected"):
        producer.append([Record(b"a", b"3", timestamp_ms=3)], sequence=2)
    producer.append([Record(b"a", b"4", timestamp_ms=3)], sequence=3)


def test_number_of_a_resumed_producer_that_left_nothing_is_refused(place: Writing) -> None:
    """A log takes any first number of a producer that it does not know; the append might be the second of its kind."""
    log = open_log(place)
    producer = log.producer("importer", resume=True)
    producer.append([pair("a", "1")])
    log.truncate_to(0)
    assert producer.next_sequence == 1, "the process knows better than the log"
    log.abandon()
    log = open_log(place)
    producer = log.producer("importer", resume=True)
    assert producer.next_sequence == 0
    with pytest.raises(OutOfOrderSequenceError, match="sends sequence 1, and the log knows none of its appends; 0 is"):
        producer.append([pair("a", "2")], sequence=1)
    assert producer.append([pair("a", "1")], sequence=0).base_offset == 0


def test_name_is_resumed_or_has_transactions(place: Writing) -> None:
    """A transaction that a crash left open is aborted: its appends must not count as done."""
    log = open_log(place)
    log.producer("importer", resume=True)
    log.producer("payments")
    with pytest.raises(UsageError, match=r"'importer' is resumed, so it has no transactions"):
        log.producer("importer")
    with pytest.raises(UsageError, match=r"'payments' has been used for transactions, which are not resumed"):
        log.producer("payments", resume=True)
    with pytest.raises(UsageError, match="a producer that resumes needs an id"):
        log.producer(resume=True)
    with pytest.raises(InvalidTxnStateError, match="no transactional id"):
        log.producer("importer", resume=True).begin()


def test_name_that_is_resumed_is_never_forgotten(place: Writing) -> None:
    """Ids of transactions that are long unused go; the numbers of a resumed one would begin anew."""
    log = open_log(place)
    first = log.producer("importer", resume=True).identity
    log.producer("payments")
    place.clock.sleep(2 * FORGOTTEN_AFTER_MS / 1000)
    log.producer("others")
    ids = json.loads(place.files()[FILE_NAME])["ids"]
    assert set(ids) == {"importer", "others"}
    log.abandon()
    assert open_log(place).producer("importer", resume=True).identity == first
