"""The plain form of the retention of batches and records, by the rules: R-540 to R-552, R-651."""

from __future__ import annotations

import pytest

from cleaner.base.model import LastRecord
from tests.reference import record_filter
from tests.reference.record_filter import BatchRetention, batch_retention, retains_record

NOW = 1_000


@pytest.mark.parametrize(
    ("is_control", "can_discard", "horizon", "expected"),
    [
        pytest.param(False, False, None, False, id="committed-data"),
        pytest.param(False, True, None, True, id="aborted-data-goes-at-once"),
        pytest.param(False, True, NOW + 1, True, id="aborted-data-with-horizon-goes-at-once"),
        pytest.param(True, False, NOW - 1, False, id="marker-with-data"),
        pytest.param(True, True, None, False, id="marker-without-horizon"),
        pytest.param(True, True, NOW + 1, False, id="marker-before-its-horizon"),
        pytest.param(True, True, NOW, True, id="marker-at-its-horizon"),
    ],
)
def test_marker_waits_for_its_horizon_and_aborted_data_does_not(
    is_control: bool, can_discard: bool, horizon: int | None, expected: bool
) -> None:
    """R-540."""
    assert expected is record_filter.discards_records(
        is_control=is_control, can_discard=can_discard, delete_horizon_ms=horizon, now_ms=NOW
    )


@pytest.mark.parametrize(
    ("last_record", "producer_id", "epoch", "last_offset", "is_control", "expected"),
    [
        pytest.param(None, 7, 0, 9, False, False, id="not-active"),
        pytest.param(LastRecord(9, 0), 7, 0, 9, False, True, id="last-data-batch"),
        pytest.param(LastRecord(9, 5), 7, 0, 9, False, True, id="epoch-is-not-compared"),
        pytest.param(LastRecord(9, 0), 7, 0, 8, False, False, id="earlier-batch"),
        pytest.param(LastRecord(None, 3), 7, 3, 8, True, True, id="marker-of-the-epoch"),
        pytest.param(LastRecord(None, 3), 7, 2, 8, True, False, id="marker-of-an-older-epoch"),
        pytest.param(LastRecord(None, 3), 7, 3, 8, False, False, id="data-of-the-epoch"),
        pytest.param(LastRecord(9, 0), -1, -1, 9, False, False, id="no-producer-id"),
    ],
)
def test_last_batch_of_an_active_producer_is_recognised(
    last_record: LastRecord | None, producer_id: int, epoch: int, last_offset: int, is_control: bool, expected: bool
) -> None:
    """R-545, R-547."""
    assert expected is record_filter.is_last_of_producer(
        last_record, producer_id=producer_id, producer_epoch=epoch, last_offset=last_offset, is_control=is_control
    )


@pytest.mark.parametrize(
    ("is_last", "last_offset", "discards", "expected"),
    [
        pytest.param(True, 5, True, BatchRetention.KEEP_EVEN_EMPTY, id="producer-before-discard"),
        pytest.param(False, 99, True, BatchRetention.KEEP_EVEN_EMPTY, id="end-of-range-before-discard"),
        pytest.param(False, 98, True, BatchRetention.DROP, id="discard"),
        pytest.param(False, 98, False, BatchRetention.KEEP_IF_NOT_EMPTY, id="otherwise"),
    ],
)
def test_first_matching_rule_decides_a_batch(
    is_last: bool, last_offset: int, discards: bool, expected: BatchRetention
) -> None:
    """R-541, with a range that ends at 100."""
    assert expected is batch_retention(
        is_last_of_producer=is_last, last_offset=last_offset, kept_end_offset=100, discards_records=discards
    )


RECORD = {
    "discards_records": False,
    "is_control": False,
    "offset": 10,
    "latest_offset": 50,
    "has_key": True,
    "has_value": True,
    "newest_offset": 10,
    "retains_deletes": False,
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, True, id="newest-of-its-key"),
        pytest.param({"newest_offset": 11}, False, id="superseded"),
        pytest.param({"newest_offset": -1}, True, id="key-not-in-the-map"),
        pytest.param({"has_value": False}, False, id="tombstone-past-its-time"),
        pytest.param({"has_value": False, "retains_deletes": True}, True, id="tombstone-in-its-time"),
        pytest.param({"has_value": False, "retains_deletes": True, "newest_offset": 11}, False, id="old-tombstone"),
        pytest.param({"has_key": False}, False, id="no-key"),
        pytest.param({"has_key": False, "offset": 51}, True, id="no-key-above-the-map"),
        pytest.param({"offset": 51, "newest_offset": 60}, True, id="above-the-map"),
        pytest.param({"offset": 51, "has_value": False}, True, id="tombstone-above-the-map"),
        pytest.param({"offset": 50, "has_key": False}, False, id="no-key-at-the-map-s-end"),
        pytest.param({"is_control": True, "has_key": False}, True, id="marker"),
        pytest.param({"discards_records": True, "is_control": True, "offset": 51}, False, id="discarded"),
    ],
)
def test_record_stays_or_goes(changes: dict[str, bool | int], expected: bool) -> None:
    """R-550, R-552."""
    assert expected is retains_record(**{**RECORD, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("magic", "horizon", "mtime", "expected"),
    [
        pytest.param(2, None, 0, True, id="first-seen"),
        pytest.param(2, NOW + 1, 0, True, id="before-the-horizon"),
        pytest.param(2, NOW, 0, False, id="at-the-horizon"),
        pytest.param(1, None, 501, True, id="legacy-young-file"),
        pytest.param(0, None, 500, False, id="legacy-file-at-the-horizon"),
    ],
)
def test_tombstones_stay_until_their_time(magic: int, horizon: int | None, mtime: int, expected: bool) -> None:
    """R-551: magic 2 by the batch's horizon, older magic by the file's time."""
    assert expected is record_filter.retains_deletes(
        magic=magic, delete_horizon_ms=horizon, now_ms=NOW, segment_mtime_ms=mtime, legacy_horizon_ms=500
    )
