"""Segments that a round leaves unread, by their key indexes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.app.safe_tombstones import SafePoint, write_safe_tombstones
from cleaner.base.model import TopicPartition
from cleaner.cleaning.map.build_map import MapEnd
from cleaner.cleaning.round import unread
from cleaner.errors import CorruptBatchError, UsageError
from cleaner.kernels import key_index as kernel
from cleaner.log.record import Record
from cleaner.state import key_index
from cleaner.storage.fs.file_system import FileSystem
from tests.support.growing_log import DAY_MS, GrowingLog


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    """Return a log of three clean segments, of keys 0 to 29, 100 to 129 and 200 to 229, with indexes."""
    log = GrowingLog(tmp_path)
    log.append(log.segment(0), log.segment(100))
    log.clean()
    log.round(200)
    assert len(log.indexes()) == 3
    return log


FIRST, SECOND, THIRD, FOURTH = (f"{first:020d}" for first in (0, 30, 60, 90))


def sizes(log: GrowingLog, *names: str) -> int:
    """Return the bytes of some segments."""
    return sum((log.directory / f"{name}.log").stat().st_size for name in names)


def test_segment_without_a_key_in_common_is_not_read(log: GrowingLog) -> None:
    """Clean ones by their indexes, the new one only for the map; they stay as they are, and count."""
    before = log.contents()
    report = log.round(300)
    assert (report.segments_unread, report.bytes_unread) == (3, sizes(log, FIRST, SECOND, THIRD))
    assert report.bytes_read_once == report.bytes_read == report.bytes_in_place == sizes(log, FOURTH)
    assert report.messages_read == report.messages_written == 30
    assert report.index_bytes_read > 0
    assert len(log.indexes()) == 4
    after = log.contents()
    assert {name: after[name] for name in before if name < FOURTH} == {
        name: data for name, data in before.items() if name < FOURTH
    }


def test_clean_segment_with_a_key_in_common_is_read(log: GrowingLog) -> None:
    """Its record goes, and it has an index of those that stay; all others stay unread."""
    log.append([*log.segment(300), ("k5", "new")])
    report = log.clean()
    assert (report.segments_unread, report.removed.superseded) == (2, 1)
    assert len(log.indexes()) == 4
    log.append([*log.segment(400), ("k5", "newer")])
    report = log.clean()
    assert (report.segments_unread, report.removed.superseded) == (3, 1)
    assert log.round(500).segments_unread == 5


def test_tombstone_that_gets_its_horizon_in_the_clean_section_goes_at_its_time(tmp_path: Path) -> None:
    """It had none, as of an older cleaner; with a retention of 0 it is due in the next round, in spite of the index."""
    log = GrowingLog(tmp_path, {"delete.retention.ms": "0"})
    log.append([*log.segment(0), ("gone", None)], [*log.segment(100), ("k5", "new")])
    (log.log_dir / "cleaner-offset-checkpoint").write_text("0\n1\nprices 0 31\n")
    assert log.clean().removed.superseded == 1
    assert len(log.indexes()) == 2
    log.now_ms += 1
    assert log.round(200).removed.tombstones == 1


@pytest.mark.parametrize("index", [False, True])
def test_dirty_segment_that_changes_is_read(tmp_path: Path, index: bool) -> None:
    """One of its records is superseded: in it, in a later one; it has a tombstone, or other indexes."""
    log = GrowingLog(tmp_path)
    log.append(
        [*log.segment(0), ("k5", "new")],
        log.segment(100),
        [*log.segment(200), ("k105", "new")],
        [*log.segment(300), ("gone", None)],
        log.segment(400),
        log.segment(500),
    )
    unchanged = sizes(log, *(f"{first:020d}" for first in (61, 123, 153)))
    report = log.clean(index=index)
    assert (report.bytes_read_once, report.bytes_in_place) == (unchanged, unchanged)
    assert report.removed.superseded == 2


@pytest.mark.parametrize("key", ["k0", "k5", "k9", "k29", "gone"])
def test_changed_dirty_segment_stays_unread_until_one_of_its_keys_comes_again(tmp_path: Path, key: str) -> None:
    """It has lost a record, and another has got a horizon; its index has the keys that stay, tombstones too."""
    log = GrowingLog(tmp_path)
    log.append([*log.segment(0), ("k5", "new"), ("gone", None)], log.segment(100))
    assert log.clean().removed.superseded == 1
    assert len(log.indexes()) == 2
    assert log.round(200).segments_unread == 2
    log.append([*log.segment(300), (key, "again")])
    report = log.clean()
    assert (report.segments_unread, report.removed.superseded) == (2, 1)
    assert log.round(400).segments_unread == 4


@pytest.mark.parametrize("loses_checkpoint", [False, True])
def test_changed_dirty_segment_is_read_when_its_horizon_is_due(tmp_path: Path, loses_checkpoint: bool) -> None:
    """Also if a round finds it dirty, and unchanged, once more, as the checkpoint was lost."""
    log = GrowingLog(tmp_path)
    log.append([*log.segment(0), ("k5", "new"), ("gone", None)], log.segment(100))
    log.clean()
    if loses_checkpoint:
        (log.log_dir / "cleaner-offset-checkpoint").unlink()
        for path in log.indexes():
            path.unlink()
        report = log.clean()
        assert report.bytes_in_place == report.bytes_read > report.bytes_read_once
        assert len(log.indexes()) == 2
    log.now_ms += 5 * DAY_MS - 1
    assert log.round(200).segments_unread == 2
    log.now_ms += 1
    report = log.round(300)
    assert (report.segments_unread, report.removed.tombstones) == (2, 1)


def test_changed_dirty_segment_with_an_emptied_batch_gets_no_index(tmp_path: Path) -> None:
    """The batch is kept as its producer's last, and goes when that has written another one."""
    log = GrowingLog(tmp_path)
    sizes_of_first = []
    for first in (1000, 1200):
        with log.manager() as manager:
            manager.log("prices", 0).producer("mine", resume=True).append([_record("k7", "superseded")])
        log.append(log.segment(first), [*log.segment(first + 100), ("k7", "new")])
        assert log.clean().segments_unread == 0
        sizes_of_first.append(sizes(log, FIRST))
    assert [path.stem for path in log.indexes()] == [f"{31:020d}", f"{93:020d}"]
    assert sizes_of_first[1] < sizes_of_first[0]


