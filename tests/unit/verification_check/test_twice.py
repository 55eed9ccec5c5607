"""Keys that occur twice in the clean section."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.app.check_log_dir import CheckOptions
from cleaner.base.model import TopicPartition
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.unit.verification_check.checking import check

pytestmark = pytest.mark.kernels

PARTITION = TopicPartition("topic", 0)


def twice(path: Path, memory_bytes: int = 1 << 20) -> list[tuple[str, int | None]]:
    """Return file and offset of each record whose key occurs again."""
    checked = check(path, options=CheckOptions(clean_section=True, memory_bytes=memory_bytes))
    assert all(kind == "key-twice" for kind, *_ in checked.damages)
    return [(name, offset) for _, name, _, offset in checked.damages]


@pytest.mark.parametrize("memory_bytes", [1, 64 << 10, 16 << 20])
def test_key_that_occurs_twice_below_the_checkpoint_is_reported(tmp_path: Path, memory_bytes: int) -> None:
    """In the same segment or a later one; found in one pass, or range by range if memory is short."""
    log = LogBuilder()
    for number in range(6000):
        log.append((f"k{number}", "v"))
        if number in (999, 3999):
            log.roll()
    log.append(("k17", "v"), ("k1500", "v"), ("k5999", "v"))
    log.append(("k17", "w"))
    end = log.next_offset
    log.append(("k18", "v"))
    log.roll()
    log.append(("c", "d"))
    write_log_dir(tmp_path, log, cleaner_offsets={PARTITION: end})
    names = ["00000000000000000000.log", "00000000000000001000.log", "00000000000000004000.log"]
    assert sorted(twice(tmp_path, memory_bytes)) == [
        (names[0], 17),
        (names[1], 1500),
        (names[2], 5999),
        (names[2], 6000),
    ]


def test_key_that_is_everywhere_takes_no_more_memory(tmp_path: Path) -> None:
    """A section that was never clean: each record but the last is superseded."""
    log = LogBuilder()
    for _ in range(50):
        log.append(*[("same", "v")] * 100)
    log.roll()
    log.append(("c", "d"))
    write_log_dir(tmp_path, log, cleaner_offsets={PARTITION: 5000})
    assert [offset for _, offset in twice(tmp_path, 1)] == list(range(4999))


def test_markers_aborted_records_and_records_without_a_key_are_no_keys(tmp_path: Path) -> None:
    """Markers all have the same key, an aborted value supersedes nothing."""
    log = LogBuilder()
    for number in range(3):
        producer = Producer(7, 0, number, transactional=True)
        log.append(("k", "v"), producer=producer)
        log.end_transaction(7, 0, commit=number == 1)
    log.append((None, "x"), (None, "y"))
    log.roll()
    log.append(("c", "d"))
    write_log_dir(tmp_path, log, cleaner_offsets={PARTITION: 8})
    assert twice(tmp_path) == []


def test_key_that_comes_again_in_a_transaction_is_a_note(tmp_path: Path) -> None:
    """Its round may have passed it over; a plain record behind it makes both of them damage no round leaves."""
    log = LogBuilder()
    log.append(("k", "0"))
    log.append(("k", "1"), producer=Producer(7, 0, 0, transactional=True))
    log.end_transaction(7, 0, commit=True)
    end = log.next_offset
    log.append(("k", "2"))
    log.roll()
    log.append(("c", "d"))
    options = CheckOptions(clean_section=True)
    write_log_dir(tmp_path / "note", log, cleaner_offsets={PARTITION: end})
    checked = check(tmp_path / "note", options=options)
    assert (checked.damages, [kind for kind, _ in checked.notes]) == ([], ["key-twice"])
    write_log_dir(tmp_path / "damage", log, cleaner_offsets={PARTITION: end + 1})
    assert [offset for *_, offset in check(tmp_path / "damage", options=options).damages] == [1]
