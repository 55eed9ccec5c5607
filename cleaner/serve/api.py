"""
Which requests are answered, in which versions, and by whom.

The versions offered are those of the definitions, up to the newest that the code here knows the meaning of. Requests
that write are offered, too: a client that is not told of them reports a broker that is too old, which helps nobody.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from cleaner.format.message_definitions import definition
from cleaner.format.message_schema import Message
from cleaner.serve.codes import Code
from cleaner.serve.coordinator import Coordinator
from cleaner.serve.describe import Describer
from cleaner.serve.login import Call
from cleaner.serve.reading import Reader
from cleaner.serve.wire import Values


class Parts(NamedTuple):
    """What a server answers from; `apis` is what it offers."""

    apis: dict[int, Api]
    reader: Reader
    describer: Describer
    coordinator: Coordinator


Answer = Callable[[Parts, Values, Call], Values | Awaitable[Values]]


class Api(NamedTuple):
    """
    A kind of request.

    Attributes:
        versions: the first and the last that is answered.
        answer: returns the fields of the answer, or waits for them; or the code with which it is refused.
    """

    request: Message
    response: Message
    versions: tuple[int, int]
    answer: Answer | Code

    @property
    def name(self) -> str:
        """Kafka's name of it: `Fetch`."""
        return self.request.name.removesuffix("Request")


# By name: the newest version whose meaning is known here, and what answers it, or how it is refused.
_OFFERED: dict[str, tuple[int, Answer | Code]] = {
    "ApiVersions": (4, lambda parts, _request, _call: offered_versions(parts.apis)),
    "Metadata": (12, lambda parts, request, call: to_thread(parts.describer.metadata, request, call)),
    "ListOffsets": (9, lambda parts, request, _: to_thread(parts.reader.list_offsets, request)),
    "Fetch": (16, lambda parts, request, call: parts.reader.fetch(request, call)),
    "OffsetForLeaderEpoch": (4, lambda parts, request, _: to_thread(parts.reader.epochs, request)),
    "DescribeCluster": (1, lambda parts, _, call: parts.describer.cluster(call)),
    "DescribeConfigs": (4, lambda parts, request, _: to_thread(parts.describer.configs, request)),
    "DescribeLogDirs": (4, lambda parts, request, _: to_thread(parts.describer.log_dirs, request)),
    "FindCoordinator": (4, lambda parts, request, call: parts.coordinator.find(request, call)),
    "JoinGroup": (9, lambda parts, request, call: parts.coordinator.join(request, call)),
    "SyncGroup": (5, lambda parts, request, call: parts.coordinator.sync(request, call)),
    "Heartbeat": (4, lambda parts, request, _: parts.coordinator.heartbeat(request)),
    "LeaveGroup": (5, lambda parts, request, call: parts.coordinator.leave(request, call)),
    "OffsetCommit": (9, lambda parts, request, _: parts.coordinator.commit(request)),
    "OffsetFetch": (9, lambda parts, request, call: parts.coordinator.fetch_offsets(request, call)),
    "ListGroups": (5, lambda parts, request, _: parts.coordinator.list_groups(request)),
    "DescribeGroups": (5, lambda parts, request, _: parts.coordinator.describe_groups(request)),
    "SaslHandshake": (1, lambda _, request, call: call.login.handshake(request, call)),
    "SaslAuthenticate": (2, lambda _, request, call: call.login.authenticate(request, call)),
    "Produce": (11, Code.TOPIC_AUTHORIZATION_FAILED),
    "InitProducerId": (5, Code.CLUSTER_AUTHORIZATION_FAILED),
    "AddPartitionsToTxn": (3, Code.TOPIC_AUTHORIZATION_FAILED),
    "AddOffsetsToTxn": (4, Code.GROUP_AUTHORIZATION_FAILED),
    "EndTxn": (4, Code.CLUSTER_AUTHORIZATION_FAILED),
    "TxnOffsetCommit": (4, Code.GROUP_AUTHORIZATION_FAILED),
    "CreateTopics": (7, Code.CLUSTER_AUTHORIZATION_FAILED),
    "DeleteTopics": (5, Code.TOPIC_AUTHORIZATION_FAILED),
    "DeleteRecords": (2, Code.TOPIC_AUTHORIZATION_FAILED),
    "CreatePartitions": (3, Code.TOPIC_AUTHORIZATION_FAILED),
    "AlterConfigs": (2, Code.CLUSTER_AUTHORIZATION_FAILED),
    "IncrementalAlterConfigs": (1, Code.CLUSTER_AUTHORIZATION_FAILED),
    "CreateAcls": (3, Code.CLUSTER_AUTHORIZATION_FAILED),
    "DeleteAcls": (3, Code.CLUSTER_AUTHORIZATION_FAILED),
    "ElectLeaders": (2, Code.CLUSTER_AUTHORIZATION_FAILED),
    "AlterPartitionReassignments": (0, Code.CLUSTER_AUTHORIZATION_FAILED),
    "UpdateFeatures": (1, Code.CLUSTER_AUTHORIZATION_FAILED),
}


def load_apis() -> dict[int, Api]:
    """
    Return what is offered, by API key.

    Raises:
        UsageError: the definitions are not installed.
    """
    apis = [_api(name, newest, answer) for name, (newest, answer) in _OFFERED.items()]
    return {each.request.number: each for each in apis}


def _api(name: str, newest: int, answer: Answer | Code) -> Api:
    request, response = definition(f"{name}Request"), definition(f"{name}Response")
    first = max(request.versions[0], response.versions[0])
    return Api(request, response, (first, min(newest, request.versions[1])), answer)


def offered_versions(apis: dict[int, Api]) -> Values:
    """Answer ApiVersions."""
    rows = [
        {"apiKey": number, "minVersion": api.versions[0], "maxVersion": api.versions[1]}
        for number, api in sorted(apis.items())
    ]
    return {"apiKeys": rows}
