"""
Writes `cleaner-topics.properties`: the settings of topics, kept in their log dir.

    prices.cleanup.policy=compact
    prices.delete.retention.ms=100

An operator may edit the file too, so unchanged lines, comments included, stay as they are. Topics and keys both contain
dots, so the new text is parsed, by the parser of all readers (`settings/files.py`), before the file is replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from cleaner.base.properties import format_properties, parse_properties, split_properties
from cleaner.errors import TopicSettingsError
from cleaner.settings.files import CLEANER_TOPICS, parse_cleaner_topics, read_cleaner_topics
from cleaner.storage.fs.file_system import FileSystem

_HEAD = b"# Settings of topics: <topic>.<setting>=<value>\n"
_LIMIT_BYTES = 16 << 20


def write_topic_settings(
    fs: FileSystem, log_dir: Path, topic: str, values: Mapping[str, str], topics: Collection[str]
) -> None:
    """
    Replace all settings of a topic in the file, durably; those of other topics stay.

    The caller keeps other writers of the file out (`partition_lock.checkpoint_lock`).

    Args:
        fs: the file system.
        log_dir: the log dir.
        topic: whose settings.
        values: by key; empty: the topic has none.
        topics: those that have a partition here now; without a topic that is just being created.
    Raises:
        ConfigError: the present file cannot be read.
        TopicSettingsError: with another topic's name a line would mean something else; nothing was written.
        LogDirOfflineError, NoSpaceError: the disk.
    """
    path = log_dir / CLEANER_TOPICS
    before = read_cleaner_topics(fs, log_dir, topics, [])
    if before.get(topic, {}) == values:
        fs.fsync_dir(log_dir)  # an attempt before may have written them, and failed to force the name to disk
        return
    data = fs.read_bytes(path, _LIMIT_BYTES) if fs.exists(path) else _HEAD
    mine = {f"{topic}.{key}" for key in before.get(topic, {})}
    kept = [raw for raw, key in split_properties(data) if key not in mine]
    if kept and not kept[-1].endswith((b"\n", b"\r")):
        kept.append(b"\n")
    kept.append(format_properties({f"{topic}.{key}": value for key, value in values.items()}))
    after = b"".join(kept)
    _check(after, path, topic, {**before, topic: dict(values)}, {*topics, topic} if values else topics)
    fs.write_atomically(path, after)


def _check(
    data: bytes, path: Path, topic: str, wanted: Mapping[str, Mapping[str, str]], topics: Collection[str]
) -> None:
    """Parse the text that will be written."""
    found = parse_cleaner_topics(parse_properties(data, str(path)), topics, [])
    for name in {*wanted, *found}:
        if found.get(name, {}) != wanted.get(name, {}):
            others = sorted(name for name in topics if name != topic and _share_prefix(name, topic))
            raise TopicSettingsError(topic, f"{path}: a line would mean another of the topics {', '.join(others)}")


def _share_prefix(one: str, other: str) -> bool:
    return one.startswith(f"{other}.") or other.startswith(f"{one}.")
