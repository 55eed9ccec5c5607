"""Topic settings followed as they change."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from cleaner.errors import CleanerError, ConfigError
from cleaner.settings import FollowedSettings
from cleaner.settings.sources import SetOption, Sources
from cleaner.storage.fs.file_system import File, FileSystem
from tests.crash.interrupts import FaultyFileSystem
from tests.support.metadata_builder import TOPIC, config_record, topic_record, write_segment

ID = UUID(int=5)


class CountingFs(FileSystem):
    """Counts files opened."""

    opened = 0

    def open(self, path: Path, *, write: bool = False) -> File:
        self.opened += 1
        return super().open(path, write=write)


class Followed:
    """A log dir with topics `t` and `u`, a directory of topic files, and looks at it."""

    def __init__(self, root: Path) -> None:
        self.log_dir, self.topics_dir = root / "logs", root / "topics"
        for directory in (self.log_dir / "t-0", self.log_dir / "u-0", self.topics_dir):
            directory.mkdir(parents=True)
        self.fs = CountingFs()

    def start(self, **given: str) -> None:
        sources = Sources(config=given, topics_dir=self.topics_dir)
        self.settings = FollowedSettings(self.fs, self.log_dir, sources)

    def segment_ms(self, topic: str = "t") -> int:
        return self.settings.topic(topic, ID).config.segment_ms

    def look(self, after_ms: int = 2000) -> bool:
        """Look so long after everything was written."""
        return self.settings.look(time.time_ns() // 1_000_000 + after_ms)

    def write(self, text: str, topic: str = "t") -> None:
        (self.topics_dir / f"{topic}.properties").write_text(text)


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    """Not yet started."""
    return Followed(tmp_path)


def test_settings_are_the_same_objects_as_long_as_nothing_changes(followed: Followed) -> None:
    """A turn without a change opens no file."""
    followed.write("segment.ms=1\n")
    followed.start()
    before = [followed.settings.topic(topic, ID) for topic in "tu"]
    opened = followed.fs.opened
    assert not followed.look()
    assert all(followed.settings.topic(topic, ID) is was for topic, was in zip("tu", before, strict=True))
    assert followed.fs.opened == opened


def test_changed_topic_file_counts_when_it_has_stayed_for_a_second(followed: Followed) -> None:
    """Only that topic is read again, and the half-written file never counts."""
    followed.write("segment.ms=1\n")
    followed.start()
    other = followed.settings.topic("u", ID)
    assert followed.segment_ms() == 1
    followed.write("segment.ms=22")
    assert (followed.look(0), followed.segment_ms()) == (False, 1)
    followed.write("segment.ms=2222\n")
    assert (followed.look(900), followed.segment_ms()) == (False, 1)
    assert (followed.look(1000), followed.segment_ms()) == (True, 2222)
    assert followed.settings.topic("u", ID) is other
    assert not followed.look()


def test_topic_file_that_appears_and_vanishes_is_followed(followed: Followed) -> None:
    """Also while another one is still being written."""
    followed.start()
    default = followed.segment_ms(), followed.segment_ms("u")
    followed.write("segment.ms=7\n")
    assert [followed.look(0), followed.look()] == [False, True]
    assert (followed.segment_ms(), followed.segment_ms("u")) == (7, default[1])
    followed.write("segment.ms=8\n", "u")
    (followed.topics_dir / "t.properties").unlink()
    assert [followed.look(0), followed.segment_ms()] == [False, 7]
    assert [followed.look(), followed.look()] == [True, False]
    assert (followed.segment_ms(), followed.segment_ms("u")) == (default[0], 8)


def test_file_from_the_future_counts_at_once(followed: Followed) -> None:
    """Where clocks disagree the time of a change says nothing."""
    followed.start()
    followed.segment_ms()
    followed.write("segment.ms=7\n")
    assert (followed.look(-60_000), followed.segment_ms()) == (True, 7)


def test_bad_topic_file_leaves_the_settings_and_warns_until_fixed(followed: Followed) -> None:
    """What is in force stays; the operator finds the reason."""
    followed.write("segment.ms=1\n")
    followed.start()
    followed.segment_ms()
    for text in ("segment.ms=x\n", "segment.ms=yy\n"):
        followed.write(text)
        followed.look()
    assert followed.segment_ms() == 1
    warnings = followed.settings.topic("t", ID).warnings
    assert ["segment.ms=yy" in warning for warning in warnings] == [True]
    assert "segment.ms=yy" in followed.settings.errors["t"]
    followed.write("segment.ms=3\n")
    assert followed.look()
    assert (followed.segment_ms(), dict(followed.settings.errors)) == (3, {})


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_topic_file_that_cannot_be_read_for_a_moment_is_read_again(followed: Followed, number: int) -> None:
    """Each call of a look fails once; the change counts later, and so does one that is made in place after that."""
    fs = FaultyFileSystem()
    fs.what = lambda: OSError(number, os.strerror(number))
    path = followed.topics_dir / "t.properties"
    failures = 0
    for call in range(1, 1000):
        path.write_text("delete.retention.ms=1\n", encoding="utf-8")
        settings = FollowedSettings(fs, followed.log_dir, Sources(topics_dir=followed.topics_dir))
        now_ms = time.time_ns() // 1_000_000

        def looked(after_ms: int) -> int:
            settings.look(now_ms + after_ms)  # noqa: B023 - called in this turn
            return settings.topic("t", None).config.delete_retention_ms  # noqa: B023

        assert looked(0) == 1
        path.write_text("delete.retention.ms=22\n", encoding="utf-8")
        fs.calls, fs.fail_at = 0, call
        try:
            failures += looked(5_000) == 1
        except CleanerError:
            failures += 1
        was_reached, fs.fail_at = fs.calls >= call, None
        looked(10_000)
        assert looked(15_000) == 22
        path.write_text("delete.retention.ms=333\n", encoding="utf-8")
        looked(20_000)
        assert looked(25_000) == 333
        if not was_reached:
            break
    assert failures > 2


def test_topic_that_is_bad_at_first_has_no_settings_until_fixed(followed: Followed) -> None:
    """Nothing is guessed."""
    followed.write("segment.ms=x\n")
    followed.start()
    for _ in range(2):
        with pytest.raises(ConfigError):
            followed.segment_ms()
    followed.write("segment.ms=33\n")
    assert followed.look()
    assert followed.segment_ms() == 33


def _cleaner_topics(followed: Followed) -> Callable[[str], object]:
    return lambda value: (followed.log_dir / "cleaner-topics.properties").write_text(f"t.segment.ms={value}\n")


def test_cleaner_topics_file_is_followed_and_a_bad_one_changes_nothing(followed: Followed) -> None:
    """It concerns all topics, so they are all asked for again; who has the same settings keeps the same object."""
    write = _cleaner_topics(followed)
    write("5")
    followed.start()
    other = followed.settings.topic("u", ID)
    assert followed.segment_ms() == 5
    write("66")
    assert [followed.look(0), followed.look(), followed.look()] == [False, True, False]
    assert followed.segment_ms() == 66
    assert followed.settings.topic("u", ID) is other
    (followed.log_dir / "cleaner-topics.properties").write_text("t.segmnt.ms=7\n")
    assert [followed.look() for _ in range(3)] == [False, False, False]
    assert "did you mean segment.ms" in followed.settings.errors[""]
    assert followed.segment_ms() == 66
    write("7")
    assert followed.look()
    assert (followed.segment_ms(), dict(followed.settings.errors)) == (7, {})


def test_cleaner_topics_file_that_vanishes_is_followed_also_in_a_busy_log_dir(followed: Followed) -> None:
    """Rounds change the log dir all the time, so its own time does not tell since when the file is gone."""
    _cleaner_topics(followed)("5")
    followed.start()
    followed.segment_ms()
    (followed.log_dir / "cleaner-topics.properties").unlink()
    looks = []
    for after_ms in (0, 600, 1200):
        (followed.log_dir / "checkpoint.tmp").touch()
        (followed.log_dir / "checkpoint.tmp").unlink()
        os.utime(followed.log_dir)
        looks.append(followed.look(after_ms))
    assert looks == [False, False, True]


def test_metadata_log_is_followed_at_once(followed: Followed) -> None:
    """Its batches are whole or not there; and damage leaves the settings until it is fixed."""
    directory = followed.log_dir / "__cluster_metadata-0"

    def write(*values: bytes) -> None:
        write_segment(directory, 0, [[topic_record("t", ID), *values]])

    write()
    followed.start()
    default = followed.segment_ms()
    write(config_record(TOPIC, "t", "segment.ms", "9"))
    assert (followed.look(), followed.segment_ms()) == (True, 9)
    log = directory / f"{0:020}.log"
    whole = log.read_bytes()
    log.write_bytes(b"x" * len(whole) * 2)
    assert (followed.look(), followed.look(), followed.segment_ms()) == (False, False, 9)
    assert str(log) in followed.settings.errors[""]
    log.unlink()
    write()
    assert (followed.look(), followed.segment_ms()) == (True, default)


def test_metadata_log_that_appears_is_found(followed: Followed, tmp_path: Path) -> None:
    """In the log dir, then in `metadata.log.dir`, which goes before; a turn without a change lists nothing."""
    followed.start(**{"metadata.log.dir": str(tmp_path / "metadata")})
    default = followed.segment_ms()
    for directory, value in ((followed.log_dir, 4), (tmp_path / "metadata", 5)):
        records = [topic_record("t", ID), config_record(TOPIC, "t", "segment.ms", str(value))]
        write_segment(directory / "__cluster_metadata-0", 0, [records])
        assert (followed.look(), followed.segment_ms()) == (True, value)
        assert not followed.look()
    (followed.log_dir / "v-0").mkdir()
    assert not followed.look()
    assert default != followed.segment_ms()


def test_metadata_log_that_grows_is_read_again(followed: Followed) -> None:
    """Records are appended to the newest segment; its directory does not change by that."""
    directory = followed.log_dir / "__cluster_metadata-0"
    batches = [[topic_record("t", ID)]]
    write_segment(directory, 0, batches)
    followed.start()
    for value in ("6", "7"):
        batches.append([config_record(TOPIC, "t", "segment.ms", value)])
        before = directory.stat().st_mtime_ns
        write_segment(directory, 0, batches)
        assert directory.stat().st_mtime_ns == before
        assert (followed.look(), followed.segment_ms()) == (True, int(value))


def test_sources_of_a_reload_count_at_once_or_not_at_all(followed: Followed) -> None:
    """Sound ones are taken over, bad ones leave what is in force."""
    followed.start()
    followed.segment_ms()
    followed.settings.follow(Sources(sets=(SetOption("t", "segment.ms", "4"),)))
    assert followed.segment_ms() == 4
    with pytest.raises(ConfigError):
        followed.settings.follow(Sources(sets=(SetOption(None, "segment.ms", "-4"),)))
    assert followed.segment_ms() == 4


def test_topics_that_are_gone_are_forgotten(followed: Followed) -> None:
    """A topic that comes again is read again."""
    followed.write("segment.ms=1\n")
    followed.start()
    was = followed.settings.topic("t", ID)
    followed.settings.keep_only({"u"})
    assert followed.settings.topic("t", ID) is not was
