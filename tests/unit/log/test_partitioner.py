"""Which partition a record goes to."""

from __future__ import annotations

import random

import pytest

from cleaner.log.partitioner import Partitioner, murmur2, partition_of
from cleaner.log.record import Record


@pytest.mark.parametrize(
    ("key", "hashed", "of_ten"),
    [
        (b"", 275646681, 1),
        (b"a", -1563381124, 4),
        (b"ab", 316155434, 4),
        (b"abc", 479470107, 7),
        (b"abcd", -1323649548, 0),
        (b"21", -973932308, 0),
        (b"foobar", -790332482, 6),
        (b"a-little-bit-long-string", -985981536, 2),
        (b"a-little-bit-longer-string", -1486304829, 9),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971, 7),
        (b"p3", -428566886, 2),
        ("é中".encode(), -289825924, 4),
        (b"\xff\x80\x00\x01\xfe", -173560464, 4),
    ],
)
def test_keys_go_where_kafka_sends_them(key: bytes, hashed: int, of_ten: int) -> None:
    """The results of `Utils.murmur2` and `Utils.toPositive` of kafka-clients 4.3.1."""
    assert murmur2(key) == hashed % 2**32
    assert partition_of(key, 10) == of_ten


def test_key_of_a_topic_with_one_partition_gets_that_partition() -> None:
    """There is no other."""
    assert Partitioner(1).partition_for(Record(b"abc", b"")) == 0


def test_empty_key_is_a_key() -> None:
    """It always goes to the same partition."""
    partitioner = Partitioner(10)
    assert {partitioner.partition_for(Record(b"", b"x" * 20_000)) for _ in range(20)} == {1}


def test_records_without_a_key_stick_to_a_partition_until_it_has_had_its_bytes() -> None:
    """So that they make large batches; and all partitions get their share."""
    partitioner = Partitioner(4, sticky_bytes=1000, chooser=random.Random(1))
    chosen = [partitioner.partition_for(Record(None, b"x" * 100)) for _ in range(4000)]
    runs = [chosen[begin : begin + 10] for begin in range(0, len(chosen), 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert set(chosen) == {0, 1, 2, 3}


def test_tombstone_without_a_key_has_no_bytes() -> None:
    """It goes where the others go."""
    partitioner = Partitioner(4, sticky_bytes=10)
    assert len({partitioner.partition_for(Record(None, None)) for _ in range(100)}) == 1
