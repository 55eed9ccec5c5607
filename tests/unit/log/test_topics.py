"""Topics on disk: created completely, found, grown, altered, deleted."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.base.clock import SystemClock
from cleaner.base.model import TopicPartition
from cleaner.errors import (
    ConfigError,
    InvalidTopicError,
    LogChangedError,
    LogDirOfflineError,
    TopicExistsError,
    TopicSettingsError,
    UnknownTopicError,
)
from cleaner.log.topics import Topics, check_topic_name
from cleaner.settings.files import CLEANER_TOPICS
from cleaner.storage.files.checkpoint import write_offset_checkpoint
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.partition_lock import checkpoint_lock
from cleaner.storage.log_dir import LogDir, OffsetKind
from tests.support.manual_clock import ManualClock
from tests.support.watched_fs import Operation, WatchedFileSystem


def _log_dir(root: Path, fs: FileSystem | None = None) -> LogDir:
    root.mkdir(exist_ok=True)
    (root / ".lock").touch()
    return LogDir(fs or FileSystem(), root)


def _topics(*roots: Path, fs: FileSystem | None = None) -> Topics:
    return Topics(fs or FileSystem(), [_log_dir(root, fs) for root in roots], SystemClock())


@contextlib.contextmanager
def _locked(_partition: TopicPartition, _log_dir: LogDir) -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "needs a name"),
        (".", "not a name"),
        ("..", "not a name"),
        ("a" * 250, "at most 249"),
        ("a/b", "letters and digits"),
        ("späti", "letters and digits"),
        ("a b", "letters and digits"),
        ("a\n", "letters and digits"),
        ("__cluster_metadata", "Kafka's own"),
        ("a_b", "too like a.b"),
    ],
)
def test_topic_name_that_kafka_refuses_is_refused(name: str, reason: str) -> None:
    """With the rules of Kafka's `Topic.validate`, and its check for collisions."""
    with pytest.raises(InvalidTopicError, match=reason):
        check_topic_name(name, ["a.b"])


@pytest.mark.parametrize("name", ["a", "a" * 249, "A-z_0.9", "...", "__consumer_offsets", "a.b"])
def test_topic_name_that_kafka_accepts_is_accepted(name: str) -> None:
    """Even unusual ones; a name does not collide with itself."""
    check_topic_name(name, ["a.b"])


def test_offsets_are_dropped_while_no_cleaner_writes_its_own(tmp_path: Path) -> None:
    """It reads all lines of its checkpoint, changes one, and writes all: what was dropped meanwhile would be back."""
    log_dir, clock = _log_dir(tmp_path), ManualClock()
    topics = Topics(log_dir.fs, [log_dir], clock)
    with checkpoint_lock(log_dir.fs, log_dir.path, clock), pytest.raises(LogChangedError):
        topics.drop_offsets(log_dir, [TopicPartition("a", 0)])
    topics.drop_offsets(log_dir, [TopicPartition("a", 0)])


def test_made_topic_has_no_offsets_of_an_earlier_one(tmp_path: Path) -> None:
    """A crash in a deletion leaves lines, and a recovery point above the end would make the new log unreadable."""
    topics = _topics(tmp_path)
    for kind in OffsetKind:
        write_offset_checkpoint(FileSystem(), tmp_path / kind.value, {TopicPartition("prices", 0): 48})
    topics.create("prices", 1, {}, default_policy="compact")
    topics.grow("prices", 2)
    log_dir = LogDir(FileSystem(), tmp_path)
    assert [log_dir.offsets(kind) for kind in OffsetKind] == [{}] * len(OffsetKind)


def test_created_topic_has_its_id_in_every_partition_and_its_policy_in_the_file(tmp_path: Path) -> None:
    """R-107: without the id a broker would set the partition aside. The policy is written down, given or not."""
    topics = _topics(tmp_path)
    created = topics.create("prices", 2, {"segment.ms": "100"}, default_policy="compact")
    ids = {read_topic_id(FileSystem(), tmp_path / f"prices-{number}" / "partition.metadata") for number in range(2)}
    assert ids == {created.topic_id}
    assert created.partitions == (TopicPartition("prices", 0), TopicPartition("prices", 1))
    assert created.settings == {"cleanup.policy": "compact", "segment.ms": "100"}
    lines = (tmp_path / CLEANER_TOPICS).read_text().splitlines()[1:]
    assert lines == ["prices.cleanup.policy=compact", "prices.segment.ms=100"]
    assert topics.find("prices") == created


def test_topic_with_an_id_keeps_it(tmp_path: Path) -> None:
    """`--topic-id` of a command."""
    chosen = uuid.uuid4()
    assert _topics(tmp_path).create("a", 1, {}, default_policy="delete", topic_id=chosen).topic_id == chosen


