"""Consumer groups in memory, step by step as clients make them, and the committed offsets of a backup."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cleaner.base.model import TopicPartition
from cleaner.serve.codes import Code
from tests.support.coordinator_records import offset_commit as commit
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.served import serving
from tests.support.wire_client import WireClient, message_class


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    log_dir = tmp_path_factory.mktemp("served")
    groups = LogBuilder(TopicPartition("__consumer_offsets", 7))
    groups.append(commit("old", "prices", 0, 4711), commit("old", "prices", 1, 5), commit("gone", "prices", 0, 1))
    groups.append(commit("gone", "prices", 0, None), commit("old", "prices", 1, 6))
    write_log_dir(log_dir, LogBuilder(TopicPartition("prices", 0)), groups)
    with serving(log_dir) as port:
        yield port


class MemberClient:
    """A member of a group, on a connection of its own."""

    def __init__(self, port: int, group: str, session_ms: int = 20_000) -> None:
        self.client = WireClient(port)
        self.group, self.session_ms = group, session_ms
        self.member_id, self.generation = "", -1

    def join(self, version: int = 9, protocols: tuple[str, ...] = ("range",), **more: Any) -> Any:
        row = message_class("JoinGroupRequest").JoinGroupRequestProtocol
        return self.client.ask(
            "JoinGroup",
            version,
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=more.pop("rebalance_ms", 5000),
            member_id=self.member_id,
            group_instance_id=more.pop("instance", None),
            protocol_type=more.pop("kind", "consumer"),
            protocols=[row(name=name, metadata=b"meta " + name.encode()) for name in protocols],
        )

    def enter(self, **more: Any) -> Any:
        """Join with the id that the first answer brings."""
        answer = self.join(**more)
        if answer.error_code == Code.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = self.join(**more)
        assert answer.error_code == 0
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, **assignments: bytes) -> Any:
        row = message_class("SyncGroupRequest").SyncGroupRequestAssignment
        return self.client.ask(
            "SyncGroup",
            5,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=[row(member_id=name.replace("_", "-"), assignment=data) for name, data in assignments.items()],
        )

    def heartbeat(self) -> int:
        answer = self.client.ask(
            "Heartbeat", 4, group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        return int(answer.error_code)

    def commit(self, offset: int, **more: Any) -> int:
        topic = message_class("OffsetCommitRequest").OffsetCommitRequestTopic
        row = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="m")
        answer = self.client.ask(
            "OffsetCommit",
            8,
            group_id=self.group,
            generation_id_or_member_epoch=more.get("generation", self.generation),
            member_id=more.get("member_id", self.member_id),
            topics=[topic(name="prices", partitions=[row])],
        )
        return int(answer.topics[0].partitions[0].error_code)

    def leave(self) -> int:
        row = message_class("LeaveGroupRequest").MemberIdentity
        answer = self.client.ask("LeaveGroup", 5, group_id=self.group, members=[row(member_id=self.member_id)])
        return int(answer.members[0].error_code)

    def in_thread(self, work: Any) -> tuple[threading.Thread, list[Any]]:
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(work()))
        thread.start()
        return thread, results


def fetched(client: WireClient, group: str, version: int, wanted: list[int] | None = None) -> dict[int, int]:
    """Return the committed offsets of a group's partitions of `prices`."""
    if version < 8:
        topic = message_class("OffsetFetchRequest").OffsetFetchRequestTopic
        topics = None if wanted is None else [topic(name="prices", partition_indexes=wanted)]
        answer = client.ask("OffsetFetch", version, group_id=group, topics=topics)
    else:
        one = message_class("OffsetFetchRequest").OffsetFetchRequestGroup
        topics = None if wanted is None else [one.OffsetFetchRequestTopics(name="prices", partition_indexes=wanted)]
        asked = one(group_id=group, topics=topics, member_id=None)
        (answer,) = client.ask("OffsetFetch", version, groups=[asked], require_stable=False).groups
        assert answer.group_id == group
    return {row.partition_index: row.committed_offset for topic in answer.topics for row in topic.partitions}


@pytest.mark.parametrize("version", [1, 5, 7, 8, 9])
def test_offsets_of_the_backup(port: int, version: int) -> None:
    """The last commit of each partition, none of a group that was deleted, and -1 where there is none."""
    with WireClient(port) as client:
        assert fetched(client, "old", version, [0, 1, 2]) == {0: 4711, 1: 6, 2: -1}
        assert fetched(client, "gone", version, [0]) == {0: -1}
        if version >= 2:
            assert fetched(client, "old", version) == {0: 4711, 1: 6}


def test_commits_are_kept_for_the_process(port: int) -> None:
    """They come before those of the backup, whose other offsets stay."""
    member = MemberClient(port, "old")
    assert member.commit(9) == 0
    assert fetched(member.client, "old", 8) == {0: 9, 1: 6}
    assert member.commit(10, member_id="nobody", generation=3) == Code.UNKNOWN_MEMBER_ID
    assert fetched(member.client, "old", 8) == {0: 9, 1: 6}
    member.commit(4711)