def test_segment_beyond_the_end_of_the_map_gets_no_index(tmp_path: Path) -> None:
    """The next round reads it in any case."""
    log = GrowingLog(tmp_path)
    log.append([*log.segment(0), ("k5", "new")], [*log.segment(100), ("k105", "new")])
    report = log.clean(settings={"log.cleaner.dedupe.buffer.size": str(24 * 50)})
    assert report.note.startswith(MapEnd.FULL.value)
    assert [path.stem for path in log.indexes()] == [FIRST]


def test_dirty_segment_with_other_indexes_is_read(tmp_path: Path) -> None:
    """Recopying would make them anew."""
    logs = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        log = GrowingLog(tmp_path / name)
        log.append(log.segment(0), log.segment(100), log.segment(200))
        logs.append(log)
    one, other = logs
    index = other.directory / f"{SECOND}.timeindex"
    index.write_bytes(b"")
    all_bytes = sizes(one, FIRST, SECOND, THIRD)
    assert [log.clean(index=False).bytes_read_once for log in logs] == [all_bytes, all_bytes - sizes(one, SECOND)]
    assert {name: data for name, data in one.contents().items() if name.startswith("0")} == {
        name: data for name, data in other.contents().items() if name.startswith("0")
    }


def test_map_that_ends_within_a_segment_reads_it(tmp_path: Path) -> None:
    """Not all of its keys are in the map."""
    log = GrowingLog(tmp_path)
    log.append(log.segment(0), log.segment(100), log.segment(200))
    report = log.clean(settings={"log.cleaner.dedupe.buffer.size": str(24 * 50)})
    assert report.bytes_read_once == sizes(log, FIRST)
    assert report.note.startswith(MapEnd.FULL.value)


