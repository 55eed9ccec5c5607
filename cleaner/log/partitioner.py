"""
Which partition of a topic a record goes to, chosen as Kafka's producer does by default.

    with a key        its hash decides, so that a key's records stay in order, for all writers
    without a key     a partition picked at random, until it has had `batch.size` bytes; then another one is picked

An empty key is a key. With more partitions, keys go to other partitions than before.

Source: `BuiltInPartitioner.java`, `Utils.java` (murmur2).
"""

from __future__ import annotations

import random

from cleaner.log.record import Record

STICKY_BYTES = 16_384
"""Kafka's default of `batch.size`."""

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return MurmurHash2 (32 bits, Kafka's seed) as an unsigned number; Kafka's is the same bits, signed."""
    length = len(data)
    hashed = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        hashed = hashed * _MULTIPLIER & _MASK ^ word
    if length > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


def partition_of(key: bytes, partition_count: int) -> int:
    """Return the partition of a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class Partitioner:
    """
    Chooses partitions for the records of one topic, for one thread.

    Args:
        partition_count: of the topic, at least 1.
        sticky_bytes: how many bytes without a key go to a partition before another one is picked.
        chooser: picks it.
    """

    def __init__(
        self, partition_count: int, *, sticky_bytes: int = STICKY_BYTES, chooser: random.Random | None = None
    ) -> None:
        self._partition_count = partition_count
        self._sticky_bytes = sticky_bytes
        self._chooser = chooser or random.SystemRandom()
        self._sticky = self._chooser.randrange(partition_count)
        self._sent_bytes = 0

    def partition_for(self, record: Record) -> int:
        """Return the partition for a record, and count the record as sent to it."""
        if record.key is not None:
            return 0 if self._partition_count == 1 else partition_of(record.key, self._partition_count)
        chosen = self._sticky
        self._sent_bytes += len(record.value or b"")
        if self._sent_bytes >= self._sticky_bytes:
            self._sticky, self._sent_bytes = self._chooser.randrange(self._partition_count), 0
        return chosen