def test_topic_that_is_there_or_is_not_is_an_error(tmp_path: Path) -> None:
    """And nothing changes."""
    topics = _topics(tmp_path)
    topics.create("a", 1, {}, default_policy="delete")
    with pytest.raises(TopicExistsError, match="'a'"):
        topics.create("a", 1, {}, default_policy="compact")
    for call in (topics.find, lambda name: topics.alter(name, {}), lambda name: topics.grow(name, 3)):
        with pytest.raises(UnknownTopicError, match="'b'"):
            call("b")
    with pytest.raises(UnknownTopicError):
        topics.delete("b", _locked, print)
    assert topics.settings("a") == {"cleanup.policy": "delete"}


@pytest.mark.parametrize(
    "settings",
    [{"cleanup.polici": "compact"}, {"cleanup.policy": "Compact"}, {"my.own": "1"}, {"segment.ms": "0"}],
)
def test_bad_setting_is_refused_before_anything_is_made(tmp_path: Path, settings: dict[str, str]) -> None:
    """As Kafka refuses unknown names and bad values."""
    topics = _topics(tmp_path)
    with pytest.raises(ConfigError):
        topics.create("a", 1, settings, default_policy="delete")
    assert topics.names() == []
    assert not (tmp_path / CLEANER_TOPICS).exists()
    topics.create("a", 1, {}, default_policy="delete")
    with pytest.raises(ConfigError):
        topics.alter("a", settings)
    assert topics.settings("a") == {"cleanup.policy": "delete"}


def test_partitions_can_only_become_more(tmp_path: Path) -> None:
    """They get the topic's id."""
    topics = _topics(tmp_path)
    created = topics.create("a", 2, {}, default_policy="delete")
    for count in (0, 1, 2):
        with pytest.raises(InvalidTopicError):
            topics.grow("a", count)
    grown = topics.grow("a", 4)
    assert sorted(grown.homes) == [0, 1, 2, 3]
    assert read_topic_id(FileSystem(), tmp_path / "a-3" / "partition.metadata") == created.topic_id


def test_partitions_go_where_there_are_the_fewest_and_settings_everywhere(tmp_path: Path) -> None:
    """Each log dir can be understood by itself."""
    one, two = tmp_path / "one", tmp_path / "two"
    topics = _topics(one, two)
    topics.create("a", 3, {}, default_policy="compact")
    topics.create("b", 1, {}, default_policy="compact")
    assert [len(LogDir(FileSystem(), root).partitions()) for root in (one, two)] == [2, 2]
    assert (one / CLEANER_TOPICS).read_bytes() == (two / CLEANER_TOPICS).read_bytes()


def test_altering_keeps_what_others_have_written(tmp_path: Path) -> None:
    """Comments, other topics' lines, unknown lines, and their form."""
    topics = _topics(tmp_path)
    topics.create("a", 1, {"segment.ms": "5"}, default_policy="compact")
    path = tmp_path / CLEANER_TOPICS
    mine = path.read_bytes()
    foreign = b"# mine\n\nb.segment.ms : \\\n    7\nnonsense\n! last, without a line end"
    path.write_bytes(mine + foreign)
    topics.alter("a", {"segment.ms": None, "retention.ms": "9"})
    assert path.read_bytes().startswith(mine.splitlines(keepends=True)[0] + foreign)
    assert topics.settings("a") == {"cleanup.policy": "compact", "retention.ms": "9"}
    assert topics.settings("b") == {"segment.ms": "7"}


def test_size_with_a_suffix_is_written_in_plain_bytes(tmp_path: Path) -> None:
    """A broker or Kafka's own tools could not read the suffix."""
    topics = _topics(tmp_path / "a")
    topics.create("prices", 1, {"segment.bytes": "25M", "retention.ms": "1000"}, default_policy="compact")
    topics.alter("prices", {"retention.bytes": "1.5 GiB"})
    lines = (tmp_path / "a" / CLEANER_TOPICS).read_text().splitlines()
    assert {"prices.segment.bytes=26214400", "prices.retention.bytes=1610612736"} <= set(lines)
    assert topics.find("prices").settings["segment.bytes"] == "26214400"


def test_setting_that_would_be_another_topics_is_refused(tmp_path: Path) -> None:
    """Topic `a.delete` and `retention.ms` is topic `a` and `delete.retention.ms`."""
    topics = _topics(tmp_path)
    topics.create("a", 1, {}, default_policy="compact")
    with pytest.raises(TopicSettingsError, match=r"'a\.delete'.* a$"):
        topics.create("a.delete", 1, {"retention.ms": "1"}, default_policy="compact")
    assert topics.names() == ["a"]
    assert topics.settings("a") == {"cleanup.policy": "compact"}
    topics.create("a.delete", 1, {}, default_policy="compact")


def test_topic_whose_name_would_take_anothers_setting_is_refused(tmp_path: Path) -> None:
    """The reverse case: the line was there first."""
    topics = _topics(tmp_path)
    topics.create("a.delete", 1, {"retention.ms": "1"}, default_policy="compact")
    with pytest.raises(TopicSettingsError, match=r"'a'.*a\.delete"):
        topics.create("a", 1, {}, default_policy="compact")
    assert topics.names() == ["a.delete"]
    assert topics.settings("a.delete") == {"cleanup.policy": "compact", "retention.ms": "1"}