def _touch_mtime(log: GrowingLog, first: Path) -> None:
    about = first.stat()
    os.utime(first, ns=(about.st_atime_ns, about.st_mtime_ns + 1_000_000))


def _copy(log: GrowingLog, first: Path) -> None:
    copied = log.log_dir / "copied"
    shutil.copy2(first, copied)
    copied.rename(first)


def _touch_index(log: GrowingLog, first: Path) -> None:
    _touch_mtime(log, first.with_suffix(".index"))


def _lose_key(log: GrowingLog, _first: Path) -> None:
    (log.index_dir / "cleaner-index.key").unlink()


def _swap_indexes(log: GrowingLog, _first: Path) -> None:
    one, other, _third = log.indexes()
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def _tear(log: GrowingLog, _first: Path) -> None:
    for path in log.indexes():
        path.write_bytes(path.read_bytes()[:-1])


def _lose(log: GrowingLog, _first: Path) -> None:
    for path in log.indexes():
        path.unlink()


@pytest.mark.parametrize(
    ("change", "unread"),
    [
        (_touch_mtime, 2),
        (_copy, 2),
        (_touch_index, 2),
        (_lose_key, 0),
        (_swap_indexes, 1),
        (_tear, 0),
        (_lose, 0),
    ],
)
def test_stale_damaged_or_foreign_index_costs_a_read(
    log: GrowingLog, change: Callable[[GrowingLog, Path], None], unread: int
) -> None:
    """The segment is read, and has a right index afterwards."""
    change(log, log.directory / "00000000000000000000.log")
    report = log.round(300)
    assert report.segments_unread == unread
    assert log.round(400).segments_unread == 4


