"""
Adds batches to the producer state: a whole chunk at a time where there are no transactions, otherwise one by one.

Source: rules R-231, R-652, R-653; `UnifiedLog.java` (a replay, segment by segment), `LogSegment.java` (a recovery,
batch by batch).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.base.model import AbortedTxn
from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import COMPRESSION_MASK, CONTROL_FLAG, TRANSACTIONAL_FLAG, Batches, Chunk
from cleaner.format.control import (
    ControlRecord,
    ControlRecordError,
    ControlType,
    read_control_record,
)
from cleaner.storage.load.producer_state import ProducerState, TransactionStateError

# The columns of a batch that the state needs, in the order in which `_append_data` and `_append_control` unpack them.
_COLUMNS = (
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "base_offset",
    "last_offset",
    "max_timestamp",
    "attributes",
    "count",
)


def replay(
    state: ProducerState,
    chunk: Chunk,
    rows: slice,
    path: Path,
    *,
    each_batch: bool,
    on_damage: Callable[[CorruptBatchError], None] | None = None,
) -> list[AbortedTxn]:
    """
    Add the batches of a chunk to a producer state.

    Args:
        rows: the batches to add.
        path: the `.log` file, for error messages.
        each_batch: commit after each batch, as a recovery does; else the caller commits at the segment's end.
        on_damage: called with the error below for each such batch, which is then skipped; None: raised. Only with
            `each_batch`.
    Returns:
        Transaction index entries of the aborted transactions whose markers were read; only with `each_batch`.
    Raises:
        CorruptBatchError: a batch that Kafka could not load either, not even in a recovery: a recovery accepts a batch
            before it reads the marker inside, keeps the batch, and fails on it again at the end of the load.
    """
    batches = chunk.batches[rows]
    with_producer = np.flatnonzero(batches["producer_id"] > -1)
    if not len(with_producer):
        return []
    selected = batches[with_producer]
    if not _append_plain(state, selected):
        first_row = rows.indices(len(chunk.batches))[0]
        return _append_each(state, chunk, selected, with_producer + first_row, path, each_batch, on_damage)
    if each_batch:
        state.commit()
    return []


def _append_plain(state: ProducerState, batches: Batches) -> bool:
    """
    Add batches by the last one of each producer; False, with nothing changed, if transactions are involved.

    Of consecutive data batches only the last counts: it sets epoch, sequence, offset and timestamp.
    """
    if (batches["attributes"] & (TRANSACTIONAL_FLAG | CONTROL_FLAG)).any():
        return False
    producer_ids = np.ascontiguousarray(batches["producer_id"])
    known, first_rows = np.unique(producer_ids, return_index=True)
    if any(state.has_open_transaction(int(producer_id)) for producer_id in known):
        return False
    last_rows = len(batches) - 1 - np.unique(producer_ids[::-1], return_index=True)[1]
    # In the order of their first batches, which decides the order of entries in a snapshot.
    for row in batches[last_rows[np.argsort(first_rows)]][list(_COLUMNS)].tolist():
        _append_data(state, row)
    return True


def _append_each(
    state: ProducerState,
    chunk: Chunk,
    batches: Batches,
    row_numbers: npt.NDArray[np.intp],
    path: Path,
    each_batch: bool,
    on_damage: Callable[[CorruptBatchError], None] | None,
) -> list[AbortedTxn]:
    aborted: list[AbortedTxn] = []
    for row_number, row in zip(row_numbers.tolist(), batches[list(_COLUMNS)].tolist(), strict=True):
        try:
            if row[6] & CONTROL_FLAG:
                _append_control(state, chunk, row_number, row, aborted)
            else:
                _append_data(state, row)
        except (ControlRecordError, TransactionStateError) as error:
            damage = CorruptBatchError(path, int(chunk.batches[row_number]["position"]), str(error))
            if on_damage is None:
                raise damage from error
            state.discard_pending()
            on_damage(damage)
            continue
        if each_batch:
            state.commit()
    return aborted


def _append_data(state: ProducerState, row: tuple[int, ...]) -> None:
    producer_id, epoch, base_sequence, base_offset, last_offset, timestamp_ms, attributes, _ = row
    state.append_data(
        producer_id,
        epoch=epoch,
        base_sequence=base_sequence,
        base_offset=base_offset,
        last_offset=last_offset,
        timestamp_ms=timestamp_ms,
        is_transactional=bool(attributes & TRANSACTIONAL_FLAG),
    )


def _append_control(
    state: ProducerState, chunk: Chunk, row_number: int, row: tuple[int, ...], aborted: list[AbortedTxn]
) -> None:
    producer_id, epoch, _, base_offset, _, timestamp_ms, attributes, count = row
    state.touch(producer_id)
    record = _read_control(chunk, row_number, attributes, count)
    if record is None:
        return  # the whole transaction was cleaned away
    if record.coordinator_epoch is None:
        raise ControlRecordError(f"a producer's control record of type {record.type.name}")
    txn = state.append_marker(
        producer_id,
        epoch=epoch,
        coordinator_epoch=record.coordinator_epoch,
        offset=base_offset,
        timestamp_ms=timestamp_ms,
        is_abort=record.type == ControlType.ABORT,
    )
    if txn is not None and txn.is_aborted:
        aborted.append(state.aborted_txn(txn))


def _read_control(chunk: Chunk, row_number: int, attributes: int, count: int) -> ControlRecord | None:
    if count < 0:
        raise ControlRecordError(f"a control batch of {count} records")
    if count == 0:
        return None
    if attributes & COMPRESSION_MASK:
        raise ControlRecordError("a compressed control batch")  # no broker writes that
    row = chunk.batches[row_number]
    body = chunk.data[int(row["body_start"]) : int(row["body_end"])]
    record = read_control_record(body.data)
    if record is None:
        raise ControlRecordError(f"a control batch that announces {count} records and holds none")
    return record
