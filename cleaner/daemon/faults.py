"""
What follows a failed round: it is tried again later, its log is quarantined, or its log dir is left alone.

Every failure ends in exactly one of these (rule C-5), and none of them stops another log:

    locked        another process has the log dir; tried again at the next turn
    aborted       the worker was asked to stop, or a writer changed the log during the round
    offline       the disk, or a file of the whole log dir, cannot be used; tried again after growing delays
    retry         may pass by itself (no space, an I/O error of a file, a bad setting); tried again after growing delays
    quarantined   will not pass by itself (damage, an internal error); left alone until an operator releases the log

Source: rules R-452, R-720, R-721.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

from cleaner.errors import (
    CleaningAborted,
    ClockError,
    ConfigError,
    CorruptCheckpointError,
    LogChangedError,
    LogDirLockedError,
    LogDirOfflineError,
    NoSpaceError,
    NotCleanlyShutDownError,
    OutOfDescriptorsError,
    OutOfThreadsError,
    SparkJobError,
    UncleanableError,
    as_value,
    is_disk_failure,
)


class Ending(enum.Enum):
    """How a round ended; the values are words for labels and JSON."""

    DONE = "done"
    NOTHING = "nothing"
    ABORTED = "aborted"
    LOCKED = "locked"
    OFFLINE = "offline"
    RETRY = "retry"
    QUARANTINED = "quarantined"


@dataclass(frozen=True)
class Fault:
    """
    A failure and what follows from it.

    Attributes:
        ending: see `Ending`; never DONE or NOTHING.
        detail: for the operator, one line.
        error: what was raised.
    """

    ending: Ending
    detail: str
    error: Exception

    @property
    def is_unexpected(self) -> bool:
        """Tell whether it is an internal error, to be logged with its traceback."""
        return isinstance(self.error, UncleanableError) and self.error.__cause__ is not None


def judge_failure(error: Exception, log_dir: Path) -> Fault:
    """
    Decide how to go on after a failure: the table at the head, from an error.

    Args:
        error: what a round or a recovery raised; kept in the fault without its traceback, unless it is internal.
        log_dir: the log's log dir, links followed: damage in a file of it concerns all its logs.
    """
    return Fault(_ending_of(error, log_dir), str(error) or type(error).__name__, as_value(error))


def _ending_of(error: Exception, log_dir: Path) -> Ending:
    match error:
        case LogDirLockedError():
            return Ending.LOCKED
        case CleaningAborted() | LogChangedError():
            return Ending.ABORTED
        case NoSpaceError() | OutOfDescriptorsError() | OutOfThreadsError() | MemoryError():
            return Ending.RETRY
        case ConfigError() | ClockError() | SparkJobError():
            return Ending.RETRY
        case LogDirOfflineError() | OSError():
            return Ending.OFFLINE if is_disk_failure(error) else Ending.RETRY
        case CorruptCheckpointError() if error.path.parent == log_dir:
            return Ending.OFFLINE  # it has a line for every partition
        case NotCleanlyShutDownError():
            return Ending.OFFLINE
        case _:
            return Ending.QUARANTINED
