"""The journal keeps its entries, in order, through crashes, full disks and changes of files."""

from __future__ import annotations

import errno
import itertools
import threading
from pathlib import Path

import pytest

from cleaner.errors import CleanerError, LogDirOfflineError
from cleaner.state.journal import MAX_LINE_BYTES, Journal, JournalEntry, journal_numbers, journal_path
from cleaner.state.journal_reader import JournalFilter, JournalReader
from cleaner.storage.fs.file_system import FileSystem
from tests.support.forgetful_fs import ForgetfulFileSystem
from tests.support.manual_clock import START_MS, ManualClock
from tests.support.watched_fs import FailingFileSystem, Kind

SMALL = 400
"""Bytes of a file for some four entries."""


def journal(directory: Path, fs: FileSystem | None = None, *, bytes_a_file: int = SMALL, **options: int) -> Journal:
    return Journal(fs or FileSystem(), directory, ManualClock(), max_file_bytes=bytes_a_file, **options)


def kinds(directory: Path, wanted: JournalFilter | None = None) -> list[str]:
    return [entry.kind for entry in JournalReader(FileSystem(), directory).entries(wanted)]


def numbered(first: int, last: int) -> list[str]:
    """Names of entries, the newest first."""
    return [str(number) for number in range(last, first - 1, -1)]


def test_journal_without_entries_is_empty(tmp_path: Path) -> None:
    """Looking creates nothing."""
    journal(tmp_path).sync()
    assert kinds(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_entries_are_read_newest_first_with_all_fields(tmp_path: Path) -> None:
    """Over a restart and several files."""
    clock = ManualClock()
    for number in range(10):
        book = Journal(FileSystem(), tmp_path, clock, max_file_bytes=SMALL)
        book.append("round", f"orders-{number}", {"removed": number, "by": {"uid": 1000}, "of": [1.5, None, True]})
        clock.move_on(1.0)
    found = list(JournalReader(FileSystem(), tmp_path).entries())
    assert found == [
        JournalEntry(
            START_MS + 1000 * number,
            "round",
            f"orders-{number}",
            {"removed": number, "by": {"uid": 1000}, "of": [1.5, None, True]},
        )
        for number in range(9, -1, -1)
    ]
    assert len(journal_numbers(FileSystem(), tmp_path)) > 1


def test_names_with_line_breaks_and_no_characters_stay_in_their_line(tmp_path: Path) -> None:
    """A name may hold what a file name can; a line is printable ASCII, and what was written is read."""
    odd = 'a\n{"kind": "forged"}\r\u2028\x1b[2J\x7f\x00\udc80'
    journal(tmp_path, bytes_a_file=1 << 20).append(odd, odd, {odd: odd})
    journal(tmp_path, bytes_a_file=1 << 20).append("next")
    lines = journal_path(tmp_path, 1).read_bytes().splitlines()
    assert len(lines) == 2
    assert all(0x20 <= byte < 0x7F for line in lines for byte in line)
    found = list(JournalReader(FileSystem(), tmp_path).entries())[1]
    assert (found.kind, found.partition, found.details) == (odd, odd, {odd: odd})


def test_files_are_bounded_and_the_oldest_go(tmp_path: Path) -> None:
    """At most so many of at most so many bytes, and the newest entries are there without a gap."""
    book = journal(tmp_path, kept_files=3)
    for number in range(100):
        book.append(str(number))
        paths = list(tmp_path.iterdir())
        assert len(paths) <= 3
        assert all(path.stat().st_size <= SMALL for path in paths)
        found = kinds(tmp_path)
        assert found == numbered(number - len(found) + 1, number)
    assert len(found) >= 9


def test_entry_larger_than_a_file_gets_one_of_its_own(tmp_path: Path) -> None:
    """It is not lost, and the next one is not harmed."""
    book = journal(tmp_path)
    for kind in ("small", "large" * SMALL, "small"):
        book.append(kind)
    assert kinds(tmp_path) == ["small", "large" * SMALL, "small"]


def test_entry_that_cannot_be_a_line_changes_nothing(tmp_path: Path) -> None:
    """An error of the caller, raised before anything is written."""
    book = journal(tmp_path)
    with pytest.raises(TypeError):
        book.append("round", None, {"path": tmp_path})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="bytes, at most"):
        book.append("round", None, {"text": "x" * MAX_LINE_BYTES})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("torn", [b'{"time_ms": 17', b"\x00" * 50, b"\xff\xfe", b"[1]"])
