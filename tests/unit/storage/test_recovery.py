"""Recovery after a stop without a clean-shutdown marker: R-630 to R-634, R-640, R-641."""

from __future__ import annotations

import random
import struct
from contextlib import nullcontext
from pathlib import Path

import pytest

from cleaner.config.values import TopicConfig
from cleaner.errors import CorruptBatchError, TruncationRefusedError
from cleaner.storage.load import loading
from cleaner.storage.load.loaded_log import list_segments
from tests.support.batch_builder import Producer, Record, data_batch
from tests.support.forgetful_fs import ForgetfulFileSystem
from tests.support.log_builder import LogBuilder
from tests.unit.storage.logs import INTERVAL_BYTES, WatchedFileSystem, content, finish, load

ACTIVE = "00000000000000000012"


def built(*, epoch: int = 3) -> LogBuilder:
    """Three segments at 0, 6 and 12, log end 18, one record a batch; an abort whose marker is at 8."""
    log = LogBuilder(index_interval_bytes=INTERVAL_BYTES)
    for number in range(18):
        if number in (6, 12):
            log.roll()
            log.leader_epoch = epoch
        if number == 8:
            log.end_transaction(6, 0, commit=False)
        elif number == 4:
            log.append(("t", "x"), producer=Producer(6, 0, 0, True))
        else:
            log.append((f"k{number}", "v"), producer=Producer(5, 0, number))
    return log


def recovered(directory: Path, **options: bool | int) -> dict[str, bytes]:
    """Recover from the recovery point 0, stop cleanly, return the files."""
    finish(load(directory, clean=False, **options))
    return content(directory)


def test_sound_log_is_recovered_to_what_a_clean_stop_leaves(tmp_path: Path) -> None:
    """R-323, R-640: indexes, transaction index and snapshots are rebuilt byte for byte."""
    directory = built().write(tmp_path)
    assert recovered(directory) == content(built().write(tmp_path / "other"))


def test_long_recovery_writes_as_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded memory: many rebuilt indexes are written before the rest is read."""
    monkeypatch.setattr(loading, "KEPT_INDEX_BYTES", 0)
    directory = built().write(tmp_path)
    for path in directory.glob("*.index"):
        path.unlink()
    load(directory, clean=False)
    wanted = content(built().write(tmp_path / "other"))
    assert {name: data for name, data in content(directory).items() if "index" in name} == {
        name: data for name, data in wanted.items() if "index" in name
    }
    assert recovered(directory) == wanted


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint"])
def test_files_lost_by_an_unclean_stop_are_rebuilt(tmp_path: Path, suffix: str) -> None:
    """R-640: everything except the logs can be rebuilt from the logs."""
    directory = built().write(tmp_path)
    wanted = content(directory)
    for name in wanted:
        if name.endswith(suffix):
            (directory / name).unlink()
    assert recovered(directory) == wanted


def test_padded_indexes_of_the_active_segment_are_trimmed(tmp_path: Path) -> None:
    """R-310: after an unclean stop they end in zero entries."""
    directory = built().write(tmp_path)
    wanted = content(directory)
    for suffix in (".index", ".timeindex"):
        path = directory / (ACTIVE + suffix)
        path.write_bytes(path.read_bytes() + bytes(240))
    assert recovered(directory) == wanted


@pytest.mark.parametrize(
    "tail",
    [
        pytest.param(data_batch([Record(b"k", b"v" * 90)], 18)[:-1], id="half-a-batch"),
        pytest.param(data_batch([Record(b"k", b"v" * 90)], 18)[:9], id="a-few-bytes"),
        pytest.param(bytes(4096), id="zeros"),
        pytest.param(data_batch([Record(b"k", b"v" * 90)], 18, overrides={"crc": 1}), id="pages-in-the-wrong-order"),
    ],
)
def test_torn_tail_is_cut_without_asking(tmp_path: Path, tail: bytes) -> None:
    """R-640: no whole batch is lost, so no permission is needed."""
    directory = built().write(tmp_path)
    wanted = content(directory)
    path = directory / f"{ACTIVE}.log"
    path.write_bytes(path.read_bytes() + tail)
    log = load(directory, clean=False, allow_truncate=False)
    finish(log)
    assert log.truncated_bytes == len(tail)
    assert content(directory) == wanted


def damage_first_batch(directory: Path, base_offset: int) -> None:
    """Flip a bit in the first batch of a segment."""
    path = directory / f"{base_offset:020d}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("base_offset", "end_offset", "bases"),
    [pytest.param(6, 6, [0, 6], id="middle-segment"), pytest.param(12, 12, [0, 6, 12], id="last-segment")],
)
def test_damage_in_front_of_whole_batches_is_cut_only_by_permission(
    tmp_path: Path, base_offset: int, end_offset: int, bases: list[int]
) -> None:
    """R-640: the first bad batch ends the log, later segments are removed with their snapshots; only if allowed."""
    directory = built().write(tmp_path)
    damage_first_batch(directory, base_offset)
    damaged = content(directory)
    with pytest.raises(TruncationRefusedError, match="--allow-truncate") as caught:
        load(directory, clean=False, allow_truncate=False)
    assert f"from offset {end_offset} on" in str(caught.value)
    assert content(directory) == damaged
    log = load(directory, clean=False, allow_truncate=True)
    finish(log)
    assert log.log_end_offset == end_offset
    assert [segment.base_offset for segment in list_segments(WatchedFileSystem(), directory)] == bases
    lost = sum(len(data) for name, data in damaged.items() if name.endswith(".log") and int(name[:20]) >= base_offset)
    assert log.truncated_bytes == lost
    assert content(directory)["leader-epoch-checkpoint"] == (b"0\n1\n0 0\n" if end_offset == 6 else b"0\n2\n0 0\n3 6\n")


def test_later_segments_are_removed_durably_before_the_damaged_one_is_cut(tmp_path: Path) -> None:
    """A crash in between leaves the damage, so the next recovery finds it again: no log with a hole."""
    directory = built().write(tmp_path)
    damage_first_batch(directory, 6)
    fs = WatchedFileSystem()
    load(directory, fs=fs, clean=False).settle(fs, nullcontext)
    removed = fs.operations.index(f"remove {ACTIVE}.log")
    cut = fs.operations.index("truncate 00000000000000000006.log")
    assert removed < fs.operations.index("fence", removed) < cut


def test_recovery_works_with_a_missing_index_above_the_damage(tmp_path: Path) -> None:
    """An interrupted recovery can leave that; the segment is deleted with everything after the damage."""
    directory = built().write(tmp_path)
    damage_first_batch(directory, 6)
    (directory / f"{ACTIVE}.index").unlink()
    for path in directory.glob("*.snapshot"):
        path.unlink()
    files = recovered(directory)
    assert [name for name in files if name.endswith(".log")] == [f"{0:020d}.log", f"{6:020d}.log"]


def test_segments_below_the_recovery_point_are_trusted_unread(tmp_path: Path) -> None:
    """R-640: they were flushed; the cleaner's own checks find their damage."""
    directory = built().write(tmp_path)
    damage_first_batch(directory, 0)
    wanted = content(directory)
    assert recovered(directory, recovery_point=7, allow_truncate=False) == wanted


