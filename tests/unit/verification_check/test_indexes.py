"""Damaged indexes: every wrong entry is reported with its position."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from cleaner.app.check_log_dir import CheckOptions
from cleaner.base.model import TopicPartition
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.unit.verification_check.checking import check, log_of

pytestmark = pytest.mark.kernels

BASE = "00000000000000000000"


def written(path: Path) -> Path:
    """Write a log dir with a closed segment of 40 batches; returns the partition's directory."""
    log = log_of(40)
    log.roll()
    log.append(("c", "d"))
    return write_log_dir(path, log) / "topic-0"


def change(path: Path, form: str, slot: int, *values: int) -> int:
    """Write an entry over; returns its position."""
    size = struct.calcsize(form)
    data = bytearray(path.read_bytes())
    struct.pack_into(form, data, slot * size, *values)
    path.write_bytes(data)
    return slot * size


def entry(path: Path, form: str, slot: int) -> tuple[int, ...]:
    return struct.unpack_from(form, path.read_bytes(), slot * struct.calcsize(form))


def test_each_bad_entry_of_an_offset_index_is_reported(tmp_path: Path) -> None:
    """An entry into the middle of a batch, one with another batch's offset, one that goes back, one past the end."""
    index = written(tmp_path) / f"{BASE}.index"
    count = index.stat().st_size // 8
    assert count > 10
    offset, position = entry(index, ">ii", 2)
    bad = [change(index, ">ii", 2, offset, position + 3)]
    offset, position = entry(index, ">ii", 5)
    bad.append(change(index, ">ii", 5, offset - 3, position))
    bad.append(change(index, ">ii", 8, 1, 1))
    bad.append(change(index, ">ii", count - 1, 79, 1 << 30))
    assert sorted(check(tmp_path).damages) == [("offset-index", index.name, at, None) for at in bad]


def test_entries_in_a_row_with_the_same_fault_are_one_finding(tmp_path: Path) -> None:
    """A million entries of the same kind are not a million lines of the report."""
    index = written(tmp_path) / f"{BASE}.index"
    size = index.stat().st_size
    index.write_bytes(index.read_bytes() + struct.pack(">ii", 1, 1) * 500)
    damages = [finding for finding in check(tmp_path).findings if finding.position == size]
    assert [finding.reason for finding in damages] == [
        "an offset that is not above the one before; the same in 499 more entries"
    ]


