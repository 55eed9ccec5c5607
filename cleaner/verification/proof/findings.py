"""What refutes a cleaned log: each finding says where and why, and never shows a byte of a key or a value."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

MOST_FINDINGS = 1000


class RefutationKind(enum.StrEnum):
    """What is wrong; the words are part of the JSON format and stay as they are."""

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
    One thing that is wrong.

    Attributes:
        kind: what.
        path: the file it is in: of the log before for what is missing, else of the log after.
        position: of the batch in the file.
        offset: of the record, or the batch's first.
        reason: why that is wrong, in words.
    """

    kind: RefutationKind
    path: str
    position: int
    offset: int
    reason: str


class Findings:
    """
    The findings of one log, the first thousand in full.

    Attributes:
        total: how many there were.
    """

    def __init__(self) -> None:
        self.total = 0
        self._kept: list[Refutation] = []

    def add(self, kind: RefutationKind, path: Path | str, position: int, offset: int, reason: str) -> None:
        """Note a finding."""
        self.total += 1
        if len(self._kept) < MOST_FINDINGS:
            self._kept.append(Refutation(kind, str(path), int(position), int(offset), reason))

    def mark(self) -> tuple[int, int]:
        """Return what `go_back` takes."""
        return self.total, len(self._kept)

    def go_back(self, mark: tuple[int, int]) -> None:
        """Forget what was noted since a mark."""
        self.total, kept = mark
        del self._kept[kept:]

    def in_order(self) -> tuple[Refutation, ...]:
        """Return those kept, by offset."""
        return tuple(sorted(self._kept, key=lambda one: (one.offset, one.path, one.kind)))
