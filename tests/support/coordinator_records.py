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


CONSUMER, SHARE, STREAMS = "consumer", "share", "streams"
# By the kind of group: group, member, target epoch, a member's target, its current assignment.
_NUMBERS = {CONSUMER: (3, 5, 6, 7, 8), SHARE: (11, 10, 12, 13, 14), STREAMS: (17, 19, 20, 21, 22)}


def group_epoch(group: str, epoch: int | None, kind: str = CONSUMER) -> Pair:
    """A group's epoch; for consumer groups the metadata hash is a tagged field."""
    key = _key(_NUMBERS[kind][0], group)
    if epoch is None:
        return key, None
    return key, struct.pack(">hi", 0, epoch) + (b"" if kind == CONSUMER else struct.pack(">q", 0)) + b"\0"


def member(group: str, member_id: str, topics: Iterable[str] | None = ("t",), kind: str = CONSUMER) -> Pair:
    """What a member says of itself; topics None: a tombstone. Those of streams groups have none: their topology has."""
    key = _key(_NUMBERS[kind][1], group, member_id)
    if topics is None:
        return key, None
    # Without a rack id; all but those of share groups may have an instance id, and a timeout.
    value = (
        struct.pack(">h", 0) + compact(None) * (1 if kind == SHARE else 2) + compact("client") + compact("/127.0.0.1")
    )
    timeout = struct.pack(">i", 45_000)
    if kind == STREAMS:
        return key, value + timeout + struct.pack(">i", 1) + compact("process") + b"\xff" + b"\1" + b"\0"
    names = [compact(name) for name in topics]
    value += bytes([len(names) + 1]) + b"".join(names)
    return key, value + (b"" if kind == SHARE else compact(None) + timeout + compact(None)) + b"\0"


def target_epoch(group: str, epoch: int | None, kind: str = CONSUMER) -> Pair:
    """The epoch of a group's target assignment."""
    return _key(_NUMBERS[kind][2], group), None if epoch is None else struct.pack(">hi", 0, epoch) + b"\0"


def _partitions(partitions: Sequence[int], of: bytes = TOPIC_ID) -> bytes:
    """One topic's, or one subtopology's; none of them: an empty array."""
    listed = b"".join(struct.pack(">i", each) for each in partitions)
    return b"\1" if not partitions else b"\2" + of + bytes([len(partitions) + 1]) + listed + b"\0"


def _assigned(partitions: Sequence[int], kind: str) -> bytes:
    """An assignment; of a streams group it is active tasks, without standby and warmup tasks."""
    return _partitions(partitions, compact("0")) + b"\1\1" if kind == STREAMS else _partitions(partitions)


def target(group: str, member_id: str, partitions: Sequence[int] | None, kind: str = CONSUMER) -> Pair:
    """A member's target assignment."""
    key = _key(_NUMBERS[kind][3], group, member_id)
    return key, None if partitions is None else struct.pack(">h", 0) + _assigned(partitions, kind) + b"\0"


def current(group: str, member_id: str, epoch: int, partitions: Sequence[int] | None, kind: str = CONSUMER) -> Pair:
    """A member's current assignment; nothing of it is revoked."""
    key = _key(_NUMBERS[kind][4], group, member_id)
    if partitions is None:
        return key, None
    revoked = {CONSUMER: b"\1", SHARE: b"", STREAMS: b"\1\1\1"}[kind]
    return key, struct.pack(">hiib", 0, epoch, epoch - 1, 0) + _assigned(partitions, kind) + revoked + b"\0"


def share_partitions(group: str, partitions: Sequence[int] | None) -> Pair:
    """Which partitions of a topic `t` a share group has begun to read."""
    key = _key(15, group)
    if partitions is None:
        return key, None
    begun = _partitions(partitions, TOPIC_ID + compact("t"))
    return key, struct.pack(">h", 0) + b"\1" + begun + b"\1" + b"\0"


def topology(group: str, epoch: int | None) -> Pair:
    """The topology of a streams group: one subtopology, which reads `t`."""
    key = _key(23, group)
    if epoch is None:
        return key, None
    return key, struct.pack(">hi", 0, epoch) + b"\2" + compact("0") + b"\2" + compact("t") + b"\1" * 5 + b"\0" + b"\0"


ShareBatch = tuple[int, int, int, int]
"""Records of a share partition: first and last offset, state, deliveries."""


def _share_key(number: int, group: str, partition: int) -> bytes:
    return _key(number, group) + TOPIC_ID + struct.pack(">i", partition)


def _batches(batches: Sequence[ShareBatch]) -> bytes:
    return bytes([len(batches) + 1]) + b"".join(struct.pack(">qqbh", *each) + b"\0" for each in batches)


def share_snapshot(
    group: str, partition: int, start: int | None, batches: Sequence[ShareBatch] = (), epoch: int = 0, leader: int = 0
) -> Pair:
    """ShareSnapshot; start None: a tombstone. `epoch` is that of the snapshot."""
    key = _share_key(0, group, partition)
    if start is None:
        return key, None
    value = struct.pack(">hiiiqqq", 0, epoch, 0, leader, start, 7, 7)
    return key, value + _batches(batches) + b"\0"


def share_update(group: str, partition: int, start: int, batches: Sequence[ShareBatch] = (), leader: int = -1) -> Pair:
    """ShareUpdate; a start offset or a leader epoch of -1: as before."""
    value = struct.pack(">hiiq", 0, 0, leader, start) + _batches(batches) + b"\0"
    return _share_key(1, group, partition), value


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
