"""Noticing that the configuration file changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cleaner.settings.config_watch import ConfigWatch, fingerprint
from cleaner.storage.fs.file_system import FileSystem
from tests.support.manual_clock import ManualClock


class Watched:
    """A file with its watch, asked once a second."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(b"a=1\n")
        self.path = path
        self.clock = ManualClock()
        self.watch = ConfigWatch(FileSystem(), path, fingerprint(b"a=1\n"), self.clock)

    def ask(self) -> bool:
        self.clock.move_on(1)
        return self.watch.has_changed()


@pytest.fixture
def file(tmp_path: Path) -> Watched:
    """A file that is in force as it is."""
    return Watched(tmp_path / "cleaner.properties")


def test_change_is_reported_once_after_a_second_without_another(file: Watched) -> None:
    """First it is only noticed, then reported, then known."""
    assert not file.ask()
    file.path.write_bytes(b"a=2\n")
    assert [file.ask() for _ in range(4)] == [False, True, False, False]
    file.path.write_bytes(b"a=1\n")
    assert [file.ask() for _ in range(3)] == [False, True, False]


def test_file_still_being_written_is_waited_for(file: Watched) -> None:
    """Half a file is not taken for the new one."""
    for length in range(1, 5):
        file.path.write_bytes(b"a=2222\n"[:length])
        assert not file.ask()
    file.path.write_bytes(b"a=2222\n")
    assert [file.ask(), file.ask()] == [False, True]


def test_change_during_the_second_restarts_it(file: Watched) -> None:
    """Asked more often than once a second, it still waits for a whole one."""
    file.path.write_bytes(b"a=2\n")
    assert not file.watch.has_changed()
    file.clock.move_on(0.9)
    assert not file.watch.has_changed()
    file.clock.move_on(0.1)
    assert file.watch.has_changed()


def test_file_with_only_a_new_time_has_not_changed(file: Watched) -> None:
    """`touch` and an identical copy are no change."""
    os.utime(file.path, ns=(1, 1))
    assert [file.ask(), file.ask(), file.ask()] == [False, False, False]


def test_file_that_is_gone_or_unreadable_has_not_changed_yet(file: Watched) -> None:
    """An editor that removes it first is waited for; so is one that puts a directory there."""
    file.path.unlink()
    assert [file.ask(), file.ask()] == [False, False]
    file.path.mkdir()
    assert [file.ask(), file.ask()] == [False, False]
    file.path.rmdir()
    file.path.write_bytes(b"a=3\n")
    assert [file.ask(), file.ask()] == [False, True]


def test_swapped_link_of_a_config_map_is_noticed(tmp_path: Path) -> None:
    """Kubernetes replaces `..data`, which the file's own link leads through."""
    for version, text in (("..1", "a=1\n"), ("..2", "a=2\n")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "cleaner.properties").write_text(text)
    (tmp_path / "..data").symlink_to("..1")
    path = tmp_path / "cleaner.properties"
    path.symlink_to("..data/cleaner.properties")
    clock = ManualClock()
    watch = ConfigWatch(FileSystem(), path, fingerprint(b"a=1\n"), clock)
    assert not watch.has_changed()
    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert not watch.has_changed()
    clock.move_on(1)
    assert watch.has_changed()
