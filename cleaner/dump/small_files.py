"""The small files of a log: producer snapshots, checkpoints, ids."""

from __future__ import annotations

from pathlib import Path

from cleaner.dump.dump_items import Viewer
from cleaner.storage.files.checkpoint import CHECKPOINT_LIMIT_BYTES, read_bounded, read_checkpoint
from cleaner.storage.files.kafka_uuid import format_uuid
from cleaner.storage.files.meta_properties import read_meta_properties
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.files.producer_snapshot import SEQUENCES, ProducerEntry, read_snapshot
from cleaner.storage.fs.readable import ReadableFiles
from cleaner.storage.segment import names

_OFFSET_CHECKPOINTS = (
    names.CLEANER_CHECKPOINT,
    names.RECOVERY_POINT_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
    names.LOG_START_CHECKPOINT,
)
KNOWN = (*_OFFSET_CHECKPOINTS, names.LEADER_EPOCHS, names.PARTITION_METADATA, names.META_PROPERTIES)


def show_snapshot(fs: ReadableFiles, path: Path, viewer: Viewer) -> None:
    """Show a producer snapshot. Raises CorruptCheckpointError."""
    for row in read_snapshot(fs, path).tolist():
        entry = ProducerEntry._make(row)
        fields: dict[str, object] = {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_first_offset": None if entry.current_txn_first_offset < 0 else entry.current_txn_first_offset,
            "last_timestamp": entry.timestamp_ms,
        }
        if entry.last_offset >= 0:
            fields |= {
                "first_sequence": (entry.last_sequence - entry.offset_delta) % SEQUENCES,
                "last_sequence": entry.last_sequence,
                "last_offset": entry.last_offset,
                "offset_delta": entry.offset_delta,
                "timestamp": entry.timestamp_ms,
            }
        viewer.on_entry("producer", **fields)


def show_small_file(fs: ReadableFiles, path: Path, viewer: Viewer) -> None:
    """
    Show a checkpoint or a file of ids, one of `KNOWN`.

    Raises:
        FileNotFoundError: the file does not exist.
        CorruptCheckpointError: it cannot be read further; the entries before were shown.
    """
    if read_bounded(fs, path, CHECKPOINT_LIMIT_BYTES) is None:
        raise FileNotFoundError(path)
    if path.name in _OFFSET_CHECKPOINTS:
        for _, words in read_checkpoint(fs, path, 3):
            topic, partition, offset = (_number_or_text(word) for word in words)
            viewer.on_entry("checkpoint", topic=str(topic), partition=partition, offset=offset)
    elif path.name == names.LEADER_EPOCHS:
        for _, words in read_checkpoint(fs, path, 2):
            epoch, start_offset = (_number_or_text(word) for word in words)
            viewer.on_entry("leader_epoch", epoch=epoch, start_offset=start_offset)
    elif path.name == names.PARTITION_METADATA:
        topic_id = read_topic_id(fs, path)
        viewer.on_entry("topic_id", topic_id=None if topic_id is None else format_uuid(topic_id))
    else:
        found = read_meta_properties(fs, path)
        if found is not None:
            directory_id = None if found.directory_id is None else format_uuid(found.directory_id)
            viewer.on_entry(
                "meta_properties",
                version=found.version,
                cluster_id=found.cluster_id,
                node_id=found.node_id,
                directory_id=directory_id,
            )


def _number_or_text(word: bytes) -> int | str:
    text = word.decode("ascii", "backslashreplace")
    return int(text) if word.isdigit() else text
