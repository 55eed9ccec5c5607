"""A single record gets the batch, or the error, that it gets among columns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.config.values import TopicConfig
from cleaner.errors import CleanerError
from cleaner.format.encode import place
from cleaner.log import new_batches
from cleaner.log.record import ProducerStamp, Record, RecordColumns

pytestmark = pytest.mark.kernels

NOW_MS = 1_700_000_000_000

FIELDS: Any = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.integers(60, 20_000).map(bytes),
    st.sampled_from([bytearray(b"a"), memoryview(b"ab"), "text", 1]),
    st.builds(lambda: memoryview(np.zeros(3, np.int32))),
)
TIMES: Any = st.one_of(
    st.none(),
    st.integers(NOW_MS - 2_000, NOW_MS + 2_000),
    st.sampled_from([0, -1, True, 2**63 - 1, 2**63, np.int64(NOW_MS), 1.5, "now", datetime(2023, 11, 14, tzinfo=UTC)]),
)
PAIRS: Any = st.tuples(st.text(max_size=8), st.one_of(st.none(), st.binary(max_size=8)))
HEADERS: Any = st.one_of(
    st.lists(PAIRS, max_size=3).map(tuple),
    st.lists(PAIRS, max_size=3),
    st.sampled_from([{"h": b"x"}, {"ab": b"x"}, (("h", 5),), ((b"h", b"x"),), (("\ud800", b"x"),), b"ab", None, 7]),
)
TOPICS = st.fixed_dictionaries(
    {
        "cleanup.policy": st.sampled_from(["compact", "delete"]),
        "compression.type": st.sampled_from(["producer", "uncompressed", "lz4", "gzip"]),
        "message.timestamp.type": st.sampled_from(["CreateTime", "LogAppendTime"]),
        "message.timestamp.before.max.ms": st.sampled_from(["1000", str(2**63 - 1)]),
        "message.timestamp.after.max.ms": st.sampled_from(["1000", str(2**63 - 1)]),
        "max.message.bytes": st.sampled_from(["150", "16000", "1048588"]),
    }
).map(TopicConfig.from_mapping)
PRODUCERS = st.one_of(
    st.none(),
    st.builds(
        ProducerStamp, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1), st.booleans()
    ),
)


def _outcome(build: Callable[[], new_batches.NewBatches]) -> object:
    """Return all that an append gets to know, with the batches as they are written."""
    try:
        new = build()
    except CleanerError as error:
        return type(error), str(error)
    place(new.data, new.batches, 100, 7)
    (batch,) = new.batches
    return batch, bytes(new.data[: batch.size]), new.record_count, new.append_time_ms


@given(
    record=st.builds(Record, FIELDS, FIELDS, HEADERS, TIMES),
    topic=TOPICS,
    producer=PRODUCERS,
    batch_bytes=st.sampled_from([None, 10, 1000]),
    now_ms=st.sampled_from([NOW_MS, 1, 0, -1]),
)
def test_single_record_is_appended_as_among_columns(
    record: Record, topic: TopicConfig, producer: ProducerStamp | None, batch_bytes: int | None, now_ms: int
) -> None:
    """Whatever the record, its topic and its producer: the same bytes, or the same error."""

    def build() -> new_batches.NewBatches:
        return new_batches.build_batches(
            "t-0", [record], topic, now_ms=now_ms, batch_bytes=batch_bytes, producer=producer
        )

    found = _outcome(build)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(new_batches, "_build_single", lambda *_: None)
        assert found == _outcome(build)


@pytest.mark.parametrize("records", [Record(b"k", b"v"), [Record(b"k", None, (("h", b"x"),), NOW_MS)]])
def test_single_record_needs_no_columns(records: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would take longer than the write."""
    monkeypatch.setattr(RecordColumns, "of", None)
    new = new_batches.build_batches(
        "t-0",
        records,
        TopicConfig(),
        now_ms=NOW_MS,
        batch_bytes=None,
        producer=None,  # type: ignore[arg-type]
    )
    assert new.record_count == 1


@pytest.mark.parametrize("count", [1, 2])
def test_headers_of_an_iterator_are_appended_or_refused_as_those_of_a_tuple(count: int) -> None:
    """It can be read once only: who began with it and gave up left a record without headers, and no error."""
    topic = TopicConfig.from_mapping({})

    def build(headers: Callable[[], Any]) -> new_batches.NewBatches:
        records = [Record(b"k", b"v", headers(), NOW_MS) for _ in range(count)]
        return new_batches.build_batches("t-0", records, topic, now_ms=NOW_MS, batch_bytes=None, producer=None)

    good = (("a", b"1"), ("b", None))
    assert _outcome(lambda: build(lambda: iter(good))) == _outcome(lambda: build(lambda: good))
    with pytest.raises(CleanerError, match="record 0: header 'b' is a int, not bytes"):
        build(lambda: iter((("a", b"1"), ("b", 5))))
