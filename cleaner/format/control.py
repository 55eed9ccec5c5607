"""
Control records (R-230, R-231): the outcome of a transaction.

    key:   version i16 | type i16
    value: version i16 | coordinator epoch i32        (commit and abort markers; longer values are allowed)
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cleaner.errors import CorruptBatchError

Bytes = npt.NDArray[np.uint8]

_KEY_BYTES = 4
_MARKER_BYTES = 6


class ControlType(enum.IntEnum):
    """The type in a control record's key; the values are on disk and never change."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


class ControlRecord(NamedTuple):
    """A control record; `coordinator_epoch` is None except for commit and abort markers."""

    type: ControlType
    coordinator_epoch: int | None


class ControlRecordError(ValueError):
    """A control record whose bytes are inconsistent."""


class MarkerTooShortError(ControlRecordError):
    """
    A commit or abort marker with a value of fewer than 6 bytes.

    Kafka fails on it with an error that its recovery does not treat as corruption (R-231).
    """


def read_control_type(body: memoryview) -> ControlType | None:
    """
    Read the type of a control batch's record; the value is ignored, as in Kafka's cleaner.

    Args:
        body: the batch's records, uncompressed. Borrowed for the call.
    Returns:
        The type, UNKNOWN for an unknown one; None for a batch without records.
    Raises:
        ControlRecordError: a damaged record, a key of fewer than 4 bytes or a negative version.
    """
    if not len(body):
        return None
    return _parse_key(_read_key_and_value(body)[0])


def control_type_of(path: Path, data: Bytes, row: np.void) -> ControlType | None:
    """
    Read the type of a control batch's record, by the batch's row.

    Args:
        path: the file, for errors.
        data: of the chunk or block that the row is of.
        row: the batch.
    Returns:
        As `read_control_type`.
    Raises:
        CorruptBatchError: where that raises ControlRecordError.
    """
    try:
        return read_control_type(data[int(row["body_start"]) : int(row["body_end"])].data)
    except ControlRecordError as error:
        raise CorruptBatchError(path, int(row["position"]), str(error)) from error


def read_control_record(body: memoryview) -> ControlRecord | None:
    """
    Read a control batch's record.

    Args:
        body: the batch's records, uncompressed. Borrowed for the call.
    Returns:
        Type and coordinator epoch; None for a batch without records.
    Raises:
        MarkerTooShortError: a commit or abort marker whose value is missing or too short.
        ControlRecordError: a damaged record, a key of fewer than 4 bytes or a negative version.
    """
    if not len(body):
        return None
    key, value = _read_key_and_value(body)
    control_type = _parse_key(key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return ControlRecord(control_type, None)
    if value is None or len(value) < 2:
        raise MarkerTooShortError(f"the value of an end-of-transaction marker has {len(value or b'')} bytes")
    version = int.from_bytes(value[:2], "big", signed=True)
    if version < 0:
        raise ControlRecordError(f"an end-of-transaction marker of version {version}")
    if len(value) < _MARKER_BYTES:
        raise MarkerTooShortError(f"the value of an end-of-transaction marker has {len(value)} bytes")
    return ControlRecord(control_type, int.from_bytes(value[2:_MARKER_BYTES], "big", signed=True))


def _parse_key(key: memoryview | None) -> ControlType:
    if key is None or len(key) < _KEY_BYTES:
        raise ControlRecordError(f"the key of a control record has {len(key or b'')} bytes")
    version = int.from_bytes(key[:2], "big", signed=True)
    if version < 0:
        raise ControlRecordError(f"a control record of version {version}")
    number = int.from_bytes(key[2:_KEY_BYTES], "big", signed=True)
    return ControlType(number) if number in _KNOWN_TYPES else ControlType.UNKNOWN


_KNOWN_TYPES = frozenset(ControlType)


def _read_key_and_value(body: memoryview) -> tuple[memoryview | None, memoryview | None]:
    """Return key and value of the first record (R-220)."""
    size, at = _varint(body, 0, 5)
    if size < 1 or size > len(body) - at:
        raise ControlRecordError("a control record is longer than its batch")
    record = body[at : at + size]
    _, at = _varint(record, 1, 10)
    _, at = _varint(record, at, 5)
    key, at = _field(record, at, "key")
    value, _ = _field(record, at, "value")
    return key, value


def _field(record: memoryview, at: int, name: str) -> tuple[memoryview | None, int]:
    size, at = _varint(record, at, 5)
    if size < -1 or size > len(record) - at:
        raise ControlRecordError(f"the {name} of a control record is longer than the record")
    return (None, at) if size < 0 else (record[at : at + size], at + size)


def _varint(data: memoryview, at: int, max_bytes: int) -> tuple[int, int]:
    """Return a zig-zag varint (R-221) and the position after it."""
    value = 0
    for index in range(max_bytes):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value >> (32 if max_bytes == 5 else 64):
                break
            return (value >> 1) ^ -(value & 1), at
    raise ControlRecordError("a number in a control record does not end")
