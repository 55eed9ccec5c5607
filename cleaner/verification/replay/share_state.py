"""`__share_group_state`: what a share coordinator makes of a partition of it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from cleaner.format.fields import FieldReader
from cleaner.format.message_schema import parse_table, read_key
from cleaner.format.other_messages import SHARE_RECORDS
from cleaner.verification.replay.state import Fact, Facts, Notes, Thing

_SNAPSHOT = 0
_NONE = -1

Value = dict[str, Any]


class SharePartition(NamedTuple):
    """What a share group reads."""

    group: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"group {self.group}, topic id {self.topic_id}, partition {self.partition}"


class ShareStateReplay:
    """
    The share coordinator's load: of each share partition the last snapshot, and the updates behind it.

    Unknown types are passed over; at a record that it cannot read it fails and does not load the partition.
    """

    committed = False

    def __init__(self) -> None:
        self.notes = Notes()
        self._partitions: dict[SharePartition, Value] = {}

    def record(self, offset: int, producer_id: int, key: bytes | None, value: bytes | None) -> None:
        """Apply a record."""
        name = "a record"
        try:
            table = parse_table(SHARE_RECORDS)
            number, fields = read_key(table, key)
            if fields is None:
                self.notes.skip(f"unknown record type {number}")
                return
            partition = SharePartition(fields["groupId"], fields["topicId"], fields["partition"])
            name = str(partition)
            content = None
            if value is not None:
                body = FieldReader(value)
                content = table["value", number].read(body, body.integer(2))
            if number == _SNAPSHOT:
                self._snapshot(partition, content)
            elif content is None:
                self.notes.fail(offset, name, "the tombstone of an update")
            else:
                self._update(partition, content)
        except ValueError as error:
            self.notes.fail(offset, name, f"a record that cannot be read: {error}")

    def marker(self, producer_id: int, is_commit: bool) -> None:
        """Ignore it: the topic is not written in transactions."""

    def things(self) -> Iterator[tuple[Thing, Facts]]:
        """Yield the share partitions."""
        for partition, facts in self._partitions.items():
            yield Thing("share partition", str(partition)), facts

    def _snapshot(self, partition: SharePartition, value: Value | None) -> None:
        """Begin anew; a tombstone removes the partition. The epochs that fence stay as high as they were."""
        before = self._partitions.pop(partition, {})
        if value is None:
            return
        self._partitions[partition] = {
            "start offset": value["startOffset"],
            "batches": _combined(value["stateBatches"], _NONE),
            "snapshot epoch": value["snapshotEpoch"],
            "state epoch": value["stateEpoch"],
            "leader epoch": value["leaderEpoch"],
            "highest state epoch": _highest(before, "highest state epoch", value["stateEpoch"]),
            "highest leader epoch": _highest(before, "highest leader epoch", value["leaderEpoch"]),
            "delivered": value.get("deliveryCompleteCount", _NONE),
            "create time": value["createTimestamp"],
            "write time": value["writeTimestamp"],
        }

    def _update(self, partition: SharePartition, value: Value) -> None:
        """Apply what has changed since; without a snapshot it is all there is."""
        nothing: Value = {
            "start offset": value["startOffset"],
            "batches": [],
            "snapshot epoch": value["snapshotEpoch"],
            "state epoch": 0,
            "leader epoch": value["leaderEpoch"],
            "create time": 0,
            "write time": 0,
        }
        before = self._partitions.get(partition, nothing)
        epoch = value["leaderEpoch"]
        start = before["start offset"] if value["startOffset"] == _NONE else value["startOffset"]
        self._partitions[partition] = before | {
            "start offset": start,
            "batches": _combined([*before["batches"], *value["stateBatches"]], start),
            "leader epoch": before["leader epoch"] if epoch == _NONE else epoch,
            "highest leader epoch": _highest(before, "highest leader epoch", epoch),
            "delivered": value.get("deliveryCompleteCount", _NONE),
        }


def _highest(before: Value, name: str, epoch: int) -> int:
    return max(int(before.get(name, epoch)), epoch)


def _combined(batches: list[Any], start: int) -> list[Fact]:
    """
    Return batches in order and without overlap, from an offset on (-1: all).

    Where some overlap, the higher delivery count wins, then the higher state, as in the coordinator; it does not always
    make one batch of two that touch, which says nothing of an offset.
    """
    left = sorted(
        (max(each["firstOffset"], start), each["lastOffset"] + 1, each["deliveryCount"], each["deliveryState"])
        for each in batches
        if each["lastOffset"] >= start
    )
    edges = sorted({edge for first, end, _, _ in left for edge in (first, end)})
    open_batches: list[tuple[int, int, int]] = []  # the winner first
    found: list[dict[str, Fact]] = []
    left.reverse()
    for first, end in pairwise(edges):
        while left and left[-1][0] <= first:
            _, its_end, count, state = left.pop()
            heapq.heappush(open_batches, (-count, -state, its_end))
        while open_batches and open_batches[0][2] <= first:
            heapq.heappop(open_batches)
        if not open_batches:
            continue
        said: dict[str, Fact] = {"deliveryState": -open_batches[0][1], "deliveryCount": -open_batches[0][0]}
        if found and found[-1] == found[-1] | said and found[-1]["lastOffset"] == first - 1:
            found[-1]["lastOffset"] = end - 1
        else:
            found.append({"firstOffset": first, "lastOffset": end - 1} | said)
    return [*found]
