"""What goes into a log and comes out of it: records, one by one or as columns, and what an append answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Headers = Sequence[tuple[str, bytes | None]]
Timestamps = int | Sequence[int] | npt.NDArray[np.int64]


# Not frozen, which would make a record four times as dear; `Final` has type checkers say the same.
@dataclass(slots=True, unsafe_hash=True)
class Record:
    """
    One record; not to be changed.

    Attributes:
        key: None for none; a compacted topic wants one.
        value: None is a tombstone: the key is deleted.
        headers: in order; a name may occur more than once.
        timestamp_ms: milliseconds since 1970; None on the way in stands for now.
        offset: its place in the log; None until it has one, and not looked at by an append.
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
        timestamps_ms: one a record, or one for all; None stands for now.
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
        """Take records apart; those without a timestamp get this moment's."""
        return RecordColumns(
            [record.value for record in records],
            [record.key for record in records],
            [now_ms if record.timestamp_ms is None else record.timestamp_ms for record in records],
            [record.headers for record in records] if any(record.headers for record in records) else None,
        )


class ProducerStamp(NamedTuple):
    """
    What an idempotent producer puts on a batch.

    Attributes:
        base_sequence: of the first record; the others follow, and 2**31 - 1 is followed by 0.
        is_transactional: the records become visible to readers of committed ones with the transaction's end.
    """

    producer_id: int
    epoch: int
    base_sequence: int
    is_transactional: bool = False


class Appended:
    """
    What became of an append.

    Attributes:
        base_offset, last_offset: of the first and last record, both inclusive; of an append that repeats an earlier one
            those of the first time.
        log_append_time_ms: the records' timestamp where the topic has `message.timestamp.type=LogAppendTime`.
        is_repeat: it was there before, by the same producer.
    """

    __slots__ = ("_durable", "_make_durable", "base_offset", "is_repeat", "last_offset", "log_append_time_ms")

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int | None,
        make_durable: Callable[[int], Future[None]],
        *,
        is_repeat: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.is_repeat = is_repeat
        self._make_durable = make_durable
        self._durable: Future[None] | None = None

    def __repr__(self) -> str:
        return f"Appended({self.base_offset}, {self.last_offset})"

    @property
    def durable(self) -> Future[None]:
        """
        A future that is done once all up to `last_offset` is on disk; to ask for it is to ask for that.

        It fails with FailedFsyncError or LogClosedError.
        """
        if self._durable is None:
            self._durable = self._make_durable(self.last_offset)
        return self._durable
