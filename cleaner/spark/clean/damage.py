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
    UncleanableError,
    as_value,
)
from cleaner.storage.segment.names import name_in_place_of

Told = dict[str, str | int]

REPORTED = (CorruptLogError, UncleanableError, NoSpaceError)
"""Errors that a task returns; it raises all others."""

_LOCATED = {kind.__name__: kind for kind in (CorruptBatchError, CorruptIndexError, CorruptCheckpointError)}


def tell(error: CorruptLogError | UncleanableError | NoSpaceError) -> Told:
    """Return an error as a value. A file of an attempt is given the name that it would have had without the attempt."""
    as_value(error)  # its traceback would keep the task's buffers alive
    path = str(error.path.with_name(name_in_place_of(error.path.name)))
    match error:
        case CorruptLogError():
            told: Told = {"path": path, "position": error.position, "reason": error.reason}
        case UncleanableError():
            told = {"path": path, "reason": error.reason}
        case NoSpaceError():
            told = {"path": path, "missing_bytes": error.missing_bytes}
    return {"kind": type(error).__name__, **told}


def hear(told: Told) -> CleanerError:
    """Return the error of a value."""
    path = Path(str(told["path"]))
    match told["kind"]:
        case "UncleanableError":
            return UncleanableError(path, str(told["reason"]))
        case "NoSpaceError":
            return NoSpaceError(path, int(told["missing_bytes"]))
    kind = _LOCATED.get(str(told["kind"]), CorruptLogError)
    return kind(path, int(told["position"]), str(told["reason"]))
