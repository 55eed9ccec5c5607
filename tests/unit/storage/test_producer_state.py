"""The state of producers: R-125 to R-127, R-211, R-407, R-545, R-652, R-653."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path

import pytest

from cleaner.base.model import AbortedTxn, LastRecord
from cleaner.errors import LogDirOfflineError
from cleaner.storage.files.producer_snapshot import ProducerEntry, read_snapshot, sequence_after
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.producer_state import CompletedTxn, ProducerState, TransactionStateError
from cleaner.storage.load.snapshots import Snapshots
from tests.support.watched_fs import FailingFileSystem

NOW_MS = 1_000_000
EXPIRATION_MS = 1000


def new_state(tmp_path: Path, snapshots: Snapshots | None = None) -> ProducerState:
    """An empty state, for a directory without snapshots unless given."""
    return ProducerState(snapshots or Snapshots(FileSystem(), tmp_path, []), now_ms=NOW_MS, expiration_ms=EXPIRATION_MS)


def data(state: ProducerState, producer_id: int, first: int, last: int, *, epoch: int = 0, txn: bool = False) -> None:
    """One committed data batch."""
    state.append_data(
        producer_id,
        epoch=epoch,
        base_sequence=first,
        base_offset=first,
        last_offset=last,
        timestamp_ms=NOW_MS,
        is_transactional=txn,
    )
    state.commit()


def marker(state: ProducerState, producer_id: int, offset: int, *, epoch: int = 0, abort: bool = False) -> None:
    """One committed marker."""
    state.append_marker(
        producer_id, epoch=epoch, coordinator_epoch=3, offset=offset, timestamp_ms=NOW_MS, is_abort=abort
    )
    state.commit()


@pytest.mark.parametrize(
    ("base", "delta", "expected"),
    [
        pytest.param(5, 4, 9, id="usual"),
        pytest.param(2**31 - 2, 1, 2**31 - 1, id="up-to-the-largest"),
        pytest.param(2**31 - 1, 1, 0, id="wraps-to-0"),
        pytest.param(2**31 - 3, 5, 2, id="wraps-inside-a-batch"),
        pytest.param(-1, 7, -1, id="no-sequence"),
    ],
)
def test_last_sequence_wraps_as_kafkas(base: int, delta: int, expected: int) -> None:
    """R-211: from 2**31 - 1 to 0; -1 stays -1."""
    assert sequence_after(base, delta) == expected


def test_last_data_batch_is_remembered_until_the_epoch_rises(tmp_path: Path) -> None:
    """R-653, R-547: a marker of a new epoch forgets the batches, one of the same epoch does not."""
    state = new_state(tmp_path)
    data(state, 7, 0, 4, txn=True)
    marker(state, 7, 5)
    assert state.active_producers() == {7: LastRecord(4, 0)}
    marker(state, 7, 6, epoch=1)
    assert state.active_producers() == {7: LastRecord(None, 1)}


def test_first_unstable_offset_is_that_of_the_oldest_open_transaction(tmp_path: Path) -> None:
    """R-407: open transactions first; decided ones until the high watermark has passed their marker."""
    state = new_state(tmp_path)
    data(state, 7, 0, 1, txn=True)
    data(state, 8, 2, 3, txn=True)
    assert state.first_unstable_offset() == 0
    marker(state, 7, 4)
    assert state.first_unstable_offset() == 0
    state.on_high_watermark(4)
    assert state.first_unstable_offset() == 0
    state.on_high_watermark(5)
    assert state.first_unstable_offset() == 2


def test_aborted_transaction_names_the_next_open_one(tmp_path: Path) -> None:
    """R-653: last stable offset = first offset of another open transaction, else the marker's plus one."""
    state = new_state(tmp_path)
    data(state, 7, 0, 1, txn=True)
    data(state, 8, 2, 3, txn=True)
    assert state.aborted_txn(CompletedTxn(7, 0, 4, True)) == AbortedTxn(7, 0, 4, 2)
    marker(state, 8, 4)
    assert state.aborted_txn(CompletedTxn(7, 0, 5, True)) == AbortedTxn(7, 0, 5, 6)


def test_plain_batch_inside_a_transaction_is_refused(tmp_path: Path) -> None:
    """R-653: Kafka raises too."""
    state = new_state(tmp_path)
    data(state, 7, 0, 1, txn=True)
    with pytest.raises(TransactionStateError):
        data(state, 7, 2, 3)


