"""Rounds with key indexes leave what rounds without them leave, whatever happens to the indexes."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from cleaner.app.safe_tombstones import SafePoint, write_safe_tombstones
from cleaner.base.model import TopicPartition
from cleaner.log.record import Record
from cleaner.storage.fs.file_system import FileSystem
from tests.golden.comparison import contents
from tests.scratch import scratch_directory
from tests.support.growing_log import DAY_MS, GrowingLog

ROUNDS = 9


class _Life:
    """A log that lives by a seed, cleaned with indexes, and a copy of each state cleaned without them."""

    def __init__(self, root: Path, seed: int) -> None:
        self.rng = Random(seed)
        codec = self.rng.choice(("producer", "lz4"))
        self.log = GrowingLog(root, {"compression.type": codec, "index.interval.bytes": "300"})
        self.copy = GrowingLog.__new__(GrowingLog)
        vars(self.copy).update(vars(self.log))
        self.copy.log_dir = root / "copy"
        self.copy.directory = self.copy.log_dir / self.log.directory.name
        self.older: list[Path] = []
        self.checkpoint: bytes | None = None
        self.next_key = 0

    def grow(self) -> None:
        """
        Append some segments: new keys, old keys, keys of the same segments, tombstones; sometimes a transaction, or a
        batch of a producer of which no record stays.
        """
        rng, log = self.rng, self.log
        log.now_ms += rng.choice((1000, DAY_MS, 3 * DAY_MS, 6 * DAY_MS, 20 * DAY_MS))
        segments = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            segments.append(log.segment(self.next_key, rng.choice((3, 25, 32))))
            self.next_key += 40
        if rng.random() < 0.5:
            first = rng.choice((0, max(0, self.next_key - 80)))
            again = [f"k{rng.randrange(first, self.next_key)}" for _ in range(rng.choice((1, 1, 3)))]
            segments[-1] += [(key, None if rng.random() < 0.3 else "again") for key in again]
        if rng.random() < 0.3:
            segments[-1].append(("mine", "again"))
            with log.manager() as manager:
                manager.log("prices", 0).producer("resumed", resume=True).append([Record(b"mine", b"superseded")])
        if rng.random() < 0.2:
            with log.manager() as manager:
                producer = manager.log("prices", 0).producer("mine")
                producer.begin()
                producer.append([Record(f"k{rng.randrange(self.next_key)}".encode(), b"in a transaction")])
                (producer.commit() if rng.random() < 0.5 else producer.abort()).result()
        log.append(*segments)

    def happen(self) -> None:
        """Let something happen to the indexes."""
        rng, index_dir = self.rng, self.log.index_dir
        indexes = self.log.indexes()
        match rng.randrange(8):
            case 0 if indexes:
                rng.choice(indexes).unlink()
            case 1 if indexes:
                path = rng.choice(indexes)
                data = path.read_bytes()
                path.write_bytes(data[: rng.randrange(len(data))])
            case 2 if len(indexes) > 1:
                one, other = rng.sample(indexes, 2)
                shutil.copy(one, other)
            case 3 if self.older:
                shutil.rmtree(index_dir)
                shutil.copytree(rng.choice(self.older), index_dir)
            case 4 if index_dir.exists() and rng.random() < 0.2:
                (index_dir / "cleaner-index.key").unlink()
        if index_dir.exists():
            saved = index_dir.with_name(f"older-{len(self.older)}")
            shutil.copytree(index_dir, saved)
            self.older.append(saved)

    def _safe(self) -> Path:
        """Write a file by which half of the log's tombstones are held."""
        path = self.log.log_dir.with_name("safe.json")
        offset = max(int(each.stem) for each in self.log.directory.glob("*.log")) // 2
        point = SafePoint(TopicPartition("prices", 0), offset, "", None, ())
        write_safe_tombstones(FileSystem(), path, self.log.now_ms, [point])
        return path

    def clean(self, seen: Counter[str]) -> None:
        """Clean both, and compare."""
        rng, checkpoint = self.rng, self.log.log_dir / "cleaner-offset-checkpoint"
        before = checkpoint.read_bytes() if checkpoint.exists() else None
        if self.checkpoint is not None and rng.random() < 0.15:
            checkpoint.write_bytes(self.checkpoint)  # as if the last one was lost: what is clean is dirty again
        self.checkpoint = before
        shutil.rmtree(self.copy.log_dir, ignore_errors=True)
        shutil.copytree(self.log.log_dir, self.copy.log_dir)
        options = {
            "now_ms": self.log.now_ms,
            "keep_tombstones": rng.random() < 0.1,
            "max_dirty_bytes": rng.choice((None, None, 5000)),
            "safe_tombstones": self._safe() if rng.random() < 0.1 else None,
        }
        report, plain = self.log.clean(**options), self.copy.clean(index=False, **options)
        assert contents(self.log.log_dir) == contents(self.copy.log_dir)
        assert _times(self.log.directory) == _times(self.copy.directory)
        assert report.removed == plain.removed
        assert report.end_offset == plain.end_offset
        assert report.bytes_read + report.bytes_unread == plain.bytes_read
        assert report.bytes_read_once == plain.bytes_read_once
        seen["unread"] += report.segments_unread
        seen["read once"] += report.bytes_read_once
        seen["removed"] += report.removed.total
        seen["tombstones"] += report.removed.tombstones


def _times(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in directory.glob("*.log")}


@pytest.mark.parametrize("first", range(12, 24, 4))
def test_rounds_with_indexes_leave_what_others_leave(first: int) -> None:
    """File for file, with all times; lost, torn, stale and exchanged indexes make no difference."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + 4):
        with scratch_directory() as root:
            life = _Life(root, seed)
            for _ in range(ROUNDS):
                life.grow()
                life.happen()
                life.clean(seen)
    assert min(seen["unread"], seen["read once"], seen["removed"], seen["tombstones"]) > 0, seen
