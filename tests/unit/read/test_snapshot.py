"""A log at one moment, from the local disk and from a place that can only list files and read ranges of them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from cleaner.base.clock import SystemClock
from cleaner.read.cursor import Cursor
from cleaner.read.directory_view import DirectoryView
from cleaner.read.partition_files import PartitionFiles
from cleaner.read.snapshot import LogSnapshots
from cleaner.read.time_search import find_by_time
from cleaner.spark.source.damage import transactions_reader
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.readable import OpenedFile, ReadableFiles
from tests.support.batch_builder import Producer
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir


class StoredFile:
    """An object of a store, read range by range."""

    def __init__(self, path: Path, data: bytes, status: SimpleNamespace) -> None:
        self.path = path
        self._data = data
        self._status = status

    def __enter__(self) -> StoredFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def size(self) -> int:
        return len(self._data)

    def stat(self) -> SimpleNamespace:
        return self._status

    def read(self, size: int, position: int) -> bytes:
        return self._data[position : position + size]

    def read_into(self, buffer: memoryview, position: int) -> int:
        found = self.read(len(buffer), position)
        buffer[: len(found)] = found
        return len(found)

    def close(self) -> None:
        """Nothing is held."""


class Store:
    """What was in a directory once, under the paths it had there."""

    def __init__(self, root: Path) -> None:
        self._objects = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        self._directories = {path for path in root.rglob("*") if path.is_dir()}

    def list_files(self, path: Path) -> list[str]:
        return sorted(each.name for each in self._objects if each.parent == path)

    def stat(self, path: Path) -> SimpleNamespace:
        if path not in self._objects and path not in self._directories:
            raise FileNotFoundError(path)
        size = len(self._objects.get(path, b""))
        return SimpleNamespace(st_dev=1, st_ino=hash(path), st_size=size, st_mtime_ns=1)

    def open(self, path: Path) -> OpenedFile:
        if path not in self._objects:
            raise FileNotFoundError(path)
        return StoredFile(path, self._objects[path], self.stat(path))


def a_log(seed: int) -> LogBuilder:
    """Transactions of two producers in several segments, the last one open."""
    chooser = random.Random(seed)
    log = LogBuilder(index_interval_bytes=100, segment_bytes=700)
    for number in range(60):
        producer = chooser.choice([1, 2])
        log.append((f"k{number}", "v"), producer=Producer(producer, 0, 0, transactional=True))
        if chooser.random() < 0.7:
            log.end_transaction(producer, 0, commit=chooser.random() < 0.5)
    log.append(("k", "open"), producer=Producer(2, 0, 0, transactional=True))
    return log


def seen(fs: ReadableFiles, log: LogBuilder, log_dir: Path) -> list[object]:
    """Return a log's offsets, aborts and times, and every batch that a cursor finds in it."""
    name, directory = log.topic_partition, log_dir / str(log.topic_partition)
    snapshot, read = LogSnapshots(fs).take(name, directory), transactions_reader("fail")
    files = PartitionFiles(fs, log_dir, name, SystemClock())
    view, cursor = DirectoryView(files), Cursor(files, 0)
    try:
        batches = []
        while (chunk := cursor.next_chunk(view.log_end_offset)) is not None:
            batches += chunk.batches["base_offset"].tolist()
        offsets = [view.log_start_offset, view.high_watermark, view.last_stable_offset, view.log_end_offset]
        assert [snapshot.start_offset, snapshot.high_watermark, snapshot.last_stable_offset(read)] == offsets[:3]
        assert snapshot.end_offset == offsets[3]
        aborts = snapshot.aborted_within(0, offsets[3], read).tolist()
        return [*offsets, batches, aborts, find_by_time(files, files.listing(), 0, offsets[3], START_MS + 20)]
    finally:
        cursor.close()
        view.close()
        files.close()


@pytest.mark.parametrize("seed", range(4))
def test_log_is_the_same_wherever_its_files_are(tmp_path: Path, seed: int) -> None:
    """List, size, identity and ranges are enough; a snapshot and a view that follows the log agree on all of it."""
    log = a_log(seed)
    lines = {} if seed % 2 else {"high_watermarks": {log.topic_partition: 50}}
    write_log_dir(tmp_path, log, **lines)
    on_disk = seen(FileSystem(), log, tmp_path)
    assert on_disk[2] < on_disk[1]  # type: ignore[operator]  # a transaction is open there
    store = Store(tmp_path)
    shutil.rmtree(tmp_path)
    assert seen(store, log, tmp_path) == on_disk
