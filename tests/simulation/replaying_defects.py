"""Planted defects of `verify --as`, and of rounds where only a replay tells of it; see `planting.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cleaner.app import replay_log_dirs, rounds
from cleaner.errors import CorruptBatchError
from cleaner.format.coordinator_records import CONSUMER_OFFSETS
from cleaner.verification.proof.side import LogSide
from cleaner.verification.replay import kinds, share_state
from cleaner.verification.replay.connect import ConnectReplay
from cleaner.verification.replay.group_types import Groups
from cleaner.verification.replay.groups import GroupReplay
from cleaner.verification.replay.offsets import CommittedOffsets
from cleaner.verification.replay.schemas import SchemaReplay
from cleaner.verification.replay.share_state import ShareStateReplay
from cleaner.verification.replay.transactions import TransactionReplay
from tests.simulation.planting import breaks
from tests.simulation.replaying import spoil
from tests.support.coordinator_records import (
    SHARE,
    STREAMS,
    classic_group,
    group_epoch,
    offset_commit,
    share_partitions,
)


@breaks(CommittedOffsets, "delete")
def replays_ignore_tombstones_of_offsets(_real: Any, *_: Any) -> None:
    """What has expired is there for ever."""


@breaks(CommittedOffsets, "end")
def replays_take_aborts_for_commits(real: Any, offsets: Any, producer_id: int, _is_commit: bool) -> None:
    """The offset of an aborted transaction counts."""
    real(offsets, producer_id, True)


@breaks(CommittedOffsets, "commit")
def replays_do_not_wait_for_markers(real: Any, offsets: Any, at: int, _producer_id: int, *rest: Any) -> None:
    """The offset of a transaction counts at once."""
    real(offsets, at, -1, *rest)


@breaks(TransactionReplay, "record")
def replays_take_the_first_state_of_a_transaction(real: Any, replay: Any, *record: Any) -> None:
    """The later ones are passed over."""
    before = dict(replay._transactions)
    real(replay, *record)
    replay._transactions |= before


@breaks(Groups, "classic")
def replays_ignore_generations(real: Any, groups: Any, name: str, value: Any) -> None:
    """A group is the same in each of them."""
    real(groups, name, None if value is None else value | {"generation": 0})


@breaks(Groups, "metadata")
def replays_take_the_first_epoch_of_a_group(real: Any, groups: Any, kind: str, name: str, value: Any) -> None:
    """Later ones are passed over, but not its end."""
    group = groups._groups.get(name)
    if value is None or group is None or not group.facts:
        real(groups, kind, name, value)


@breaks(Groups, "member")
def replays_never_forget_a_member(real: Any, groups: Any, kind: str, name: str, member_id: str, value: Any) -> None:
    """Its tombstone is passed over."""
    if value is not None:
        real(groups, kind, name, member_id, value)


@breaks(Groups, "current")
def replays_leave_a_member_at_its_first_epoch(
    real: Any, groups: Any, kind: str, name: str, member_id: str, value: Any
) -> None:
    """What it was assigned since is passed over."""
    group = groups._groups.get(name)
    if value is None or group is None or member_id not in group.members or not group.members[member_id].current:
        real(groups, kind, name, member_id, value)


@breaks(Groups, "target")
def replays_keep_target_assignments(real: Any, groups: Any, kind: str, name: str, member_id: str, value: Any) -> None:
    """Their tombstones are passed over."""
    if value is not None:
        real(groups, kind, name, member_id, value)


@breaks(rounds, "_clean_here")
def rounds_drop_what_a_group_wrote_last(real: Any, work: Any, *args: Any) -> Any:
    """It is where it was before, or gone."""
    report = real(work, *args)
    if work.log.topic_partition.topic == CONSUMER_OFFSETS:
        spoil(work.log.directory, group_epoch("new 0", 0)[0], "cut")
    return report


@breaks(Groups, "member")
def replays_take_a_tombstone_for_that_of_another_member(
    real: Any, groups: Any, kind: str, name: str, member_id: str, value: Any
) -> None:
    """Whoever else is in the group leaves it."""
    group = groups._groups.get(name)
    others = sorted({*group.members} - {member_id}) if group is not None and value is None else []
    real(groups, kind, name, *others[:1] or [member_id], value)


@breaks(Groups, "target_epoch")
def replays_let_the_epoch_of_an_assignment_go_back(real: Any, groups: Any, kind: str, name: str, value: Any) -> None:
    """To the first one of a share or streams group."""
    group = groups._groups.get(name)
    if value is not None and kind in (SHARE, STREAMS) and group is not None and group.assignment_epoch > 1:
        value |= {"assignmentEpoch": group.assignment_epoch}
    real(groups, kind, name, value)


@breaks(Groups, "target")
def replays_keep_targets_of_streams_groups(
    real: Any, groups: Any, kind: str, name: str, member_id: str, value: Any
) -> None:
    """Though their members have left."""
    if value is not None or kind != STREAMS:
        real(groups, kind, name, member_id, value)


@breaks(Groups, "other")
def replays_lose_topologies(real: Any, groups: Any, kind: str, *record: Any) -> None:
    """Those of streams groups."""
    if kind != STREAMS:
        real(groups, kind, *record)


@breaks(GroupReplay, "_apply")
def replays_keep_share_partitions_without_a_group(
    real: Any, replay: Any, offset: int, producer_id: int, number: int, key: Any, value: Any
) -> None:
    """The tombstone of what a share group has begun to read is passed over."""
    if number != share_partitions("", None)[0][1] or value is not None:
        real(replay, offset, producer_id, number, key, value)


@breaks(ShareStateReplay, "_update")
def replays_pass_over_updates_of_share_partitions(_real: Any, *_: Any) -> None:
    """A snapshot is all there is."""


@breaks(ShareStateReplay, "_snapshot")
def replays_keep_what_was_before_a_snapshot(real: Any, replay: Any, partition: Any, value: Any) -> None:
    """Batches of before are there still."""
    before = replay._partitions.get(partition, {}).get("batches", [])
    real(replay, partition, None if value is None else value | {"stateBatches": [*before, *value["stateBatches"]]})


@breaks(share_state, "_combined")
def replays_let_the_lower_delivery_count_win(real: Any, batches: Any, start: int) -> Any:
    """Where updates lie over each other."""
    turned = [each | {"deliveryCount": -each["deliveryCount"]} for each in batches]
    return [each | {"deliveryCount": -each["deliveryCount"]} for each in real(turned, start)]


@breaks(rounds, "_clean_here")
def rounds_take_a_share_group_back(real: Any, work: Any, *args: Any) -> Any:
    """To the epoch it had before, or to none."""
    report = real(work, *args)
    if work.log.topic_partition.topic == CONSUMER_OFFSETS:
        spoil(work.log.directory, group_epoch("share 0", 0, SHARE)[0], "cut")
    return report


@breaks(SchemaReplay, "_schema")
def replays_keep_schemas_that_were_deleted(real: Any, replay: Any, subject: str, version: int, value: Any) -> None:
    """Their tombstones are passed over."""
    if value is not None:
        real(replay, subject, version, value)


@breaks(ConnectReplay, "_offset")
def replays_take_all_offsets_of_a_source_for_one(real: Any, replay: Any, key: list[Any], value: Any) -> None:
    """Its partitions are not told apart."""
    real(replay, key[:1], value)


@breaks(replay_log_dirs, "differences")
def replays_compare_names_only(real: Any, before: Any, after: Any) -> Iterator[Any]:
    """Whatever the facts of a thing are."""
    names = [{thing for thing, _ in side.things()} for side in (before, after)]
    return (each for each in real(before, after) if (each.kind, each.name) in names[0] ^ names[1])


@breaks(kinds, "read_all")
def replays_end_at_damage(real: Any, *args: Any, **named: Any) -> Iterator[Any]:
    """What is behind it counts as not written."""
    try:
        yield from real(*args, **named)
    except CorruptBatchError:
        return


@breaks(LogSide, "batches")
def replays_pass_over_the_first_segment(real: Any, side: Any) -> Any:
    """As if a log began with its second one."""
    side.segments = side.segments[1:] or side.segments
    return real(side)


@breaks(rounds, "_clean_here")
def rounds_drop_the_last_offset_of_a_group(real: Any, work: Any, *args: Any) -> Any:
    """An older one, or none, takes its place."""
    report = real(work, *args)
    if work.log.topic_partition.topic == CONSUMER_OFFSETS:
        spoil(work.log.directory, offset_commit("moving", "t", 0, 0)[0], "cut")
    return report


@breaks(rounds, "_clean_here")
def rounds_exchange_generations(real: Any, work: Any, *args: Any) -> Any:
    """Of two that are there the earlier one comes last."""
    report = real(work, *args)
    if work.log.topic_partition.topic == CONSUMER_OFFSETS:
        spoil(work.log.directory, classic_group("old 0", 0)[0], "exchanged")
    return report
