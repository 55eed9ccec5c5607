"""Refutations of a cleaned log: each gives place and reason, and never shows a byte of a key or a value."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

MAX_FINDINGS = 1000


class RefutationKind(enum.StrEnum):
    """The kind of a refutation; the values are part of the JSON format and never change."""

    LOST = "lost"
    INVENTED = "invented"
    CHANGED = "changed"
    REVIVED = "revived"
    HEAD = "head"
    HORIZON = "horizon"
    MARKER = "marker"
    TRANSACTION = "transaction"
    PRODUCER = "producer"
    LOG_START = "log-start"
    LOG_END = "log-end"
    CHECKPOINT = "checkpoint"
    LEADER_EPOCHS = "leader-epochs"
    PARTITION_METADATA = "partition-metadata"
    SNAPSHOT = "snapshot"
    DAMAGED = "damaged"


@dataclass(frozen=True)
class Refutation:
    """
    One error in a cleaned log.

    Attributes:
        kind: of the error.
        path: the file: of the log before if something is missing, else of the log after.
        position: of the batch in the file.
        offset: of the record, or the batch's first.
        reason: in words.
    """

    kind: RefutationKind
    path: str
    position: int
    offset: int
    reason: str


class Findings:
    """
    The findings of one log; the first thousand are kept.

    Attributes:
        total: number of all findings.
    """

    def __init__(self) -> None:
        self.total = 0
        self._kept: list[Refutation] = []

    def add(self, kind: RefutationKind, path: Path | str, position: int, offset: int, reason: str) -> None:
        """Note a finding."""
        self.total += 1
        if len(self._kept) < MAX_FINDINGS:
            self._kept.append(Refutation(kind, str(path), int(position), int(offset), reason))

    def mark(self) -> tuple[int, int]:
        """Return a mark for `go_back`."""
        return self.total, len(self._kept)

    def go_back(self, mark: tuple[int, int]) -> None:
        """Forget the findings since a mark."""
        self.total, kept = mark
        del self._kept[kept:]

    def joined(self, other: Findings) -> Findings:
        """Return these findings and others."""
        both = Findings()
        both.total = self.total + other.total
        both._kept = [*self._kept, *other._kept][:MAX_FINDINGS]
        return both

    def in_order(self) -> tuple[Refutation, ...]:
        """Return the kept findings, by offset."""
        return tuple(sorted(self._kept, key=lambda one: (one.offset, one.path, one.kind)))
