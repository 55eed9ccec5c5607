"""A log dir is created, locked, has its offsets written, and is closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.base.clock import SystemClock
from cleaner.base.model import TopicPartition
from cleaner.base.properties import parse_properties
from cleaner.errors import CorruptCheckpointError, LogDirLockedError, UsageError
from cleaner.log.dir_state import DirState, identify, make_log_dir, open_dirs, paths_of
from cleaner.storage.files.meta_properties import MetaProperties, read_meta_properties
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.log_dir_lock import acquire_for_cleaning
from cleaner.storage.log_dir import LogDir, OffsetKind
from cleaner.storage.segment.names import CLEAN_SHUTDOWN, META_PROPERTIES

FS = FileSystem()
IDENTITY = MetaProperties(1, "MkU3OEVBNTcwNTJENDM2Qg", 7)


def _open(*paths: Path, **settings: str) -> list[DirState]:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return open_dirs(FS, SystemClock(), paths, given, create=True, cluster_id=None)


def test_new_log_dir_has_what_kafka_storage_format_writes(tmp_path: Path) -> None:
    """R-110: version 1, cluster, node, and its own id."""
    made = make_log_dir(FS, tmp_path / "data", IDENTITY)
    values = parse_properties((tmp_path / "data" / META_PROPERTIES).read_bytes(), "meta")
    assert set(values) == {"version", "cluster.id", "node.id", "directory.id"}
    assert (values["version"], values["cluster.id"], values["node.id"]) == ("1", "MkU3OEVBNTcwNTJENDM2Qg", "7")
    assert len(values["directory.id"]) == 22
    assert not values["directory.id"].startswith("-")
    assert make_log_dir(FS, tmp_path / "data", MetaProperties(1, "another", 8)) == made


def test_log_dir_without_a_parent_or_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    """Each says what is in the way."""
    with pytest.raises(UsageError, match="parent"):
        make_log_dir(FS, tmp_path / "no" / "where", IDENTITY)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="not a directory"):
        make_log_dir(FS, tmp_path / "file", IDENTITY)


def test_log_dirs_of_a_node_share_cluster_and_node(tmp_path: Path) -> None:
    """A new one takes them from an existing one; log dirs of different nodes are refused."""
    make_log_dir(FS, tmp_path / "one", IDENTITY)
    for state in _open(tmp_path / "one", tmp_path / "two"):
        state.abandon()
    two = read_meta_properties(FS, tmp_path / "two" / META_PROPERTIES)
    assert two is not None
    assert (two.cluster_id, two.node_id) == (IDENTITY.cluster_id, IDENTITY.node_id)
    make_log_dir(FS, tmp_path / "three", MetaProperties(1, "another", 7))
    with pytest.raises(UsageError, match="different clusters"):
        _open(tmp_path / "one", tmp_path / "three")
    with pytest.raises(UsageError, match="not to other"):
        identify(FS, [tmp_path / "one"], "other", None)


def test_node_id_of_a_new_log_dir_is_that_of_the_settings(tmp_path: Path) -> None:
    """Without a setting it is 1, as in Kafka's sample."""
    for path, settings, node_id in ((tmp_path / "a", {"node_id": "5"}, 5), (tmp_path / "b", {}, 1)):
        for state in _open(path, **settings):
            found = state.log_dir.meta_properties()
            state.abandon()
            assert found is not None
            assert found.node_id == node_id


def test_directory_named_twice_or_not_at_all_is_refused(tmp_path: Path) -> None:
    """R-101, through a link too."""
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="same directory"):
        paths_of([tmp_path, tmp_path / "link"])
    with pytest.raises(UsageError, match="no log dir"):
        paths_of([])


def test_open_log_dir_is_locked_and_has_no_marker(tmp_path: Path) -> None:
    """R-112: after a crash the next start must recover; the opening remembers that the marker existed."""
    LogDir(FS, tmp_path).write_marker()
    (state,) = _open(tmp_path)
    assert state.was_closed
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    with pytest.raises(LogDirLockedError, match="writer"):
        _open(tmp_path)
    with pytest.raises(LogDirLockedError, match="loading"):
        acquire_for_cleaning(FS, tmp_path)
    state.admit_cleaner()
    with acquire_for_cleaning(FS, tmp_path) as lock:
        assert lock.is_beside_writer
    state.close(in_order=True)
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    for each in _open(tmp_path):
        each.close(in_order=False)
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()


def test_log_dirs_that_cannot_all_be_opened_are_left_as_they_were(tmp_path: Path) -> None:
    """The first one's marker is back and its lock free."""
    one, two = tmp_path / "1", tmp_path / "2"
    for path in (one, two):
        make_log_dir(FS, path, IDENTITY)
        LogDir(FS, path).write_marker()
    (two / "recovery-point-offset-checkpoint").write_text("0\nno number\n")
    with pytest.raises(CorruptCheckpointError):
        _open(one, two)
    assert (one / CLEAN_SHUTDOWN).exists()
    assert (two / CLEAN_SHUTDOWN).exists()
    (two / "recovery-point-offset-checkpoint").unlink()
    for state in _open(one, two):
        state.abandon()


def test_partition_in_two_log_dirs_is_refused(tmp_path: Path) -> None:
    """R-105: a broker would not start either."""
    for name in ("1", "2"):
        make_log_dir(FS, tmp_path / name, IDENTITY)
        (tmp_path / name / "a-0").mkdir()
    with pytest.raises(UsageError, match="a-0"):
        _open(tmp_path / "1", tmp_path / "2")


def test_lines_are_worked_out_while_the_file_cannot_change(tmp_path: Path) -> None:
    """An older value is never written after a newer one; other partitions' lines stay."""
    for name in ("a-0", "b-0"):
        (tmp_path / name).mkdir()
    (state,) = _open(tmp_path)
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    state.note(OffsetKind.HIGH_WATERMARK, lambda: {a: 5})
    state.note(OffsetKind.HIGH_WATERMARK, lambda: {b: 6})
    assert state.log_dir.high_watermarks == {a: 5, b: 6}
    state.abandon()
    with pytest.raises(LogDirLockedError):
        state.note(OffsetKind.HIGH_WATERMARK, lambda: {a: 7})
    assert state.log_dir.high_watermarks == {a: 5, b: 6}


def test_log_dir_whose_lock_was_lost_gets_no_marker(tmp_path: Path) -> None:
    """Another process may be at work in it, and the next one would trust what that leaves."""
    (state,) = _open(tmp_path)
    (tmp_path / ".lock").unlink()
    with pytest.raises(LogDirLockedError, match="deleted or replaced"):
        state.close(in_order=True)
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()


@pytest.mark.parametrize(
    "name", ["a-0.0123456789abcdef0123456789abcdef-stray", "a-0.0123456789abcdef0123456789abcdef-future"]
)
def test_log_dir_with_unrecovered_logs_gets_no_marker(tmp_path: Path, name: str) -> None:
    """A broker would trust them; if there was a marker, they had been closed in order."""
    (state,) = _open(tmp_path)
    assert state.may_be_marked
    (tmp_path / name).mkdir()
    assert not state.may_be_marked
    state.close(in_order=True)
    (again,) = _open(tmp_path)
    assert again.may_be_marked
    again.abandon()
