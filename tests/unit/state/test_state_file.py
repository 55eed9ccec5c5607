"""A state file survives crashes, newer releases and damage; nothing that was there is overwritten unread."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

import pytest

from cleaner.base.json_values import JsonValue
from cleaner.errors import CleanerError, LogDirOfflineError
from cleaner.state.state_file import BadStateError, StateFile
from cleaner.storage.fs.file_system import FileSystem
from tests.support.forgetful_fs import ForgetfulFileSystem
from tests.support.watched_fs import FailingFileSystem


def _read(version: int, values: dict[str, JsonValue]) -> str:
    word = values.get("word" if version == 2 else "old_word")
    if not isinstance(word, str):
        raise BadStateError("it has no word")
    return word


def _write(word: str) -> Mapping[str, object]:
    return {"word": word}


def state_file(directory: Path, fs: FileSystem | None = None) -> StateFile[str]:
    return StateFile(
        fs or FileSystem(), directory / "state.json", format_name="test", version=2, read=_read, write=_write
    )


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_missing_file_is_no_content(tmp_path: Path) -> None:
    """The first start; nothing is written by looking."""
    found = state_file(tmp_path).load()
    assert (found.content, found.moved_to, found.reason) == (None, None, "")
    assert names(tmp_path) == []


def test_content_comes_back_after_a_restart(tmp_path: Path) -> None:
    """Also an odd one; the file is plain ASCII."""
    word = "a\nb\x1b[2J\x7f\u2028\udc80\U0001f600"
    state_file(tmp_path).save(word)
    assert state_file(tmp_path).load().content == word
    assert (tmp_path / "state.json").read_bytes().isascii()


def test_older_version_is_read_by_its_own_rules(tmp_path: Path) -> None:
    """An upgrade loses nothing."""
    (tmp_path / "state.json").write_text('{"format": "test", "version": 1, "old_word": "w"}')
    assert state_file(tmp_path).load().content == "w"


def test_newer_version_is_moved_away_and_never_overwritten(tmp_path: Path) -> None:
    """A downgrade, and another one after an upgrade: both newer files are still there, as they were."""
    for word in ("first", "second"):
        (tmp_path / "state.json").write_text(f'{{"format": "test", "version": 3, "word": "{word}"}}')
        found = state_file(tmp_path).load()
        assert found.content is None
        assert "version 3 is newer than 2" in found.reason
        state_file(tmp_path).save("ours")
    assert names(tmp_path) == ["state.json", "state.json.newer-1", "state.json.newer-2"]
    assert "first" in (tmp_path / "state.json.newer-1").read_text()
    assert "second" in (tmp_path / "state.json.newer-2").read_text()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "Expecting value", id="empty"),
        pytest.param(bytes(100), "Expecting value", id="zeros"),
        pytest.param(b'{"format": "test", "vers', "Unterminated string", id="torn"),
        pytest.param(b'{"format": "other", "version": 2, "word": "w"}', "format is not test", id="foreign"),
        pytest.param(b'{"format": "test", "word": "w"}', "version is not a number", id="no-version"),
        pytest.param(b'{"format": "test", "version": true, "word": "w"}', "version is not a number", id="odd-version"),
        pytest.param(b'{"format": "test", "version": 0, "word": "w"}', "version is not a number", id="version-0"),
        pytest.param(b'{"format": "test", "version": 2}', "has no word", id="content"),
    ],
)
def test_damaged_file_is_moved_away_with_its_reason(tmp_path: Path, data: bytes, reason: str) -> None:
    """It starts empty; the damaged bytes are kept for inspection."""
    (tmp_path / "state.json").write_bytes(data)
    found = state_file(tmp_path).load()
    assert found.content is None
    assert reason in found.reason
    assert found.moved_to == tmp_path / "state.json.damaged-1"
    assert found.moved_to.read_bytes() == data
    assert names(tmp_path) == ["state.json.damaged-1"]


def test_link_in_the_files_place_is_refused(tmp_path: Path) -> None:
    """It may lead anywhere; it is neither read nor renamed."""
    (tmp_path / "state.json").symlink_to("elsewhere")
    with pytest.raises(LogDirOfflineError):
        state_file(tmp_path).load()
    assert names(tmp_path) == ["state.json"]


def test_power_cut_while_saving_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    """At every moment and whatever the disk forgets; once `save` has returned only the new."""
    disk = tmp_path / "disk"
    disk.mkdir()
    state_file(disk).save("old")
    fs = ForgetfulFileSystem(disk)
    state_file(disk, fs).save("new")
    seen = set()
    for point in fs.crash_points():
        for number, state in enumerate(fs.states_at(point, limit=64, seed=5)):
            copy = tmp_path / f"{point}-{number}"
            state.write_to(copy)
            found = state_file(copy).load()
            assert found.moved_to is None, state.note
            assert found.content == "new" or point < len(fs.journal), state.note
            seen.add(found.content)
            state_file(copy).save("later")
            assert names(copy) == ["state.json"], "what a crash left is cleared away"
    assert seen == {"old", "new"}


def test_power_cut_while_moving_away_loses_nothing(tmp_path: Path) -> None:
    """The newer release's file has its old or its new name at any time, and ours never takes its place."""
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / "state.json").write_text('{"format": "test", "version": 3}')
    fs = ForgetfulFileSystem(disk)
    state_file(disk, fs).load()
    state_file(disk, fs).save("ours")
    for point in fs.crash_points():
        for state in fs.states_at(point, limit=64, seed=5):
            held = [file.data for path, file in state.files if not path.name.endswith(".tmp")]
            assert sum(b'"version": 3' in data for data in held) == 1, state.note


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_failed_save_leaves_the_old_content(tmp_path: Path, error: int) -> None:
    """Whichever of its steps fails before the rename; a later save works again."""
    state_file(tmp_path).save("old")
    for fail_at in range(10):
        fs = FailingFileSystem(fail_at, error)
        try:
            state_file(tmp_path, fs).save("new")
        except CleanerError as raised:
            assert fs.failed is not None
            expected = "new" if fs.failed.kind == "fsync_dir" else "old"
            assert state_file(tmp_path).load().content == expected, f"{fs.failed}: {raised}"
            state_file(tmp_path).save("old")
        else:
            assert fail_at >= 4
            return
    raise AssertionError("it never worked")
