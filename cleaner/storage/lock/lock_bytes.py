"""
What each byte of a log dir's `.lock` stands for, fixed for ever. The file itself stays empty.

    byte    locked by
    0       a cleaner
    1       a writer
    2       everybody, shared: no broker may come
    3       who has the logs: shared by a writer at work and the rounds beside it; alone by a writer that loads its
            logs, or by the rounds of a cleaner without a writer
    4       a writer that waits for byte 3: rounds give way
    5       who changes `cleaner-offset-checkpoint`
    6-15    nobody, but for who wants to be alone
    16 ...  one byte a partition: who swaps, settles, rolls or cuts its segments (exclusive), or lists them (shared)

A JVM locks them all; who wants to be alone, 0 to 15 but for 5. `docs/coexistence.md` tells who locks what, and when.
"""

from __future__ import annotations

import zlib

from cleaner.base.model import TopicPartition

CLEANER_BYTE = 0
WRITER_BYTE = 1
PRESENCE_BYTE = 2
LOGS_BYTE = 3
WAITING_BYTE = 4
CHECKPOINT_BYTE = 5
ALONE_BYTE = 15

FIRST_PARTITION_BYTE = 16
SLOTS = 1 << 16
"""Partitions that share a slot wait for each other and tell each other's readers to look again; no more than that."""


def slot_of(topic_partition: TopicPartition) -> int:
    """Return a partition's slot, 0 to `SLOTS` - 1: its byte in `.lock`, and its generation number. Fixed for ever."""
    return zlib.crc32(str(topic_partition).encode()) % SLOTS
