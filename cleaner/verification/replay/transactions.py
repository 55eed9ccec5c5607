"""`__transaction_state`: what a transaction coordinator makes of a partition of it."""

from __future__ import annotations

from collections.abc import Iterator

from cleaner.format.fields import FieldReader
from cleaner.format.message_schema import UnknownVersionError, parse_table, read_key
from cleaner.format.other_messages import TRANSACTION_RECORDS
from cleaner.verification.replay.state import Fact, Facts, Notes, Thing

_STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"),
    "PrepareEpochFence",
)
_EMPTY = 0


class TransactionReplay:
    """
    The transaction coordinator's load: the last record of each transactional id.

    Unknown types and versions are passed over. At a record that it cannot read it stops, and serves what it has so far.
    """

    committed = False

    def __init__(self) -> None:
        self.notes = Notes()
        self._transactions: dict[str, Facts] = {}

    def record(self, offset: int, producer_id: int, key: bytes | None, value: bytes | None) -> None:
        """Apply a record."""
        name = "a record"
        try:
            table = parse_table(TRANSACTION_RECORDS)
            number, fields = read_key(table, key)
            if fields is None:
                self.notes.skip(f"unknown record type {number}")
                return
            transactional_id = fields["transactionalId"]
            name = f"transaction {transactional_id}"
            if value is None:
                self._transactions.pop(transactional_id, None)
                return
            body = FieldReader(value)
            self._transactions[transactional_id] = _facts(table["value", number].read(body, body.integer(2)))
        except UnknownVersionError as error:
            self.notes.skip(str(error))
        except ValueError as error:
            self.notes.fail(offset, name, f"a record that cannot be read: {error}")

    def marker(self, producer_id: int, is_commit: bool) -> None:
        """Ignore it: the topic is not written in transactions."""

    def things(self) -> Iterator[tuple[Thing, Facts]]:
        """Yield the transactions."""
        for name, facts in self._transactions.items():
            yield Thing("transaction", f"transaction {name}"), facts


def _facts(value: dict[str, Fact]) -> Facts:
    status = value["transactionStatus"]
    if not isinstance(status, int) or not 0 <= status < len(_STATES):
        raise ValueError(f"a transaction's state {status}")
    listed = value["transactionPartitions"]
    if status != _EMPTY and not isinstance(listed, list):
        raise ValueError("null where transactionPartitions must be")
    found: set[str] = set()
    for each in listed if isinstance(listed, list) and status != _EMPTY else ():
        if isinstance(each, dict) and isinstance(each["partitionIds"], list):
            found |= {f"{each['topic']}-{partition}" for partition in each["partitionIds"]}
    partitions: list[Fact] = [*sorted(found)]
    return {
        "state": _STATES[status],
        "producer id": value["producerId"],
        "producer epoch": value["producerEpoch"],
        "previous producer id": value.get("previousProducerId", -1),
        "next producer id": value.get("nextProducerId", -1),
        "timeout": value["transactionTimeoutMs"],
        "partitions": partitions,
        "start time": value["transactionStartTimestampMs"],
        "update time": value["transactionLastUpdateTimestampMs"],
        "version": value.get("clientTransactionVersion", 0),
    }
