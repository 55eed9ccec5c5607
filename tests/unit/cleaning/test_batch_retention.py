"""Retention of whole chunks at once, compared with the rules for one batch (R-540 to R-545)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.base.model import LastRecord
from cleaner.cleaning.recopy.batch_retention import ActiveProducers, decide_retention
from cleaner.format.batch import BATCH_DTYPE, CONTROL_FLAG, DELETE_HORIZON_FLAG, TRANSACTIONAL_FLAG
from tests.reference.record_filter import BatchRetention, batch_retention, discards_records, is_last_of_producer

pytestmark = pytest.mark.kernels

NOW_MS = 1000

Row = dict[str, int]
rows = st.fixed_dictionaries(
    {
        "magic": st.sampled_from([2, 2, 2, 1, 0]),
        "attributes": st.sampled_from([0, 8, TRANSACTIONAL_FLAG, TRANSACTIONAL_FLAG | CONTROL_FLAG])
        .flatmap(lambda flags: st.sampled_from([flags, flags | DELETE_HORIZON_FLAG])),
        "base_timestamp": st.integers(NOW_MS - 2, NOW_MS + 2),
        "last_offset": st.integers(0, 12),
        "producer_id": st.sampled_from([-1, -1, 0, 1, 5, 6, 9]),
        "producer_epoch": st.integers(0, 2),
        "can_discard": st.integers(0, 1),
    }
)  # fmt: skip
producers = st.dictionaries(
    st.sampled_from([0, 1, 5, 9, 2**62]),
    st.builds(LastRecord, st.one_of(st.none(), st.integers(0, 12)), st.integers(0, 2)),
)


def table(content: list[Row]) -> np.ndarray:
    """Make a batch table; of magic 0 and 1 there are no producers and no flags but the timestamp type."""
    batches = np.zeros(len(content), BATCH_DTYPE)
    for batch, row in zip(batches, content, strict=True):
        for name in ("magic", "attributes", "base_timestamp", "last_offset", "producer_id", "producer_epoch"):
            batch[name] = row[name]
        if row["magic"] < 2:
            batch["producer_id"] = batch["producer_epoch"] = -1
    return batches


@given(st.lists(rows, max_size=12), producers, st.integers(0, 13), st.booleans())
def test_retention_of_a_chunk_is_that_of_its_batches(
    content: list[Row], last_records: dict[int, LastRecord], first_uncleanable: int, deletes_stay: bool
) -> None:
    """Retention, discard, unread and empty marker of every batch are those of the plain rules."""
    batches = table(content)
    can_discard = np.array([row["can_discard"] and row["magic"] == 2 for row in content], np.uint8)
    found = decide_retention(
        batches, can_discard, ActiveProducers(last_records), kept_end_offset=first_uncleanable,
        removal_ms=NOW_MS, legacy_deletes_stay=deletes_stay,
    )  # fmt: skip
    for i, row in enumerate(content):
        is_control = row["magic"] == 2 and bool(row["attributes"] & CONTROL_FLAG)
        has_horizon = bool(row["attributes"] & DELETE_HORIZON_FLAG)
        discards = discards_records(
            is_control=is_control,
            can_discard=bool(can_discard[i]),
            delete_horizon_ms=row["base_timestamp"] if has_horizon else None,
            now_ms=NOW_MS,
        )
        is_last = is_last_of_producer(
            last_records.get(row["producer_id"]) if row["magic"] == 2 else None,
            producer_id=row["producer_id"],
            producer_epoch=row["producer_epoch"],
            last_offset=row["last_offset"],
            is_control=is_control,
        )
        retention = batch_retention(
            is_last_of_producer=is_last,
            last_offset=row["last_offset"],
            kept_end_offset=first_uncleanable,
            discards_records=discards,
        )
        assert BatchRetention(int(found.batches[i])) == retention
        assert bool(found.discarded[i]) == discards
        assert bool(found.unread[i]) == (retention == BatchRetention.DROP)
        assert bool(found.is_empty_marker[i]) == (is_control and bool(can_discard[i]))
    assert found.legacy_deletes_stay == deletes_stay


def test_part_of_a_retention_is_that_of_the_batches_in_it() -> None:
    """A block's share of its chunk."""
    content: list[Row] = [
        {"magic": 2, "attributes": CONTROL_FLAG, "base_timestamp": 0, "last_offset": i, "producer_id": 1,
         "producer_epoch": 0, "can_discard": i % 2}
        for i in range(6)
    ]  # fmt: skip
    whole = decide_retention(
        table(content), np.array([row["can_discard"] for row in content], np.uint8), ActiveProducers({}),
        kept_end_offset=99, removal_ms=NOW_MS, legacy_deletes_stay=True,
    )  # fmt: skip
    part = whole.part(2, 3)
    for name in ("batches", "discarded", "unread", "is_empty_marker"):
        assert getattr(part, name).tolist() == getattr(whole, name)[2:5].tolist()
    assert part.is_empty_marker.tolist() == [0, 1, 0]


def test_no_producers_are_last_of_nothing() -> None:
    """A log without idempotent producers has no producer's last batch."""
    batches = table([{"magic": 2, "attributes": 0, "base_timestamp": 0, "last_offset": 1, "producer_id": 7,
                      "producer_epoch": 0}])  # fmt: skip
    for last_records, expected in (
        ({}, BatchRetention.KEEP_IF_NOT_EMPTY),
        ({7: LastRecord(1, 5)}, BatchRetention.KEEP_EVEN_EMPTY),
    ):
        found = decide_retention(
            batches, np.zeros(1, np.uint8), ActiveProducers(last_records), kept_end_offset=99,
            removal_ms=NOW_MS, legacy_deletes_stay=True,
        )  # fmt: skip
        assert found.batches.tolist() == [expected]


def test_producer_that_comes_twice_counts_as_it_came_last() -> None:
    """A snapshot that names a producer twice is read as Kafka reads it: into a map."""
    batches = table([{"magic": 2, "attributes": 0, "base_timestamp": 0, "last_offset": i, "producer_id": 7,
                      "producer_epoch": 0} for i in (1, 2)])  # fmt: skip
    found = decide_retention(
        batches, np.zeros(2, np.uint8), ActiveProducers(np.array([[7, 1, 0], [8, 2, 0], [7, 2, 0]])),
        kept_end_offset=99, removal_ms=NOW_MS, legacy_deletes_stay=True,
    )  # fmt: skip
    assert found.batches.tolist() == [BatchRetention.KEEP_IF_NOT_EMPTY, BatchRetention.KEEP_EVEN_EMPTY]
