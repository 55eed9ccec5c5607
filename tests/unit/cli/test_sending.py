"""How lines become records of a topic's logs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cleaner.cli.record_lines import LineFormat
from cleaner.cli.sending import Sender, feed
from cleaner.errors import CleanerError, InputError, RecordTooLargeError
from cleaner.log.partitioner import Partitioner
from cleaner.log.record import Record
from cleaner.log.record_json import Addressed


class _Log:
    """Keeps what it gets; refuses values of `bad`."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def append(self, records: Sequence[Record]) -> None:
        if any(record.value == b"bad" for record in records):
            raise RecordTooLargeError("prices-0", "a bad one")
        self.told.append([record.value for record in records])

    def flush(self) -> None:
        self.told.append("flush")

    def begin(self) -> None:
        self.told.append("begin")

    def commit(self) -> None:
        self.told.append("commit")

    def abort(self) -> None:
        self.told.append("abort")


def _parse(line: bytes, number: int) -> Addressed:
    return Addressed(LineFormat(parse_key=True, key_separator=b":").record(line, number), None)


def _to(text: str, partition: int | None = None) -> Addressed:
    return Addressed(Record(None, text.encode()), partition)


def test_records_that_came_together_are_appended_together() -> None:
    """One append a partition, in the order they came."""
    logs = {0: _Log(), 1: _Log()}
    Sender(logs, Partitioner(2)).send([_to("a", 0), _to("b", 1), _to("c", 0)], 1)
    assert logs[0].told == [[b"a", b"c"]]
    assert logs[1].told == [[b"b"]]


def test_key_decides_the_partition() -> None:
    """As Kafka's hash of it does."""
    logs = {number: _Log() for number in range(10)}
    feed([[b"abc:1", b"21:2", b"abc:3"]], Sender(logs, Partitioner(10)), _parse)
    assert logs[7].told == [[b"1", b"3"]]
    assert logs[0].told == [[b"2"]]


def test_missing_partition_is_refused_by_line() -> None:
    """It is the input that is wrong."""
    with pytest.raises(InputError, match="line 12: there is no partition 5"):
        Sender({0: _Log()}, Partitioner(1)).send([_to("a"), _to("b"), _to("c", 5)], 10)


def test_refused_records_are_reported_by_line() -> None:
    """An append is all or nothing, so all of its lines are concerned."""
    log = _Log()
    sender = Sender({0: log}, Partitioner(1))
    with pytest.raises(CleanerError, match=r"lines 3 to 4: .*a bad one.*none of these was written to partition 0"):
        feed([[b"k:a", b"k:b"], [b"k:c", b"k:bad"]], sender, _parse)
    assert log.told == [[b"a", b"b"]]
    assert sender.sent == 2


def test_lines_before_a_bad_one_are_sent() -> None:
    """As if they had come one by one."""
    log = _Log()
    with pytest.raises(InputError, match="line 3"):
        feed([[b"k:a", b"k:b", b"c", b"k:d"]], Sender({0: log}, Partitioner(1)), _parse)
    assert log.told == [[b"a", b"b"]]


def test_who_types_may_go_on_behind_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """It is reported, and the next line counts."""
    log = _Log()
    feed([[b"k:a"], [b"c"], [b"k:bad"], [b"k:d"]], Sender({0: log}, Partitioner(1)), _parse, goes_on=True)
    assert log.told == [[b"a"], [b"d"]]
    assert [line[:16] for line in capsys.readouterr().err.splitlines()] == ["cleaner: line 2:", "cleaner: line 3:"]


def test_durable_sender_waits_for_the_disk_after_each_append() -> None:
    """So that the next prompt means: it is there."""
    log = _Log()
    feed([[b"k:a"], [b"k:b"]], Sender({0: log}, Partitioner(1), is_durable=True), _parse)
    assert log.told == [[b"a"], "flush", [b"b"], "flush"]


@pytest.mark.parametrize(
    ("commit", "last"), [pytest.param(True, "commit", id="commit"), pytest.param(False, "abort", id="abort")]
)
def test_transaction_has_all_records_until_it_is_ended(commit: bool, last: str) -> None:
    """It begins with the first record that comes."""
    log = _Log()
    sender = Sender({0: log}, Partitioner(1), producer_of=lambda _: log)
    feed([[b"k:a"], [b"k:b"]], sender, _parse)
    sender.end(commit=commit)
    assert log.told == ["begin", [b"a"], [b"b"], last]


def test_transactions_of_so_many_records_are_cut_within_what_came_together() -> None:
    """The last one is what is left."""
    log = _Log()
    sender = Sender({0: log}, Partitioner(1), producer_of=lambda _: log, transaction_records=2)
    sender.send([_to("a"), _to("b"), _to("c"), _to("d"), _to("e")], 1)
    sender.end(commit=True)
    assert log.told == ["begin", [b"a", b"b"], "commit", "begin", [b"c", b"d"], "commit", "begin", [b"e"], "commit"]


def test_partitions_without_records_have_no_transaction() -> None:
    """Nobody is asked for a producer there."""
    logs = {0: _Log(), 1: _Log()}
    sender = Sender(logs, Partitioner(2), producer_of=logs.__getitem__)
    sender.send([_to("a", 1)], 1)
    sender.end(commit=True)
    sender.end(commit=True)
    assert logs[0].told == []
    assert logs[1].told == ["begin", [b"a"], "commit"]
