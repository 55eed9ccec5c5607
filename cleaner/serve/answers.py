"""Which code answers which request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cleaner.serve.api import Api, offered_versions
from cleaner.serve.coordinator import Coordinator
from cleaner.serve.describe import Describer
from cleaner.serve.login import Login
from cleaner.serve.partition import FileRecords
from cleaner.serve.reading import Reader, ReadRecords

Values = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """
    Who asks, and how.

    Attributes:
        version: of the request.
        client_id: what the client calls itself.
        where: the address under which it reaches this server.
        is_gone: tells whether it has closed its connection.
        login: of its connection.
    """

    version: int
    client_id: str
    where: tuple[str, int]
    is_gone: Callable[[], bool]
    login: Login


class Answers:
    """
    Answers requests that are offered and not refused.

    Args:
        apis: all that is offered.
    """

    def __init__(self, apis: dict[int, Api], reader: Reader, describer: Describer, coordinator: Coordinator) -> None:
        self._reader = reader

        async def at_once(values: Values) -> Values:
            return values

        self._by_name: dict[str, Callable[[Values, Call], Awaitable[Values]]] = {
            "ApiVersions": lambda _, __: at_once(offered_versions(apis)),
            "Metadata": lambda request, call: asyncio.to_thread(describer.metadata, request, call.version, call.where),
            "ListOffsets": lambda request, _: asyncio.to_thread(reader.list_offsets, request),
            "OffsetForLeaderEpoch": lambda request, _: asyncio.to_thread(reader.epochs, request),
            "DescribeCluster": lambda _, call: at_once(describer.cluster(call.where)),
            "DescribeConfigs": lambda request, _: asyncio.to_thread(describer.configs, request),
            "DescribeLogDirs": lambda request, _: asyncio.to_thread(describer.log_dirs, request),
            "FindCoordinator": lambda request, call: at_once(coordinator.find(request, call.version, call.where)),
            "JoinGroup": lambda request, call: coordinator.join(request, call.version, call.client_id, call.is_gone),
            "SyncGroup": lambda request, call: coordinator.sync(request, call.is_gone),
            "Heartbeat": lambda request, _: at_once(coordinator.heartbeat(request)),
            "LeaveGroup": lambda request, call: at_once(coordinator.leave(request, call.version)),
            "OffsetCommit": lambda request, _: at_once(coordinator.commit(request)),
            "OffsetFetch": lambda request, call: coordinator.fetch_offsets(request, call.version),
            "ListGroups": lambda request, _: coordinator.list_groups(request),
            "DescribeGroups": lambda request, _: coordinator.describe_groups(request),
            "SaslHandshake": lambda request, call: at_once(call.login.handshake(request, call.version)),
            "SaslAuthenticate": lambda request, call: call.login.authenticate(request),
        }

    async def answer(self, api: Api, request: Values, call: Call) -> tuple[Values, Sequence[FileRecords | ReadRecords]]:
        """Return the fields of the answer, and the open records in it, which the caller closes."""
        if api.name == "Fetch":
            fetched = await self._reader.fetch(request, call.version, call.is_gone)
            return fetched.values, fetched.records
        return await self._by_name[api.name](request, call), ()
