"""
The meaning of each byte of a log dir's `.lock`; it never changes. The file itself stays empty.

    byte    locked by
    0       a cleaner
    1       a writer
    2       every cleaner and writer, shared: keeps brokers out
    3       the user of the logs: shared by a running writer and the rounds alongside it; exclusively by a writer that
            loads its logs, or by the rounds of a cleaner without a writer
    4       a writer that waits for byte 3: rounds give way
    5       a process that changes `cleaner-offset-checkpoint`
    6-15    only an exclusive holder of the log dir
    16 ...  one byte a partition: a process that swaps, settles, rolls or cuts its segments (exclusive), or lists them
            (shared)

A JVM locks all bytes; an exclusive holder locks 0 to 15 except 5. `docs/coexistence.md` says who locks what, and when.
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
"""Partitions that share a slot wait for each other and make each other's readers look again; nothing worse."""


def slot_of(topic_partition: TopicPartition) -> int:
    """Return a partition's slot, 0 to `SLOTS` - 1: its byte in `.lock`, and its generation number. Never changes."""
    return zlib.crc32(str(topic_partition).encode()) % SLOTS
