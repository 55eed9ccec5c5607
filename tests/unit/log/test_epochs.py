"""Where a leader epoch ended, as a broker answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.base.model import EpochEntry
from cleaner.log.epochs import LeaderEpochs
from cleaner.storage.files.leader_epochs import read_leader_epochs
from cleaner.storage.fs.file_system import FileSystem

ENTRIES = [EpochEntry(2, 10), EpochEntry(4, 30), EpochEntry(7, 50)]


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(-1, (-1, -1)), (0, (0, 10)), (2, (2, 30)), (3, (2, 30)), (4, (4, 50)), (6, (4, 50)), (7, (7, 90)), (8, (-1, -1))],
    ids=["undefined", "below-all", "first", "between", "second", "between-later", "latest", "above-all"],
)
def test_end_offset_of_an_epoch_is_kafkas(tmp_path: Path, epoch: int, expected: tuple[int, int]) -> None:
    """The rows of `LeaderEpochFileCache.endOffsetFor`."""
    assert LeaderEpochs(FileSystem(), tmp_path, ENTRIES).end_offset_for(epoch, 90) == expected


def test_epochs_are_on_disk_as_they_are_in_memory(tmp_path: Path) -> None:
    """Beginning and cutting are written through; nothing is written where nothing changes."""
    path = tmp_path / "leader-epoch-checkpoint"
    epochs = LeaderEpochs(FileSystem(), tmp_path, ENTRIES)
    epochs.begin(7, 60)
    assert not path.exists()
    epochs.begin(8, 70)
    assert read_leader_epochs(FileSystem(), path) == [*ENTRIES, EpochEntry(8, 70)]
    later = [EpochEntry(7, 50), EpochEntry(8, 70)]
    epochs.cut_start(35)
    assert read_leader_epochs(FileSystem(), path) == [EpochEntry(4, 35), *later]
    assert epochs.end_offset_for(4, 90) == (4, 50)
    assert epochs.latest == 8


def test_log_without_epochs_knows_no_end(tmp_path: Path) -> None:
    """Nothing is known before the first epoch."""
    epochs = LeaderEpochs(FileSystem(), tmp_path, [])
    assert epochs.latest == -1
    assert epochs.end_offset_for(0, 5) == (-1, -1)
