"""The group coordinator: what a consumer that subscribes asks, answered from memory."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any

from cleaner.serve.codes import Code
from cleaner.serve.describe import NODE_ID
from cleaner.serve.group import Group, Member, State
from cleaner.serve.offsets import Committed, GroupOffsets

_MAX_GROUPS = 10_000
_LOOK_SECONDS = 0.5
_GROUP_KEYS = 0


class Coordinator:
    """
    The groups of one server; all methods are called in its event loop.

    Args:
        offsets: what groups have committed.
    """

    def __init__(self, offsets: GroupOffsets) -> None:
        self._offsets = offsets
        self._groups: dict[str, Group] = {}

    @property
    def sizes(self) -> list[int]:
        """How many members each group has; may be read by any thread."""
        return [len(group.members) for group in list(self._groups.values())]

    async def expire(self) -> None:
        """Remove members that have gone silent; runs as long as the server."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = asyncio.get_running_loop().time()
            for group in list(self._groups.values()):
                group.expire(now)

    def find(self, request: dict[str, Any], version: int, where: tuple[str, int]) -> dict[str, Any]:
        """Answer FindCoordinator: this server, for every group."""
        is_group = request.get("keyType", _GROUP_KEYS) == _GROUP_KEYS
        here = {"nodeId": NODE_ID, "host": where[0], "port": where[1], "errorMessage": None}
        if not is_group:
            here = {"nodeId": -1, "host": "", "port": -1, "errorCode": Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        if version < 4:
            return here
        return {"coordinators": [{**here, "key": key} for key in request["coordinatorKeys"]]}

    async def join(
        self, request: dict[str, Any], version: int, client_id: str, is_gone: Callable[[], bool]
    ) -> dict[str, Any]:
        """Answer JoinGroup."""
        name, member_id = request["groupId"], request["memberId"]
        group = self._groups.get(name)
        if group is None and name and len(self._groups) < _MAX_GROUPS:
            group = self._groups[name] = Group(name)
        if group is None:
            code = Code.COORDINATOR_NOT_AVAILABLE if name else Code.INVALID_GROUP_ID
        else:
            code, member_id = group.refusal_of_join(request, version, client_id)
        if code is Code.NONE and group is not None:
            code = await group.join(request, member_id, client_id, is_gone)
        if code is not Code.NONE or group is None or member_id not in group.members:
            code = Code.UNKNOWN_MEMBER_ID if code is Code.NONE else code
            return {"errorCode": code, "protocolName": "" if version < 7 else None, "memberId": member_id}
        return {
            "generationId": group.generation,
            "protocolType": group.protocol_type,
            "protocolName": group.protocol,
            "leader": group.leader,
            "memberId": member_id,
            "members": [
                {
                    "memberId": each.member_id,
                    "groupInstanceId": each.instance_id,
                    "metadata": base64.b64decode(each.protocols.get(group.protocol, "")),
                }
                for each in (group.members.values() if member_id == group.leader else ())
            ],
        }

    async def sync(self, request: dict[str, Any], is_gone: Callable[[], bool]) -> dict[str, Any]:
        """Answer SyncGroup."""
        group, code = self._checked(request, request["generationId"])
        if group is None or code is not Code.NONE:
            return {"errorCode": code}
        member = group.members[request["memberId"]]
        assignments = {each["memberId"]: base64.b64decode(each["assignment"]) for each in request["assignments"]}
        code = await group.sync(member, assignments, is_gone)
        if code is not Code.NONE:
            return {"errorCode": code}
        return {
            "protocolType": group.protocol_type,
            "protocolName": group.protocol,
            "assignment": member.assignment,
        }

    def heartbeat(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer Heartbeat."""
        group, code = self._checked(request, request["generationId"])
        if group is not None and code is Code.NONE and group.state is State.PREPARING:
            code = Code.REBALANCE_IN_PROGRESS
        return {"errorCode": code}

    def leave(self, request: dict[str, Any], version: int) -> dict[str, Any]:
        """Answer LeaveGroup."""
        group = self._groups.get(request["groupId"])
        if version < 3:
            is_gone = group is not None and group.remove(request["memberId"])
            return {"errorCode": Code.NONE if is_gone else Code.UNKNOWN_MEMBER_ID}
        rows = []
        for each in request["members"]:
            member_id = self._id_of(group, each)
            is_gone = group is not None and group.remove(member_id)
            code = Code.NONE if is_gone else Code.UNKNOWN_MEMBER_ID
            rows.append({**each, "errorCode": code})
        return {"members": rows}

    @staticmethod
    def _id_of(group: Group | None, member: dict[str, Any]) -> str:
        instance_id = member["groupInstanceId"]
        if group is not None and not member["memberId"] and instance_id:
            return next((each.member_id for each in group.members.values() if each.instance_id == instance_id), "")
        return str(member["memberId"])

    def _checked(self, request: dict[str, Any], generation: int) -> tuple[Group | None, Code]:
        group = self._groups.get(request["groupId"])
        return group, Code.UNKNOWN_MEMBER_ID if group is None else group.check(request["memberId"], generation)

    def commit(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer OffsetCommit: kept for the life of the process."""
        name, generation = request["groupId"], request["generationIdOrMemberEpoch"]
        group = self._groups.get(name)
        code = Code.NONE if name else Code.INVALID_GROUP_ID
        if group is not None and (group.members or request["memberId"]):
            code = group.check(request["memberId"], generation)
        elif request["memberId"] or generation >= 0:
            code = Code.UNKNOWN_MEMBER_ID
        topics = []
        for topic in request["topics"]:
            rows = []
            for each in topic["partitions"]:
                row_code = code
                if code is Code.NONE:
                    committed = Committed(
                        each["committedOffset"],
                        each.get("committedLeaderEpoch", -1),
                        (each["committedMetadata"] or "")[:4096],
                    )
                    place = (topic["name"], each["partitionIndex"])
                    is_kept = self._offsets.commit(name, place, committed)
                    row_code = Code.NONE if is_kept else Code.GROUP_MAX_SIZE_REACHED
                rows.append({"partitionIndex": each["partitionIndex"], "errorCode": row_code})
            topics.append({"name": topic["name"], "partitions": rows})
        return {"topics": topics}

    async def fetch_offsets(self, request: dict[str, Any], version: int) -> dict[str, Any]:
        """Answer OffsetFetch."""
        if version < 8:
            return await self._offsets_answer(request["groupId"], request["topics"])
        return {
            "groups": [
                {"groupId": each["groupId"], **await self._offsets_answer(each["groupId"], each["topics"])}
                for each in request["groups"]
            ]
        }

    async def _offsets_answer(self, group: str, asked: list[dict[str, Any]] | None) -> dict[str, Any]:
        if not await asyncio.to_thread(self._offsets.load, group):
            return {"errorCode": Code.COORDINATOR_LOAD_IN_PROGRESS, "topics": []}
        return {"topics": self._offsets_of(group, asked)}

    def _offsets_of(self, group: str, asked: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
        known = self._offsets.of(group)
        if asked is None:
            names = sorted({topic for topic, _ in known})
            wanted = {name: sorted(number for topic, number in known if topic == name) for name in names}
        else:
            wanted = {each["name"]: each["partitionIndexes"] for each in asked}
        nothing = Committed(-1, -1, "")
        return [
            {
                "name": name,
                "partitions": [
                    {
                        "partitionIndex": number,
                        "committedOffset": found.offset,
                        "committedLeaderEpoch": found.leader_epoch,
                        "metadata": found.metadata,
                    }
                    for number in numbers
                    for found in [known.get((name, number), nothing)]
                ],
            }
            for name, numbers in wanted.items()
        ]

    async def list_groups(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer ListGroups: those of this process, and those of the backup, which are empty."""
        await asyncio.to_thread(self._offsets.load)
        wanted = {each.lower() for each in request.get("statesFilter") or ()}
        rows = []
        for name in sorted(self._offsets.groups() | set(self._groups)):
            group = self._groups.get(name) or Group(name)
            if not wanted or group.state.value.lower() in wanted:
                protocol_type = group.protocol_type or "consumer"
                rows.append({"groupId": name, "protocolType": protocol_type, "groupState": group.state.value})
        return {"groups": [{**row, "groupType": "classic"} for row in rows]}

    async def describe_groups(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer DescribeGroups."""
        await asyncio.to_thread(self._offsets.load)
        return {"groups": [self._described(name) for name in request["groups"]]}

    def _described(self, name: str) -> dict[str, Any]:
        if name not in self._groups and name not in self._offsets.groups():
            return {"groupId": name, "groupState": "Dead"}
        group = self._groups.get(name) or Group(name, protocol_type="consumer")
        return {
            "groupId": name,
            "groupState": group.state.value,
            "protocolType": group.protocol_type or "consumer",
            "protocolData": group.protocol,
            "members": [_described_member(each, group) for each in group.members.values()],
        }


def _described_member(member: Member, group: Group) -> dict[str, Any]:
    metadata = member.protocols.get(group.protocol, "") if group.state is State.STABLE else ""
    return {
        "memberId": member.member_id,
        "groupInstanceId": member.instance_id,
        "clientId": member.client_id,
        "memberMetadata": base64.b64decode(metadata),
        "memberAssignment": member.assignment,
    }
