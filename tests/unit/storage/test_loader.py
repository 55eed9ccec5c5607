"""Loading after a clean stop: R-118, R-123, R-126, R-127, R-330, R-331, R-630, R-635, R-641."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.base.model import LastRecord
from cleaner.errors import (
    CleaningAborted,
    CorruptBatchError,
    CorruptCheckpointError,
    CorruptIndexError,
    CorruptLogError,
    NotCleanlyShutDownError,
    TruncationRefusedError,
    ZeroTailError,
)
from tests.support.batch_builder import Producer
from tests.support.log_builder import START_MS, LogBuilder
from tests.unit.storage.logs import DAY_MS, INTERVAL_BYTES, content, finish, load


def built() -> LogBuilder:
    """Three segments at 0, 7 and 12, log end 15; producer 5 idempotent, producer 6 with an abort and an open txn."""
    log = LogBuilder(index_interval_bytes=INTERVAL_BYTES)
    log.append(("a", "1"), ("b", "1"), producer=Producer(5, 0, 0))
    log.append(("c", "1"), ("d", "1"), producer=Producer(6, 0, 0, True))
    log.end_transaction(6, 0, commit=False)
    log.append(("e", "1"), ("f", "1"))
    log.roll()
    log.leader_epoch = 3
    for number in range(5):
        log.append((f"k{number}", "2"), producer=Producer(5, 0, 2 + number))
    log.roll()
    log.append(("a", "3"), producer=Producer(6, 0, 2, True))
    log.append(("b", "3"), ("c", "3"))
    return log


def test_loading_a_sound_log_and_closing_it_changes_nothing(tmp_path: Path) -> None:
    """D-07: Kafka's clean load and close does not change the files of a clean stop."""
    directory = built().write(tmp_path)
    before = content(directory)
    log = load(directory)
    assert (log.log_start_offset, log.log_end_offset) == (0, 15)
    assert [segment.base_offset for segment in log.segments] == [0, 7, 12]
    finish(log)
    assert content(directory) == before


def test_offsets_follow_checkpoints_and_open_transactions(tmp_path: Path) -> None:
    """D-03, R-407, R-545: the open transaction of producer 6 begins at 12."""
    log = load(built().write(tmp_path), log_start_offset=2)
    assert (log.log_start_offset, log.high_watermark, log.last_stable_offset) == (2, 15, 12)
    assert log.active_producers == {5: LastRecord(11, 0), 6: LastRecord(12, 0)}
    assert log.log_start_checkpoint == 2
    log.set_high_watermark(9)
    assert (log.high_watermark, log.last_stable_offset) == (9, 9)


def test_missing_high_watermark_means_the_log_start(tmp_path: Path) -> None:
    """D-03: then nothing may be cleaned."""
    log = load(built().write(tmp_path), high_watermark=None)
    assert (log.high_watermark, log.last_stable_offset) == (0, 0)


def test_nothing_changes_before_the_log_is_settled(tmp_path: Path) -> None:
    """A caller that refuses the log after loading leaves no trace; `settle` does what Kafka's loader does."""
    directory = built().write(tmp_path)
    sound = content(directory)
    for name in ("00000000000000000007.log.deleted", "00000000000000000007.log.cleaned"):
        (directory / name).write_bytes(b"x")
    (directory / "00000000000000000003.index").write_bytes(b"")  # an orphan
    (directory / "00000000000000000003.snapshot").write_bytes(b"")  # a stray
    (directory / "00000000000000000007.index").unlink()
    before = content(directory)
    log = load(directory)
    assert content(directory) == before
    finish(log)
    assert content(directory) == sound


def test_missing_time_index_becomes_an_empty_file(tmp_path: Path) -> None:
    """R-330: a missing time index alone is not rebuilt."""
    directory = built().write(tmp_path)
    (directory / "00000000000000000007.timeindex").unlink()
    finish(load(directory))
    assert (directory / "00000000000000000007.timeindex").read_bytes() == b""


def test_transaction_index_with_a_marker_below_its_segment_is_rebuilt(tmp_path: Path) -> None:
    """R-330, R-635: even after a clean stop."""
    directory = built().write(tmp_path)
    wanted = content(directory)
    (directory / "00000000000000000007.txnindex").write_bytes(wanted["00000000000000000000.txnindex"])
    finish(load(directory))
    assert content(directory) == {**wanted, "00000000000000000007.txnindex": b""}


def test_transaction_index_left_as_zeros_by_a_power_cut_is_rebuilt(tmp_path: Path) -> None:
    """R-640: entries are not forced to disk with their records; after a clean stop, zeros are damage."""
    directory = built().write(tmp_path)
    wanted = content(directory)
    index = directory / "00000000000000000000.txnindex"
    index.write_bytes(index.read_bytes() + bytes(34))
    with pytest.raises(CorruptIndexError):
        load(directory)
    finish(load(directory, clean=False, recovery_point=15))
    assert index.read_bytes() == wanted[index.name]


