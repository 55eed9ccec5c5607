"""
One consumer group in memory, by the classic protocol: members join, one of them assigns the partitions, all sync.

    EMPTY         no member
    PREPARING     members join, or join again, until all have or time is over
    COMPLETING    all know the generation; the leader's assignment is awaited
    STABLE        every member has its assignment

All of it happens in the event loop, so that nothing is locked. Source: `ClassicGroup.java`, KIP-394, KIP-345.
"""

from __future__ import annotations

import asyncio
import enum
import secrets
from collections import Counter
from dataclasses import dataclass, field

from cleaner.serve.codes import Code
from cleaner.serve.login import Call
from cleaner.serve.wire import Values

MAX_MEMBERS = 1000
_LONGEST_SECONDS = 1800.0  # as Kafka's `group.max.session.timeout.ms`
_SHORTEST_SECONDS = 0.1
_LOOK_SECONDS = 0.5


class State(enum.Enum):
    """Of a group; the value is Kafka's name."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass
class Member:
    """
    A member.

    Attributes:
        protocols: assignors it knows, by preference, each with its metadata as base64.
        joining, syncing: what its request waits for; None: it has none.
        heard_at: time of its last request, of the loop's clock.
    """

    member_id: str
    client_id: str
    instance_id: str | None
    protocols: dict[str, str]
    session_seconds: float
    rebalance_seconds: float
    heard_at: float
    assignment: bytes = b""
    joining: asyncio.Future[Code] | None = None
    syncing: asyncio.Future[Code] | None = None

    @property
    def is_joining(self) -> bool:
        """Whether its request to join waits for an answer."""
        return self.joining is not None and not self.joining.done()


@dataclass
class Group:
    """A group; `generation` counts the rebalances."""

    name: str
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    _timer: asyncio.TimerHandle | None = None
    _pending: set[str] = field(default_factory=set)

    def _refusal_of_join(self, request: Values, call: Call) -> tuple[Code, str]:
        """Return why a member may not join, and the id that it is given if it has none yet."""
        member_id, protocols = request["memberId"], {each["name"] for each in request["protocols"]}
        is_static = request.get("groupInstanceId") is not None
        if not protocols or not request["protocolType"]:
            return Code.INCONSISTENT_GROUP_PROTOCOL, member_id
        if member_id and member_id not in self.members and member_id not in self._pending:
            return Code.UNKNOWN_MEMBER_ID, member_id
        others = [each for each in self.members.values() if each.member_id != member_id]
        if others and (request["protocolType"] != self.protocol_type or not protocols & self._common(others)):
            return Code.INCONSISTENT_GROUP_PROTOCOL, member_id
        if not member_id and len(self.members) + len(self._pending) >= MAX_MEMBERS:
            return Code.GROUP_MAX_SIZE_REACHED, ""
        if not member_id:
            member_id = f"{call.header.client_id[:100]}-{secrets.token_hex(16)}"
            if call.header.version >= 4 and not is_static:
                # A client whose answer is lost would join twice: it comes again with this id (KIP-394).
                self._pending.add(member_id)
                asyncio.get_running_loop().call_later(60, self._pending.discard, member_id)
                return Code.MEMBER_ID_REQUIRED, member_id
        return Code.NONE, member_id

    async def join(self, request: Values, call: Call) -> tuple[Code, str]:
        """Take a member in, and wait for the others; returns its id. Raises ConnectionError: its client has gone."""
        code, member_id = self._refusal_of_join(request, call)
        if code is not Code.NONE:
            return code, member_id
        now = asyncio.get_running_loop().time()
        protocols = {each["name"]: each["metadata"] for each in request["protocols"]}
        member = self.members.get(member_id)
        if member is None:
            self._pending.discard(member_id)
            instance_id = request.get("groupInstanceId")
            self.remove("", instance_id)  # a static member that comes again takes its own place
            member = Member(member_id, call.header.client_id, instance_id, {}, 0, 0, now)
            self.members[member_id] = member
        member.heard_at = now
        is_settled = self.state is State.COMPLETING or (self.state is State.STABLE and member_id != self.leader)
        if is_settled and member.protocols == protocols:
            return Code.NONE, member_id
        member.protocols = protocols
        session, rebalance = request["sessionTimeoutMs"], request.get("rebalanceTimeoutMs", -1)
        member.session_seconds, member.rebalance_seconds = (
            min(max(ms / 1000, _SHORTEST_SECONDS), _LONGEST_SECONDS)
            for ms in (session, rebalance if rebalance > 0 else session)
        )
        self.protocol_type = request["protocolType"]
        _settle(member.joining, Code.UNKNOWN_MEMBER_ID)
        joining: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        member.joining = joining
        self._prepare()
        code = await _answered(joining, call)
        return code if member_id in self.members or code is not Code.NONE else Code.UNKNOWN_MEMBER_ID, member_id

    async def sync(self, member: Member, assignments: dict[str, bytes], call: Call) -> Code:
        """Give a member its assignment, once the leader has sent all of them; raises as `join`."""
        if self.state is State.PREPARING:
            return Code.REBALANCE_IN_PROGRESS
        if self.state is State.STABLE:
            return Code.NONE
        _settle(member.syncing, Code.REBALANCE_IN_PROGRESS)
        syncing: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        member.syncing = syncing
        if member.member_id == self.leader:
            self._cancel_timer()
            self.state = State.STABLE
            for each in self.members.values():
                each.assignment = assignments.get(each.member_id, b"")
                each.heard_at = asyncio.get_running_loop().time()
                _settle(each.syncing, Code.NONE)
        return await _answered(syncing, call)

    def check(self, member_id: str, generation: int) -> Code:
        """Tell whether a request is of a member of this generation, and note that it lives."""
        member = self.members.get(member_id)
        if member is None:
            return Code.UNKNOWN_MEMBER_ID
        if generation != self.generation:
            return Code.ILLEGAL_GENERATION
        member.heard_at = asyncio.get_running_loop().time()
        return Code.NONE

    def remove(self, member_id: str, instance_id: str | None = None) -> Code:
        """Take a member out, by the id of its instance if it has no other; the others begin anew."""
        if not member_id and instance_id:
            of_instance = (each.member_id for each in self.members.values() if each.instance_id == instance_id)
            member_id = next(of_instance, "")
        member = self.members.pop(member_id, None)
        if member is None:
            return Code.UNKNOWN_MEMBER_ID
        _settle(member.joining, Code.UNKNOWN_MEMBER_ID)
        _settle(member.syncing, Code.UNKNOWN_MEMBER_ID)
        if self.members:
            self._prepare()
        else:
            self._begin_generation()
        return Code.NONE

    def expire(self, now: float) -> None:
        """Remove members that have not been heard of for their session's time."""
        for member in list(self.members.values()):
            if not member.is_joining and now - member.heard_at > member.session_seconds:
                self.remove(member.member_id)

    def _prepare(self) -> None:
        """Begin a rebalance, or end it if all are there."""
        if self.state is not State.PREPARING:
            self.state = State.PREPARING
            for member in self.members.values():
                _settle(member.syncing, Code.REBALANCE_IN_PROGRESS)
            self._cancel_timer()
            patience = max(each.rebalance_seconds for each in self.members.values())
            self._timer = asyncio.get_running_loop().call_later(patience, self._complete)
        if all(each.is_joining for each in self.members.values()):
            self._complete()

    def _complete(self) -> None:
        """End the rebalance with those that have joined."""
        self.members = {name: each for name, each in self.members.items() if each.is_joining}
        self._begin_generation()
        for member in self.members.values():
            member.heard_at, member.assignment = asyncio.get_running_loop().time(), b""
            _settle(member.joining, Code.NONE)

    def _begin_generation(self) -> None:
        self._cancel_timer()
        self.generation += 1
        self.state = State.COMPLETING if self.members else State.EMPTY
        if self.leader not in self.members:
            self.leader = next(iter(self.members), "")
        self.protocol = self._elected() if self.members else ""

    def _common(self, members: list[Member]) -> set[str]:
        return set.intersection(*(set(each.protocols) for each in members))

    def _elected(self) -> str:
        """Return the protocol that most members like best of those that all know."""
        common = self._common(list(self.members.values()))
        votes = Counter(next(name for name in each.protocols if name in common) for each in self.members.values())
        return votes.most_common(1)[0][0]

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def _answered(waiting: asyncio.Future[Code], call: Call) -> Code:
    """Wait for an answer as long as the client does."""
    while not (await asyncio.wait({waiting}, timeout=_LOOK_SECONDS))[0]:
        if call.is_gone():
            waiting.cancel()
            raise ConnectionError("the client has gone")
    return waiting.result()


def _settle(waiting: asyncio.Future[Code] | None, code: Code) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(code)