@pytest.mark.parametrize("kind", ["offset-index", "time-index"])
@pytest.mark.parametrize("segment", ["closed", "active"])
def test_zeros_behind_an_index_are_named_and_repaired(tmp_path: Path, kind: str, segment: str) -> None:
    """D-02: a power cut after a clean stop of Kafka up to 4.3 leaves them beside the marker; one finding a file."""
    directory = written(tmp_path)
    base = sorted(directory.glob("*.log"))[0 if segment == "closed" else -1].stem
    index = directory / f"{base}.{'index' if kind == 'offset-index' else 'timeindex'}"
    size = index.stat().st_size
    index.write_bytes(index.read_bytes() + bytes((10 << 20) // 24 * 24 - size))
    [finding] = check(tmp_path).findings
    assert (finding.kind.value, finding.path, finding.position, finding.is_damage) == (kind, index, size, True)
    assert "zeros" in finding.reason
    assert check(tmp_path, options=CheckOptions(repair=True)).damages == []
    assert index.stat().st_size <= size


def test_zeros_behind_an_active_log_are_named(tmp_path: Path) -> None:
    """D-02: a broker that preallocates leaves them; the finding says where they come from, and what to do."""
    log = sorted(written(tmp_path).glob("*.log"))[-1]
    size = log.stat().st_size
    log.write_bytes(log.read_bytes() + bytes(1 << 20))
    [finding] = check(tmp_path).findings
    assert (finding.path, finding.position, finding.is_damage) == (log, size, True)
    assert "power cut after a clean stop of Kafka up to 4.3" in finding.reason
    assert "cleaner recover" in finding.reason


def test_each_bad_entry_of_a_time_index_is_reported(tmp_path: Path) -> None:
    """A time too early for the batches before it, one later than any batch, an offset beyond the end."""
    index = written(tmp_path) / f"{BASE}.timeindex"
    count = index.stat().st_size // 12
    timestamp, offset = entry(index, ">qi", 3)
    bad = [change(index, ">qi", 3, timestamp - 1, offset)]
    timestamp, offset = entry(index, ">qi", count - 2)
    bad.append(change(index, ">qi", count - 1, timestamp + 10_000, 79))
    assert check(tmp_path).damages == [("time-index", index.name, at, None) for at in bad]
    change(index, ">qi", count - 1, timestamp + 1, 80)
    assert ("time-index", index.name, 12 * (count - 1), None) in check(tmp_path).damages


def test_each_missing_entry_of_a_time_index_is_reported(tmp_path: Path) -> None:
    """
    The last one too: retention and lag go by it.

    A repair makes the index anew, and the offset index with it, since the settings have another interval by now.
    """
    index = written(tmp_path) / f"{BASE}.timeindex"
    whole = index.read_bytes()
    count = len(whole) // 12
    for slot in range(count):
        index.write_bytes(whole[: 12 * slot] + whole[12 * (slot + 1) :])
        assert check(tmp_path).damages == [("time-index", index.name, 12 * slot, None)], slot
    assert count > 10
    repaired = check(tmp_path, options=CheckOptions(repair=True))
    assert repaired.damages == []
    assert sorted(file.path.suffix for file in repaired.repaired) == [".index", ".timeindex"]
    assert index.read_bytes()[-12:] == whole[-12:]


def test_time_index_of_an_active_segment_ends_with_its_largest_timestamp(tmp_path: Path) -> None:
    """After a stop in order; a broker at work, or one that was killed, has yet to write the last entry."""
    index = write_log_dir(tmp_path, log_of(3)) / "topic-0" / f"{BASE}.timeindex"
    index.write_bytes(index.read_bytes()[:-12])
    assert check(tmp_path).damages == [("time-index", index.name, index.stat().st_size, None)]
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    assert check(tmp_path).damages == []


def test_time_index_entry_with_the_timestamp_of_no_batch_is_reported(tmp_path: Path) -> None:
    """Searches by time would begin too late or too early."""
    index = written(tmp_path) / f"{BASE}.timeindex"
    timestamp, offset = entry(index, ">qi", 4)
    at = change(index, ">qi", 4, timestamp, offset - 2)
    assert check(tmp_path).damages == [("time-index", index.name, at, None)]


def test_missing_index_is_damage_after_a_clean_stop_and_a_note_without_one(tmp_path: Path) -> None:
    """Without the marker a broker makes it anew; with it the file was there."""
    directory = written(tmp_path)
    (directory / f"{BASE}.index").unlink()
    assert check(tmp_path).damages == [("index-missing", f"{BASE}.index", None, None)]
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    checked = check(tmp_path)
    assert (checked.damages, checked.notes) == ([], [("index-missing", f"{BASE}.index")])


def transactional(path: Path) -> Path:
    log = LogBuilder()
    for number, commits in enumerate((True, False, False)):
        producer = Producer(7, 0, 2 * number, transactional=True)
        log.append((f"k{number}", "v"), (f"l{number}", "v"), producer=producer)
        log.end_transaction(7, 0, commit=commits)
    log.roll()
    log.append(("c", "d"))
    return write_log_dir(path, log) / "topic-0" / f"{BASE}.txnindex"


@pytest.mark.parametrize("version", [1, 256, -1])
def test_txn_index_of_an_unknown_version_is_damage_that_a_repair_mends(tmp_path: Path, version: int) -> None:
    """R-303: no release of Kafka writes one; 4.4 does not load such a log."""
    index = transactional(tmp_path)
    whole = index.read_bytes()
    change(index, ">h", 17, version)  # of the second entry
    assert check(tmp_path).damages == [("transaction-index", index.name, 34, None)]
    assert check(tmp_path, options=CheckOptions(repair=True)).damages == []
    assert index.read_bytes() == whole


def test_aborted_transaction_without_an_entry_is_reported(tmp_path: Path) -> None:
    """Its records would be shown to read_committed consumers."""
    index = transactional(tmp_path)
    assert check(tmp_path).damages == []
    index.write_bytes(index.read_bytes()[34:])
    assert check(tmp_path).damages == [("transaction-index", index.name, None, 5)]


@pytest.mark.parametrize(("log_start", "damages"), [(0, 1), (2, 1), (3, 0)])
def test_aborted_data_below_the_log_start_needs_no_entry(tmp_path: Path, log_start: int, damages: int) -> None:
    """A power cut may leave a segment below the log start, and not those of its markers; a recovery passes over it."""
    log = LogBuilder()
    log.append(("a", "v"), ("b", "v"), producer=Producer(7, 0, 0, transactional=True))
    log.append(("c", "v"), producer=Producer(7, 0, 2, transactional=True))
    second = log.roll().base_offset
    log.end_transaction(7, 0, commit=False)
    write_log_dir(tmp_path, log, log_start_offsets={TopicPartition("topic", 0): log_start})
    index = tmp_path / "topic-0" / f"{second:020d}.txnindex"
    index.unlink()
    assert len(check(tmp_path).damages) == damages


def test_bad_entries_of_a_transaction_index_are_reported(tmp_path: Path) -> None:
    """An unknown version, and a transaction that is not in the segment."""
    index = transactional(tmp_path)
    version, producer, first, last, stable = entry(index, ">hqqqq", 1)
    change(index, ">hqqqq", 1, version, producer, first, 1000, stable)
    assert ("transaction-index", index.name, 34, None) in check(tmp_path).damages
    change(index, ">hqqqq", 1, 512, producer, first, last, stable)
    assert ("transaction-index", index.name, 34, None) in check(tmp_path).damages


def test_entry_of_a_transaction_index_must_fit_its_marker_and_its_data(tmp_path: Path) -> None:
    """An entry without a marker, and one that begins after records it must hide."""
    index = transactional(tmp_path)
    version, producer, first, last, stable = entry(index, ">hqqqq", 0)
    change(index, ">hqqqq", 0, version, producer, first + 1, last, stable)
    assert check(tmp_path).damages == [("transaction-index", index.name, 0, None)]
    change(index, ">hqqqq", 0, version, producer, first, last - 1, stable)
    assert ("transaction-index", index.name, 0, None) in check(tmp_path).damages


def test_cleaner_checkpoint_beyond_the_log_is_a_note(tmp_path: Path) -> None:
    """The next round begins anew (R-405)."""
    write_log_dir(tmp_path, log_of(3), cleaner_offsets={TopicPartition("topic", 0): 7})
    checked = check(tmp_path)
    assert (checked.damages, checked.notes) == ([], [("checkpoint", "cleaner-offset-checkpoint")])


def test_entry_for_a_batch_that_cannot_be_read_is_not_judged(tmp_path: Path) -> None:
    """What it should be is unknown."""
    directory = written(tmp_path)
    log = directory / f"{BASE}.log"
    _, position = entry(directory / f"{BASE}.index", ">ii", 4)
    data = bytearray(log.read_bytes())
    data[position + 16] = 9
    data[position + 8] = 0x70
    log.write_bytes(data)
    assert [kind for kind, *_ in check(tmp_path).damages] == ["batch-magic"]
