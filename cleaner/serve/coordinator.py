"""The group coordinator: what a consumer that subscribes asks, answered from memory."""

from __future__ import annotations

import asyncio
import base64

from cleaner.serve.codes import Code
from cleaner.serve.describe import NODE_ID
from cleaner.serve.group import Group, State
from cleaner.serve.login import Call
from cleaner.serve.offsets import Committed, GroupOffsets
from cleaner.serve.wire import Values, for_each_partition

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

    def find(self, request: Values, call: Call) -> Values:
        """Answer FindCoordinator: this server, for every group."""
        here = {"nodeId": NODE_ID, "host": call.where[0], "port": call.where[1], "errorMessage": None}
        if request.get("keyType", _GROUP_KEYS) != _GROUP_KEYS:
            here = {"nodeId": -1, "host": "", "port": -1, "errorCode": Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        if call.header.version < 4:
            return here
        return {"coordinators": [{**here, "key": key} for key in request["coordinatorKeys"]]}

    async def join(self, request: Values, call: Call) -> Values:
        """Answer JoinGroup."""
        name, member_id = request["groupId"], request["memberId"]
        group = self._groups.get(name)
        if group is None and name and len(self._groups) < _MAX_GROUPS:
            group = self._groups[name] = Group(name)
        code = Code.COORDINATOR_NOT_AVAILABLE if name else Code.INVALID_GROUP_ID
        if group is not None:
            code, member_id = await group.join(request, call)
        if group is None or code is not Code.NONE:
            return {"errorCode": code, "protocolName": "" if call.header.version < 7 else None, "memberId": member_id}
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

    async def sync(self, request: Values, call: Call) -> Values:
        """Answer SyncGroup."""
        group, code = self._checked(request, request["generationId"])
        if group is None or code is not Code.NONE:
            return {"errorCode": code}
        member = group.members[request["memberId"]]
        assignments = {each["memberId"]: base64.b64decode(each["assignment"]) for each in request["assignments"]}
        code = await group.sync(member, assignments, call)
        if code is not Code.NONE:
            return {"errorCode": code}
        return {
            "protocolType": group.protocol_type,
            "protocolName": group.protocol,
            "assignment": member.assignment,
        }

    def heartbeat(self, request: Values) -> Values:
        """Answer Heartbeat."""
        group, code = self._checked(request, request["generationId"])
        if group is not None and code is Code.NONE and group.state is State.PREPARING:
            code = Code.REBALANCE_IN_PROGRESS
        return {"errorCode": code}

    def leave(self, request: Values, call: Call) -> Values:
        """Answer LeaveGroup."""
        group = self._groups.get(request["groupId"]) or Group("")
        if call.header.version < 3:
            return {"errorCode": group.remove(request["memberId"])}
        rows = [
            {**each, "errorCode": group.remove(each["memberId"], each["groupInstanceId"])}
            for each in request["members"]
        ]
        return {"members": rows}

    def _checked(self, request: Values, generation: int) -> tuple[Group | None, Code]:
        group = self._groups.get(request["groupId"])
        return group, Code.UNKNOWN_MEMBER_ID if group is None else group.check(request["memberId"], generation)

    def commit(self, request: Values) -> Values:
        """Answer OffsetCommit: kept for the life of the process."""
        name, generation = request["groupId"], request["generationIdOrMemberEpoch"]
        group = self._groups.get(name)
        code = Code.NONE if name else Code.INVALID_GROUP_ID
        if group is not None and (group.members or request["memberId"]):
            code = group.check(request["memberId"], generation)
        elif request["memberId"] or generation >= 0:
            code = Code.UNKNOWN_MEMBER_ID

        def kept(topic: str, asked: Values) -> Values:
            if code is not Code.NONE:
                return {"errorCode": code}
            metadata = (asked["committedMetadata"] or "")[:4096]
            committed = Committed(asked["committedOffset"], asked.get("committedLeaderEpoch", -1), metadata)
            is_kept = self._offsets.commit(name, (topic, asked["partitionIndex"]), committed)
            return {"errorCode": Code.NONE if is_kept else Code.GROUP_MAX_SIZE_REACHED}

        return for_each_partition(request, ("name", "partitionIndex"), kept)

    async def fetch_offsets(self, request: Values, call: Call) -> Values:
        """Answer OffsetFetch."""
        if call.header.version < 8:
            return await self._offsets_of(request["groupId"], request["topics"])
        groups = [(each["groupId"], each["topics"]) for each in request["groups"]]
        return {"groups": [{"groupId": name, **await self._offsets_of(name, asked)} for name, asked in groups]}

    async def _offsets_of(self, group: str, asked: list[Values] | None) -> Values:
        if not await asyncio.to_thread(self._offsets.load, group):
            return {"errorCode": Code.COORDINATOR_LOAD_IN_PROGRESS, "topics": []}
        known = self._offsets.of(group)
        if asked is None:
            names = sorted({topic for topic, _ in known})
            wanted = {name: sorted(number for topic, number in known if topic == name) for name in names}
        else:
            wanted = {each["name"]: each["partitionIndexes"] for each in asked}

        def row(name: str, number: int) -> Values:
            found = known.get((name, number), Committed(-1, -1, ""))
            return {
                "partitionIndex": number,
                "committedOffset": found.offset,
                "committedLeaderEpoch": found.leader_epoch,
                "metadata": found.metadata,
            }

        topics = [{"name": name, "partitions": [row(name, each) for each in all_of]} for name, all_of in wanted.items()]
        return {"topics": topics}

    async def list_groups(self, request: Values) -> Values:
        """Answer ListGroups: those of this process, and those of the backup, which are empty."""
        await asyncio.to_thread(self._offsets.load)
        wanted = {each.lower() for each in request.get("statesFilter") or ()}
        names = sorted(self._offsets.groups() | set(self._groups))
        rows = [{**self._described(name), "groupType": "classic"} for name in names]
        return {"groups": [row for row in rows if not wanted or row["groupState"].lower() in wanted]}

    async def describe_groups(self, request: Values) -> Values:
        """Answer DescribeGroups."""
        await asyncio.to_thread(self._offsets.load)
        return {"groups": [self._described(name) for name in request["groups"]]}

    def _described(self, name: str) -> Values:
        if name not in self._groups and name not in self._offsets.groups():
            return {"groupId": name, "groupState": "Dead"}
        group = self._groups.get(name) or Group(name)
        protocol = group.protocol if group.state is State.STABLE else ""
        return {
            "groupId": name,
            "groupState": group.state.value,
            "protocolType": group.protocol_type or "consumer",
            "protocolData": group.protocol,
            "members": [
                {
                    "memberId": each.member_id,
                    "groupInstanceId": each.instance_id,
                    "clientId": each.client_id,
                    "memberMetadata": base64.b64decode(each.protocols.get(protocol, "")),
                    "memberAssignment": each.assignment,
                }
                for each in group.members.values()
            ],
        }
