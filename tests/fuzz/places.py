"""
The sound directories that mutations start from: a log dir to be cleaned, the same cleaned, and what goes with them.

    logs/        topic-0, of every kind of batch, to be mutated; good-0, the same, never touched
    cleaned/     the same, cleaned with --keep-old
    kept/        what that has replaced
    topics/      the topics' settings
    state/       a journal and a quarantine
    metadata/    __cluster_metadata-0: a snapshot and the log behind it
    server.properties
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.reports import CleanReport
from cleaner.base.model import TopicPartition
from cleaner.log.transactional_ids import FILE_NAME, FORMAT, VERSION
from cleaner.settings.sources import Sources
from cleaner.state.journal import Journal
from cleaner.state.quarantine import Quarantine, QuarantinedLog
from cleaner.storage.files.kafka_uuid import parse_uuid
from cleaner.storage.fs.file_system import FileSystem
from tests.support.batch_builder import Producer, Record
from tests.support.log_builder import START_MS, TOPIC_ID, LogBuilder, write_log_dir
from tests.support.manual_clock import ManualClock
from tests.support.metadata_builder import (
    BEGIN,
    BROKER,
    END,
    TOPIC,
    config_record,
    partition_record,
    topic_record,
    write_segment,
    write_snapshot,
)

NOW_MS = START_MS + 10_000_000
TARGET = "topic-0"
UNTOUCHED = "good-0"
SETTINGS = "cleanup.policy=compact\nmin.cleanable.dirty.ratio=0.01\ndelete.retention.ms=1000\nsegment.bytes=1048576\n"
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def busy_log(name: str) -> LogBuilder:
    """A log of a few KB: every magic and codec, transactions, markers, headers, gaps, five segments, an active one."""
    log = LogBuilder(TopicPartition.parse(name), index_interval_bytes=150)
    for magic in (0, 1):
        for codec in ("none", "gzip", "snappy", "lz4"):
            log.append(("a", f"{magic} {codec}"), ("b", "legacy"), ("c", None), magic=magic, codec=codec)
    log.roll()
    for number, codec in enumerate(_CODECS):
        log.append((f"k{number}", "v" * 20), ("a", f"packed with {codec}"), ("d", None), codec=codec)
        log.append(("a", f"v{number}"), producer=Producer(1, 0, number))
        log.append(("t", "in a transaction"), ("u", None), producer=Producer(2, 0, 2 * number, True), codec=codec)
        log.append(("t", "of another"), producer=Producer(3, 1, number, True))
        log.end_transaction(2, 0, commit=number % 2 == 0)
        log.end_transaction(3, 1, commit=number % 3 == 0)
        log.skip(number)
        if number % 2:
            log.roll()
            log.leader_epoch += 1
    log.append(Record(b"h", b"v", headers=((b"x", b"y"), (b"\xc3\xa4", None))), append_time_ms=log.timestamp_ms + 5)
    log.append(("a", "last"), ("gone", None), delete_horizon_ms=START_MS)
    log.append_empty(3, producer=Producer(4, 0, 0))
    log.roll()
    log.append(("open", "undecided"), producer=Producer(5, 0, 0, True))
    log.append(("active", "v"), ("a", "newest"))
    return log


def make_places(root: Path) -> None:
    """Write all of it."""
    logs = [busy_log(TARGET), busy_log(UNTOUCHED)]
    first = {TopicPartition.parse(TARGET): logs[0].base_offsets[2]}
    write_log_dir(root / "logs", *logs, cleaner_offsets=first)
    (root / "logs" / "cleaner-topics.properties").write_text("topic.segment.ms=1000\ngood.max.message.bytes=100000\n")
    ids = {"tx": {"producer_id": 2**62 + 5, "epoch": 1, "used_ms": NOW_MS}}
    content = {"format": FORMAT, "version": VERSION, "ids": ids}
    (root / "logs" / TARGET / FILE_NAME).write_text(json.dumps(content))
    (root / "topics").mkdir()
    for topic in ("topic", "good"):
        (root / "topics" / f"{topic}.properties").write_text(SETTINGS)
    (root / "server.properties").write_text(f"log.dirs={root / 'logs'}\nlog.cleaner.threads=1\n")
    shutil.copytree(root / "logs", root / "cleaned")
    outcomes = clean_log_dir(
        root / "cleaned",
        [TARGET, UNTOUCHED],
        Sources(topics_dir=root / "topics"),
        CleanOptions(keep_old=root / "kept"),
        CallContext.of(now_ms=NOW_MS),
    )
    for outcome in outcomes:
        if not isinstance(outcome, CleanReport):
            raise TypeError(f"the log that all others are made of is not cleaned: {outcome}")
    _write_state(root / "state", root / "logs")
    _write_metadata(root / "metadata" / "__cluster_metadata-0")


def _write_metadata(directory: Path) -> None:
    topic_id = parse_uuid(TOPIC_ID)
    values = [topic_record("topic", topic_id), partition_record(topic_id, 0, (1, 2))]
    write_snapshot(directory, 8, [*values, config_record(TOPIC, "topic", "cleanup.policy", "compact")])
    changes = [config_record(TOPIC, "topic", "segment.ms", str(number)) for number in range(3)]
    write_segment(directory, 8, [[BEGIN, *changes, END], [config_record(BROKER, "", "log.cleaner.threads", "1")]])


def _write_state(state: Path, log_dir: Path) -> None:
    state.mkdir(mode=0o750)
    journal = Journal(FileSystem(), state, ManualClock(), max_file_bytes=600)
    for number in range(8):
        journal.append("round", TARGET, {"bytes_read": number, "nested": {"a": [1, None, "x"]}})
    journal.sync()
    quarantine = Quarantine(FileSystem(), state, lambda _: None)
    entry = QuarantinedLog(
        topic_partition=TopicPartition.parse(TARGET),
        log_dir=str(log_dir),
        reason="damaged",
        kind="CorruptBatchError",
        file="a.log",
        position=7,
        since_ms=NOW_MS,
    )
    quarantine.add(entry)
    quarantine.save()