def test_torn_last_line_is_passed_over_and_costs_no_other_entry(tmp_path: Path, torn: bytes) -> None:
    """What a crash left in the middle of a line; the next entry begins on a line of its own."""
    journal(tmp_path).append("before")
    with journal_path(tmp_path, 1).open("ab") as file:
        file.write(torn)
    assert kinds(tmp_path) == ["before"]
    journal(tmp_path).append("after")
    reader = JournalReader(FileSystem(), tmp_path)
    assert [entry.kind for entry in reader.entries()] == ["after", "before"]
    assert reader.unreadable_lines == 1


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind": "x", "partition": null, "details": {}}',
        b'{"time_ms": true, "kind": "x", "partition": null, "details": {}}',
        b'{"time_ms": 1, "kind": 2, "partition": null, "details": {}}',
        b'{"time_ms": 1, "kind": "x", "partition": 3, "details": {}}',
        b'{"time_ms": 1, "kind": "x", "partition": null, "details": []}',
    ],
)
def test_line_of_another_shape_is_no_entry(line: bytes) -> None:
    """Readers of entries can rely on their types."""
    assert JournalEntry.from_line(line) is None


def test_lines_longer_than_a_block_are_read_whole(tmp_path: Path) -> None:
    """Files are read backwards in blocks, whose borders fall anywhere."""
    book = journal(tmp_path, bytes_a_file=1 << 22)
    texts = [chr(65 + number) * size for number, size in enumerate((10, 70_000, 65_536, 3, 200_000, 131_072))]
    for text in texts:
        book.append(text)
    assert kinds(tmp_path) == texts[::-1]


def test_endless_line_is_no_entry_and_takes_no_memory_to_speak_of(tmp_path: Path) -> None:
    """Megabytes without a line break, as a power cut may leave them, cost one unreadable line."""
    journal(tmp_path, bytes_a_file=1 << 30).append("before")
    with journal_path(tmp_path, 1).open("ab") as file:
        file.write(JournalEntry(1, "endless").to_line()[:-1] + b" " * (4 << 20) + b"\n")
    journal(tmp_path, bytes_a_file=1 << 30).append("after")
    reader = JournalReader(FileSystem(), tmp_path)
    assert [entry.kind for entry in reader.entries()] == ["after", "before"]
    assert reader.unreadable_lines == 1


def test_files_of_other_releases_and_foreign_files_are_left_alone(tmp_path: Path) -> None:
    """Neither read, nor appended to, nor removed."""
    strangers = ["journal.v2.00000001.jsonl", "journal.v1.1.jsonl", "journal.v1.00000001.jsonl.gz", "quarantine.json"]
    for name in strangers:
        (tmp_path / name).write_text("theirs\n")
    book = journal(tmp_path, kept_files=1)
    for number in range(20):
        book.append(str(number))
    assert len(journal_numbers(FileSystem(), tmp_path)) == 1
    assert [(tmp_path / name).read_text() for name in strangers] == ["theirs\n"] * len(strangers)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param(JournalFilter(), [3, 2, 1, 0], id="all"),
        pytest.param(JournalFilter(kinds=frozenset({"round"})), [2, 0], id="kind"),
        pytest.param(JournalFilter(partition="orders-1"), [2], id="partition"),
        pytest.param(JournalFilter(partition="orders"), [2, 1, 0], id="topic"),
        pytest.param(JournalFilter(since_ms=START_MS + 1000), [3, 2, 1], id="since"),
        pytest.param(JournalFilter(until_ms=START_MS + 1000), [0], id="until"),
        pytest.param(JournalFilter(frozenset({"round"}), "orders", START_MS + 1, START_MS + 9000), [2], id="together"),
    ],
)
def test_filter_says_which_entries_are_wanted(tmp_path: Path, wanted: JournalFilter, expected: list[int]) -> None:
    """By kind, by partition or topic, by time; all conditions together."""
    clock = ManualClock()
    book = Journal(FileSystem(), tmp_path, clock)
    given = [("round", "orders-0"), ("pause", "orders"), ("round", "orders-1"), ("pause", None)]
    for number, (kind, partition) in enumerate(given):
        book.append(kind, partition, {"number": number})
        clock.move_on(1.0)
    reader = JournalReader(FileSystem(), tmp_path)
    assert [entry.details["number"] for entry in reader.entries(wanted)] == expected


def test_threads_append_whole_lines(tmp_path: Path) -> None:
    """Workers and commands write at the same time; nothing is mixed or lost."""
    book = journal(tmp_path, bytes_a_file=4000, kept_files=1000)

    def work(name: int) -> None:
        for number in range(50):
            book.append(f"{name}.{number}")

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(kinds(tmp_path)) == sorted(f"{name}.{number}" for name in range(4) for number in range(50))


