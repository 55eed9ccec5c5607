"""How a failed round goes on: C-5, R-452, R-720."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cleaner.daemon.faults import Ending, judge_failure
from cleaner.errors import (
    CleaningAborted,
    ClockError,
    ConfigError,
    CorruptBatchError,
    CorruptCheckpointError,
    CorruptIndexError,
    LogDirLockedError,
    LogDirOfflineError,
    NoSpaceError,
    NotCleanlyShutDownError,
    PolicyRefusedError,
    UncleanableError,
)

LOG_DIR = Path("/logs")
LOG = LOG_DIR / "a-0" / "0.log"


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        pytest.param(LogDirLockedError("x"), Ending.LOCKED, id="locked"),
        pytest.param(CleaningAborted("x"), Ending.ABORTED, id="stopped"),
        pytest.param(NoSpaceError(LOG_DIR, 10), Ending.RETRY, id="no-room"),
        pytest.param(ConfigError("min.cleanable.dirty.ratio", "7", "at most 1"), Ending.RETRY, id="bad-setting"),
        pytest.param(ClockError(), Ending.RETRY, id="clock-not-set"),
        pytest.param(MemoryError(), Ending.RETRY, id="no-memory"),
        pytest.param(LogDirOfflineError(LOG, OSError(errno.EIO, "x")), Ending.OFFLINE, id="disk-error"),
        pytest.param(LogDirOfflineError(LOG, OSError(errno.EROFS, "x")), Ending.OFFLINE, id="read-only-disk"),
        pytest.param(LogDirOfflineError(LOG, OSError(errno.EACCES, "x")), Ending.RETRY, id="file-not-readable"),
        pytest.param(LogDirOfflineError(LOG, FileNotFoundError(2, "x")), Ending.RETRY, id="file-gone-meanwhile"),
        pytest.param(CorruptCheckpointError(LOG_DIR / "x", 0, "x"), Ending.OFFLINE, id="checkpoint-of-the-log-dir"),
        pytest.param(CorruptCheckpointError(LOG_DIR / "a-0/x", 0, "x"), Ending.QUARANTINED, id="checkpoint-of-a-log"),
        pytest.param(NotCleanlyShutDownError("x"), Ending.OFFLINE, id="needs-recovery"),
        pytest.param(CorruptBatchError(LOG, 7, "x"), Ending.QUARANTINED, id="damaged-batch"),
        pytest.param(CorruptIndexError(LOG, 7, "x"), Ending.QUARANTINED, id="damaged-index"),
        pytest.param(UncleanableError(LOG, "x"), Ending.QUARANTINED, id="uncleanable"),
        pytest.param(PolicyRefusedError("x"), Ending.QUARANTINED, id="keyless-records"),
        pytest.param(ZeroDivisionError("x"), Ending.QUARANTINED, id="mistake-of-ours"),
    ],
)
def test_every_failure_ends_in_one_way(error: Exception, ending: Ending) -> None:
    """Done, retried, quarantined: nothing in between."""
    fault = judge_failure(error, LOG_DIR)
    assert fault.ending is ending
    assert fault.detail


def test_internal_error_is_distinguished_from_damage() -> None:
    """Only the former is logged with its traceback."""
    ours = UncleanableError(LOG, "unexpected ZeroDivisionError")
    ours.__cause__ = ZeroDivisionError()
    assert judge_failure(ours, LOG_DIR).is_unexpected
    assert not judge_failure(UncleanableError(LOG, "full index"), LOG_DIR).is_unexpected
