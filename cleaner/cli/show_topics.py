"""How `cleaner topics` shows topics: as Kafka's own tool does, or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cleaner.cli.output import json_line
from cleaner.logs.topics import Topic
from cleaner.storage.fs import FileSystem
from cleaner.storage.kafka_uuid import format_uuid
from cleaner.storage.meta_properties import read_meta_properties
from cleaner.storage.names import META_PROPERTIES


def list_topics(topics: Sequence[Topic], form: str) -> None:
    """Print names, one a line."""
    for topic in topics:
        print(json_line("topic", _row(topic)) if form == "json" else topic.name)


def describe_topics(log_dir: Path, topics: Sequence[Topic], form: str) -> None:
    """Print topics with their ids, settings and partitions; the only replica of each is this node's."""
    if form == "json":
        list_topics(topics, form)
        return
    node = _node_of(log_dir)
    for topic in topics:
        topic_id = "-" if topic.topic_id is None else format_uuid(topic.topic_id)
        settings = ",".join(f"{key}={value}" for key, value in sorted(topic.settings.items()))
        head = f"Topic: {topic.name}\tTopicId: {topic_id}\tPartitionCount: {len(topic.homes)}\tReplicationFactor: 1"
        print(f"{head}\tConfigs: {settings}")
        for number in sorted(topic.homes):
            print(f"\tTopic: {topic.name}\tPartition: {number}\tLeader: {node}\tReplicas: {node}\tIsr: {node}")


def _row(topic: Topic) -> dict[str, object]:
    return {
        "topic": topic.name,
        "topic_id": None if topic.topic_id is None else format_uuid(topic.topic_id),
        "partitions": sorted(topic.homes),
        "settings": dict(sorted(topic.settings.items())),
    }


def _node_of(log_dir: Path) -> int:
    """Return the node a log dir belongs to; one that says nothing is node 0's."""
    identity = read_meta_properties(FileSystem(), log_dir / META_PROPERTIES)
    return 0 if identity is None or identity.node_id is None else identity.node_id
