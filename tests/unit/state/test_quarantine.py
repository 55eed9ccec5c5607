"""Quarantined logs stay so over restarts, until they are released."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.errors import CorruptBatchError, LogDirOfflineError, UncleanableError
from cleaner.state.quarantine import FILE_NAME, Quarantine, QuarantinedLog, read_quarantine
from cleaner.state.state_file import BadStateError
from cleaner.storage.fs.file_system import FileSystem
from tests.support.watched_fs import FailingFileSystem

ORDERS = TopicPartition("orders", 0)
PRICES = TopicPartition("prices", 3)
LOGS = Path("/logs")
NOW_MS = 1_700_000_000_000


def never(warning: str) -> None:
    raise AssertionError(warning)


def quarantine(directory: Path, fs: FileSystem | None = None) -> Quarantine:
    return Quarantine(fs or FileSystem(), directory, never)


def entry(topic_partition: TopicPartition = ORDERS, log_dir: Path = LOGS, reason: str = "bad CRC") -> QuarantinedLog:
    error = CorruptBatchError(log_dir / str(topic_partition) / "0.log", 4711, reason)
    return QuarantinedLog.of(topic_partition, log_dir, error, NOW_MS)


def test_entry_of_damage_names_file_position_reason_and_kind() -> None:
    """All that an operator needs to look for himself."""
    found = entry()
    assert (found.file, found.position) == ("/logs/orders-0/0.log", 4711)
    assert (found.reason, found.kind, found.since_ms) == ("bad CRC", "CorruptBatchError", NOW_MS)


def test_entry_of_another_error_has_what_is_known() -> None:
    """An error without a position, one without a file, one without words."""
    full = QuarantinedLog.of(ORDERS, LOGS, UncleanableError("/logs/orders-0", "index full"), NOW_MS)
    assert (full.file, full.position, full.reason) == ("/logs/orders-0", None, "index full")
    ours = QuarantinedLog.of(ORDERS, LOGS, ZeroDivisionError(), NOW_MS)
    assert (ours.file, ours.position, ours.reason) == (None, None, "ZeroDivisionError")


def test_entries_survive_a_restart(tmp_path: Path) -> None:
    """Each with all it has, by partition and log dir."""
    first = quarantine(tmp_path)
    given = [entry(PRICES), entry(ORDERS, Path("/b\udc80\n")), entry(ORDERS, Path("/a"), "line\nbreak \x1b[2J")]
    for one in given:
        first.add(one)
    second = quarantine(tmp_path)
    assert second.entries() == first.entries() == sorted(given, key=lambda one: (one.topic_partition, one.log_dir))


def test_log_quarantined_again_has_its_latest_reason(tmp_path: Path) -> None:
    """One entry a log."""
    logs = quarantine(tmp_path)
    logs.add(entry())
    logs.add(entry(reason="worse"))
    assert [one.reason for one in logs.entries()] == ["worse"]


def test_released_partition_is_free_after_a_restart_too(tmp_path: Path) -> None:
    """In one log dir or in all; others stay."""
    logs = quarantine(tmp_path)
    for one in (entry(ORDERS, Path("/a")), entry(ORDERS, Path("/b")), entry(ORDERS, Path("/c")), entry(PRICES)):
        logs.add(one)
    assert logs.release(ORDERS, Path("/b")) == [entry(ORDERS, Path("/b"))]
    assert entry(ORDERS, Path("/b")) not in quarantine(tmp_path).entries()
    assert [one.log_dir for one in logs.release(ORDERS)] == ["/a", "/c"]
    assert quarantine(tmp_path).entries() == [entry(PRICES)]
    assert logs.release(ORDERS) == []


def test_change_the_disk_refuses_counts_and_is_written_later(tmp_path: Path) -> None:
    """A full state directory must not set a damaged log free, nor keep a released one."""
    fs = FailingFileSystem(0, errno.EIO)
    logs = quarantine(tmp_path, fs)
    with pytest.raises(LogDirOfflineError):
        logs.add(entry())
    assert logs.entries() == [entry()]
    assert quarantine(tmp_path).entries() == []
    logs.save()
    assert quarantine(tmp_path).entries() == [entry()]
    calls = fs.calls
    logs.save()
    assert fs.calls == calls, "nothing is left to be written"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param("{", "Expecting property name", id="no-json"),
        pytest.param('{"format": "cleaner-quarantine", "version": 1}', "no list of entries", id="no-entries"),
        pytest.param(
            '{"format": "cleaner-quarantine", "version": 1, "entries": [{"topic_partition": "../x-0", "log_dir": "/l", '
            '"reason": "r", "kind": "k", "file": null, "position": null, "since_ms": 1}]}',
            "entry 0: '../x-0' is not a topic",
            id="no-partition",
        ),
        pytest.param(
            '{"format": "cleaner-quarantine", "version": 1, "entries": [{"topic_partition": "x-0"}]}',
            "entry 0: log_dir is missing",
            id="no-log-dir",
        ),
        pytest.param('{"format": "cleaner-quarantine", "version": 9, "entries": []}', "newer than 1", id="newer"),
    ],
)
def test_unusable_file_is_reported_and_kept(tmp_path: Path, data: str, words: str) -> None:
    """The daemon starts with an empty quarantine, and an operator learns of it."""
    (tmp_path / FILE_NAME).write_text(data)
    warnings: list[str] = []
    logs = Quarantine(FileSystem(), tmp_path, warnings.append)
    assert logs.entries() == []
    assert len(warnings) == 1
    assert words in warnings[0]
    kept = next(path for path in tmp_path.iterdir() if path.name.startswith(FILE_NAME + "."))
    assert kept.name in warnings[0]
    logs.add(entry())
    assert kept.read_text() == data


def test_quarantine_is_read_by_others_without_a_change(tmp_path: Path) -> None:
    """Only the daemon moves its files away."""
    assert read_quarantine(FileSystem(), tmp_path) == []
    quarantine(tmp_path).add(entry())
    assert read_quarantine(FileSystem(), tmp_path) == [entry()]


@pytest.mark.parametrize("content", ["{", '{"format": "cleaner-quarantine", "version": 99}', '{"format": "other"}'])
def test_quarantine_that_cannot_be_used_stays_where_it_is(tmp_path: Path, content: str) -> None:
    """Its reader says what is wrong."""
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(BadStateError):
        read_quarantine(FileSystem(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_entry_without_a_place_keeps_its_log_in_quarantine(tmp_path: Path) -> None:
    """An operator may write one by hand, with no more than which log and why."""
    (tmp_path / FILE_NAME).write_text(
        '{"format": "cleaner-quarantine", "version": 1, "entries": [{"topic_partition": "x-0", "log_dir": "/l", '
        '"reason": "r", "kind": "k", "since_ms": 1}]}'
    )
    found = Quarantine(FileSystem(), tmp_path, pytest.fail).entries()
    assert [(each.log_dir, each.file, each.position) for each in found] == [("/l", None, None)]