def test_deleted_topic_is_renamed_from_its_last_partition_on(tmp_path: Path) -> None:
    """R-103; its settings are removed, those of others stay."""
    topics = _topics(tmp_path)
    for name in ("a", "b"):
        topics.create(name, 3, {}, default_policy="compact")
    waiting: list[Path] = []
    topics.delete("a", _locked, waiting.append)
    assert [path.name.partition(".")[0] for path in dict.fromkeys(waiting)] == ["a-2", "a-1", "a-0"]
    assert all(path.name.endswith("-delete") and path.is_dir() for path in waiting)
    assert topics.names() == ["b"]
    assert topics.settings("a") == {}
    assert topics.settings("b") == {"cleanup.policy": "compact"}


class _Dying(WatchedFileSystem):
    """A process that is killed before its n-th change."""

    def __init__(self, dies_at: int) -> None:
        self.changes = 0
        self._dies_at = dies_at

    def before(self, operation: Operation) -> None:
        self.changes += 1
        if self.changes > self._dies_at:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_creation_cut_short_anywhere_leaves_no_partition_without_its_id(tmp_path: Path) -> None:
    """Complete partitions can be served; incomplete ones wait for their removal."""
    counts = set()
    for dies_at in range(100):
        root = tmp_path / str(dies_at)
        fs = _Dying(dies_at)
        topics = _topics(root, fs=fs)
        with contextlib.suppress(LogDirOfflineError):
            topics.create("a", 2, {}, default_policy="compact")
        found = LogDir(FileSystem(), root).listing()
        counts.add(len(found.current))
        for directory in found.current.values():
            assert read_topic_id(FileSystem(), directory / "partition.metadata") is not None
        assert not found.current or _topics(root).settings("a") == {"cleanup.policy": "compact"}
        if fs.changes <= dies_at:
            break
    assert counts == {0, 1, 2}


def test_deletion_cut_short_anywhere_leaves_a_shorter_topic(tmp_path: Path) -> None:
    """Never with a hole, and never without its settings."""
    counts = set()
    for dies_at in range(100):
        root = tmp_path / str(dies_at)
        _topics(root).create("a", 3, {}, default_policy="compact")
        fs = _Dying(dies_at)
        with contextlib.suppress(LogDirOfflineError):
            _topics(root, fs=fs).delete("a", _locked, print)
        left = sorted(partition.partition for partition in LogDir(FileSystem(), root).partitions())
        assert left == list(range(len(left)))
        assert not left or _topics(root).settings("a") == {"cleanup.policy": "compact"}
        counts.add(len(left))
        if fs.changes <= dies_at:
            break
    assert counts == {0, 1, 2, 3}


def test_topic_with_a_partition_that_is_a_link_is_not_made_grown_or_deleted(tmp_path: Path) -> None:
    """Nothing has changed then: no directory is left, and no line or setting is lost."""
    topics = _topics(tmp_path)
    topics.create("prices", 1, {}, default_policy="compact")
    (tmp_path / "prices-1").symlink_to(tmp_path / "prices-0")
    (tmp_path / "orders-0").symlink_to("nowhere")
    write_offset_checkpoint(FileSystem(), tmp_path / OffsetKind.CLEANER.value, {TopicPartition("orders", 0): 5})
    before = sorted(path.name for path in tmp_path.iterdir()), (tmp_path / CLEANER_TOPICS).read_bytes()
    for refused in (
        lambda: topics.create("orders", 1, {}, default_policy="delete"),
        lambda: topics.grow("prices", 3),
        lambda: topics.delete("prices", _locked, lambda _: None),
    ):
        with pytest.raises(InvalidTopicError, match="symbolic link"):
            refused()
    assert (sorted(path.name for path in tmp_path.iterdir()), (tmp_path / CLEANER_TOPICS).read_bytes()) == before
    assert LogDir(FileSystem(), tmp_path).cleaner_offsets == {TopicPartition("orders", 0): 5}
    with pytest.raises(UnknownTopicError, match="orders-0: a symbolic link"):
        topics.find("orders")
    assert [each.partition for each in topics.find("prices").partitions] == [0]
    assert len(topics.left_out()) == 2
    assert [each.partition("/prices-1:")[1] for each in topics.left_out("prices")] == ["/prices-1:"]


def test_topic_in_whose_way_is_a_file_is_not_made_in_part(tmp_path: Path) -> None:
    """Nothing else is left, and the file is named, not a directory on its way."""
    topics = _topics(tmp_path)
    (tmp_path / "prices-1").touch()
    with pytest.raises(InvalidTopicError, match=f"{tmp_path}/prices-1: in the way"):
        topics.create("prices", 2, {}, default_policy="compact")
    assert {path.name for path in tmp_path.iterdir()} - {".lock", CLEANER_TOPICS} == {"prices-1"}
    assert topics.settings("prices") == {}
    topics.create("orders", 1, {}, default_policy="compact")
    (tmp_path / "orders-1").touch()
    with pytest.raises(InvalidTopicError, match="orders-1: in the way"):
        topics.grow("orders", 3)
    assert [each.partition for each in topics.find("orders").partitions] == [0]
