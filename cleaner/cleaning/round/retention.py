"""Retention of one log: after a round, deletes segments that have expired as a whole (R-712, R-901)."""

from __future__ import annotations

from cleaner.config.values import TopicConfig
from cleaner.policy.retention import count_expired, limits
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.remove.retention import delete_oldest


def delete_expired_segments(fs: FileSystem, log: LoadedLog, topic: TopicConfig, now_ms: int) -> int:
    """
    Delete the expired segments of a log, pass by pass; returns how many.

    Nothing is deleted from a tiered log (R-914).
    """
    deleted = 0
    for limit in limits(topic):
        count = count_expired(log, limit, topic, now_ms)
        delete_oldest(fs, log, count)
        deleted += count
    return deleted