@pytest.mark.parametrize("version", [0, 3, 4])
def test_coordinator_is_here(port: int, version: int) -> None:
    """For every group; a transaction has none."""
    with WireClient(port) as client:
        more: dict[str, Any] = {"coordinator_keys": ["g"]} if version >= 4 else {"key": "g"}
        found = client.ask("FindCoordinator", version, key_type=0, **more)
        found = found.coordinators[0] if version >= 4 else found
        assert (found.error_code, found.node_id, found.port) == (0, 0, port)
        if version:
            found = client.ask("FindCoordinator", version, key_type=1, **more)
            found = found.coordinators[0] if version >= 4 else found
            assert found.error_code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_life_of_a_group(port: int) -> None:
    """One member, a second one, the assignment of the leader, a rebalance when one leaves, and the empty group."""
    first, second = MemberClient(port, "life"), MemberClient(port, "life")
    alone = first.enter(protocols=("range", "sticky"))
    assert (alone.leader, alone.generation_id, alone.protocol_name) == (first.member_id, 1, "range")
    assert first.sync(**{first.member_id.replace("-", "_"): b"all"}).assignment == b"all"
    assert first.heartbeat() == 0

    joining, joined = second.in_thread(lambda: second.enter(protocols=("sticky",)))
    until = time.monotonic() + 10
    while first.heartbeat() != Code.REBALANCE_IN_PROGRESS:
        assert time.monotonic() < until
    leader = first.enter(protocols=("range", "sticky"))
    joining.join()
    assert {each.member_id: each.metadata for each in leader.members} == {
        first.member_id: b"meta sticky",
        second.member_id: b"meta sticky",
    }
    assert joined[0].members == [] and joined[0].generation_id == leader.generation_id == 2

    syncing, synced = second.in_thread(second.sync)
    names = {each.member_id.replace("-", "_"): each for each in (first, second)}
    mine = first.sync(**{name: b"part of " + each.member_id.encode() for name, each in names.items()})
    syncing.join()
    assert mine.assignment == b"part of " + first.member_id.encode()
    assert synced[0].assignment == b"part of " + second.member_id.encode()

    (described,) = first.client.ask("DescribeGroups", 5, groups=["life"]).groups
    assert (described.group_state, len(described.members)) == ("Stable", 2)
    assert first.commit(3) == 0
    assert first.commit(3, generation=1) == Code.ILLEGAL_GENERATION
    assert first.leave() == 0
    assert first.heartbeat() == Code.UNKNOWN_MEMBER_ID
    assert second.heartbeat() == Code.REBALANCE_IN_PROGRESS
    assert second.enter(protocols=("sticky",)).leader == second.member_id
    assert second.leave() == 0
    listed = {each.group_id: each.group_state for each in second.client.ask("ListGroups", 4, states_filter=[]).groups}
    assert listed["life"] == "Empty" and listed["old"] == "Empty" and "gone" not in listed
    (gone,) = first.client.ask("DescribeGroups", 5, groups=["nothing"]).groups
    assert gone.group_state == "Dead"


def test_silent_member_is_removed(port: int) -> None:
    """A member that sends no heartbeat for its session's time is out, and the others begin anew."""
    silent = MemberClient(port, "silence", session_ms=300)
    silent.enter()
    other = MemberClient(port, "silence")
    answer = other.enter(rebalance_ms=3000)
    assert [each.member_id for each in answer.members] == [other.member_id]
    assert silent.heartbeat() == Code.UNKNOWN_MEMBER_ID


def test_client_that_goes_while_it_waits(port: int) -> None:
    """A member whose connection ends during a join keeps nobody waiting longer than its session."""
    stays, goes = MemberClient(port, "going"), MemberClient(port, "going", session_ms=300)
    stays.enter()
    goes.join()
    goes.member_id = goes.join().member_id
    goes.client.socket.settimeout(0.1)
    with pytest.raises(TimeoutError):
        goes.join(rebalance_ms=60_000)
    goes.client.socket.close()
    assert stays.enter(rebalance_ms=60_000).leader == stays.member_id
    until = time.monotonic() + 10
    while len(stays.enter(rebalance_ms=60_000).members) > 1:
        assert time.monotonic() < until


def test_static_member_comes_back(port: int) -> None:
    """With its instance's id a member takes the place of its former self, and needs no id of its own first."""
    before, after = MemberClient(port, "static"), MemberClient(port, "static")
    assert before.join(instance="one").error_code == 0
    answer = after.enter(instance="one")
    assert [each.group_instance_id for each in answer.members] == ["one"]


def test_refusals(port: int) -> None:
    """Wrong ids, groups without a name, and protocols that others do not know."""
    member = MemberClient(port, "strict")
    member.enter()
    stranger = MemberClient(port, "strict")
    assert stranger.join(protocols=("other",)).error_code == Code.INCONSISTENT_GROUP_PROTOCOL
    assert stranger.join(kind="connect").error_code == Code.INCONSISTENT_GROUP_PROTOCOL
    assert stranger.join(protocols=()).error_code == Code.INCONSISTENT_GROUP_PROTOCOL
    stranger.member_id = "made up"
    assert stranger.join().error_code == Code.UNKNOWN_MEMBER_ID
    assert stranger.sync().error_code == Code.UNKNOWN_MEMBER_ID
    assert stranger.leave() == Code.UNKNOWN_MEMBER_ID
    member.generation = 99
    assert member.sync().error_code == Code.ILLEGAL_GENERATION
    assert MemberClient(port, "").join().error_code == Code.INVALID_GROUP_ID


def test_offsets_that_cannot_be_read(tmp_path: Path) -> None:
    """A damaged partition of the groups is said so once; the endpoint serves without its offsets."""
    groups = LogBuilder(TopicPartition("__consumer_offsets", 0))
    groups.append(commit("old", "prices", 0, 4711))
    write_log_dir(tmp_path, LogBuilder(TopicPartition("prices", 0)), groups)
    path = tmp_path / "__consumer_offsets-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    said: list[str] = []
    with serving(tmp_path, warn=said.append) as port, WireClient(port) as client:
        for _ in range(2):
            assert fetched(client, "old", 8, [0]) == {0: -1}
    assert len(said) == 1 and "committed offsets of __consumer_offsets-0 are not known" in said[0]
