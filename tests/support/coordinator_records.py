"""
Records of internal topics as coordinators write them, made by hand: (key, value) pairs for `LogBuilder`.

A value of None in the place of the fields is a tombstone. Does not use the tables of `cleaner.format`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

Pair = tuple[bytes, bytes | None]
TOPIC_ID = bytes(range(16))


def text(value: str | None) -> bytes:
    """A string with a length of two bytes."""
    data = b"" if value is None else value.encode()
    return struct.pack(">h", -1 if value is None else len(data)) + data


def compact(value: str | None) -> bytes:
    """A string of a flexible version, below 127 bytes."""
    return b"\0" if value is None else bytes([len(value.encode()) + 1]) + value.encode()


def _key(number: int, *names: str) -> bytes:
    return struct.pack(">h", number) + b"".join(map(text, names))


def offset_commit(group: str, topic: str, partition: int, offset: int | None, metadata: str = "") -> Pair:
    """A committed offset, version 3 without a leader epoch."""
    key = _key(1, group, topic) + struct.pack(">i", partition)
    if offset is None:
        return key, None
    return key, struct.pack(">hqi", 3, offset, -1) + text(metadata) + struct.pack(">q", 7)


def classic_group(group: str, generation: int | None, members: Sequence[str] = ()) -> Pair:
    """A classic group, version 3."""
    key = _key(2, group)
    if generation is None:
        return key, None
    leader = members[0] if members else None
    value = struct.pack(">h", 3) + text("consumer") + struct.pack(">i", generation)
    value += text("range" if members else None) + text(leader) + struct.pack(">qi", 99, len(members))
    for member in members:
        value += text(member) + text(None) + text("client") + text("/127.0.0.1")
        value += struct.pack(">iiii", 300_000, 45_000, 0, 4) + f"{generation:04}".encode()[:4]
    return key, value


def group_epoch(group: str, epoch: int | None, number: int = 3) -> Pair:
    """ConsumerGroupMetadata; number 11 is that of share groups, where the metadata hash is no tagged field."""
    key = _key(number, group)
    if epoch is None:
        return key, None
    return key, struct.pack(">hi", 0, epoch) + (struct.pack(">q", 0) if number == 11 else b"") + b"\0"


def member(group: str, member_id: str, topics: Iterable[str] | None = ("t",)) -> Pair:
    """ConsumerGroupMemberMetadata; topics None: a tombstone."""
    key = _key(5, group, member_id)
    if topics is None:
        return key, None
    names = [compact(name) for name in topics]
    value = struct.pack(">h", 0) + compact(None) * 2 + compact("client") + compact("/127.0.0.1")
    value += (
        bytes([len(names) + 1]) + b"".join(names) + compact(None) + struct.pack(">i", 45_000) + compact(None) + b"\0"
    )
    return key, value


def target_epoch(group: str, epoch: int | None) -> Pair:
    """ConsumerGroupTargetAssignmentMetadata."""
    return _key(6, group), None if epoch is None else struct.pack(">hi", 0, epoch) + b"\0"


def _partitions(partitions: Sequence[int]) -> bytes:
    listed = b"".join(struct.pack(">i", each) for each in partitions)
    return b"\1" if not partitions else b"\2" + TOPIC_ID + bytes([len(partitions) + 1]) + listed + b"\0"


def target(group: str, member_id: str, partitions: Sequence[int] | None) -> Pair:
    """ConsumerGroupTargetAssignmentMember."""
    return _key(7, group, member_id), None if partitions is None else struct.pack(">h", 0) + _partitions(
        partitions
    ) + b"\0"


def current(group: str, member_id: str, epoch: int, partitions: Sequence[int] | None) -> Pair:
    """ConsumerGroupCurrentMemberAssignment."""
    key = _key(8, group, member_id)
    if partitions is None:
        return key, None
    return key, struct.pack(">hiib", 0, epoch, epoch - 1, 0) + _partitions(partitions) + b"\1" + b"\0"


def transaction(
    name: str, status: int | None, epoch: int = 0, partitions: Mapping[str, Sequence[int]] | None = None
) -> Pair:
    """A transaction's state, version 0."""
    key = _key(0, name)
    if status is None:
        return key, None
    value = struct.pack(">hqhib", 0, 5, epoch, 60_000, status)
    listed = partitions or {}
    value += struct.pack(">i", len(listed))
    for topic, numbers in listed.items():
        value += text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return key, value + struct.pack(">qq", 11, 10)
