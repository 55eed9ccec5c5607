"""
Kafka's own settings for the topics its coordinators make.

A broker gives them to the topic when it creates it, so in a cluster they stand in the metadata like any other; this
table serves where no metadata is at hand. Facts of 4.3.1: GroupCoordinatorService, TransactionStateManager and
ShareCoordinatorService, each `...TopicConfigs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class InternalTopic(NamedTuple):
    """What a coordinator asks for its topic, and the broker setting that changes its `segment.bytes`."""

    values: Mapping[str, str]
    segment_bytes_key: str


# Default of all three ..._SEGMENT_BYTES settings: small, so that a coordinator loads fast.
_SEGMENT_BYTES = str(100 * 1024 * 1024)

INTERNAL_TOPICS: Mapping[str, InternalTopic] = {
    "__consumer_offsets": InternalTopic(
        {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": _SEGMENT_BYTES},
        "offsets.topic.segment.bytes",
    ),
    "__transaction_state": InternalTopic(
        {"cleanup.policy": "compact", "compression.type": "uncompressed", "segment.bytes": _SEGMENT_BYTES},
        "transaction.state.log.segment.bytes",
    ),
    # Not compacted: the share coordinator deletes records up to the oldest state it still needs, by itself.
    "__share_group_state": InternalTopic(
        {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "segment.bytes": _SEGMENT_BYTES,
            "retention.ms": "-1",
        },
        "share.coordinator.state.topic.segment.bytes",
    ),
}

DEFAULT_REPLICATION_KEY = "default.replication.factor"
REPLICATION_KEYS: Mapping[str, str] = {
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
    "__share_group_state": "share.coordinator.state.topic.replication.factor",
}
"""Broker settings by which topics are made with so many replicas: those of Kafka's own topics, and of all others."""
