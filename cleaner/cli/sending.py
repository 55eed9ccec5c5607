"""
Sends the records of `cleaner produce` to a topic's logs: partition, transaction, durability.

Records that came together are appended together, one append per partition, and each append is all or nothing. A
transaction covers one partition, as in the library; so one asked for here becomes one per partition, begun with the
partition's first record, and all of them end together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from cleaner.cli.output import print_failure
from cleaner.errors import CleanerError, InputError
from cleaner.log.partitioner import Partitioner
from cleaner.log.record import Record
from cleaner.log.record_json import Addressed


class Transaction(Protocol):
    """A transactional producer of one log."""

    def begin(self) -> object:
        """Begin a transaction."""

    def append(self, records: Sequence[Record], /) -> object:
        """Append within the transaction."""

    def commit(self) -> object:
        """End it; its records count."""

    def abort(self) -> object:
        """End it; its records do not count."""


class AppendTarget(Protocol):
    """The log of one partition."""

    def append(self, records: Sequence[Record], /) -> object:
        """Append records, all or none."""

    def flush(self) -> object:
        """Wait until everything appended is on disk."""


class Sender:
    """
    Sends records to the logs of one topic.

    Attributes:
        sent: how many records were appended.

    Args:
        logs: by partition.
        producer_of: returns a partition's producer, if records go in transactions.
        partitioner: chooses the partition of a record without one.
        transaction_records: how many records make a transaction; None: all of them.
        is_durable: wait for the disk after each append.
    """

    def __init__(
        self,
        logs: Mapping[int, AppendTarget],
        partitioner: Partitioner,
        *,
        producer_of: Callable[[int], Transaction] | None = None,
        transaction_records: int | None = None,
        is_durable: bool = False,
    ) -> None:
        self._logs = logs
        self._partitioner = partitioner
        self._producer_of = producer_of
        self._transaction_records = transaction_records
        self._is_durable = is_durable
        self._producers: dict[int, Transaction] = {}
        self._begun: set[int] = set()
        self._in_transaction = 0
        self.sent = 0

    def send(self, records: Sequence[Addressed], first_line: int) -> None:
        """
        Append records that came together.

        Args:
            first_line: the line number of the first one in the input.
        Raises:
            CleanerError: the log's error, with the lines concerned; records of other partitions may have been appended.
        """
        for some, line in self._shares(records, first_line):
            self._append(some, line)
            if self._in_transaction == self._transaction_records:
                self.end(commit=True)

    def _shares(self, records: Sequence[Addressed], first_line: int) -> Iterator[tuple[Sequence[Addressed], int]]:
        """Cut records where a transaction ends."""
        begin = 0
        while begin < len(records):
            room = (
                len(records) if self._transaction_records is None else self._transaction_records - self._in_transaction
            )
            yield records[begin : begin + room], first_line + begin
            begin += room

    def _append(self, records: Sequence[Addressed], first_line: int) -> None:
        by_partition: dict[int, list[Record]] = {}
        for place, (record, asked) in enumerate(records):
            partition = self._partitioner.partition_for(record) if asked is None else asked
            if partition not in self._logs:
                raise InputError(first_line + place, f"there is no partition {partition}")
            by_partition.setdefault(partition, []).append(record)
        last_line = first_line + len(records) - 1
        lines = f"line {first_line}" if len(records) == 1 else f"lines {first_line} to {last_line}"
        for partition, some in by_partition.items():
            try:
                self._append_to(partition, some)
            except CleanerError as error:
                # The user who typed or piped the input needs lines, not offsets.
                what = f"{lines}: {error}; none of these was written to partition {partition}"
                raise CleanerError(what) from error
        self.sent += len(records)
        self._in_transaction += len(records)

    def _append_to(self, partition: int, records: Sequence[Record]) -> None:
        if self._producer_of is None:
            self._logs[partition].append(records)
        else:
            if partition not in self._producers:
                self._producers[partition] = self._producer_of(partition)
            producer = self._producers[partition]
            if partition not in self._begun:
                producer.begin()
                self._begun.add(partition)
            producer.append(records)
        if self._is_durable:
            self._logs[partition].flush()

    def end(self, *, commit: bool) -> None:
        """End the transactions that are open, if there are any."""
        for partition in sorted(self._begun):
            if commit:
                self._producers[partition].commit()
            else:
                self._producers[partition].abort()
            self._begun.discard(partition)
        self._in_transaction = 0


def feed(
    batches: Iterable[Sequence[bytes]],
    sender: Sender,
    parse: Callable[[bytes, int], Addressed],
    *,
    goes_on: bool = False,
) -> None:
    """
    Send lines of input; lines that came together are sent together.

    Args:
        parse: makes a record from a line and its number.
        goes_on: report an error and go on, for a person who types; otherwise the valid lines before a bad one are sent,
            and the error is raised.
    """
    first_line = 1
    for lines in batches:
        records: list[Addressed] = []
        try:
            try:
                for number, line in enumerate(lines, first_line):
                    records.append(parse(line, number))
            finally:
                if records:
                    sender.send(records, first_line)
        except CleanerError as error:
            if not goes_on:
                raise
            print_failure(error)
        first_line += len(lines)
