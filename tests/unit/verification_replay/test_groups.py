"""`__consumer_offsets`: rule by rule, what a group coordinator makes of records and of their order."""

from __future__ import annotations

import pytest

from tests.support.coordinator_records import (
    CONSUMER,
    SHARE,
    STREAMS,
    Pair,
    classic_group,
    current,
    group_epoch,
    member,
    offset_commit,
    share_partitions,
    target,
    target_epoch,
    topology,
)
from tests.unit.verification_replay.replaying import facts, failures, replayed, told

OFFSET = "offset: group g, topic t-0"
GROUP = "group: group g"


def joined(kind: str = CONSUMER) -> list[Pair]:
    """Return what makes a group with one member."""
    return [
        group_epoch("g", 1, kind),
        member("g", "m", kind=kind),
        target_epoch("g", 1, kind),
        target("g", "m", [0], kind),
        current("g", "m", 1, [0], kind),
    ]


def left(kind: str = CONSUMER) -> list[Pair]:
    """Return the tombstones of the member."""
    return [current("g", "m", 0, None, kind), target("g", "m", None, kind), member("g", "m", None, kind)]


def ended(kind: str = CONSUMER) -> list[Pair]:
    """Return the tombstones of a group without members."""
    return [target_epoch("g", None, kind), group_epoch("g", None, kind)]


JOIN, LEAVE, END = joined(), left(), ended()
MORE = {SHARE: share_partitions("g", [0]), STREAMS: topology("g", 1)}
NO_MORE = {SHARE: share_partitions("g", None), STREAMS: topology("g", None)}


def test_offset_of_a_transaction_waits_for_its_marker() -> None:
    """Committed it counts, aborted it is forgotten, open it is pending; a marker without offsets is ignored."""
    commit = (7, offset_commit("g", "t", 0, 17, "m"))
    assert facts(replayed("groups", commit, (7, True), (8, True)))[OFFSET] == {
        "offset": 17,
        "metadata": "m",
        "leader epoch": -1,
        "commit time": 7,
        "expire time": -1,
        "topic id": None,
    }
    assert facts(replayed("groups", commit, (7, False))) == {}
    assert list(facts(replayed("groups", commit))) == ["pending offset: group g, topic t-0, producer 7"]


def test_later_record_wins_over_a_later_marker() -> None:
    """A plain commit between a transaction's commit and its marker is the last, as cleaning keeps that one."""
    state = replayed("groups", (7, offset_commit("g", "t", 0, 1)), offset_commit("g", "t", 0, 2), (7, True))
    assert facts(state)[OFFSET]["offset"] == 2
    state = replayed(
        "groups", (7, offset_commit("g", "t", 0, 1)), (8, offset_commit("g", "t", 0, 2)), (8, True), (7, True)
    )
    assert facts(state)[OFFSET]["offset"] == 2


def test_tombstone_of_an_offset_removes_pending_ones_too() -> None:
    """A marker behind it brings nothing back."""
    gone = offset_commit("g", "t", 0, None)
    assert facts(replayed("groups", (7, offset_commit("g", "t", 0, 1)), gone, (7, True))) == {}


def test_group_made_for_offsets_is_no_fact_and_gives_way() -> None:
    """Offsets before the records of their group (KAFKA-20254): a consumer group replaces it, a share group cannot."""
    state = replayed("groups", offset_commit("g", "t", 0, 1), *JOIN)
    assert facts(state)[GROUP]["type"] == "consumer"
    assert failures(state) == []
    state = replayed("groups", offset_commit("g", "t", 0, 1), group_epoch("g", 1, SHARE))
    assert failures(state) == [(1, "group g", "a record of a share group where a classic group is")]


def test_classic_group_is_its_last_record() -> None:
    """Members of an earlier generation are gone; the tombstone removes the group, of whatever type."""
    state = replayed("groups", classic_group("g", 1, ["a", "b"]), classic_group("g", 2, ["b"]))
    found = facts(state)
    assert (found[GROUP]["generation"], found[GROUP]["leader"]) == (2, "b")
    assert sorted(found) == [GROUP, "member: group g, member b"]
    assert facts(replayed("groups", *JOIN, classic_group("g", None))) == {}


def test_consumer_group_comes_and_goes() -> None:
    """In order nothing is left, and nothing fails; nor with tombstones alone, whose records were cleaned away."""
    state = replayed("groups", *JOIN)
    assert sorted(facts(state)) == [GROUP, "member: group g, member m", "target assignment: group g, member m"]
    for steps in ([*JOIN, *LEAVE, *END], [*LEAVE, *END]):
        state = replayed("groups", *steps)
        assert (facts(state), failures(state)) == ({}, [])


@pytest.mark.parametrize("kind", [SHARE, STREAMS])
def test_share_and_streams_groups_come_and_go(kind: str) -> None:
    """With what only they have, which goes behind the group; in order nothing is left, and nothing fails."""
    state = replayed("groups", *joined(kind), MORE[kind])
    found = facts(state)
    more = {SHARE: "share partitions: group g", STREAMS: "topology: group g, topology"}[kind]
    assert found.keys() == {GROUP, "member: group g, member m", more, "target assignment: group g, member m"}
    assert found[GROUP]["type"] == kind
    assert found["member: group g, member m"]["epoch"] == 1
    for steps in ([*joined(kind), MORE[kind], *left(kind), *ended(kind), NO_MORE[kind]], [*left(kind), NO_MORE[kind]]):
        state = replayed("groups", *steps)
        assert (facts(state), failures(state)) == ({}, [])


