"""
The sound directories that mutations start from: a log dir to be cleaned, the same cleaned, and what goes with them.

    logs/        topic-0, of every kind of batch, to be mutated; good-0, the same, never touched
    cleaned/     the same, cleaned with --keep-old
    kept/        what that has replaced
    topics/      the topics' settings
    state/       a journal and a quarantine
    metadata/    __cluster_metadata-0: a snapshot and the log behind it
    work/        a bulk round of topic-0 that was stopped before its first swap
    server.properties
    web.yml      users of the status server
"""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.reports import CleanReport
from cleaner.base.model import TopicPartition
from cleaner.errors import CleaningAborted
from cleaner.log.transactional_ids import FILE_NAME, FORMAT, VERSION
from cleaner.settings.sources import Sources
from cleaner.spark.clean.round import BulkCleaner, BulkOptions
from cleaner.state.journal import Journal
from cleaner.state.quarantine import Quarantine, QuarantinedLog
from cleaner.storage.files.kafka_uuid import parse_uuid
from cleaner.storage.files.published import Publisher
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.generation import Generations, raise_generation
from cleaner.storage.segment.names import LOCK
from tests.bulk.local_jobs import LocalJobs
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
FIRST_DIRTY = 43  # its cleaner checkpoint, where its third segment begins
UNTOUCHED = "good-0"
SETTINGS = "cleanup.policy=compact\nmin.cleanable.dirty.ratio=0.01\ndelete.retention.ms=1000\nsegment.bytes=1048576\n"
WEB_CONFIG = """\
http_server_config:
  http2: false
basic_auth_users:
  prometheus: $2b$04$xkK/Tm3ALGWJM5UnySsrxe3tNvkcfrTFPHtNcl0KYIbXB7w0ZOXGe
  "reader's": '$2b$04$xkK/Tm3ALGWJM5UnySsrxe3tNvkcfrTFPHtNcl0KYIbXB7w0ZOXGe'  # of another
"""
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
    first = {TopicPartition.parse(TARGET): FIRST_DIRTY}
    write_log_dir(root / "logs", *logs, cleaner_offsets=first)
    (root / "logs" / "cleaner-topics.properties").write_text("topic.segment.ms=1000\ngood.max.message.bytes=100000\n")
    ids = {"tx": {"producer_id": 2**62 + 5, "epoch": 1, "used_ms": NOW_MS}}
    content = {"format": FORMAT, "version": VERSION, "ids": ids}
    (root / "logs" / TARGET / FILE_NAME).write_text(json.dumps(content))
    (root / "topics").mkdir()
    for topic in ("topic", "good"):
        (root / "topics" / f"{topic}.properties").write_text(SETTINGS)
    (root / "server.properties").write_text(f"log.dirs={root / 'logs'}\nlog.cleaner.threads=1\n")
    (root / "web.yml").write_text(WEB_CONFIG)
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
    _write_what_processes_share(root / "logs")
    _write_work(root)
    _write_state(root / "state", root / "logs")
    _write_metadata(root / "metadata" / "__cluster_metadata-0")


def _write_what_processes_share(log_dir: Path) -> None:
    """Write what readers, writers and brokers leave: generation numbers, high watermarks, the lock's file."""
    with Generations(FileSystem(), log_dir):
        raise_generation(FileSystem(), log_dir, TopicPartition.parse(TARGET))
    publisher = Publisher(FileSystem(), log_dir)
    publisher.publish(TopicPartition.parse(TARGET), 3)
    publisher.close()
    (log_dir / LOCK).touch()


def _write_work(root: Path) -> None:
    """Begin a bulk round, stop it, and leave the log as it was."""

    def stop(job: str) -> None:
        if job == "recopy":
            raise CleaningAborted("stopped")

    (root / "work").mkdir()
    shutil.copytree(root / "logs", root / "before")
    cleaner = BulkCleaner(lambda _: LocalJobs(on_job=stop), lambda *_: BulkOptions(root / "work", 2, 1 << 20))
    options, context = CleanOptions(clean_round=cleaner.clean), CallContext.of(now_ms=NOW_MS)
    with contextlib.suppress(CleaningAborted):
        list(clean_log_dir(root / "logs", [TARGET], Sources(topics_dir=root / "topics"), options, context))
    shutil.rmtree(root / "logs")
    (root / "before").rename(root / "logs")
    if not any((root / "work").rglob("job.json")):
        raise TypeError("the round in bulk has left no job")


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
