"""Small frozen values that every package uses, without other behaviour."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from cleaner.errors import shortened

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")
_LEGAL_PARTITION = re.compile(r"[0-9]{1,10}\Z")
_MAX_SHOWN_TOPIC = 80  # characters


@dataclass(frozen=True)
class Removed:
    """
    Records that a cleaning left out, by reason.

    Attributes:
        superseded: a later record has the same key.
        tombstones: null values past their delete horizon.
        aborted: data of aborted transactions, also of batches that were removed unread.
        markers: transaction markers past their delete horizon.
        keyless: records without a key, which a compacted topic should not have; Kafka counts them as invalid (R-718).
    """

    superseded: int = 0
    tombstones: int = 0
    aborted: int = 0
    markers: int = 0
    keyless: int = 0

    def __add__(self, other: Removed) -> Removed:
        return Removed(*(mine + its for mine, its in zip(vars(self).values(), vars(other).values(), strict=True)))

    @property
    def total(self) -> int:
        """All of them."""
        return sum(vars(self).values())


class TopicPartition(NamedTuple):
    """A topic's name and a partition number; prints as the name of its directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def is_legal(self) -> bool:
        """Tell whether a directory may have its name."""
        return _LEGAL_TOPIC.match(self.topic) is not None and 0 <= self.partition < 2**31

    @staticmethod
    def parse(name: str) -> TopicPartition:
        """
        Parse `topic-0`: split at the last dash (R-104).

        Raises:
            ValueError: no dash, a topic with characters Kafka refuses, or a partition that is not a number.
        """
        topic, dash, number = name.rpartition("-")
        if not dash or not _LEGAL_TOPIC.match(topic) or not _LEGAL_PARTITION.match(number) or int(number) >= 2**31:
            example = f", such as {name}-0" if _LEGAL_TOPIC.match(name) and len(name) <= _MAX_SHOWN_TOPIC else ""
            raise ValueError(f"{shortened(repr(name))} is not a topic, a dash and a partition number{example}")
        return TopicPartition(topic, int(number))


def name_without_place(text: str) -> str:
    """Return a name that may be typed as a path, as shells complete it: `prices-0` of `/data/prices-0/`."""
    return text.rstrip("/").rpartition("/")[2]


class AbortedTxn(NamedTuple):
    """One entry of a transaction index (R-303): an aborted transaction and its offsets."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class LastRecord(NamedTuple):
    """
    The last record of an active producer (R-545).

    `last_data_offset` is None if the producer's epoch was raised since its last data batch.
    """

    last_data_offset: int | None
    producer_epoch: int


class EpochEntry(NamedTuple):
    """One line of `leader-epoch-checkpoint`: the offset at which a leader epoch begins."""

    epoch: int
    start_offset: int
