"""What a file of safe offsets means for the partitions of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cleaner.app.plan_report import PlanEntry
from cleaner.app.safe_tombstones import read_safe_tombstones
from cleaner.base.model import TopicPartition
from cleaner.errors import UncleanableError
from cleaner.policy.reasons import Reason
from cleaner.storage.files.kafka_uuid import format_uuid
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import PARTITION_METADATA


def with_safe_offsets(entries: Sequence[PlanEntry], fs: FileSystem, log_dir: Path, file: Path) -> list[PlanEntry]:
    """
    Add each partition's safe offset; one that could be cleaned, but that the file says nothing about, gets its error.

    Raises:
        UsageError: the file cannot be read.
    """
    safe = read_safe_tombstones(fs, file)
    found = []
    for entry in entries:
        if entry.error or entry.log_end_offset is None:
            found.append(entry)
            continue
        topic_id = read_topic_id(fs, log_dir / entry.partition / PARTITION_METADATA)
        text = None if topic_id is None else format_uuid(topic_id)
        try:
            offset = safe.offset_of(TopicPartition.parse(entry.partition), text, entry.log_end_offset)
            found.append(replace(entry, safe_offset=offset))
        except UncleanableError as error:
            is_wanted = entry.first_dirty_offset is not None
            found.append(replace(entry, error=str(error), why=Reason.UNREADABLE) if is_wanted else entry)
    return found
