"""Records of internal topics in words; a record of a broker, what Kafka's own dump says of it, and what is odd."""

from __future__ import annotations

import json
import random

import pytest

from cleaner.dump.decoders import DECODERS, class_decoder
from cleaner.errors import UsageError

# Written by a broker of 4.3.1, with what its dump printed.
RECORDS = [
    (
        "transaction-log",
        "000000027431",
        "0001000000000000000100010000ea600401000001a1fddd58c7000001a1fddd589f020008000000000000000102020002",
        '{"type":"0","data":{"transactionalId":"t1"}}',
        '{"version":"1","data":{"producerId":1,"previousProducerId":1,"producerEpoch":1,"transactionTimeoutMs":60000,'
        '"transactionStatus":4,"transactionPartitions":[],"transactionLastUpdateTimestampMs":1795260504263,'
        '"transactionStartTimestampMs":1795260504223,"clientTransactionVersion":2}}',
    ),
    (
        "share-group-state",
        "000000027331b383d067dbbc447bb2e6b12e80f911fa00000000",
        "0000000000000000000200000000ffffffffffffffff000001a1fddd6973000001a1fddd69730100",
        '{"type":"0","data":{"groupId":"s1","topicId":"s4PQZ9u8RHuy5rEugPkR-g","partition":0}}',
        '{"version":"0","data":{"snapshotEpoch":0,"stateEpoch":2,"leaderEpoch":0,"startOffset":-1,'
        '"createTimestamp":1795260508531,"writeTimestamp":1795260508531,"stateBatches":[]}}',
    ),
]


@pytest.mark.parametrize(("name", "key", "value", "shown_key", "shown_value"), RECORDS)
def test_record_of_a_broker_is_shown_as_by_kafka(
    name: str, key: str, value: str, shown_key: str, shown_value: str
) -> None:
    """To the letter; tests/kafka has the topics that golden logs hold."""
    decode = DECODERS[name]
    assert decode(0, bytes.fromhex(key), bytes.fromhex(value)) == (shown_key, shown_value)
    assert decode(0, bytes.fromhex(key), None) == (shown_key, "<DELETE>")


def test_kind_or_version_that_is_not_known_is_shown_as_such() -> None:
    """A later broker's records do not end the dump."""
    decode = DECODERS["offsets"]
    assert decode(7, b"\x01\x00", b"") == ("Unknown record type 256 at offset 7, skipping.", None)
    key = b"\0\2\0\1g"
    assert decode(7, key, b"\0\x09") == ("Error at offset 7, skipping. version 9, only 0 to 4 are known", None)
    assert decode(7, None, b"") == ("Error at offset 7, skipping. the record has no key", None)
    assert DECODERS["cluster-metadata"](7, None, b"\1\x7f\0") == (
        None,
        "Error at 7, skipping. Unknown record type 127",
    )
    assert "frame version 2" in str(DECODERS["cluster-metadata"](7, None, b"\2\0\0"))


def test_no_bytes_whatever_end_a_dump() -> None:
    """Hostile producers may write to internal topics, too."""
    rng = random.Random(1)
    for decode in DECODERS.values():
        for _ in range(300):
            key = bytes([0, rng.randrange(24)]) + rng.randbytes(rng.randrange(12))
            value = bytes([rng.randrange(2), rng.randrange(28)]) + rng.randbytes(rng.randrange(60))
            assert len(decode(1, key, value)) == 2


def test_members_of_a_classic_consumer_group_are_opened() -> None:
    """Subscription and assignment are messages of their own; bytes of another protocol stay base64."""
    subscription = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"
    assignment = b"\0\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff"

    def group(protocol: bytes) -> bytes:
        def sized(data: bytes, width: int = 2) -> bytes:
            return len(data).to_bytes(width, "big") + data

        member = sized(b"m") + sized(b"c") + sized(b"/h") + b"\0\0\0\5" + sized(subscription, 4) + sized(assignment, 4)
        return b"\0\0" + sized(protocol) + b"\0\0\0\1" + b"\xff\xff" * 2 + b"\0\0\0\1" + member

    def member_of(protocol: bytes) -> dict[str, object]:
        _, value = DECODERS["offsets"](0, b"\0\2\0\1g", group(protocol))
        found: dict[str, object] = json.loads(value or "")["data"]["members"][0]
        return found

    assert member_of(b"consumer")["subscription"] == {"topics": ["t"], "userData": None}
    assert member_of(b"consumer")["assignment"] == {"assignedPartitions": [], "userData": None}
    assert member_of(b"connect")["subscription"] == "AAAAAAABAAF0/////w=="


def test_classes_of_decoders_go_by_kafkas_names() -> None:
    """With or without their package; others are refused by name."""
    decode = class_decoder("org.apache.kafka.tools.api.LongDecoder", "IntegerDecoder")
    assert decode(0, b"\0\0\0\0\0\0\0\5", b"\xff\xff\xff\xff") == ("5", "-1")
    with pytest.raises(UsageError, match="MyDecoder"):
        class_decoder("org.example.MyDecoder", "StringDecoder")
