"""The `with` block of a transaction: the same for producers of one log and of all logs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol, TypeVar

from cleaner.errors import CleanerError


class _Transacting(Protocol):
    def begin(self) -> None: ...
    def commit(self) -> object: ...
    def abort(self) -> object: ...


ProducerT = TypeVar("ProducerT", bound=_Transacting)


@contextlib.contextmanager
def transaction_of(producer: ProducerT) -> Iterator[ProducerT]:
    """Begin a transaction for a `with` block; it is committed at the end, and aborted by an exception."""
    producer.begin()
    try:
        yield producer
        producer.commit()
    except BaseException:
        # The error is raised as it is. What is committed, or may be, is not aborted: `abort` refuses that.
        with contextlib.suppress(CleanerError):
            producer.abort()
        raise
