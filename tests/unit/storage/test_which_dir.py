"""What a path given as a log dir is, by its contents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.errors import LogDirOfflineError, UsageError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.which_dir import Nature, nature_of, place_around, require_log_dir, why_no_log_dir
from tests.integration.log_dirs import keyed_log
from tests.support.log_builder import write_log_dir

FS = FileSystem()
LOG = "00000000000000000000.log"


def _log_dir(root: Path, name: str = "data") -> Path:
    return write_log_dir(root / name, keyed_log("orders-0"))


def _bare_log_dir(root: Path) -> Path:
    """Only partitions, as a copy has them."""
    (root / "bare" / "orders-0").mkdir(parents=True)
    (root / "bare" / "orders-0" / LOG).touch()
    return root / "bare"


def _partition(root: Path) -> Path:
    return _log_dir(root) / "orders-0"


def _misused_partition(root: Path) -> Path:
    """A partition in which a recovery, mistaking it for a log dir, left files."""
    for name in (".kafka_cleanshutdown", ".lock"):
        (_partition(root) / name).touch()
    return root / "data" / "orders-0"


def _parent(root: Path) -> Path:
    for name in ("kafka-1", "kafka-2"):  # also valid names of partitions
        _log_dir(root / "disks", name)
    return root / "disks"


def _kept(root: Path) -> Path:
    (root / "kept" / "orders-0" / "000001").mkdir(parents=True)
    (root / "kept" / "orders-0" / "manifest.json").touch()
    return root / "kept"


def _mounted(root: Path) -> Path:
    (root / "mounted" / "lost+found").mkdir(parents=True)
    return root / "mounted"


def _foreign(root: Path) -> Path:
    (root / "home" / "mail").mkdir(parents=True)
    (root / "home" / "notes.txt").touch()
    return root / "home"


def _link(root: Path) -> Path:
    (root / "link").symlink_to(_log_dir(root))
    return root / "link"


@pytest.mark.parametrize(
    ("make", "nature"),
    [
        pytest.param(_log_dir, Nature.LOG_DIR, id="log-dir"),
        pytest.param(lambda root: _log_dir(root, "kafka-logs-1"), Nature.LOG_DIR, id="named-as-a-partition"),
        pytest.param(_bare_log_dir, Nature.LOG_DIR, id="bare-copy"),
        pytest.param(_link, Nature.LOG_DIR, id="link"),
        pytest.param(_partition, Nature.PARTITION, id="partition"),
        pytest.param(_misused_partition, Nature.PARTITION, id="partition-with-a-marker"),
        pytest.param(_parent, Nature.PARENT, id="parent"),
        pytest.param(_kept, Nature.KEPT, id="kept"),
        pytest.param(_mounted, Nature.EMPTY, id="fresh-file-system"),
        pytest.param(_foreign, Nature.FOREIGN, id="foreign"),
        pytest.param(lambda root: _partition(root) / LOG, Nature.FILE, id="segment"),
        pytest.param(lambda root: _partition(root) / LOG / "x", Nature.MISSING, id="below-a-file"),
        pytest.param(lambda root: root / "nowhere", Nature.MISSING, id="missing"),
    ],
)
def test_directory_is_recognized_by_its_contents(tmp_path: Path, make: Callable[[Path], Path], nature: Nature) -> None:
    """Its name does not matter: a log dir may have a partition's name."""
    assert nature_of(FS, make(tmp_path)) is nature


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(
            _partition,
            "the directory of a partition, not a log dir; the log dir is {root}/data, as LOG_DIR PARTITION: "
            "{root}/data orders-0",
            id="partition",
        ),
        pytest.param(
            lambda root: _partition(root) / LOG,
            "a file of a partition, not a log dir; the log dir is {root}/data, as LOG_DIR PARTITION: "
            "{root}/data orders-0",
            id="segment",
        ),
        pytest.param(
            lambda root: _partition(root).rename(root / "old"),
            "the directory of a partition, not a log dir; 'old' is not the name of a partition, such as orders-0",
            id="renamed-partition",
        ),
        pytest.param(
            lambda root: _log_dir(root) / "cleaner-offset-checkpoint",
            "a file in a log dir; name the log dir: {root}/data",
            id="checkpoint",
        ),
        pytest.param(
            _parent,
            "contains log dirs, but is not one; name one of them: {root}/disks/kafka-1, {root}/disks/kafka-2",
            id="parent",
        ),
        pytest.param(_kept, "not a log dir: `clean --keep-old` kept it; `cleaner undo` puts it back", id="kept"),
        pytest.param(_mounted, "an empty directory, not a log dir; is its disk mounted?", id="empty"),
        pytest.param(_foreign, "not a log dir: it has neither partitions nor a file of a log dir", id="foreign"),
        pytest.param(
            lambda root: _log_dir(root) and root / "dta", "no such directory; did you mean {root}/data?", id="slip"
        ),
        pytest.param(
            lambda root: _log_dir(root / "a") and root / "b" / "data", "no such directory", id="nothing-like-it"
        ),
        pytest.param(
            lambda root: _log_dir(root) / "orders-7",
            "no such directory; the log dir is {root}/data",
            id="partition-gone",
        ),
    ],
)
def test_refusal_names_the_path_and_a_suggestion(tmp_path: Path, make: Callable[[Path], Path], words: str) -> None:
    """With the log dir and the partition filled in if they are known."""
    path = make(tmp_path)
    with pytest.raises(UsageError) as refused:
        require_log_dir(FS, path)
    assert str(refused.value) == f"{path}: {words.format(root=tmp_path)}"


@pytest.mark.parametrize(
    ("make", "is_fine"),
    [
        pytest.param(lambda root: root / "new", True, id="missing"),
        pytest.param(_mounted, True, id="empty"),
        pytest.param(_foreign, True, id="foreign"),
        pytest.param(_partition, False, id="partition"),
        pytest.param(_parent, False, id="parent"),
        pytest.param(lambda root: _log_dir(root) / "orders-7", False, id="in-a-log-dir"),
        pytest.param(lambda root: _partition(root) / "new", False, id="in-a-partition"),
    ],
)
def test_new_log_dir_is_created_only_outside_of_other_log_dirs(
    tmp_path: Path, make: Callable[[Path], Path], is_fine: bool
) -> None:
    """A broker would treat one inside a log dir as a partition, or would not start."""
    assert (why_no_log_dir(FS, make(tmp_path), may_be_new=True) is None) == is_fine


def test_place_around_a_path_is_named(tmp_path: Path) -> None:
    """At any depth, and even if the path does not exist yet."""
    assert place_around(FS, _partition(tmp_path) / "a" / "b") == f"the partition's directory {tmp_path}/data/orders-0"
    assert place_around(FS, tmp_path / "data" / "kept") == f"the log dir {tmp_path}/data"
    assert place_around(FS, tmp_path / "kept") is None


def test_unreadable_directory_is_an_error(tmp_path: Path) -> None:
    """A failing disk does not show what is on it."""

    class Failing(FileSystem):
        def list_dir(self, path: Path) -> list[str]:
            raise LogDirOfflineError(path, OSError(5, "Input/output error"))

    with pytest.raises(LogDirOfflineError, match="Input/output error"):
        nature_of(Failing(), _log_dir(tmp_path))
