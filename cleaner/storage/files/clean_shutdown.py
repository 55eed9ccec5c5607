"""
The clean-shutdown marker, `.kafka_cleanshutdown`: a promise that every byte of the log dir may be trusted.

    {"version":0,"brokerEpoch":12}

A broker that finds it skips recovery. So it may be written only after all logs of the directory were loaded or
recovered without error and everything is on disk. Only its existence counts; from its content a broker learns its last
epoch.

Source: rules R-106, R-112, D-02; `CleanShutdownFileHandler.java`.
"""

from __future__ import annotations

import json
from pathlib import Path

from cleaner.errors import CorruptCheckpointError
from cleaner.storage.files.checkpoint import read_bounded
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import CLEAN_SHUTDOWN

LIMIT_BYTES = 4096
"""Far more than the forty-odd bytes Kafka writes."""

NO_EPOCH = -1
"""The broker epoch of a marker that no broker wrote."""


def has_marker(fs: FileSystem, log_dir: Path) -> bool:
    """Tell whether the log dir was shut down cleanly; the marker's content does not matter."""
    return fs.exists(log_dir / CLEAN_SHUTDOWN)


def read_broker_epoch(fs: FileSystem, log_dir: Path) -> int | None:
    """Return the epoch in the marker; None without a marker or an epoch in it, as in Kafka."""
    try:
        data = read_bounded(fs, log_dir / CLEAN_SHUTDOWN, LIMIT_BYTES)
        content = json.loads(data or b"")
    except (CorruptCheckpointError, ValueError, RecursionError):
        return None
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if isinstance(epoch, int) and not isinstance(epoch, bool) else None


def write_marker(fs: FileSystem, log_dir: Path, broker_epoch: int = NO_EPOCH) -> None:
    """
    Write the marker durably.

    Unlike Kafka, this syncs the directory too: a marker lost in a power cut costs a needless recovery.
    """
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    fs.write_atomically(log_dir / CLEAN_SHUTDOWN, content.encode("ascii"))


def remove_marker(fs: FileSystem, log_dir: Path) -> None:
    """
    Remove the marker durably, if there is one.

    Invariant: the removal is on disk before the first change that makes a log need recovery. A marker that a power cut
    brings back would let a broker trust a torn log.
    """
    if has_marker(fs, log_dir):
        fs.remove(log_dir / CLEAN_SHUTDOWN)
        fs.fsync_dir(log_dir)
