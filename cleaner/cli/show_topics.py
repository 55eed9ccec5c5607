"""How `cleaner topics` shows topics: as Kafka's own tool does, or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cleaner.cli.fitting import columns, shortened
from cleaner.cli.output import json_line, say
from cleaner.log.topics import Topic
from cleaner.storage.files.kafka_uuid import format_uuid
from cleaner.storage.files.meta_properties import read_meta_properties
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import META_PROPERTIES


def list_topics(topics: Sequence[Topic], form: str) -> None:
    """Print names, one a line."""
    for topic in topics:
        if form == "json":
            print(json_line("topic", _row(topic)))
        else:
            print(shortened(topic.name, columns() or len(topic.name)))


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
        _say(f"{head}\tConfigs: {settings}")
        for number in sorted(topic.homes):
            _say(f"\tTopic: {topic.name}\tPartition: {number}\tLeader: {node}\tReplicas: {node}\tIsr: {node}")


def _say(line: str) -> None:
    """Print a line of Kafka's; on a terminal that is too narrow for it in several, with blanks for its tabs."""
    if (width := columns()) is not None and len(line.expandtabs()) > width:
        line = line.replace("\t", "  ").replace(",", ", ")
    say(line, hang="      ")


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