def test_offsets_that_go_back_end_the_log(tmp_path: Path) -> None:
    """What is before them stays, unlike in Kafka (R-640), which empties the segment; later segments are removed."""
    directory = built().write(tmp_path)
    batches = [data_batch([Record(b"k", b"v" * 200)], offset) for offset in (6, 11, 8, 9)]
    (directory / "00000000000000000006.log").write_bytes(b"".join(batches))
    files = recovered(directory, recovery_point=6)
    assert files["00000000000000000006.log"] == b"".join(batches[:2])
    assert f"{ACTIVE}.log" not in files


def test_batch_that_has_lost_its_base_offset_ends_the_log(tmp_path: Path) -> None:
    """No checksum covers it, so a sector that a power cut has lost may leave a sound batch at offset 0."""
    directory = built().write(tmp_path)
    path = directory / f"{ACTIVE}.log"
    sound = path.read_bytes()
    last = data_batch([Record(b"k", b"v" * 200)], int(ACTIVE) + 90)
    path.write_bytes(sound + bytes(8) + last[8:])
    assert recovered(directory)[path.name] == sound


def test_recovery_believes_only_what_is_on_disk_after_a_failed_fsync(tmp_path: Path) -> None:
    """C-2: until it is dropped, the page cache shows a batch that no later fsync brings to the disk."""
    directory = built().write(tmp_path)
    path = directory / f"{ACTIVE}.log"
    sound = path.read_bytes()
    fs = ForgetfulFileSystem(tmp_path)
    with fs.open(path, write=True) as file:
        file.write(data_batch([Record(b"k", b"v")], 18), len(sound))
        fs.lose_pages(file.stat().st_ino, random.Random(2))
    assert len(path.read_bytes()) > len(sound)
    log = load(directory, fs=fs, clean=False)
    assert log.log_end_offset == 18
    finish(log)
    assert path.read_bytes() == sound


