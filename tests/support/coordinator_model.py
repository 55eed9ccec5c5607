"""A group coordinator that knows its own state and writes it to a log, as Kafka's does: what a replay has to find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cleaner.base.model import TopicPartition
from tests.support.batch_builder import Producer
from tests.support.coordinator_records import (
    Pair,
    classic_group,
    current,
    group_epoch,
    member,
    offset_commit,
    target,
    target_epoch,
)
from tests.support.log_builder import LogBuilder

OFFSETS_TOPIC = TopicPartition("__consumer_offsets", 0)
GROUPS = ("g0", "g1", "g2")
MEMBERS = ("a", "b", "c")
PARTITIONS = 3
PRODUCERS = (11, 12)

Key = tuple[str, int]


@dataclass
class GroupState:
    """A group: its type, epoch or generation, and the partitions of each member, none in classic groups."""

    type: str
    epoch: int
    members: dict[str, tuple[int, ...]] = field(default_factory=dict)


class CoordinatorModel:
    """
    Groups, members and offsets under construction. Each operation writes what a coordinator writes, in its batches.

    Attributes:
        log: the partition.
        groups: by name; none for groups that only hold offsets.
        offsets: committed ones, by group and partition.
        pending: of open transactions, by producer.
    """

    def __init__(self) -> None:
        self.log = LogBuilder(OFFSETS_TOPIC)
        self.groups: dict[str, GroupState] = {}
        self.offsets: dict[Key, int] = {}
        self.pending: dict[int, dict[Key, tuple[int, int]]] = {}
        self._record_offsets: dict[Key, int] = {}
        self._epochs = dict.fromkeys(PRODUCERS, 0)
        self._count = 0

    def run(self, operation: int, first: int, second: int) -> None:
        """Do one of the operations with two small numbers, which choose a group, a member, a partition."""
        group = GROUPS[first % len(GROUPS)]
        operations: tuple[Callable[[], None], ...] = (
            lambda: self.commit((group, second % PARTITIONS)),
            lambda: self.commit_in_transaction(PRODUCERS[second % 2], (group, second % PARTITIONS)),
            lambda: self.end(PRODUCERS[second % 2], first % 3 != 0),
            lambda: self.forget((group, second % PARTITIONS)),
            lambda: self.classic(group, MEMBERS[: second % 4]),
            lambda: self.join(group, MEMBERS[second % 3]),
            lambda: self.leave(group, MEMBERS[second % 3]),
            lambda: self.delete(group),
            self.roll,
        )
        operations[operation % len(operations)]()

    # ---- offsets ---------------------------------------------------------------------------------------------------

    def commit(self, key: Key) -> None:
        self._count += 1
        self._record_offsets[key] = self.log.append(offset_commit(key[0], "t", key[1], self._count))
        self.offsets[key] = self._count

    def commit_in_transaction(self, producer: int, key: Key) -> None:
        self._count += 1
        pair = offset_commit(key[0], "t", key[1], self._count)
        at = self.log.append(pair, producer=Producer(producer, self._epochs[producer], 0, transactional=True))
        self.pending.setdefault(producer, {})[key] = at, self._count

    def end(self, producer: int, is_commit: bool) -> None:
        if producer not in self.pending:
            return
        self.log.end_transaction(producer, self._epochs[producer], commit=is_commit)
        self._epochs[producer] += 1
        for key, (at, offset) in self.pending.pop(producer).items():
            if is_commit and self._record_offsets.get(key, -1) < at:
                self._record_offsets[key], self.offsets[key] = at, offset

    def forget(self, key: Key) -> None:
        """Expire an offset: a coordinator does so only where no transaction has it."""
        if key in self.offsets and not any(key in each for each in self.pending.values()):
            self.log.append(offset_commit(key[0], "t", key[1], None))
            del self.offsets[key], self._record_offsets[key]

    # ---- groups ----------------------------------------------------------------------------------------------------

    def classic(self, name: str, members: tuple[str, ...]) -> None:
        """A generation of a classic group."""
        group = self.groups.get(name)
        if group is not None and group.type != "classic":
            return
        epoch = 1 if group is None else group.epoch + 1
        self.groups[name] = GroupState("classic", epoch, dict.fromkeys(members, ()))
        self.log.append(classic_group(name, epoch, members))

    def join(self, name: str, member_id: str) -> None:
        """A member joins by the new protocol; a classic group is upgraded, and its members leave."""
        records: list[Pair] = []
        group = self.groups.get(name)
        if group is None or group.type == "classic":
            if group is not None:
                records.append(classic_group(name, None))
            group = self.groups[name] = GroupState("consumer", 0)
        if member_id not in group.members:
            group.members[member_id] = ()
            records.append(member(name, member_id))
        self._rebalance(name, group, records)

    def leave(self, name: str, member_id: str) -> None:
        group = self.groups.get(name)
        if group is None or group.type != "consumer" or member_id not in group.members:
            return
        del group.members[member_id]
        self._rebalance(name, group, self._tombstones(name, member_id))

    def delete(self, name: str) -> None:
        """Delete a group: its offsets first; not with a transaction open for it."""
        group = self.groups.get(name)
        if group is None or any(key[0] == name for each in self.pending.values() for key in each):
            return
        for key in [key for key in self.offsets if key[0] == name]:
            self.forget(key)
        if group.type == "classic":
            self.log.append(classic_group(name, None))
        else:
            records = [each for member_id in group.members for each in self._tombstones(name, member_id)]
            self.log.append(*records, target_epoch(name, None), group_epoch(name, None))
        del self.groups[name]

    def roll(self) -> None:
        if self.log.next_offset > self.log.base_offsets[-1]:
            self.log.roll()

    def _rebalance(self, name: str, group: GroupState, records: list[Pair]) -> None:
        """Write a new epoch and its assignment: members that lose partitions first."""
        group.epoch += 1
        ids = sorted(group.members)
        wanted = {each: tuple(number for number in range(PARTITIONS) if ids[number % len(ids)] == each) for each in ids}
        records += [group_epoch(name, group.epoch), target_epoch(name, group.epoch)]
        records += [target(name, each, partitions) for each, partitions in wanted.items()]
        self.log.append(*records)
        for each in sorted(ids, key=lambda each: len(set(wanted[each]) - set(group.members[each]))):
            kept = tuple(number for number in group.members[each] if number in wanted[each])
            self.log.append(current(name, each, group.epoch, kept))
        for each in ids:
            group.members[each] = wanted[each]
            self.log.append(current(name, each, group.epoch, wanted[each]))

    @staticmethod
    def _tombstones(name: str, member_id: str) -> list[Pair]:
        return [current(name, member_id, 0, None), target(name, member_id, None), member(name, member_id, None)]
