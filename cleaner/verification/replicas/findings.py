"""What replicas disagree about."""

from __future__ import annotations

import enum
from dataclasses import dataclass

MAX_FINDINGS = 1000
"""The most findings that are kept of a partition: those with the lowest offsets."""


class Disagreement(enum.Enum):
    """What is different in two replicas, where compaction cannot have made the difference."""

    DELETED_STILL_ALIVE = "deleted in one, and an older value is alive in the other, which will not get the tombstone"
    VALUE_MISSING = "alive in one, and gone or deleted earlier in the other"
    VALUE_STALE = "the other still has an older value, although its log goes beyond the newer one"
    ABORTED_IS_BACK = "aborted in one, and visible as committed in the other"
    MARKER_LOST = "one has the end marker of a transaction, the other has the transaction's records without it"


@dataclass(frozen=True)
class ReplicaFinding:
    """
    One disagreement.

    Attributes:
        kind: what is different.
        offset: of the last record of the key, of the marker, or of the first aborted record.
        has_it: the replica that has that record or marker, by its number.
        departs: the replica that does not, by its number.
        other_offset: of the older record that the second one has of the key, or of the first record of the
            transaction; None without one.
        key: of the record; None for transactions.
    """

    kind: Disagreement
    offset: int
    has_it: int
    departs: int
    other_offset: int | None = None
    key: bytes | None = None


@dataclass(frozen=True)
class Divergence:
    """
    Where replicas stop agreeing: below `offset` all have the same records, as far as they have them.

    Attributes:
        offset: the first one that shows it.
        replicas: the numbers of two of them that contradict each other.
        reason: in words.
    """

    offset: int
    replicas: tuple[int, int]
    reason: str


@dataclass(frozen=True)
class NeededTombstones:
    """
    Tombstones that some replica still has to get.

    Attributes:
        replica: by its number; it ends below them.
        count: how many keys they delete.
        first_offset: of the first.
    """

    replica: int
    count: int
    first_offset: int