def test_leader_epochs_are_cut_to_the_log(tmp_path: Path) -> None:
    """R-123: from the end by the log end, from the start by the checkpointed log start."""
    directory = built().write(tmp_path)
    epochs = directory / "leader-epoch-checkpoint"
    epochs.write_text("0\n4\n0 0\n1 2\n3 7\n9 15\n")
    finish(load(directory, log_start_offset=4))
    assert epochs.read_text() == "0\n2\n1 4\n3 7\n"


def test_missing_leader_epochs_become_an_empty_file(tmp_path: Path) -> None:
    """R-114: created empty when it is first opened."""
    directory = built().write(tmp_path)
    (directory / "leader-epoch-checkpoint").unlink()
    finish(load(directory))
    assert (directory / "leader-epoch-checkpoint").read_bytes() == b""


def test_log_without_any_snapshot_forgets_its_producers(tmp_path: Path) -> None:
    """R-127: empty snapshots at the last two base offsets and at the log end."""
    directory = built().write(tmp_path)
    for path in directory.glob("*.snapshot"):
        path.unlink()
    log = load(directory)
    assert log.active_producers == {}
    finish(log)
    empty = [path.name for path in sorted(directory.glob("*.snapshot")) if path.stat().st_size == 10]
    assert empty == [f"{offset:020d}.snapshot" for offset in (7, 12, 15)]


def test_damaged_newest_snapshot_is_rewritten_from_the_log(tmp_path: Path) -> None:
    """R-125, R-652: the next older one and the batches after it give the same."""
    directory = built().write(tmp_path)
    wanted = content(directory)
    newest = directory / "00000000000000000015.snapshot"
    newest.write_bytes(newest.read_bytes()[:-1] + b"\x7f")
    log = load(directory)
    assert log.active_producers == {5: LastRecord(11, 0), 6: LastRecord(12, 0)}
    finish(log)
    assert content(directory) == wanted


def test_idle_producers_of_the_snapshot_are_forgotten_but_not_those_replayed(tmp_path: Path) -> None:
    """R-652: only producers from a snapshot expire."""
    directory = built().write(tmp_path)
    later = START_MS + 2 * DAY_MS
    assert load(directory, now_ms=later).active_producers == {6: LastRecord(12, 0)}
    (directory / "00000000000000000015.snapshot").unlink()
    (directory / "00000000000000000012.snapshot").unlink()
    assert load(directory, now_ms=later).active_producers == {5: LastRecord(11, 0), 6: LastRecord(12, 0)}


