"""Error codes of the protocol that the endpoint answers with, by Kafka's names."""

from __future__ import annotations

import enum

from cleaner.errors import CleanerError, CorruptLogError


class Code(enum.IntEnum):
    """`org.apache.kafka.common.protocol.Errors`."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    FETCH_SESSION_ID_NOT_FOUND = 70
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    UNKNOWN_TOPIC_ID = 100


READ_ONLY = "this endpoint serves log directories and is read-only"


def code_of(error: CleanerError) -> Code:
    """Return what a client is told of an error of ours: damage, or a disk that does not answer."""
    return Code.CORRUPT_MESSAGE if isinstance(error, CorruptLogError) else Code.KAFKA_STORAGE_ERROR