def test_marker_that_cannot_be_read_stops_recovery(tmp_path: Path) -> None:
    """R-231: Kafka keeps such a batch and cannot load the log; here it is named, and nothing is cut."""
    log = LogBuilder(index_interval_bytes=INTERVAL_BYTES)
    log.append(("t", "x"), producer=Producer(6, 0, 0, True))
    directory = log.write(tmp_path)
    path = directory / "00000000000000000000.log"
    sound = path.read_bytes()
    key = Record(struct.pack(">hh", -1, 0), struct.pack(">hi", 0, 0))
    bad = data_batch([key], 1, producer=Producer(6, 0, -1, True), control=True)
    path.write_bytes(sound + bad)
    before = content(directory)
    with pytest.raises(CorruptBatchError) as caught:
        load(directory, clean=False)
    assert caught.value.position == len(sound)
    assert content(directory) == before


# ---- interrupted swaps ---------------------------------------------------------------------------------------------


def swapping(tmp_path: Path) -> tuple[Path, dict[str, bytes], dict[str, bytes]]:
    """A log whose segments 0 and 6 are about to be replaced; returns directory, old files and the new segment's."""
    log = LogBuilder(index_interval_bytes=INTERVAL_BYTES)
    for number in (0, 3, 5, 9, 11):
        log.skip(number - log.next_offset)
        log.append((f"k{number}", "v"), producer=Producer(5, 0, number))
    new = {name: data for name, data in content(log.write(tmp_path / "new")).items() if name.startswith("0" * 20)}
    directory = built().write(tmp_path / "old")
    return directory, content(directory), new


def put(directory: Path, files: dict[str, bytes], suffix: str) -> None:
    """Write files with a temporary suffix."""
    for name, data in files.items():
        (directory / (name + suffix)).write_bytes(data)


@pytest.mark.parametrize("clean", [True, False])
def test_unfinished_output_is_dropped(tmp_path: Path, clean: bool) -> None:
    """R-630: `.cleaned` files are removed, and every `.swap` at or above the lowest of them."""
    directory, old, new = swapping(tmp_path)
    put(directory, {name: data for name, data in new.items() if name.endswith("index")}, ".cleaned")
    put(directory, {name: data for name, data in new.items() if name.endswith(".log")}, ".swap")
    finish(load(directory, clean=clean))
    assert content(directory) == old


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("retired", [0, 3, 6], ids=["none-retired", "first-retired", "all-retired"])
def test_complete_swap_is_finished(tmp_path: Path, clean: bool, retired: int) -> None:
    """R-631, R-632: old files in the new segment's range are removed, snapshots too, then the suffix."""
    directory, old, new = swapping(tmp_path)
    put(directory, new, ".swap")
    gone = [name for name in old if name[:20] in ("0" * 20, f"{6:020d}") and not name.endswith(".snapshot")]
    for name in gone[:retired]:
        (directory / name).rename(directory / (name + ".deleted"))
    finish(load(directory, clean=clean, recovery_point=12))
    wanted = {name: data for name, data in old.items() if name not in gone} | new
    del wanted[f"{6:020d}.snapshot"]
    assert content(directory) == wanted


def test_new_segment_without_its_offset_index_keeps_the_producers(tmp_path: Path) -> None:
    """R-310, R-631: when Kafka opens the missing index it creates one of zeros, so nothing must be recovered later."""
    log = LogBuilder(index_interval_bytes=INTERVAL_BYTES)
    log.append(("a", "v"))
    log.roll()
    opened = log.append(("b", "v"), producer=Producer(7, 0, 0, transactional=True))
    log.roll()
    log.append(("c", "v"))
    directory = log.write(tmp_path)
    (directory / f"{0:020d}.log.swap").write_bytes((directory / f"{0:020d}.log").read_bytes())
    snapshots = {name: data for name, data in content(directory).items() if name.endswith(".snapshot")}
    topic = TopicConfig(index_interval_bytes=INTERVAL_BYTES, segment_index_bytes=403)
    loaded = load(directory, topic=topic)
    assert loaded.last_stable_offset == opened
    finish(loaded)
    after = content(directory)
    assert after[f"{0:020d}.index"] == bytes(400)
    assert {name: data for name, data in after.items() if name.endswith(".snapshot")} == snapshots
    again = load(directory, topic=topic)
    assert (again.last_stable_offset, again.segments[0].index_bytes) == (opened, 400)
    assert len(again.segments[0].offset_index()) == 0
    assert (again.segments[0].index_bytes, again.segments[0].next_offset()) == (400, 1)


def test_last_renames_are_made(tmp_path: Path) -> None:
    """R-634: without a `.log.swap` nothing is deleted."""
    directory, old, _ = swapping(tmp_path)
    (directory / f"{ACTIVE}.timeindex").rename(directory / f"{ACTIVE}.timeindex.swap")
    finish(load(directory))
    assert content(directory) == old