def test_log_that_ends_below_its_start_starts_there_again(tmp_path: Path) -> None:
    """R-641: all segments are removed, and an empty one is created."""
    directory = built().write(tmp_path)
    log = load(directory, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    finish(log)
    assert content(directory) == {
        "00000000000000000100.index": b"",
        "00000000000000000100.log": b"",
        "00000000000000000100.snapshot": b"\0\x01HgK\xc7\0\0\0\0",
        "00000000000000000100.timeindex": b"",
        "leader-epoch-checkpoint": b"0\n0\n",
        "partition.metadata": content(directory)["partition.metadata"],
    }


def test_log_that_ends_below_its_start_keeps_its_records_unless_they_may_be_cut(tmp_path: Path) -> None:
    """R-641: its line may be damaged, and no checksum would tell. A log without records begins there unasked."""
    directory = built().write(tmp_path)
    before = content(directory)
    with pytest.raises(TruncationRefusedError, match="below its start, 100"):
        load(directory, log_start_offset=100, allow_truncate=False)
    assert content(directory) == before
    for path in directory.glob("*.log"):
        path.write_bytes(b"")
    assert load(directory, log_start_offset=100, allow_truncate=False, clean=False).log_end_offset == 100


@pytest.mark.parametrize(
    ("name", "data", "error"),
    [
        pytest.param("notes.swap", b"", CorruptLogError, id="swap-without-offset"),
        pytest.param("notes.log.cleaned", b"", CorruptLogError, id="cleaned-without-offset"),
        pytest.param("notes.log", b"", CorruptLogError, id="log-without-offset"),
        pytest.param("7.log", b"", CorruptLogError, id="log-of-one-digit"),
        pytest.param("notes.index", b"", CorruptLogError, id="index-without-offset"),
        pytest.param("x.snapshot", b"", CorruptLogError, id="snapshot-without-offset"),
        pytest.param("00000000000000000007.index", b"\0" * 9, CorruptIndexError, id="odd-index"),
        pytest.param("00000000000000000007.timeindex", b"\0" * 13, CorruptIndexError, id="odd-time-index"),
        pytest.param(
            "00000000000000000012.index", b"\0\0\0\1" * 4, CorruptIndexError, id="index-that-repeats-an-offset"
        ),
        pytest.param("leader-epoch-checkpoint", b"1\n", CorruptCheckpointError, id="leader-epochs"),
    ],
)
def test_directory_that_cannot_be_loaded_is_left_alone(
    tmp_path: Path, name: str, data: bytes, error: type[CorruptLogError]
) -> None:
    """R-121, R-310, R-333, R-630: the file is named, and nothing is changed."""
    directory = built().write(tmp_path)
    (directory / name).write_bytes(data)
    (directory / "00000000000000000000.log.deleted").write_bytes(b"")
    before = content(directory)
    with pytest.raises(error) as caught:
        load(directory)
    assert caught.value.path == directory / name
    assert content(directory) == before


def test_zeros_behind_the_active_log_are_named_as_such(tmp_path: Path) -> None:
    """D-02: left beside the marker by a power cut after a stop of Kafka up to 4.3; a recovery cuts it."""
    directory = built().write(tmp_path)
    wanted, path = content(directory), max(directory.glob("*.log"))
    path.write_bytes(path.read_bytes() + bytes(4096))
    before = content(directory)
    with pytest.raises(ZeroTailError, match="cleaner recover") as caught:
        load(directory)
    assert (caught.value.path, caught.value.position) == (path, len(wanted[path.name]))
    assert content(directory) == before
    finish(load(directory, clean=False, recovery_point=2**62, allow_truncate=False))
    assert content(directory) == wanted


@pytest.mark.parametrize("version", [1, 256, -1])
def test_txn_index_of_an_unknown_version_is_not_loaded_after_a_clean_stop(tmp_path: Path, version: int) -> None:
    """R-303: Kafka 4.4 does not load such a log, 4.3 copies the entry; a recovery makes the index anew."""
    directory = built().write(tmp_path)
    wanted = content(directory)
    [index] = directory.glob("*.txnindex")
    index.write_bytes(version.to_bytes(2, "big", signed=True) + index.read_bytes()[2:])
    with pytest.raises(CorruptIndexError, match="unknown version"):
        load(directory)
    finish(load(directory, clean=False))
    assert content(directory) == wanted


def test_foreign_files_are_ignored(tmp_path: Path) -> None:
    """R-642: names without an offset and without the three suffixes."""
    directory = built().write(tmp_path)
    (directory / "notes.txt").write_bytes(b"x")
    (directory / "sub").mkdir()
    (directory / "sub.swap").mkdir()
    log = load(directory)
    finish(log)
    assert (directory / "notes.txt").exists()
    assert (directory / "sub.swap").is_dir()


def test_snapshot_that_a_crash_left_unfinished_goes(tmp_path: Path) -> None:
    """A power cut may leave it under its temporary name; nothing else would ever remove it."""
    directory = built().write(tmp_path)
    before = content(directory)
    for name in ("00000000000000000015.snapshot.tmp", "00000000000000000009.snapshot.tmp"):
        (directory / name).write_bytes(b"half")
    finish(load(directory))
    assert content(directory) == before
    (directory / "notes.snapshot.tmp").touch()
    finish(load(directory))
    assert (directory / "notes.snapshot.tmp").exists()


def test_damage_with_a_missing_index_is_not_cut_off_after_a_clean_stop(tmp_path: Path) -> None:
    """Kafka would cut; after a clean stop damage is not a torn tail, and the log is refused."""
    directory = built().write(tmp_path)
    log_file = directory / "00000000000000000007.log"
    log_file.write_bytes(log_file.read_bytes()[:-3])
    (directory / "00000000000000000007.index").unlink()
    before = content(directory)
    with pytest.raises(CorruptBatchError):
        load(directory)
    assert content(directory) == before


def test_read_only_load_changes_nothing_and_raises_if_it_would_have_to(tmp_path: Path) -> None:
    """An interrupted swap, or a missing marker, needs a recovery first."""
    directory = built().write(tmp_path)
    assert load(directory, read_only=True).log_end_offset == 15
    with pytest.raises(NotCleanlyShutDownError):
        load(directory, read_only=True, clean=False)
    (directory / "00000000000000000000.log.swap").write_bytes(b"")
    before = content(directory)
    with pytest.raises(NotCleanlyShutDownError):
        load(directory, read_only=True)
    assert content(directory) == before


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("asked", [0, 1, 2])
def test_loading_that_is_stopped_changes_nothing(tmp_path: Path, clean: bool, asked: int) -> None:
    """The check comes before each chunk, also where indexes are rebuilt; the next load rebuilds them."""
    directory = built().write(tmp_path)
    (directory / "00000000000000000007.index").unlink()
    before, left = content(directory), asked

    def check_done() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise CleaningAborted("stopped")

    with pytest.raises(CleaningAborted):
        load(directory, clean=clean, check_done=check_done)
    assert content(directory) == before
    finish(load(directory, clean=clean))
    assert (directory / "00000000000000000007.index").exists()
