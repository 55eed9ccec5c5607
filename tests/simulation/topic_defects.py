"""
Planted defects of retention, of topics that are deleted and made again, and leaks; see `planting.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from cleaner.base.model import TopicPartition
from cleaner.log import manager, partitions, reader, retention, topics, upkeep
from cleaner.policy import retention as policy
from cleaner.read.partition_files import PartitionListing
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.log_dir import LogDir
from cleaner.storage.remove.removals import Removals
from tests.simulation.planting import breaks, defect, replaced


@breaks(upkeep, "find_expired")
def retention_removes_a_segment_too_many(real: Any, log: Any, *args: Any, **named: Any) -> Any:
    """The first segment that may stay goes, too."""
    found = real(log, *args, **named)
    return replace(found, count=min(found.count + 1, len(log.segments))) if found.count else found


@defect
def retention_ignores_the_policy() -> Iterator[None]:
    """Logs that are only compacted expire, too."""
    with replaced(policy, "limits", lambda _: tuple(policy.Limit)):
        yield


@breaks(policy, "_over_size")
def retention_bytes_counts_what_goes(real: Any, log: Any, retention_bytes: int) -> Any:
    """A log keeps less than `retention.bytes`: a segment goes if the log with it has more."""
    return real(log, max(0, retention_bytes - max(segment.size for segment in log.segments)))


@breaks(upkeep, "find_expired")
def expired_segments_stay(real: Any, *args: Any, **named: Any) -> Any:
    """Retention finds nothing."""
    return replace(real(*args, **named), count=0)


@breaks(retention, "_expire_segments")
def log_start_is_not_written_before_segments_go(real: Any, log: Any, choose: Any) -> Any:
    """A crash among the renames leaves segments with a gap, and the first of them is the start again."""
    with replaced(LogDir, "put", lambda *_: None):
        return real(log, choose)


@defect
def checkpoints_outlive_a_topic() -> Iterator[None]:
    """A deleted topic's lines are there for the one that is made under its name."""
    with replaced(topics.Topics, "drop_offsets", lambda *_: None):
        yield


@breaks(topics.Topics, "_make")
def topics_are_made_beside_old_checkpoints(real: Any, self: topics.Topics, *args: Any) -> None:
    """Lines that a crash in a deletion has left are taken for the new topic's."""
    with replaced(topics.Topics, "drop_offsets", lambda *_: None):
        real(self, *args)


@breaks(partitions.Partitions, "abandon")
def logs_of_deleted_topics_stay_open(_: Any, self: partitions.Partitions, partition: TopicPartition) -> None:
    """Who has the log appends to files that nobody will read."""
    self._served.pop(partition, None)


@defect
def readers_do_not_look_at_topic_ids() -> Iterator[None]:
    """A reader goes on in the log that was made under the same name."""
    with replaced(PartitionListing, "is_of_same_log", lambda *_: True):
        yield


@defect
def rounds_go_on_in_a_log_that_was_made_again() -> Iterator[None]:
    """A round writes its checkpoint for whatever log has the name by then."""
    with replaced(LoadedLog, "require_in_place", lambda _: None):
        yield


@defect
def deleted_topics_are_never_removed() -> Iterator[None]:
    """Their directories stay."""
    with replaced(Removals, "add_directory", lambda *_: None):
        yield


@defect
def failed_removals_are_forgotten() -> Iterator[None]:
    """Files that the disk did not let go stay until the next start."""
    with replaced(Removals, "put_back", lambda *_: None):
        yield


@breaks(manager.LogManager, "close")
def closed_managers_are_kept(real: Any, self: manager.LogManager) -> None:
    """A leak: something that lives as long as the process refers to each manager, and so to its logs."""
    real(self)
    _KEPT.append(self)


@breaks(reader.LogReader, "close")
def closed_readers_are_kept(real: Any, self: reader.LogReader) -> None:
    """A leak: the same of readers."""
    real(self)
    _KEPT.append(self)


_KEPT: list[Any] = []