def test_segment_that_a_writer_deletes_gets_no_index(log: GrowingLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read and stays as it is; that it is gone when its index would be written is no error of the round."""

    def gone(*_: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(unread, "identity_of", gone)
    report = log.round(300)
    assert (report.segments_unread, report.index_bytes_written, report.end_offset) == (0, 0, 120)


def test_index_of_another_log_is_not_used(tmp_path: Path) -> None:
    """Even one with the same names and offsets, put in its place, does not keep a superseded record."""
    logs = []
    for name, first in (("a", 0), ("b", 5000)):
        (tmp_path / name).mkdir()
        log = GrowingLog(tmp_path / name)
        log.index_dir = tmp_path / "index"
        log.append(log.segment(first), log.segment(first + 100))
        log.clean()
        log.round(first + 200)
        logs.append(log)
    one, other = logs
    of_one, of_other = sorted({path.parent for path in one.indexes()})
    if "k0" not in str(one.contents()["00000000000000000000.log"]):
        of_one, of_other = of_other, of_one
    for source, target in ((of_one, of_other), (of_other, of_one)):
        for path in source.glob("*.keys"):
            shutil.copy(path, target / f"{path.name}.new")
    for path in sorted(tmp_path.glob("index/*/*/*.new")):
        path.rename(path.with_suffix(""))
    for log, key in ((one, "k5"), (other, "k5005")):
        log.append([(key, "new")])
        report = log.clean()
        assert (report.segments_unread, report.removed.superseded) == (0, 1)


def test_segment_is_read_when_its_horizon_is_due(tmp_path: Path) -> None:
    """A tombstone goes at its time, although no key in its segment was written again."""
    log = GrowingLog(tmp_path)
    log.append([*log.segment(0), ("gone", None)], log.segment(100))
    log.clean()
    log.round(200)
    assert log.round(300).segments_unread == 3
    log.now_ms += 5 * DAY_MS - 1
    assert log.round(400).removed.tombstones == 0
    log.now_ms += 1
    assert log.round(500, keep_tombstones=True).removed.tombstones == 0
    safe = tmp_path / "safe.json"
    point = SafePoint(TopicPartition("prices", 0), 0, "a replica that has seen nothing", None, ())
    write_safe_tombstones(FileSystem(), safe, log.now_ms, [point])
    assert log.round(600, safe_tombstones=safe).removed.tombstones == 0
    assert log.round(700).removed.tombstones == 1


def test_segment_is_read_in_full_after_some_days(log: GrowingLog) -> None:
    """So damage in it is found at the latest then, and not before."""
    path = log.directory / "00000000000000000000.log"
    about = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    log.now_ms += 30 * DAY_MS - 1
    assert log.round(300).segments_unread == 3
    log.now_ms += 1
    with pytest.raises(CorruptBatchError):
        log.round(400)
    with pytest.raises(CorruptBatchError):
        log.clean(index=False)


def test_setting_can_be_turned_off(log: GrowingLog) -> None:
    """With `cleaner.index.enabled` false, or shorter full reads, all clean segments are read."""
    assert log.round(300, settings={"cleaner.index.enabled": "false"}).segments_unread == 0
    log.now_ms += DAY_MS
    assert log.round(400, settings={"cleaner.full.read.days": "1"}).segments_unread == 0


def test_limits_of_a_later_round_are_kept(log: GrowingLog) -> None:
    """Other sizes of indexes, or a lower limit of records, make a round read."""
    assert log.round(300, settings={"index.interval.bytes": "1000"}).segments_unread == 0


def test_indexes_are_given_up_where_they_never_pay(tmp_path: Path) -> None:
    """If each round writes a key of every segment again, ever fewer rounds make indexes."""
    log = GrowingLog(tmp_path)
    log.append(*(log.segment(100 * number) for number in range(8)))
    log.clean()
    written = []
    for number in range(14):
        again = [(f"k{100 * each + number}", "x") for each in range(8)]
        log.append(again)
        written.append(log.clean().index_bytes_written > 0)
    assert written[0]
    assert written.count(True) <= 5


def test_segments_of_transactions_get_no_index(tmp_path: Path) -> None:
    """What happens to them depends on more than their keys."""
    log = GrowingLog(tmp_path)
    with log.manager() as manager:
        producer = manager.log("prices", 0).producer("mine")
        producer.begin()
        for first in range(0, 30, 10):
            producer.append([_record(key, value) for key, value in log.segment(first, 10)])
        producer.commit().result()
        manager.log("prices", 0).roll()
    log.append(log.segment(100))
    log.clean()
    log.round(200)
    assert [path.name[:20] for path in log.indexes()] == ["00000000000000000031", "00000000000000000061"]


def _record(key: str, value: str | None) -> Record:
    return Record(key.encode(), value.encode() if value else None)


def test_tombstone_that_gets_no_horizon_gets_no_index(tmp_path: Path) -> None:
    """R-568: a later round, with a shorter retention, sets its horizon, which an unread segment would not get."""
    log = GrowingLog(tmp_path, {"delete.retention.ms": str(2**63 - 1)})
    log.append([*log.segment(0), ("gone", None)], log.segment(100))
    log.clean()
    log.round(200)
    assert log.indexes() == []
    log.settings["delete.retention.ms"] = "1000"
    before = log.contents()["00000000000000000000.log"]
    log.round(300)
    assert log.contents()["00000000000000000000.log"] != before


def test_index_dir_in_another_log_dir_of_the_broker_is_refused(log: GrowingLog, tmp_path: Path) -> None:
    """A broker takes a directory of another name in a log dir for damage."""
    other = tmp_path / "other"
    other.mkdir()
    log.index_dir = other / "index"
    with pytest.raises(UsageError, match="inside of the log dir"):
        log.round(300, settings={"log.dirs": f"{log.log_dir},{other}"})
    assert not log.index_dir.exists()


def test_stored_digests_have_the_bits_that_are_compared() -> None:
    """One number in two files: the kernel's is not loaded where an index is only written."""
    assert key_index._LOW_BITS == kernel.LOW_BITS
