"""
Errors on their way from a task to the driver.

What is wrong with a log is a result, not a failure: Spark would run a task that fails again, and again, and then tell
its traceback. What the disk or the network did is a failure, and is tried again.
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
"""What a task gives back; everything else it raises."""

_LOCATED = {kind.__name__: kind for kind in (CorruptBatchError, CorruptIndexError, CorruptCheckpointError)}


def tell(error: CorruptLogError | UncleanableError | NoSpaceError) -> Told:
    """Write an error down. A file of an attempt is told of by the name it would have had otherwise."""
    as_value(error)  # what it came through held a task's buffers
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
    """Return the error that was written down."""
    path = Path(str(told["path"]))
    match told["kind"]:
        case "UncleanableError":
            return UncleanableError(path, str(told["reason"]))
        case "NoSpaceError":
            return NoSpaceError(path, int(told["missing_bytes"]))
    kind = _LOCATED.get(str(told["kind"]), CorruptLogError)
    return kind(path, int(told["position"]), str(told["reason"]))
