"""Records that were sent, and their transactions, as their clients know them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Transaction:
    """A transaction: what its client asked for, and was answered; `end`: its marker is below this offset."""

    asked: bool | None = None  # True: to commit; False: to abort; None: nothing yet
    answered: bool | None = None
    is_durable: bool = False
    end: int = 1 << 62


@dataclass
class Sent:
    """
    A record that was sent.

    Attributes:
        offset: as answered, or as found later.
        is_durable: answered as durable, or shown to a reader that is shown durable records only.
        at_least: its offset cannot be lower: others had those before.
        sent_ms: the wall clock then, or lower.
        has_failed: answered with an error that promises that nothing was appended.
        is_lost: it is not in the log, and must not come back.
        erasure: "asked": it may be gone; "done": it is, and must not come back.
        was_compacted: a round has removed it, and what superseded it may be lost to damage since.
        was_cleaned: a round may have seen it before it was erased, and removed what it superseded.
    """

    number: int
    key: str
    value: bytes | None
    transaction: Transaction | None
    at_least: int
    sent_ms: int = 0
    offset: int | None = None
    is_answered: bool = False
    is_durable: bool = False
    has_failed: bool = False
    is_lost: bool = False
    erasure: str = ""
    was_compacted: bool = False
    was_cleaned: bool = False

    def copy(self, transaction: Transaction | None) -> Sent:
        """Return an independent copy that belongs to a copy of its transaction."""
        other = Sent.__new__(Sent)
        other.__dict__ |= self.__dict__
        other.transaction = transaction
        return other


def is_undecided(sent: Sent) -> bool:
    """Tell whether nobody knows yet how a record's transaction ends."""
    transaction = sent.transaction
    return transaction is not None and not (transaction.answered is not None and transaction.is_durable)


def is_committed(sent: Sent) -> bool:
    """Tell whether a record is committed for good."""
    transaction = sent.transaction
    return transaction is None or (transaction.answered is True and transaction.is_durable)


def may_count(sent: Sent) -> bool:
    """Tell whether a record may be a committed one."""
    transaction = sent.transaction
    return (
        transaction is None
        or transaction.answered is True
        or (transaction.answered is None and bool(transaction.asked))
    )
