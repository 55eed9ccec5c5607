"""Deleting the oldest segments: R-123, R-126, R-913."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.remove.retention import delete_oldest
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder
from tests.unit.storage.logs import WatchedFileSystem, content, finish, load


def written(tmp_path: Path) -> Path:
    """Segments at 0, 3 and 6, log end 9; the leader changed at 4."""
    log = LogBuilder()
    for number in range(9):
        if number in (3, 6):
            log.roll()
        log.leader_epoch = number // 4
        log.append((f"k{number}", "v"), producer=Producer(5, 0, number))
    return log.write(tmp_path)


def test_oldest_segments_go_with_snapshots_and_epochs(tmp_path: Path) -> None:
    """R-913: the log start rises to the first survivor."""
    directory = written(tmp_path)
    before = content(directory)
    log = load(directory)
    log.settle(FileSystem(), nullcontext)
    delete_oldest(FileSystem(), log, 2)
    finish(log)
    kept = {
        name: data for name, data in before.items() if not name.startswith((f"{0:020d}", f"{3:020d}", f"{6:020d}.s"))
    }
    # The snapshot at the log start is no longer needed; the next load removes it, not this.
    kept[f"{6:020d}.snapshot"] = before[f"{6:020d}.snapshot"]
    assert content(directory) == {**kept, "leader-epoch-checkpoint": b"0\n2\n1 6\n2 8\n"}
    assert (log.log_start_offset, log.log_start_checkpoint) == (6, None)


def test_when_all_go_an_empty_segment_takes_their_place(tmp_path: Path) -> None:
    """R-913: the active segment can be deleted too. The next load removes the snapshot at the log start (R-126)."""
    directory = written(tmp_path)
    log = load(directory)
    delete_oldest(FileSystem(), log, 3)
    finish(log)
    names = [name for name in content(directory) if name.startswith("0")]
    assert names == [f"{9:020d}{suffix}" for suffix in (".index", ".log", ".snapshot", ".timeindex")]
    assert (log.log_start_offset, log.log_end_offset, log.active_segment.size) == (9, 9, 0)
    assert load(directory).log_end_offset == 9


def test_each_segment_is_removed_durably_before_the_next(tmp_path: Path) -> None:
    """A power cut must not lose a younger segment and keep an older one."""
    fs = WatchedFileSystem()
    log = load(written(tmp_path), fs=fs)
    log.settle(fs, nullcontext)
    fs.operations.clear()
    delete_oldest(fs, log, 2)
    removed = [fs.operations.index(f"remove {base:020d}.log") for base in (0, 3)]
    assert removed[0] < fs.operations.index("fence", removed[0]) < removed[1]


def test_nothing_above_the_high_watermark_is_deleted(tmp_path: Path) -> None:
    """R-913: the log start may not pass it."""
    directory = written(tmp_path)
    before = content(directory)
    log = load(directory, high_watermark=5)
    with pytest.raises(ValueError, match="high watermark"):
        delete_oldest(FileSystem(), log, 2)
    assert content(directory) == before
