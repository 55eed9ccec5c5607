"""A handover killed, or with its power cut, at every step leaves the broker's empty log or ours; it can be finished."""

from __future__ import annotations

import contextlib
import errno
import shutil
import subprocess
from pathlib import Path

import pytest

from cleaner.app.handover import HandoverReport, hand_over
from cleaner.app.options import CallContext
from cleaner.errors import CleanerError
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.handover import is_log_file
from cleaner.storage.load.loaded_log import list_segments
from cleaner.storage.log_dir import LogDir, OffsetKind
from cleaner.storage.swap.backup import clone
from tests.crash.loop_image import LoopImage, loop_image
from tests.crash.power_switch import PowerSwitch
from tests.integration.two_dirs import (
    FIRST,
    FS,
    PRICES,
    TOPIC_ID,
    directories,
    lines,
    records,
    topic_id_of,
    write_brokers,
    write_ours,
)
from tests.support.watched_fs import FailingFileSystem, Operation, WatchedFileSystem


class _Killed(BaseException):
    """The process is gone."""


class _KilledAtChange(FailingFileSystem):
    """Kills its process before the n-th change, directories included; nothing is tidied up afterwards."""

    def __init__(self, kill_at: int | None) -> None:
        super().__init__(None, errno.EIO)
        self._kill_at = kill_at
        self.steps: list[str] = []

    def before(self, operation: Operation) -> None:
        """Die."""
        self._step(f"{operation.kind} {operation.path.name}")

    def make_dir(self, path: Path, mode: int, *, like: Path | None = None) -> None:
        """Die, or make it."""
        self._step(f"make {path.name}")
        super().make_dir(path, mode, like=like)

    def remove_dir(self, path: Path) -> None:
        """Die, or remove it."""
        self._step(f"unmake {path.name}")
        super().remove_dir(path)

    def _step(self, what: str) -> None:
        if self._kill_at is not None and len(self.steps) >= self._kill_at:
            raise _Killed(what)
        self.steps.append(what)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both log dirs, of one partition each."""
    home = tmp_path_factory.mktemp("written")
    write_ours(home / "ours", partitions=1)
    write_brokers(home / "brokers", partitions=1, with_metadata=False)
    return home


def _copies(written: Path, home: Path) -> tuple[Path, Path]:
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(written, home)
    return home / "ours", home / "brokers"


def _hand_over(ours: Path, brokers: Path, fs: FileSystem = FS) -> HandoverReport:
    return hand_over(ours, brokers, {PRICES: TOPIC_ID}, Sources(), CallContext.of(fs=fs))


def _judge(ours: Path, brokers: Path) -> str:
    """Say what a broker would find: copy and old directory have names that it removes."""
    assert {name for name in directories(brokers) if not name.endswith("-delete")} <= {"other-0", str(FIRST)}
    LogDir(FS, brokers).check()
    home = brokers / str(FIRST)
    if not home.exists():
        return "none"
    assert topic_id_of(brokers) == TOPIC_ID
    if all(segment.size == 0 for segment in list_segments(FS, home)):
        assert lines(brokers)[OffsetKind.LOG_START] is None
        assert all(offset in (0, None) for offset in lines(brokers).values())
        return "empty"
    assert records(brokers) == records(ours)
    assert lines(brokers) == lines(ours)
    mine = {path.name: path.stat() for path in (ours / str(FIRST)).iterdir() if is_log_file(path.name)}
    for name, about in mine.items():
        copy = (home / name).stat()
        assert (copy.st_size, copy.st_mtime_ns) == (about.st_size, about.st_mtime_ns), name
    return "ours"


def _require_finished(ours: Path, brokers: Path) -> None:
    """Run the command once more: nothing is left to do or to remove."""
    report = _hand_over(ours, brokers, WatchedFileSystem())
    assert not report.refused, report.refused[0].error
    assert _judge(ours, brokers) == "ours"
    assert directories(brokers) == {"other-0", str(FIRST)}


def _points(steps: list[str]) -> list[int]:
    """Return the steps to crash at: all changes of directory names and checkpoints, and a few of the copying."""
    copying = [number for number, step in enumerate(steps) if step.split()[1][:20].isdigit()]
    return [number for number in range(len(steps)) if number not in copying or copying.index(number) % 9 == 0]


def test_killed_handover_leaves_the_brokers_log_or_ours(written: Path, tmp_path: Path) -> None:
    """At every change of a name or a checkpoint; and the next run finishes."""
    counting = _KilledAtChange(None)
    ours, brokers = _copies(written, tmp_path / "all")
    _hand_over(ours, brokers, counting)
    _require_finished(ours, brokers)
    seen = []
    for kill_at in _points(counting.steps):
        ours, brokers = _copies(written, tmp_path / "killed")
        # Code that would tidy up on the way out dies as well: every later change does.
        with pytest.raises(_Killed):
            _hand_over(ours, brokers, _KilledAtChange(kill_at))
        seen.append(_judge(ours, brokers))
        _require_finished(ours, brokers)
    assert list(dict.fromkeys(seen)) == ["empty", "none", "ours"]


def _copies_on_disk(written: Path, image: LoopImage) -> tuple[Path, Path]:
    copies = _copies(written, image.point / "dirs")
    subprocess.run(["sync", "-f", str(image.point)], check=True)
    return copies


def _cut_at_every_step(written: Path, image: LoopImage) -> list[str]:
    """Cut the power at every other change of a name or a checkpoint in turn, mount again and judge."""
    counting = PowerSwitch(image)
    _hand_over(*_copies(written, image.mount() / "dirs"), counting)
    seen = []
    steps = [f"{one.kind} {one.path.name}" for one in counting.changes]
    for cut_at in _points(steps)[::2]:
        ours, brokers = _copies_on_disk(written, image)
        with contextlib.suppress(CleanerError):  # the disk's state is judged, not the error
            _hand_over(ours, brokers, PowerSwitch(image, cut_at))
        image.unmount()
        image.mount()
        try:
            seen.append(_judge(ours, brokers))
            _require_finished(ours, brokers)
        except Exception as error:
            raise AssertionError(f"power cut before change {cut_at}, {steps[cut_at]}: {error!r}") from error
    ours, brokers = _copies_on_disk(written, image)
    _hand_over(ours, brokers)
    image.cut_power()
    image.unmount()
    image.mount()
    return [*seen, _judge(ours, brokers)]


@pytest.mark.root
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_power_cut_in_a_handover_leaves_the_brokers_log_or_ours(written: Path, tmp_path: Path, kind: str) -> None:
    """With copied (ext4) and cloned (XFS) files; an answered handover stays."""
    with loop_image(kind, tmp_path) as image:
        seen = _cut_at_every_step(written, image)
        image.unmount()
    assert list(dict.fromkeys(seen)) == ["empty", "none", "ours"]
    assert seen[-1] == "ours"


@pytest.mark.root
def test_copies_share_blocks_where_the_file_system_can(tmp_path: Path) -> None:
    """A clone on XFS has the content, and changes independently; ext4 leaves no file behind."""
    for kind, can in (("xfs", True), ("ext4", False)):
        (tmp_path / kind).mkdir()
        with loop_image(kind, tmp_path / kind) as image:
            root = image.mount()
            (root / "one").write_bytes(b"x" * 100_000)
            with FS.open(root / "one") as file:
                assert clone(FS, file, root / "two", like=root) == can
            assert (root / "two").exists() == can
            if can:
                with FS.open(root / "two", write=True) as copy:
                    copy.write(b"y", 0)
                assert (root / "one").read_bytes() == b"x" * 100_000
                assert (root / "two").read_bytes() == b"y" + b"x" * 99_999
            image.unmount()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_disk_that_refuses_leaves_the_brokers_log(written: Path, tmp_path: Path, number: int) -> None:
    """One failing change anywhere: refused or done, the copy is removed, and the next run finishes."""
    counting = FailingFileSystem(None, number)
    _hand_over(*_copies(written, tmp_path / "all"), counting)
    for fail_at in range(0, counting.calls, 7):
        ours, brokers = _copies(written, tmp_path / "failed")
        report = _hand_over(ours, brokers, FailingFileSystem(fail_at, number))
        assert _judge(ours, brokers) in (("empty", "ours") if report.refused else ("ours",))
        _require_finished(ours, brokers)
