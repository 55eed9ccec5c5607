"""
What the groups of `replaying.py` are, as their coordinators write it and a replay has to find it.

Groups of consumers have one member, which leaves with its group. Members of share and streams groups come and go, and a
group may be left without any. What share groups have read is in snapshots of share partitions and updates behind them.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import NamedTuple

from cleaner.verification.replay.state import Thing
from tests.support.coordinator_records import (
    SHARE,
    STREAMS,
    TOPIC_ID,
    Pair,
    ShareBatch,
    current,
    group_epoch,
    member,
    share_partitions,
    share_snapshot,
    share_update,
    target,
    target_epoch,
    topology,
)

Facts = Mapping[str, Collection[str]]
"""What facts of a thing may be, by their names."""

_TOPIC_ID = urlsafe_b64encode(TOPIC_ID).decode().rstrip("=")  # as Kafka prints it
_MEMBERS = ("m", "n")
_END_SHARE = 0.25
_SNAPSHOT_SHARE = 0.3
_TOMBSTONE_SHARE = 0.2
_START_SHARE = 0.3


def joined(name: str, number: int) -> list[Pair]:
    """What a coordinator writes when a member joins a consumer group, at once."""
    return [group_epoch(name, number), member(name, "m"), *_assigned(name, number)]


def _assigned(name: str, number: int) -> list[Pair]:
    return [target_epoch(name, number), target(name, "m", [number]), current(name, "m", number, [number])]


def rebalanced(name: str, number: int) -> list[Pair]:
    return [group_epoch(name, number), *_assigned(name, number)]


def left(name: str) -> list[Pair]:
    """Tombstones in the order in which a coordinator accepts them."""
    gone = [current(name, "m", 0, None), target(name, "m", None), member(name, "m", None)]
    return [*gone, target_epoch(name, None), group_epoch(name, None)]


class Members(NamedTuple):
    """A share or streams group: its epoch, None where there is no group, and its members."""

    epoch: int | None
    members: frozenset[str] = frozenset()


def changed(kind: str, name: str, was: Members, number: int, rng: Random) -> tuple[list[Pair], Members]:
    """A group ends, or a member joins or leaves, or none does; returns what a coordinator writes, and what there is."""
    if was.epoch is not None and rng.random() < _END_SHARE:
        gone = [pair for each in sorted(was.members) for pair in _gone(kind, name, each)]
        return [
            *gone,
            target_epoch(name, None, kind),
            group_epoch(name, None, kind),
            _begun(kind, name, None),
        ], Members(None)
    whose = rng.choice((*_MEMBERS, None))
    now = was.members if whose is None else was.members ^ {whose}
    pairs = _gone(kind, name, whose) if whose is not None and whose not in now else []
    pairs += [group_epoch(name, number, kind)]
    if whose is not None and whose in now:
        pairs += [member(name, whose, kind=kind)]
    pairs += [target_epoch(name, number, kind)]
    for each in sorted(now):
        pairs += [target(name, each, [number], kind), current(name, each, number, [number], kind)]
    return [*pairs, _begun(kind, name, number)], Members(number, now)


def _gone(kind: str, name: str, whose: str) -> list[Pair]:
    """The tombstones of a member."""
    return [current(name, whose, 0, None, kind), target(name, whose, None, kind), member(name, whose, None, kind)]


def _begun(kind: str, name: str, number: int | None) -> Pair:
    """What only share groups have, or streams groups: the partitions that were begun, or the topology."""
    if kind == STREAMS:
        return topology(name, number)
    return share_partitions(name, None if number is None else [number])


def facts_of(kind: str, name: str, now: Members) -> dict[Thing, Facts]:
    """Return what a replay has to find of a group."""
    if now.epoch is None:
        return {}
    epoch = [str(now.epoch)]
    topic: dict[str, object] = {"topicId": _TOPIC_ID, "partitions": [now.epoch]}
    tasks: dict[str, object] = {"subtopologyId": "0", "partitions": [now.epoch]}
    listed = [str([tasks if kind == STREAMS else topic])]
    found: dict[Thing, Facts] = {
        Thing("group", f"group {name}"): {"type": [kind], "epoch": epoch, "assignment epoch": epoch}
    }
    for each in now.members:
        words = f"group {name}, member {each}"
        of_target, of_member = ("activeTasks",) * 2 if kind == STREAMS else ("topicPartitions", "assignedPartitions")
        found[Thing("member", words)] = {"epoch": epoch, of_member: listed}
        found[Thing("target assignment", words)] = {of_target: listed}
    if kind == STREAMS:
        found[Thing("topology", f"group {name}, topology")] = {"epoch": epoch}
    if kind == SHARE:
        begun = [str([{"topicId": _TOPIC_ID, "topicName": "t", "partitions": [now.epoch]}])]
        found[Thing("share partitions", f"group {name}")] = {"initializedTopics": begun}
    return found


class Shared(NamedTuple):
    """A snapshot of a share partition or an update; start None: a tombstone, -1: as before."""

    is_snapshot: bool
    start: int | None
    batches: tuple[ShareBatch, ...] = ()

    def pair(self, at: int) -> Pair:
        """Return its record."""
        if self.is_snapshot:
            return share_snapshot("sharing", at, self.start, self.batches)
        return share_update("sharing", at, -1 if self.start is None else self.start, self.batches)


def next_shared(said: Sequence[Shared], number: int, rng: Random) -> Shared:
    """Return what comes behind what was said of a share partition: records of it are delivered again and again."""
    state = state_of(said)
    if state is None or rng.random() < _SNAPSHOT_SHARE:
        return Shared(True, None if state is not None and rng.random() < _TOMBSTONE_SHARE else number)
    first = state[0] + rng.randrange(6)
    batch = (first, first + rng.randrange(4), rng.choice((0, 2, 4)), rng.randrange(1, 4))
    return Shared(False, state[0] + 2 if rng.random() < _START_SHARE else -1, (batch,))


def state_of(said: Sequence[Shared]) -> tuple[int, list[list[int]]] | None:
    """Return start offset and batches of a share partition, found offset by offset."""
    found: tuple[int, dict[int, tuple[int, int]]] | None = None
    for each in said:
        if each.is_snapshot:
            found = None if each.start is None else (each.start, {})
        if found is None or each.start is None:
            continue
        start, of = found[0] if each.start == -1 else each.start, found[1]
        for first, last, state, count in each.batches:
            of |= {offset: max(of.get(offset, (0, 0)), (count, state)) for offset in range(first, last + 1)}
        found = start, {offset: what for offset, what in of.items() if offset >= start}
    if found is None:
        return None
    rows: list[list[int]] = []
    for offset, (count, state) in sorted(found[1].items()):
        if rows and rows[-1][1:] == [offset - 1, state, count]:
            rows[-1][1] = offset
        else:
            rows.append([offset, offset, state, count])
    return found[0], rows


def sharing(at: int) -> str:
    """Return a share partition in words."""
    return f"group sharing, topic id {_TOPIC_ID}, partition {at}"
