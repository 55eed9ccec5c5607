"""Input and output of a log: records, one by one or as columns, and the answer of an append."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cleaner.base import arguments, concurrency
from cleaner.errors import UsageError, shortened
from cleaner.storage.files.producer_snapshot import SEQUENCES as SEQUENCES

HIGHEST_SEQUENCE = SEQUENCES - 1
_HIGHEST_EPOCH = 2**15 - 1  # its int16

Headers = Sequence[tuple[str, bytes | None]]
Timestamps = int | Sequence[int] | npt.NDArray[np.int64]


# Not frozen, which would make a record four times as slow to create; `Final` has type checkers enforce the same.
@dataclass(slots=True, unsafe_hash=True)
class Record:
    """
    One record; not to be changed.

    Attributes:
        key: None: no key; a compacted topic needs one.
        value: None is a tombstone: the key is deleted.
        headers: in order; a name may occur more than once. An append also takes a dict.
        timestamp_ms: milliseconds since 1970; None in an append means now.
        offset: its place in the log; None before it has one; an append ignores it.
    """

    key: Final[bytes | None]
    value: Final[bytes | None]
    headers: Final[tuple[tuple[str, bytes | None], ...]] = ()
    timestamp_ms: Final[int | None] = None
    offset: Final[int | None] = None


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """
    Many records as columns of equal length: the fast way in, as no object is made per record.

    Attributes:
        values: one a record; None is a tombstone.
        keys: one a record; None: no record has a key.
        timestamps_ms: one a record, or one for all; None means now.
        headers: one sequence a record; None: no record has any.
    """

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    timestamps_ms: Timestamps | None = None
    headers: Sequence[Headers] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @staticmethod
    def of(records: Sequence[Record], now_ms: int) -> RecordColumns:
        """Make columns of records; those without a timestamp get `now_ms`."""
        return RecordColumns(
            [record.value for record in records],
            [record.key for record in records],
            [now_ms if record.timestamp_ms is None else record.timestamp_ms for record in records],
            [record.headers for record in records] if any(record.headers for record in records) else None,
        )


Records = Record | RecordColumns | Iterable[Record]
"""Input of an append: one record, an iterable of records, or columns."""

_BYTES = bytes | bytearray | memoryview


def as_records(records: Records) -> Sequence[Record] | RecordColumns:
    """
    Return an append's input as a sequence or as columns; the records themselves are not checked.

    Raises:
        UsageError: the input is of another type.
    """
    if isinstance(records, list | tuple | RecordColumns):
        return records
    if isinstance(records, Record):
        return [records]
    if isinstance(records, str | Mapping | _BYTES) or not isinstance(records, Iterable):
        raise UsageError(
            f"an append of a {type(records).__name__}: a Record, several of them or RecordColumns are needed"
        )
    return list(records)


def checked_columns(records: Sequence[Record] | RecordColumns, now_ms: int) -> RecordColumns:
    """
    Check each record and return columns; headers are pairs of name and value, also where a dict was given.

    Raises:
        UsageError: names the first record that cannot be appended, and its field.
    """
    if isinstance(records, RecordColumns):
        return _check_columns(records)
    for row, record in enumerate(records):
        if not isinstance(record, Record):
            raise UsageError(f"record {row} is a {type(record).__name__}, not a cleaner.Record")
    return RecordColumns(
        [_field(row, "value", record.value) for row, record in enumerate(records)],
        [_field(row, "key", record.key) for row, record in enumerate(records)],
        [
            _time(row, now_ms if record.timestamp_ms is None else record.timestamp_ms)
            for row, record in enumerate(records)
        ],
        [_headers(row, record.headers) for row, record in enumerate(records)],
    )


def _check_columns(columns: RecordColumns) -> RecordColumns:
    values = _column("values", columns.values)
    keys = None if columns.keys is None else _column("keys", columns.keys)
    times = columns.timestamps_ms
    if times is not None and (isinstance(times, Sequence) or np.ndim(times)):
        times = [_time(row, each) for row, each in enumerate(_column("timestamps_ms", times))]
    elif times is not None:
        times = _time(0, times)
    headers = None if columns.headers is None else _column("headers", columns.headers)
    return RecordColumns(
        [_field(row, "value", value) for row, value in enumerate(values)],
        None if keys is None else [_field(row, "key", key) for row, key in enumerate(keys)],
        times,
        None if headers is None else [_headers(row, each) for row, each in enumerate(headers)],
    )


def _column(name: str, column: object) -> list[object]:
    if isinstance(column, str | Mapping | _BYTES) or not isinstance(column, Iterable):
        raise UsageError(f"{name} is a {type(column).__name__}; one item a record is needed")
    return list(column)


def _field(row: int, name: str, value: object) -> bytes | None:
    if isinstance(value, str):
        # Only the application knows the encoding of its text, so none is chosen here.
        raise UsageError(f"record {row}: its {name} is a str; keys and values are bytes, as of {name}.encode()")
    if value is not None and not isinstance(value, _BYTES):
        raise UsageError(f"record {row}: its {name} is a {type(value).__name__}; keys and values are bytes or None")
    return None if value is None else bytes(value)


def _time(row: int, value: object) -> int:
    if isinstance(value, datetime):
        return _time(row, arguments.moment_ms(f"record {row}: timestamp_ms", value))
    return arguments.whole(f"record {row}: timestamp_ms", value, 0)


def _headers(row: int, headers: object) -> tuple[tuple[str, bytes | None], ...]:
    found = list(headers.items()) if isinstance(headers, Mapping) else headers
    wrong = f"record {row}: its headers are {shortened(repr(headers))}; pairs of a str and bytes or None are needed"
    if isinstance(found, str | _BYTES) or not isinstance(found, Iterable):
        raise UsageError(wrong)
    pairs = []
    for pair in found:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise UsageError(wrong)
        name, value = pair
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"record {row}: a header's name has no UTF-8 form: {error}") from error
        if value is not None and not isinstance(value, _BYTES):
            raise UsageError(f"record {row}: header {shortened(repr(name))} is a {type(value).__name__}, not bytes")
        pairs.append((name, None if value is None else bytes(value)))
    return tuple(pairs)


class ProducerStamp(NamedTuple):
    """
    The producer fields of an idempotent producer's batch.

    Attributes:
        base_sequence: of the first record; the others follow, and 2**31 - 1 is followed by 0.
        is_transactional: readers of committed records see the records when the transaction is committed.
    """

    producer_id: int
    epoch: int
    base_sequence: int
    is_transactional: bool = False


def checked_stamp(stamp: ProducerStamp) -> ProducerStamp:
    """
    Return the stamp, if its numbers fit a batch and it names a producer: Kafka writes -1 for none.

    Raises:
        UsageError: names the field.
    """
    return ProducerStamp(
        arguments.whole("producer_id", stamp.producer_id, 0),
        arguments.whole("epoch", stamp.epoch, 0, _HIGHEST_EPOCH),
        arguments.whole("base_sequence", stamp.base_sequence, 0, HIGHEST_SEQUENCE),
        arguments.flag("is_transactional", stamp.is_transactional),
    )


class Appended:
    """
    The answer of an append.

    Attributes:
        base_offset, last_offset: of the first and last record, both inclusive; for a repeat, those of the first append.
        log_append_time_ms: the records' timestamp if the topic has `message.timestamp.type=LogAppendTime`.
        is_repeat: the same producer had appended it before.
    """

    __slots__ = ("_durable", "_make_durable", "base_offset", "is_repeat", "last_offset", "log_append_time_ms")

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int | None,
        make_durable: Callable[[int], concurrency.Future[None]],
        *,
        is_repeat: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.is_repeat = is_repeat
        self._make_durable = make_durable
        self._durable: concurrency.Future[None] | None = None

    def __repr__(self) -> str:
        return f"Appended({self.base_offset}, {self.last_offset})"

    @property
    def durable(self) -> concurrency.Future[None]:
        """
        A future that is done once everything up to `last_offset` is on disk; reading it requests the flush.

        It fails with FailedFsyncError or LogClosedError.
        """
        if self._durable is None:
            self._durable = self._make_durable(self.last_offset)
        return self._durable