def test_power_cut_keeps_each_entry_that_was_acknowledged(tmp_path: Path) -> None:
    """At every moment, with new and vanishing files: everything `append` returned for, in order, once."""
    disk = tmp_path / "disk"
    disk.mkdir()
    fs = ForgetfulFileSystem(disk)
    book = journal(disk, fs, kept_files=2)
    acknowledged = [0]  # the journal's length by the number of entries that were on disk then
    for number in range(12):
        book.append(str(number))
        acknowledged.append(len(fs.journal))
    copies = itertools.count()
    for point in fs.crash_points():
        count = sum(length <= point for length in acknowledged) - 1
        for state in fs.states_at(point, limit=24, seed=7):
            copy = tmp_path / f"copy-{next(copies)}"
            state.write_to(copy)
            found = kinds(copy)
            newest = int(found[0]) if found else -1
            assert newest in (count - 1, count), f"{state.note}: {found}"
            assert found == numbered(newest - len(found) + 1, newest), f"{state.note}: {found}"
            assert len(found) >= min(count, 4), f"{state.note}: {found}"
            journal(copy, kept_files=2).append("later")
            assert kinds(copy)[0] == "later", state.note
            assert kinds(copy)[1:3] == found[:2], state.note


def test_power_cut_between_rare_fsyncs_takes_the_end_only(tmp_path: Path) -> None:
    """What an fsync has seen stays; files that are left are on disk before the next one begins."""
    disk = tmp_path / "disk"
    disk.mkdir()
    fs = ForgetfulFileSystem(disk)
    clock = ManualClock()
    book = Journal(fs, disk, clock, max_file_bytes=SMALL, fsync_every_ms=3000)
    for number in range(12):
        book.append(str(number))
        clock.move_on(1.0)
    assert 4 <= len([sync for sync in fs.syncs if sync.kind == "fsync"]) <= 8
    states = list(fs.states_at(len(fs.journal), limit=64, seed=7))
    assert len(states) > 1
    for number, state in enumerate(states):
        state.write_to(tmp_path / f"{number}")
        found = kinds(tmp_path / f"{number}")
        assert found[-9:] == numbered(0, 8), state.note
    book.sync()
    assert len(list(fs.states_at(len(fs.journal), limit=64, seed=7))) == 1


@pytest.mark.parametrize("kind", ["create", "write", "fsync", "fsync_dir", "remove"])
def test_disk_error_costs_at_most_the_entry_it_met(tmp_path: Path, kind: Kind) -> None:
    """Each call of its kind fails once: the caller learns of it, and all others are there, in order, once."""
    for fail_at in range(30):
        directory = tmp_path / f"{fail_at}"
        directory.mkdir()
        fs = FailingFileSystem(fail_at, errno.ENOSPC, kinds=frozenset((kind,)))
        book = journal(directory, fs, kept_files=100 if kind != "remove" else 2)
        refused = []
        for number in range(12):
            try:
                book.append(str(number))
            except CleanerError:
                refused.append(str(number))
        found = kinds(directory)
        others = [name for name in found if name not in refused]
        expected = [name for name in numbered(0, 11) if name not in refused]
        assert len(refused) == (fs.failed is not None)
        assert others == (expected[: len(others)] if kind == "remove" else expected)
        assert len(others) >= 4
        assert len(set(found)) == len(found)
        if fs.failed is None:
            assert fail_at >= 1
            return
    raise AssertionError(f"more than 30 calls of {kind}")


def test_file_whose_fsync_failed_is_left_for_another(tmp_path: Path) -> None:
    """A later fsync of it may succeed and mean nothing (rule C-2)."""
    fs = FailingFileSystem(1, errno.EIO, kinds=frozenset(("fsync",)))
    book = journal(tmp_path, fs)
    book.append("first")
    with pytest.raises(CleanerError):
        book.append("doubtful")
    size = journal_path(tmp_path, 1).stat().st_size
    book.append("second")
    assert journal_path(tmp_path, 1).stat().st_size == size
    assert journal_numbers(fs, tmp_path) == [1, 2]
    assert kinds(tmp_path) == ["second", "doubtful", "first"]


def test_journal_of_lost_directory_fails_as_a_disk_does(tmp_path: Path) -> None:
    """Who writes an entry knows errors of the disk, and loses the entry alone."""
    directory = tmp_path / "state"
    directory.mkdir()
    book = journal(directory)
    book.append("round")
    (directory / journal_path(directory, 1).name).unlink()
    directory.rmdir()
    with pytest.raises(LogDirOfflineError, match="state"):
        book.append("round")
    with pytest.raises(LogDirOfflineError, match="state"):
        book.sync()
