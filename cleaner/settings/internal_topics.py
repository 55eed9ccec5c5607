"""
Kafka's own settings for the topics that its coordinators create.

A broker sets them when it creates the topic, so in a cluster they are in the metadata like any other; this table is for
logs without metadata. Source (4.3.1): GroupCoordinatorService, TransactionStateManager and ShareCoordinatorService,
each `...TopicConfigs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class InternalTopic(NamedTuple):
    """The settings of a coordinator's topic, and the broker setting that changes its `segment.bytes`."""

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
    # Not compacted: the share coordinator itself deletes records up to the oldest state it still needs.
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
"""Broker settings for the number of replicas of Kafka's own topics; other topics have `DEFAULT_REPLICATION_KEY`."""
