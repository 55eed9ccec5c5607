"""
A whole round through the public API, and the judgement on the state after a crash in it.

The log is small and has every case that a swap can get wrong: a clean and a dirty section, groups of several
segments, transactions with and without survivors, a segment that is superseded to its end, a group that vanishes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import cleaner
from cleaner.base.model import TopicPartition
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import (
    CLEANED,
    CLEANER_CHECKPOINT,
    DELETED,
    INDEX,
    LOG,
    SEGMENT_SUFFIXES,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    offset_of,
    segment_file_name,
)
from tests.crash.loader_model import Files
from tests.crash.verdict import Group, judge
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.watched_fs import Operation, WatchedFileSystem

PARTITION = "topic-0"
TOPIC = TopicPartition("topic", 0)
NOW_MS = 1_800_000_000_000
SETTINGS = {
    # One lane: with more, which thread makes which call changes from run to run, and calls are counted here.
    "cleaner.pipeline.threads": "1",
    "cleanup.policy": "compact",
    "internal.segment.bytes": "1100",
    "delete.retention.ms": "0",
    "index.interval.bytes": "100",
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": "1048576",
}


def write_round(root: Path) -> Path:
    """Write the log dir of the round; returns it."""
    log = LogBuilder(index_interval_bytes=100)
    # Group by group below. Keys named `once` stay; the others come again in the last cleanable segment.
    _plain(log, "a", "once-1", "b", "c")
    log.roll()
    _transaction(log, 1, commit=False, keys=("a", "d"))
    _plain(log, "b", "once-2")
    log.roll()
    _plain(log, "a", "b", "c", "d")  # superseded to its end
    log.roll()
    # A marker whose data is long gone and whose horizon has passed: it goes, and the transaction index with it.
    marker = log.end_transaction(1, 0, commit=False, delete_horizon_ms=1)
    _plain(log, "c", "once-3", "once-4", pad=500)
    log.roll()
    _transaction(log, 2, commit=True, keys=("a", "once-5"))
    _plain(log, "d", "e", pad=300)
    log.roll()
    dirty = log.next_offset
    _plain(log, "a", "b", "c", "d", pad=900)  # a group of its own that vanishes
    log.roll()
    _transaction(log, 3, commit=False, keys=("b", "e"))
    _plain(log, "once-6", "a", "f", pad=100)
    log.roll()
    for key in "abcdef":
        _plain(log, key)
    log.roll()
    _plain(log, "active", "a", "b")
    for number in range(len(log.base_offsets)):
        log.set_mtime(1_600_000_000_000 + 1000 * number, number)
    log_dir = write_log_dir(root, log, cleaner_offsets={TOPIC: dirty})
    txn_index = log_dir / PARTITION / segment_file_name(marker, TXN_INDEX)
    txn_index.write_bytes(struct.pack(">hqqqq", 0, 1, marker - 1, marker, marker + 1))
    return log_dir


def _plain(log: LogBuilder, *keys: str, pad: int = 0) -> None:
    for number, key in enumerate(keys):
        log.append((key, f"{key} at {log.next_offset}" + "." * (pad if number == 0 else 0)))


def _transaction(log: LogBuilder, producer_id: int, *, commit: bool, keys: tuple[str, ...]) -> None:
    producer = Producer(producer_id, 0, 0, transactional=True)
    log.append(*[(key, f"transaction {producer_id}") for key in keys], producer=producer)
    log.end_transaction(producer_id, 0, commit=commit)


def clean(log_dir: Path, fs: FileSystem | None = None) -> None:
    """Run the round."""
    cleaner.clean(log_dir, PARTITION, SETTINGS, now_ms=NOW_MS, fs=fs)


def recover(log_dir: Path, fs: FileSystem | None = None) -> None:
    """Load and close the log as the next start would, without a round."""
    report = cleaner.recover(log_dir, [PARTITION], SETTINGS, now_ms=NOW_MS, fs=fs)
    assert not report.refused, report.refused


def contents(directory: Path) -> Files:
    """Return the files of a directory by name."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


class _SwapNotes(WatchedFileSystem):
    """Notes which segments a round made of which."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []

    def after(self, operation: Operation) -> None:
        if operation.kind != "rename" or operation.target is None:
            return
        if operation.target.name.endswith(LOG + SWAP):
            self.groups.append([])
        elif operation.target.name.endswith(LOG + DELETED) and not operation.path.name.endswith(CLEANED):
            self.groups[-1].append(offset_of(operation.path.name))


@dataclass(frozen=True)
class Expected:
    """The old and new files of a round, from a run without a crash."""

    before: Files
    after: Files
    checkpoint_before: bytes
    checkpoint_after: bytes
    groups: tuple[Group, ...]
    mtimes_before: Mapping[str, int]
    mtimes_after: Mapping[str, int]

    @staticmethod
    def of(scratch: Path) -> Expected:
        """Run the round once in a scratch directory."""
        log_dir = write_round(scratch)
        directory = log_dir / PARTITION
        before, checkpoint = contents(directory), (log_dir / CLEANER_CHECKPOINT).read_bytes()
        mtimes_before = _mtimes(directory)
        notes = _SwapNotes()
        clean(log_dir, notes)
        after = contents(directory)
        groups = tuple(
            Group(tuple(bases), {name: data for name, data in after.items() if name.startswith(f"{bases[0]:020d}.")})
            for bases in notes.groups
        )
        checkpoint_after = (log_dir / CLEANER_CHECKPOINT).read_bytes()
        return Expected(before, after, checkpoint, checkpoint_after, groups, mtimes_before, _mtimes(directory))

    def judge(self, log_dir: Path) -> list[str]:
        """
        Judge a recovered log dir; returns a word a group.

        The checkpoint moves only once every group is new. Old segments keep their mtimes, a new one has those of its
        last source (R-591).
        """
        directory = log_dir / PARTITION
        words = judge(self.before, self.groups, contents(directory))
        checkpoint = (log_dir / CLEANER_CHECKPOINT).read_bytes()
        assert checkpoint in (self.checkpoint_before, self.checkpoint_after), "the checkpoint is neither old nor new"
        assert checkpoint == self.checkpoint_before or "old" not in words, "the checkpoint moved before all were new"
        new_bases = {group.base for word, group in zip(words, self.groups, strict=True) if word != "old"}
        for name, mtime_ns in _mtimes(directory).items():
            expected = self.mtimes_after if offset_of(name) in new_bases else self.mtimes_before
            assert mtime_ns == expected[name], f"{name} has an mtime of {mtime_ns}, not {expected[name]}"
        return words

    def assert_finished(self, found: Mapping[str, bytes], checkpoint: bytes) -> None:
        """A round that returned has its final names and its checkpoint on disk, before any recovery."""
        for group in self.groups:
            for name, data in group.new.items():
                if name.endswith(SEGMENT_SUFFIXES):
                    assert found.get(name) == data, f"{name} is not there though the round had returned"
        assert checkpoint == self.checkpoint_after, "the checkpoint is the old one though the round had returned"


def _mtimes(directory: Path) -> dict[str, int]:
    """Return the times that are handed on: of logs, offset and time indexes."""
    suffixes = (LOG, INDEX, TIME_INDEX)
    return {path.name: path.stat().st_mtime_ns for path in directory.iterdir() if path.name.endswith(suffixes)}