@pytest.mark.parametrize("kind", [CONSUMER, SHARE, STREAMS])
def test_group_without_a_record_of_its_epoch_is_at_the_first_one(kind: str) -> None:
    """It is made by any other record of it."""
    found = facts(replayed("groups", member("g", "m", kind=kind)))[GROUP]
    assert (found["epoch"], found["assignment epoch"]) == (1, 1)


@pytest.mark.parametrize("kind", [SHARE, STREAMS])
def test_wrong_order_fails_the_load_of_share_and_streams_groups(kind: str) -> None:
    """As that of consumer groups; but a streams group may end with a target assignment of a member that is gone."""
    start, (no_current, no_target, no_member), (no_epoch, no_group) = joined(kind), left(kind), ended(kind)
    assert failures(replayed("groups", *start, no_target, no_member)) == [
        (6, "group g, member m", "the tombstone of a member without one of its current assignment")
    ]
    assert failures(replayed("groups", *start, no_current, no_member)) == [
        (6, "group g, member m", "the tombstone of a member without one of its target assignment")
    ]
    assert failures(replayed("groups", *start, no_group)) == [
        (5, "group g", "the tombstone of a group that still has 1 members")
    ]
    assert failures(replayed("groups", *start, no_current, no_epoch)) == [
        (6, "group g", "the tombstone of a target assignment that still has 1 members")
    ]
    targets_alone = [group_epoch("g", 1, kind), no_epoch, target("g", "m", [0], kind), no_group]
    reason = "the tombstone of a group whose target assignment still has 1 members"
    assert failures(replayed("groups", *targets_alone)) == ([(3, "group g", reason)] if kind == SHARE else [])


@pytest.mark.parametrize("kind", [SHARE, STREAMS])
def test_records_of_share_and_streams_groups_fail_where_another_group_is(kind: str) -> None:
    """Tombstones, too: those of share partitions and of a topology are no exception."""
    reason = f"a record of a {kind} group where a consumer group is"
    for step in (*joined(kind), *left(kind), *ended(kind), MORE[kind], NO_MORE[kind]):
        assert [(offset, told) for offset, _, told in failures(replayed("groups", *JOIN, step))] == [(5, reason)]


@pytest.mark.parametrize(
    ("steps", "name", "reason"),
    [
        ([*JOIN, *LEAVE[1:]], "group g, member m", "the tombstone of a member without one of its current assignment"),
        (
            [*JOIN, LEAVE[0], LEAVE[2]],
            "group g, member m",
            "the tombstone of a member without one of its target assignment",
        ),
        ([*JOIN, END[1]], "group g", "the tombstone of a group that still has 1 members"),
        ([*JOIN, LEAVE[0], END[0]], "group g", "the tombstone of a target assignment that still has 1 members"),
        ([*JOIN, *LEAVE, END[1]], "group g", "the tombstone of a group without one of its target assignment"),
        ([classic_group("g", 1, ["a"]), JOIN[0]], "group g", "a record of a consumer group where a classic group is"),
        (
            [*JOIN, current("g", "n", 1, [0])],
            "group g, member n",
            "partition 0 of topic AAECAwQFBgcICQoLDA0ODw at epoch 1, still owned at 1",
        ),
    ],
    ids=["current", "target", "members", "target-epoch", "no-target-epoch", "type", "owned"],
)
def test_wrong_order_fails_the_load(steps: list[tuple[bytes, bytes | None]], name: str, reason: str) -> None:
    """Each of the coordinator's own checks, at the last record."""
    assert failures(replayed("groups", *steps)) == [(len(steps) - 1, name, reason)]


def test_what_cannot_be_read_is_named() -> None:
    """An unknown type is passed over, as by the coordinator; an unknown version and damage fail it."""
    commit = offset_commit("g", "t", 0, 1)
    state = replayed("groups", (b"\x01\x00", b""), (commit[0], b"\0\x09"), (b"\0\1\0\x09g", b""), (b"", None))
    assert dict(state.notes.passed_over) == {"unknown record type 256": 1}
    assert [(offset, name) for offset, name, _ in failures(state)] == [(1, "group g"), (2, "a record"), (3, "a record")]
    assert facts(state) == {}


def test_differences_are_told_in_words_of_the_domain() -> None:
    """What is missing, what has changed, and a failure that only the log after has."""
    before = [offset_commit("g", "t", 0, 17), offset_commit("g", "t", 1, 5), *JOIN]
    after = [offset_commit("g", "t", 1, 4), *JOIN[:-1], *LEAVE[1:]]
    assert told("groups", before, after) == [
        ("member", "group g, member m", "id", "m", None),
        ("offset", "group g, topic t-0", "offset", "17", None),
        ("offset", "group g, topic t-1", "offset", "5", "4"),
        (
            "target assignment",
            "group g, member m",
            "topicPartitions",
            '[{"topicId": "AAECAwQFBgcICQoLDA0ODw", "partitions": [0]}]',
            None,
        ),
        (
            "replay",
            "group g, member m",
            "replay",
            "is applied",
            "fails at offset 6: the tombstone of a member without one of its current assignment",
        ),
    ]
    assert told("groups", before, before) == []
