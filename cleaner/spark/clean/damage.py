"""
Errors as values, from a task to the driver.

Damage in a log is a result, not a failure: Spark would run a failing task several times, and then report its traceback.
Errors of the disk or the network are failures, and are tried again.
"""

from __future__ import annotations

from pathlib import Path

from cleaner.errors import (
    CleanerError,
    CorruptBatchError,
    CorruptCheckpointError,
    CorruptIndexError,
    CorruptLogError,
    NoSpaceError,
    RecordAboveLimitError,
    UncleanableError,
    as_value,
)
from cleaner.storage.segment.names import name_in_place_of

ErrorValue = dict[str, str | int]

REPORTED = (CorruptLogError, UncleanableError, NoSpaceError)
"""Errors that a task returns; it raises all others."""

_LOCATED = {kind.__name__: kind for kind in (CorruptBatchError, CorruptIndexError, CorruptCheckpointError)}


def to_value(error: CorruptLogError | UncleanableError | NoSpaceError) -> ErrorValue:
    """Return an error as a value. A file of an attempt is given the name that it would have had without the attempt."""
    as_value(error)  # its traceback would keep the task's buffers alive
    path = str(error.path.with_name(name_in_place_of(error.path.name)))
    match error:
        case CorruptLogError() | RecordAboveLimitError():
            value: ErrorValue = {"path": path, "position": error.position, "reason": error.reason}
        case UncleanableError():
            value = {"path": path, "reason": error.reason}
        case NoSpaceError():
            value = {"path": path, "missing_bytes": error.missing_bytes}
    return {"kind": type(error).__name__, **value}


def from_value(value: ErrorValue) -> CleanerError:
    """Return the error of a value."""
    path = Path(str(value["path"]))
    match value["kind"]:
        case "UncleanableError":
            return UncleanableError(path, str(value["reason"]))
        case "RecordAboveLimitError":
            return RecordAboveLimitError(path, int(value["position"]), str(value["reason"]))
        case "NoSpaceError":
            return NoSpaceError(path, int(value["missing_bytes"]))
    kind = _LOCATED.get(str(value["kind"]), CorruptLogError)
    return kind(path, int(value["position"]), str(value["reason"]))