def entry(producer_id: int, *, timestamp_ms: int = NOW_MS, txn: int = -1) -> ProducerEntry:
    """A snapshot entry whose last batch ended at offset 9."""
    return ProducerEntry(producer_id, 0, 9, 9, 0, timestamp_ms, 0, txn)


def test_idle_producers_are_left_out_unless_a_transaction_is_open(tmp_path: Path) -> None:
    """R-652: expired when now - timestamp reaches the limit, exactly."""
    snapshots = Snapshots(FileSystem(), tmp_path, [])
    old = NOW_MS - EXPIRATION_MS
    snapshots.write(10, [entry(1, timestamp_ms=old), entry(2, timestamp_ms=old + 1), entry(3, timestamp_ms=0, txn=4)])
    state = new_state(tmp_path, snapshots)
    state.reload(0, 20)
    assert state.active_producers().keys() == {2, 3}
    assert state.first_unstable_offset() == 4
    assert state.map_end_offset == 10


def test_damaged_snapshot_gives_way_to_the_next_older(tmp_path: Path) -> None:
    """R-125: deleted, and the next older is tried."""
    snapshots = Snapshots(FileSystem(), tmp_path, [])
    snapshots.write(10, [entry(1)])
    snapshots.write(20, [entry(2)])
    snapshots.apply(FileSystem())
    newest = tmp_path / "00000000000000000020.snapshot"
    newest.write_bytes(newest.read_bytes()[:-1] + b"\x7f")
    state = new_state(tmp_path, snapshots)
    state.reload(0, 30)
    assert (state.map_end_offset, state.active_producers().keys()) == (10, {1})
    assert newest.exists()
    snapshots.apply(FileSystem())
    assert not newest.exists()


def test_snapshot_is_taken_only_if_it_does_not_exist(tmp_path: Path) -> None:
    """R-126: at the end offset, unless the last snapshot is already there."""
    state = new_state(tmp_path)
    data(state, 7, 0, 4)
    state.map_end_offset = 5
    state.take_snapshot()
    state.take_snapshot()
    state.snapshots.apply(FileSystem())
    assert read_snapshot(FileSystem(), tmp_path / "00000000000000000005.snapshot").tolist() == [
        ProducerEntry(7, 0, 4, 4, 4, NOW_MS, -1, -1)
    ]


@pytest.mark.parametrize(
    ("offsets", "bases", "kept"),
    [
        pytest.param([10, 20], [0, 10, 20], [10, 20], id="at-segments"),
        pytest.param([5, 10, 15], [0, 10], [10, 15], id="highest-stray-above-all-segments-stays"),
        pytest.param([5, 10], [0, 10], [10], id="highest-stray-below-a-segment-goes"),
        pytest.param([11, 12, 13], [0, 10], [13], id="only-the-highest-of-several"),
    ],
)
def test_stray_snapshots_are_removed(tmp_path: Path, offsets: list[int], bases: list[int], kept: list[int]) -> None:
    """R-126: the one of a clean stop, at the log end, stays."""
    snapshots = Snapshots(FileSystem(), tmp_path, offsets)
    snapshots.remove_strays(bases)
    assert snapshots.offsets() == kept


def test_old_snapshot_goes_only_when_the_new_one_is_there(tmp_path: Path) -> None:
    """Whichever change fails: without any snapshot, all producers would be forgotten (R-127)."""
    for number in itertools.count():
        directory = tmp_path / str(number)
        directory.mkdir()
        first = Snapshots(FileSystem(), directory, [])
        first.write(10, [ProducerEntry(5, 0, 1, 9, 0, NOW_MS, 0, -1)])
        first.apply(FileSystem())
        snapshots = Snapshots(FileSystem(), directory, [10])
        snapshots.write(20, [ProducerEntry(5, 0, 2, 19, 0, NOW_MS, 0, -1)])
        snapshots.remove(10)
        try:
            snapshots.apply(FailingFileSystem(number, errno.EIO, lasting=True))
        except LogDirOfflineError:
            assert any(read_snapshot(FileSystem(), path)["producer_id"] == 5 for path in directory.glob("*.snapshot"))
        else:
            assert number > 3
            return


def test_snapshots_outside_the_log_are_removed(tmp_path: Path) -> None:
    """R-126: above the log end, at or below the log start."""
    snapshots = Snapshots(FileSystem(), tmp_path, [3, 4, 9, 10, 11])
    snapshots.remove_outside(4, 10)
    assert snapshots.offsets() == [9, 10]
