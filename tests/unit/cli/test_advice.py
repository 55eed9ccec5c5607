"""What to do next about an error."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.cli.advice import advice
from cleaner.cli.output import print_failure, refusal_line
from cleaner.errors import (
    CleanerError,
    CorruptBatchError,
    CorruptCheckpointError,
    CorruptIndexError,
    LogDirLockedError,
    NoSpaceError,
    UsageError,
    disk_error,
)

_LOG = Path("/data/a b-0/00000000000000000000.log")


@pytest.mark.parametrize(
    ("error", "command"),
    [
        (CorruptBatchError(_LOG, 61, "wrong checksum"), "cleaner check '/data/a b-0'"),
        (CorruptIndexError(_LOG.with_suffix(".index"), 8, "goes back"), "cleaner check --repair '/data/a b-0'"),
        (CorruptCheckpointError("/data/cleaner-offset-checkpoint", 0, "?"), "rm /data/cleaner-offset-checkpoint"),
        (CorruptCheckpointError("/data/recovery-point-offset-checkpoint", 0, "?"), "cleaner recover /data"),
        (CorruptCheckpointError("/data/p-0/leader-epoch-checkpoint", 0, "?"), "cleaner recover /data"),
        (LogDirLockedError("/data: in use"), "fuser -v LOG_DIR/.lock"),
    ],
)
def test_advice_names_a_command_for_the_place(error: CleanerError, command: str) -> None:
    """It can be pasted into a shell, whatever the path is like."""
    assert command in advice(error)


@pytest.mark.parametrize("error", [NoSpaceError, lambda path, _: disk_error(path, OSError(errno.EIO, "I/O error"))])
def test_advice_about_a_disk_names_what_is_still_there(
    tmp_path: Path, error: Callable[[Path, int], CleanerError]
) -> None:
    """What was made on the way is gone by the time somebody looks."""
    place = tmp_path / "prices-0"
    place.mkdir()
    assert f" {place}`" in advice(error(place, 10))
    assert f" {place}`" in advice(error(place / "0.log.cleaned", 10))
    assert f" {tmp_path}`" in advice(error(tmp_path / "prices-0.abc-delete" / "0.log", 10))


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


def test_refusal_as_json_has_the_advice() -> None:
    """Programs get it too."""
    from cleaner.api.reports import Refusal

    line = refusal_line(Refusal("p-0", CorruptBatchError(_LOG, 61, "wrong checksum")), "clean")
    assert line.startswith('{"format": "cleaner-clean", "format_version": 1, "partition": "p-0", ')
    assert '"next": "`cleaner check' in line
