"""What a client asks before it reads: versions, topics, the cluster, settings, log dirs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cleaner.errors import CleanerError
from cleaner.serve.catalog import Catalog, Topic
from cleaner.serve.codes import READ_ONLY, Code
from cleaner.serve.login import Call
from cleaner.serve.partition import Partition
from cleaner.serve.wire import Values
from cleaner.settings.given import DEFAULT, Given
from cleaner.settings.internal_topics import INTERNAL_TOPICS

NODE_ID = 0
"""The only broker of the cluster that clients see."""

_NO_OPERATIONS = -(2**31)
_CLUSTER = {"clusterId": "cleaner-serve", "controllerId": NODE_ID, "clusterAuthorizedOperations": _NO_OPERATIONS}
_TOPIC, _BROKER = 2, 4  # types of resources
_FROM_TOPIC, _DEFAULT = 1, 5  # sources of settings

SettingsOf = Callable[[Partition], Mapping[str, Given]]
"""Returns a topic's settings; raises CleanerError."""


class Describer:
    """
    Answers from the catalog; its methods may read the disk.

    Args:
        settings_of: of the topic of a partition.
    """

    def __init__(self, catalog: Catalog, settings_of: SettingsOf) -> None:
        self._catalog = catalog
        self._settings_of = settings_of

    def metadata(self, request: Values, call: Call) -> Values:
        """Answer Metadata."""
        self._catalog.refresh()
        asked = request["topics"]
        if asked is None or (not asked and call.header.version == 0):  # the first version had no null
            topics = [self._topic(topic) for topic in self._catalog.topics.values()]
        else:
            topics = [self._asked_topic(each) for each in asked]
        return {
            "brokers": [{"nodeId": NODE_ID, "host": call.where[0], "port": call.where[1]}],
            **_CLUSTER,
            "topics": topics,
        }

    def _asked_topic(self, asked: Values) -> Values:
        name = asked["name"]
        topic = self._catalog.by_id.get(asked.get("topicId", "")) if name is None else self._catalog.topics.get(name)
        if topic is not None:
            return self._topic(topic)
        if name is None:
            return {"errorCode": Code.UNKNOWN_TOPIC_ID, "name": None, "topicId": asked.get("topicId", "A" * 22)}
        return {"errorCode": Code.UNKNOWN_TOPIC_OR_PARTITION, "name": name}

    def _topic(self, topic: Topic) -> Values:
        partitions = []
        for number, partition in topic.partitions.items():
            one: Values = {
                "partitionIndex": number,
                "leaderId": NODE_ID,
                "replicaNodes": [NODE_ID],
                "isrNodes": [NODE_ID],
            }
            with contextlib.suppress(CleanerError):  # what is wrong shows when it is read
                one["leaderEpoch"] = partition.latest_epoch()
            partitions.append(one)
        return {
            "name": topic.name,
            "topicId": topic.topic_id,
            "isInternal": topic.name in INTERNAL_TOPICS,
            "partitions": partitions,
            "topicAuthorizedOperations": _NO_OPERATIONS,
        }

    def cluster(self, call: Call) -> Values:
        """Answer DescribeCluster."""
        return {
            "endpointType": 1,
            **_CLUSTER,
            "brokers": [{"brokerId": NODE_ID, "host": call.where[0], "port": call.where[1]}],
        }

    def configs(self, request: Values) -> Values:
        """Answer DescribeConfigs: of topics what the sources of settings say, of the broker nothing."""
        return {"results": [self._configs_of(each) for each in request["resources"]]}

    def _configs_of(self, resource: Values) -> Values:
        kind, name, wanted = resource["resourceType"], resource["resourceName"], resource["configurationKeys"]
        result = {"resourceType": kind, "resourceName": name, "errorCode": Code.NONE, "errorMessage": None}
        if kind == _BROKER:
            return result
        topic = self._catalog.topics.get(name) if kind == _TOPIC else None
        if topic is None:
            code = Code.UNKNOWN_TOPIC_OR_PARTITION if kind == _TOPIC else Code.INVALID_REQUEST
            return {**result, "errorCode": code, "errorMessage": f"no such topic: {name}"}
        partition = next(iter(topic.partitions.values()))
        try:
            settings = self._settings_of(partition)
        except CleanerError as error:
            return {**result, "errorCode": self._catalog.told(partition, error), "errorMessage": str(error)}
        return {
            **result,
            "configs": [
                {
                    "name": name,
                    "value": given.text,
                    "readOnly": True,
                    "configSource": _DEFAULT if given.origin == DEFAULT else _FROM_TOPIC,
                }
                for name, given in settings.items()
                if wanted is None or name in wanted
            ],
        }

    def log_dirs(self, request: Values) -> Values:
        """Answer DescribeLogDirs."""
        asked = request["topics"]
        wanted = None if asked is None else {(each["topic"], number) for each in asked for number in each["partitions"]}
        return {"results": [self._log_dir(str(each.path), wanted) for each in self._catalog.log_dirs]}

    def _log_dir(self, path: str, wanted: set[tuple[str, int]] | None) -> Values:
        topics = []
        code = Code.NONE
        for topic in self._catalog.topics.values():
            rows = []
            for number, partition in topic.partitions.items():
                if str(partition.log_dir) != path or (wanted is not None and (topic.name, number) not in wanted):
                    continue
                try:
                    rows.append({"partitionIndex": number, "partitionSize": partition.log_bytes()})
                except CleanerError as error:
                    code = self._catalog.told(partition, error)
            if rows:
                topics.append({"name": topic.name, "partitions": rows})
        return {"errorCode": code, "logDir": path, "topics": topics}


def refusal(fields: Sequence[Any], request: Values, code: Code, request_fields: Sequence[Any]) -> Values:
    """
    Return the answer to a request that would write: an error wherever the answer has one, for all that was named.

    The lists of an answer are those of its request, in the same order, with the same names in them.
    """
    answer: Values = {}
    lists = iter([each for each in request_fields if each.is_array and request.get(each.name) is not None])
    for field in fields:
        if field.name == "errorCode":
            answer["errorCode"] = code
        elif field.name == "errorMessage":
            answer["errorMessage"] = READ_ONLY
        elif field.is_array and field.type == "struct":
            asked = next(lists, None)
            if asked is not None:
                answer[field.name] = [_refused(field, asked, each, code) for each in request[asked.name]]
        elif field.name in request and not field.is_array:
            answer[field.name] = request[field.name]
    return answer


def _refused(field: Any, asked: Any, item: Any, code: Code) -> Values:
    if isinstance(item, dict):
        # A number of a partition has another name in some answers than in their requests.
        number = item.get("partitionIndex", item.get("partition", 0))
        return refusal(field.fields, {**item, "partitionIndex": number}, code, asked.fields)
    # A list of names or numbers: the answer's first field of that kind.
    name = next(each.name for each in field.fields if each.type == asked.type and each.name != "errorCode")
    return refusal(field.fields, {name: item}, code, ())
