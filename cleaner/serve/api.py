"""
Which requests are answered, in which versions, and by whom.

The versions offered are those of the definitions, up to the newest that the code here knows the meaning of. Requests
that write are offered, too: a client that is not told of them reports a broker that is too old, which helps nobody.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cleaner.format.message_definitions import definition
from cleaner.format.message_schema import Message
from cleaner.serve.codes import Code


class Api(NamedTuple):
    """
    A kind of request.

    Attributes:
        versions: the first and the last that is answered.
        refused: the code with which it is refused; None: it is answered.
    """

    request: Message
    response: Message
    versions: tuple[int, int]
    refused: Code | None

    @property
    def name(self) -> str:
        """Kafka's name of it: `Fetch`."""
        return self.request.name.removesuffix("Request")


# By name: the newest version whose meaning is known here.
_ANSWERED = {
    "ApiVersions": 4,
    "Metadata": 12,
    "ListOffsets": 9,
    "Fetch": 16,
    "OffsetForLeaderEpoch": 4,
    "DescribeCluster": 1,
    "DescribeConfigs": 4,
    "DescribeLogDirs": 4,
    "FindCoordinator": 4,
    "JoinGroup": 9,
    "SyncGroup": 5,
    "Heartbeat": 4,
    "LeaveGroup": 5,
    "OffsetCommit": 9,
    "OffsetFetch": 9,
    "ListGroups": 5,
    "DescribeGroups": 5,
    "SaslHandshake": 1,
    "SaslAuthenticate": 2,
}
_REFUSED = {
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
    apis = [_api(name, newest, None) for name, newest in _ANSWERED.items()]
    apis += [_api(name, newest, code) for name, (newest, code) in _REFUSED.items()]
    return {each.request.number: each for each in apis}


def _api(name: str, newest: int, refused: Code | None) -> Api:
    request, response = definition(f"{name}Request"), definition(f"{name}Response")
    first = max(request.versions[0], response.versions[0])
    return Api(request, response, (first, min(newest, request.versions[1])), refused)


def offered_versions(apis: dict[int, Api]) -> dict[str, Any]:
    """Answer ApiVersions."""
    rows = [
        {"apiKey": number, "minVersion": api.versions[0], "maxVersion": api.versions[1]}
        for number, api in sorted(apis.items())
    ]
    return {"apiKeys": rows}
