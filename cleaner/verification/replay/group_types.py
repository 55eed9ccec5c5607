"""
Groups as the group coordinator replays them: classic ones, and those of KIP-848 and its kin.

The rules are those of Kafka 4.3's coordinator. A classic group is one record, which replaces what was there; its
tombstone removes a group of any type. Groups of the other types are many records, of which each but a tombstone creates
the group. A group that was only created to hold offsets ("simple") is not backed by a record: it is no fact, and a
consumer or streams group takes its place. Tombstones of unknown groups and members are ignored; tombstones in a wrong
order fail the load of the partition (`ReplayError`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cleaner.verification.replay.state import Fact, Facts, Thing

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
_LEFT = -1
_INITIAL = 1

Value = dict[str, Any]


class ReplayError(ValueError):
    """The coordinator fails at a record."""


@dataclass
class Member:
    """
    A member of a group that is not classic.

    Attributes:
        epoch: that of its current assignment; 0 without one, -1 after its tombstone.
        metadata, current: the fields of its records.
        owned: (topic id, partition) that it owns or has to give up.
    """

    epoch: int = 0
    metadata: Facts = field(default_factory=dict)
    current: Facts = field(default_factory=dict)
    owned: frozenset[tuple[str, int]] = frozenset()


@dataclass
class Group:
    """
    A group.

    Attributes:
        type: classic, consumer, share or streams.
        is_simple: classic, and made for offsets alone.
        facts: its own fields.
        assignment_epoch, assignment_time: of the target assignment.
        members: by id.
        targets: each member's target assignment.
        others: resolved regular expressions, and the topology of a streams group.
        epochs: of consumer groups: the epoch at which a partition is owned.
    """

    type: str
    is_simple: bool = False
    facts: Facts = field(default_factory=dict)
    assignment_epoch: int = _INITIAL
    assignment_time: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    targets: dict[str, Facts] = field(default_factory=dict)
    others: dict[str, Facts] = field(default_factory=dict)
    epochs: dict[tuple[str, int], int] = field(default_factory=dict)


class Groups:
    """The groups of a partition."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    def hold_offsets(self, name: str) -> None:
        """Have a group for an offset that is committed."""
        self._groups.setdefault(name, Group(CLASSIC, is_simple=True))

    def require(self, kind: str, name: str, value: Value | None) -> None:
        """Have a group of a type; a tombstone does without, but not with one of another type."""
        self._group(kind, name, value)

    def classic(self, name: str, value: Value | None) -> None:
        """Apply the record of a classic group."""
        if value is None:
            self._groups.pop(name, None)
            return
        facts: Facts = {
            "generation": value["generation"],
            "protocol type": value["protocolType"],
            "protocol": value["protocol"],
            "leader": value["leader"],
            "state time": value.get("currentStateTimestamp", -1),
        }
        group = Group(CLASSIC, is_simple=not value["protocolType"] and not value["members"], facts=facts)
        for each in value["members"]:
            group.members[each["memberId"]] = Member(metadata={k: v for k, v in each.items() if k != "memberId"})
        self._groups[name] = group

    def metadata(self, kind: str, name: str, value: Value | None) -> None:
        """Apply a group's epoch and the like; its tombstone removes the group."""
        group = self._group(kind, name, value)
        if group is None:
            return
        if value is not None:
            group.facts = value
            return
        problem = None
        if group.members:
            problem = f"the tombstone of a group that still has {len(group.members)} members"
        elif group.targets and kind != STREAMS:
            problem = f"the tombstone of a group whose target assignment still has {len(group.targets)} members"
        elif group.assignment_epoch != _LEFT:
            problem = "the tombstone of a group without one of its target assignment"
        del self._groups[name]
        if problem:
            raise ReplayError(problem)

    def member(self, kind: str, name: str, member_id: str, value: Value | None) -> None:
        """Apply what a member says of itself; its tombstone removes the member."""
        group = self._group(kind, name, value)
        if group is None:
            return
        member = group.members.get(member_id)
        if value is not None:
            group.members[member_id] = member = member or Member()
            member.metadata = value
            self._own(kind, group, member, member.owned, member.epoch)
        elif member is not None:
            self._disown(group, member)
            del group.members[member_id]
            if member.epoch != _LEFT:
                raise ReplayError("the tombstone of a member without one of its current assignment")
            if member_id in group.targets:
                raise ReplayError("the tombstone of a member without one of its target assignment")

    def target_epoch(self, kind: str, name: str, value: Value | None) -> None:
        """Apply the epoch of the target assignment."""
        group = self._group(kind, name, value)
        if group is None:
            return
        targets = len(group.targets)
        group.assignment_epoch = _LEFT if value is None else value["assignmentEpoch"]
        group.assignment_time = 0 if value is None else value.get("assignmentTimestamp", 0)
        if value is None and targets:
            raise ReplayError(f"the tombstone of a target assignment that still has {targets} members")

    def target(self, kind: str, name: str, member_id: str, value: Value | None) -> None:
        """Apply a member's target assignment."""
        group = self._group(kind, name, value)
        if group is not None:
            _put(group.targets, member_id, value)

    def current(self, kind: str, name: str, member_id: str, value: Value | None) -> None:
        """Apply a member's current assignment; its tombstone leaves the member with epoch -1."""
        group = self._group(kind, name, value)
        if group is None:
            return
        member = group.members.get(member_id)
        if value is None and member is None:
            return
        if member is None:
            member = group.members[member_id] = Member()
        lists = ("assignedPartitions", "partitionsPendingRevocation")
        owned = frozenset(
            (each["topicId"], partition)
            for name in (lists if value is not None and kind == CONSUMER else ())
            for each in (value or {})[name]
            for partition in each["partitions"]
        )
        member.current = {} if value is None else value
        self._own(kind, group, member, owned, _LEFT if value is None else value["memberEpoch"])

    def other(self, kind: str, name: str, what: str, value: Value | None) -> None:
        """Apply a record that only its own tombstone removes: a regular expression, a topology."""
        group = self._group(kind, name, value)
        if group is not None:
            _put(group.others, what, value)

    def things(self) -> Iterator[tuple[Thing, Facts]]:
        """Yield groups, members and assignments."""
        for name, group in self._groups.items():
            if group.is_simple and not group.facts:
                continue
            facts: Facts = {"type": group.type}
            if group.type != CLASSIC:
                facts["epoch"] = _INITIAL
            facts |= group.facts
            if group.type != CLASSIC:
                facts |= {"assignment epoch": group.assignment_epoch, "assignment time": group.assignment_time}
            yield Thing("group", f"group {name}"), facts
            for member_id, member in group.members.items():
                head: Facts = {"id": member_id}
                if group.type != CLASSIC:
                    head["epoch"] = member.epoch
                words = f"group {name}, member {member_id}"
                yield Thing("member", words), head | member.metadata | member.current
            for member_id, target in group.targets.items():
                yield Thing("target assignment", f"group {name}, member {member_id}"), _held(target)
            for what, found in group.others.items():
                yield Thing(what.partition(" ")[0], f"group {name}, {what}"), _held(found)

    # ---- groups and partitions -------------------------------------------------------------------------------------

    def _group(self, kind: str, name: str, value: Value | None) -> Group | None:
        """Return a group of a type; None if it does not exist and a tombstone need not find it."""
        group = self._groups.get(name)
        if group is None:
            if value is None:
                return None
        elif group.type == kind:
            return group
        elif not group.is_simple or kind == SHARE:
            raise ReplayError(f"a record of a {kind} group where a {group.type} group is")
        self._groups[name] = group = Group(kind)
        return group

    def _disown(self, group: Group, member: Member) -> None:
        for partition in member.owned:
            if group.epochs.get(partition) == member.epoch:
                del group.epochs[partition]

    def _own(self, kind: str, group: Group, member: Member, owned: frozenset[tuple[str, int]], epoch: int) -> None:
        self._disown(group, member)
        member.owned, member.epoch = owned, epoch
        problem = None
        for partition in sorted(owned):
            held = group.epochs.get(partition)
            if held is not None and held >= epoch and kind == CONSUMER:
                problem = f"partition {partition[1]} of topic {partition[0]} at epoch {epoch}, still owned at {held}"
            group.epochs[partition] = epoch
        if problem:
            raise ReplayError(problem)


def _put(where: dict[str, Facts], name: str, value: Value | None) -> None:
    if value is None:
        where.pop(name, None)
    else:
        where[name] = value


def _held(value: Facts) -> Facts:
    """Return facts that are not empty: an assignment of nothing is an assignment."""
    found: Fact = value
    return value or {"content": found}