def test_old_files_are_removed_durably_before_the_suffix_is(tmp_path: Path) -> None:
    """Without a `.log.swap` the next load cannot know that old segments are superseded."""
    directory, _, new = swapping(tmp_path)
    put(directory, new, ".swap")
    fs = WatchedFileSystem()
    load(directory, fs=fs, recovery_point=12)
    removed = fs.operations.index(f"remove {6:020d}.log")
    renamed = next(at for at, operation in enumerate(fs.operations) if operation.startswith("rename"))
    assert removed < fs.operations.index("fence", removed) < renamed


def without_old(directory: Path, old: dict[str, bytes]) -> None:
    """Remove what is to be replaced."""
    for name in old:
        if name[:20] in ("0" * 20, f"{6:020d}"):
            (directory / name).unlink()


def names_after_cuts(fs: ForgetfulFileSystem, directory: Path) -> list[set[str]]:
    """Return the names in a directory after power cuts at any moment."""
    states = [state for point in fs.crash_points() for state in fs.states_at(point, limit=200, seed=1)]
    return [{path.name for path, _ in state.files if path.parent.name == directory.name} for state in states]


def test_name_that_a_killed_process_gave_a_log_is_durable_before_those_of_its_indexes(tmp_path: Path) -> None:
    """Beside a `.log.swap` that a power cut brings back, the next load would remove the new indexes as old ones."""
    directory, old, new = swapping(tmp_path)
    without_old(directory, old)
    put(directory, new, ".swap")
    fs = ForgetfulFileSystem(directory.parent)
    log = f"{0:020d}.log"
    fs.rename(directory / (log + ".swap"), directory / log)  # then it was killed
    load(directory, fs=fs, recovery_point=12)
    found = names_after_cuts(fs, directory)
    indexes = {name for name in new if name.endswith("index")}
    assert {log + ".swap" in names for names in found} == {True, False}
    assert [names for names in found if log + ".swap" in names and names & indexes] == []


def test_names_of_a_swap_that_a_killed_process_decided_are_durable_before_old_files_go(tmp_path: Path) -> None:
    """A `.cleaned` file that a power cut brings back condemns the swap: without the old files nothing would be left."""
    directory, old, new = swapping(tmp_path)
    put(directory, new, ".cleaned")
    fs = ForgetfulFileSystem(directory.parent)
    for name in new:
        fs.rename(directory / (name + ".cleaned"), directory / (name + ".swap"))  # then it was killed
    load(directory, fs=fs, recovery_point=12)
    found = names_after_cuts(fs, directory)
    logs = {name for name in old if name.endswith(".log")}
    is_undecided = [any(name.endswith(".cleaned") for name in names) for names in found]
    assert set(is_undecided) == {True, False}
    assert [
        names for names, undecided in zip(found, is_undecided, strict=True) if undecided and not logs <= names
    ] == []


def test_new_logs_lose_their_suffix_one_by_one_from_the_lowest(tmp_path: Path) -> None:
    """The next load would delete a final log between two `.log.swap` files."""
    directory, old, new = swapping(tmp_path)
    put(directory, new, ".swap")
    put(directory, {f"{6:020d}.log": old[f"{6:020d}.log"]}, ".swap")
    fs = WatchedFileSystem()
    load(directory, fs=fs, recovery_point=12)
    renames = [operation for operation in fs.operations if operation.startswith("rename")]
    assert renames[:2] == [f"rename {0:020d}.log.swap", f"rename {6:020d}.log.swap"]
    first, second = (fs.operations.index(rename) for rename in renames[:2])
    third = fs.operations.index(renames[2])
    assert "fence" in fs.operations[first:second] and "fence" in fs.operations[second:third]


def test_empty_new_segment_removes_nothing_old(tmp_path: Path) -> None:
    """R-633: the range ends where the last surviving batch ends, so superseded segments come back."""
    directory, old, new = swapping(tmp_path)
    put(directory, dict.fromkeys(new, b""), ".swap")
    finish(load(directory, recovery_point=12))
    files = content(directory)
    assert files[f"{0:020d}.log"] == b""
    assert files[f"{6:020d}.log"] == old[f"{6:020d}.log"]


def test_damaged_new_segment_is_not_swapped_in(tmp_path: Path) -> None:
    """Its old segments still exist; deleting them for it would lose both."""
    directory, _, new = swapping(tmp_path)
    log_name = f"{0:020d}.log"
    put(directory, {**new, log_name: new[log_name][:-1]}, ".swap")
    before = content(directory)
    with pytest.raises(CorruptBatchError):
        load(directory, clean=False)
    assert content(directory) == before
