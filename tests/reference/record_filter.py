"""
What stays, in the plainest form: one batch and one record at a time, each function a rule (R-540 to R-552).

A batch gets one of three `BatchRetention` values before its records are read; then each record is decided. The kernels
decide whole arrays at once (`kernels/batch_retention.py`, `kernels/offset_map.py`); tests hold them to these functions.
"""

from __future__ import annotations

from enum import IntEnum

from cleaner.base.model import LastRecord
from cleaner.kernels.retain import BATCH_DROP, BATCH_KEEP_EVEN_EMPTY, BATCH_KEEP_IF_NOT_EMPTY

NO_PRODUCER_ID = -1


class BatchRetention(IntEnum):
    """What happens to a batch without surviving records."""

    KEEP_IF_NOT_EMPTY = BATCH_KEEP_IF_NOT_EMPTY
    KEEP_EVEN_EMPTY = BATCH_KEEP_EVEN_EMPTY
    DROP = BATCH_DROP


def discards_records(*, is_control: bool, can_discard: bool, delete_horizon_ms: int | None, now_ms: int) -> bool:
    """
    Tell whether all records of a batch are removed, whatever they are (R-540).

    Args:
        is_control: the batch has a marker.
        can_discard: data of an aborted transaction, or a marker whose transaction has no data left (R-532, R-533).
        delete_horizon_ms: the batch's own; None without one. Only markers wait for it: aborted data is removed at once.
        now_ms: the time with which horizons are compared.
    """
    if not is_control:
        return can_discard
    return can_discard and delete_horizon_ms is not None and delete_horizon_ms <= now_ms


def is_last_of_producer(
    last_record: LastRecord | None,
    *,
    producer_id: int,
    producer_epoch: int,
    last_offset: int,
    is_control: bool,
) -> bool:
    """
    Tell whether an active producer's state is derived from a batch (R-545).

    If the last data offset is known, it is that batch, whatever its epoch. Otherwise the state is only an epoch, which
    every marker of that epoch has: all of them are kept.

    Args:
        last_record: the last record of the batch's producer; None if it is not active.
    """
    if producer_id == NO_PRODUCER_ID or last_record is None:
        return False
    if last_record.last_data_offset is not None:
        return last_offset == last_record.last_data_offset
    return is_control and producer_epoch == last_record.producer_epoch


def batch_retention(
    *,
    is_last_of_producer: bool,
    last_offset: int,
    kept_end_offset: int,
    discards_records: bool,
) -> BatchRetention:
    """
    Decide what happens to a batch (R-541, R-651).

    An active producer's last batch stays for its sequence number and epoch; the batch that ends where the range ends
    stays so that the log end offset can be read from the files. Both may stay without records.

    Args:
        is_last_of_producer: see that function.
        last_offset: the batch's last offset, inclusive.
        kept_end_offset: the exclusive end of the round's range.
        discards_records: see that function.
    """
    if is_last_of_producer or last_offset + 1 == kept_end_offset:
        return BatchRetention.KEEP_EVEN_EMPTY
    return BatchRetention.DROP if discards_records else BatchRetention.KEEP_IF_NOT_EMPTY


def retains_record(
    *,
    discards_records: bool,
    is_control: bool,
    offset: int,
    latest_offset: int,
    has_key: bool,
    has_value: bool,
    newest_offset: int,
    retains_deletes: bool,
) -> bool:
    """
    Decide whether a record stays (R-550).

    Note the order: above the map's end every record stays, with or without a key or value (R-552). Below it, a record
    without a key is removed and counts as invalid.

    Args:
        discards_records: the result of `discards_records` for the batch.
        is_control: the record is a marker.
        offset: the record's.
        latest_offset: the last offset in the map.
        has_key, has_value: whether key and value are not null.
        newest_offset: the map's offset for the key; -1 for a key that is not in the map.
        retains_deletes: the result of `retains_deletes` for the batch.
    """
    if discards_records:
        return False
    if is_control or offset > latest_offset:
        return True
    return has_key and newest_offset <= offset and (has_value or retains_deletes)


def retains_deletes(
    *,
    magic: int,
    delete_horizon_ms: int | None,
    now_ms: int,
    segment_mtime_ms: int,
    legacy_horizon_ms: int,
) -> bool:
    """
    Tell whether the tombstones of a batch stay in this round (R-551).

    Args:
        magic: for 2 the horizon in the batch counts; 0 and 1 have none, and the age of their segment's file counts.
        delete_horizon_ms: None without one: the tombstones are cleaned for the first time and stay.
        now_ms: the time with which horizons are compared.
        segment_mtime_ms: of the source segment's `.log`.
        legacy_horizon_ms: the file time up to which they are removed (R-502).
    """
    if magic < 2:
        return segment_mtime_ms > legacy_horizon_ms
    return delete_horizon_ms is None or now_ms < delete_horizon_ms
