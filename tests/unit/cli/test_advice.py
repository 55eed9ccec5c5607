"""What to do next about an error."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.base.remote_path import any_path
from cleaner.cli.advice import advice
from cleaner.cli.output import print_failure, say_refusal
from cleaner.errors import (
    CleanerError,
    CorruptBatchError,
    CorruptCheckpointError,
    CorruptIndexError,
    LogDirLockedError,
    LogDirOfflineError,
    NoSpaceError,
    UsageError,
    disk_error,
)
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.log_dir_lock import LogDirLock

_LOG = Path("/data/a b-0/00000000000000000000.log")


@pytest.mark.parametrize(
    ("error", "command"),
    [
        (CorruptBatchError(_LOG, 61, "wrong checksum"), "cleaner check '/data/a b-0'"),
        (CorruptIndexError(_LOG.with_suffix(".index"), 8, "goes back"), "cleaner check --repair '/data/a b-0'"),
        (CorruptCheckpointError("/data/cleaner-offset-checkpoint", 0, "?"), "rm /data/cleaner-offset-checkpoint"),
        (CorruptCheckpointError("/data/recovery-point-offset-checkpoint", 0, "?"), "cleaner recover /data"),
        (CorruptCheckpointError("/data/p-0/leader-epoch-checkpoint", 0, "?"), "cleaner recover /data"),
        (CorruptCheckpointError(f"/data/__cluster_metadata-0/{_LOG.name}", 91, "?"), "--metadata-dir DIR"),
        (LogDirLockedError("/data: in use"), "fuser -v LOG_DIR/.lock"),
    ],
)
def test_advice_names_a_command_for_the_place(error: CleanerError, command: str) -> None:
    """It can be pasted into a shell, whatever the path is like."""
    assert command in advice(error)


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("s3://backups/kafka/orders-0", "`aws s3 ls`"),
        ("abfs://box@account.dfs.core.windows.net/kafka/orders-0", "`rclone lsf`"),
        ("tiered+s3://backups/moved::/data/::/orders-0", "`aws s3 ls`"),
        ("tiered+file:///moved::/data/::/orders-0", "`ls -ld /moved`"),
    ],
)
def test_advice_about_a_bucket_is_of_its_kind(url: str, command: str) -> None:
    """Tiered storage is where its moved segments are."""
    assert command in advice(disk_error(any_path(url), OSError(errno.EIO, "I/O error")))


@pytest.mark.parametrize("error", [NoSpaceError, lambda path, _: disk_error(path, OSError(errno.EIO, "I/O error"))])
def test_advice_about_a_disk_names_an_existing_path(tmp_path: Path, error: Callable[[Path, int], CleanerError]) -> None:
    """Files of the failed work are gone by the time an operator looks."""
    place = tmp_path / "prices-0"
    place.mkdir()
    assert f" {place}`" in advice(error(place, 10))
    assert f" {place}`" in advice(error(place / "0.log.cleaned", 10))
    assert f" {tmp_path}`" in advice(error(tmp_path / "prices-0.abc-delete" / "0.log", 10))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EIO, "dmesg | tail"),
        (errno.ESTALE, "dmesg | tail"),
        (errno.EROFS, "mount it read-write"),
        (errno.ELOOP, "ls -ld"),
        (errno.EPERM, "lsattr -d"),
    ],
)
def test_advice_depends_on_the_systems_reason(tmp_path: Path, number: int, words: str) -> None:
    """Few of them are the disk's fault."""
    told = advice(disk_error(tmp_path, OSError(number, "?")))
    assert (words in told, "fsynced" in told) == (True, words.startswith("dmesg"))


def test_advice_about_another_users_log_dir_is_to_start_as_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As found when it is locked, and for a file that cannot be given to its owner."""
    stranger = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: stranger)
    with pytest.raises(LogDirOfflineError) as caught:
        LogDirLock(FileSystem(), tmp_path)
    unmade = disk_error(tmp_path / "0.log.cleaned", PermissionError(errno.EPERM, "Operation not permitted"))
    for error in (caught.value, unmade):
        assert f"start as its owner (`ls -ld {tmp_path}`), or as root" in advice(error)


@pytest.mark.root
def test_advice_about_a_file_closed_to_its_user_names_the_mode_or_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment of mode 000, and a partition of another user in our log dir."""
    segment, partition = tmp_path / "0.log", tmp_path / "prices-0"
    segment.touch(0)
    partition.mkdir(0o700)
    for path in (tmp_path, segment):
        os.chown(path, 12345, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(os, "access", lambda path, _: path != segment)
    refused = PermissionError(errno.EACCES, "Permission denied")
    assert advice(disk_error(segment, refused)).startswith(f"`chmod u+rwX {segment}`")
    assert advice(disk_error(partition / "0.log", refused)).startswith(f"`chown --reference={tmp_path} {partition}`")


def test_failure_is_followed_by_what_to_do_next(capsys: pytest.CaptureFixture[str]) -> None:
    """Two lines: what is wrong, and the next command; both without control characters."""
    print_failure(CorruptIndexError("/data/\x1b[2J-0/0.index", 8, "goes back"), "p-0")
    first, second = capsys.readouterr().err.splitlines()
    assert first == r"cleaner: p-0: /data/\x1b[2J-0/0.index: at byte 8: goes back"
    assert second.startswith(r"  next: `cleaner check --repair '/data/\x1b[2J-0'`")


def test_failure_without_advice_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Where an error says all there is to say."""
    print_failure(UsageError("what?"))
    assert capsys.readouterr().err == "cleaner: what?\n"


def test_refusal_as_json_has_the_advice(capsys: pytest.CaptureFixture[str]) -> None:
    """Programs get it too."""
    from cleaner.app.reports import Refusal

    assert say_refusal(Refusal("p-0", CorruptBatchError(_LOG, 61, "wrong checksum")), "clean", "json") == 1
    line, told = capsys.readouterr()
    assert told.startswith("cleaner: p-0: ")
    assert line.startswith('{"format": "cleaner-clean", "format_version": 1, "partition": "p-0", ')
    assert '"next": "`cleaner check' in line
