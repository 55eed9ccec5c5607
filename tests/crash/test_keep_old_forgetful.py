"""
A round that keeps replaced files, and its undo, on a disk that forgets: power cuts at every fsync of both.

After every cut the log loads with each group old or new, and `undo` restores every file; given again, it is never
refused.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cleaner
from cleaner.app.options import CallContext
from cleaner.app.undo_clean import UndoReport, undo_clean
from cleaner.errors import CleanerError
from cleaner.settings.sources import Sources
from cleaner.state.kept_manifest import manifest
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import CLEANER_CHECKPOINT, KEPT_MANIFEST, SEGMENT_SUFFIXES, SNAPSHOT
from tests.crash.rounds import NOW_MS, PARTITION, SETTINGS, Expected, contents, recover, write_round
from tests.scratch import scratch_directory
from tests.support.forgetful_fs import ForgetfulFileSystem
from tests.support.power_cut import DiskState

SEED = 7
_DATA = (*SEGMENT_SUFFIXES, SNAPSHOT)


class Stage:
    """A root with a log dir and a directory for kept files, written again for each run and each state."""

    def __init__(self, root: Path, groups: int) -> None:
        self.root = root
        self.log_dir = root / "log-dir"
        self.kept = root / "kept"
        self.is_undoing = False
        self._groups = groups

    def set_up(self) -> None:
        """Write the log dir. Directories exist already: the forgetful disk does not model their creation."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.log_dir.mkdir(parents=True)
        write_round(self.log_dir)
        for number in range(1, self._groups + 1):
            (self.kept / PARTITION / f"{number:06d}").mkdir(parents=True)

    def clean(self, fs: FileSystem | None = None) -> None:
        """Run the round and keep the replaced files."""
        cleaner.clean(self.log_dir, PARTITION, SETTINGS, now_ms=NOW_MS, fs=fs, keep_old=self.kept)

    def undo(self, fs: FileSystem | None = None) -> None:
        """Put the kept files back."""
        lent = CallContext.of(fs, NOW_MS)
        (outcome,) = undo_clean(self.kept, Sources.of_call("topic", SETTINGS, None, None), lent)
        assert isinstance(outcome, UndoReport), outcome

    def lay_out(self, state: DiskState) -> None:
        """Replace everything with the state after a power cut."""
        shutil.rmtree(self.root, ignore_errors=True)
        state.write_to(self.root)

    @property
    def has_manifest(self) -> bool:
        return (self.kept / PARTITION / KEPT_MANIFEST).exists()

    def lost_files(self) -> list[str]:
        """Return the kept files that the manifest names and that are not there."""
        kept = manifest(FileSystem(), self.kept / PARTITION).peek()
        assert kept is not None
        named = [f"{group.directory}/{file.name}" for group in kept.groups for file in group.old]
        return [name for name in named if not (self.kept / PARTITION / name).exists()]


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory for the stage, in memory if possible: hundreds of recoveries sync their files."""
    with scratch_directory() as directory:
        yield directory / "root"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    """The round without a crash."""
    return Expected.of(tmp_path_factory.mktemp("expected"))


def assert_undone(expected: Expected, stage: Stage) -> None:
    """Every file of the log and the checkpoint are as before the round, and nothing is left over."""
    found = contents(stage.log_dir / PARTITION)
    assert {name: found.get(name) for name in expected.before if name.endswith(_DATA)} == {
        name: data for name, data in expected.before.items() if name.endswith(_DATA)
    }
    assert [name for name in found if name not in expected.before] == []
    assert (stage.log_dir / CLEANER_CHECKPOINT).read_bytes() == expected.checkpoint_before
    assert expected.judge(stage.log_dir) == ["old"] * len(expected.groups)


def check(expected: Expected, stage: Stage, state: DiskState) -> tuple[str, ...]:
    """Judge the state after a power cut, then undo the round; returns a word a group."""
    stage.lay_out(state)
    recover(stage.log_dir)
    # Snapshots are put back last; a log does without those of old segments.
    for name, data in expected.before.items():
        path = stage.log_dir / PARTITION / name
        if name.endswith(SNAPSHOT) and path.with_suffix(".log").exists() and not path.exists():
            path.write_bytes(data)
    words = tuple(expected.judge(stage.log_dir))
    # Once more from the unrecovered state: an undo needs no recovery before it.
    stage.lay_out(state)
    if stage.has_manifest:
        assert stage.lost_files() == []
        stage.undo()
        recover(stage.log_dir)
        assert_undone(expected, stage)
    else:
        assert set(words) == {"old"}, "new segments, and nothing to undo them with"
        if stage.is_undoing:
            undo_again(stage)
    return words


def sweep(expected: Expected, stage: Stage, fs: ForgetfulFileSystem, *, limit: int) -> set[tuple[str, ...]]:
    """Check the states after power cuts at every moment. AssertionError: harm was done."""
    seen: set[tuple[str, ...]] = set()
    judged: set[DiskState] = set()
    for state in _states(fs, limit):
        if state in judged:
            continue
        judged.add(state)
        try:
            seen.add(check(expected, stage, state))
        except (AssertionError, CleanerError, ValueError) as error:
            raise AssertionError(f"{state.note}: {error!r}") from error
    return seen


def undo_again(stage: Stage) -> None:
    """What is left of an undo that had put everything back is removed by the same command; no manifest is missed."""
    if any(stage.kept.glob("*/*")):
        stage.undo()
        assert list(stage.kept.iterdir()) == []


def assert_ended(stage: Stage, fs: ForgetfulFileSystem) -> None:
    """After the undo no power cut brings back the manifest, or kept files alone: the directory can be used again."""
    for state in fs.states_at(len(fs.journal), limit=200, seed=SEED):
        stage.lay_out(state)
        assert not stage.has_manifest, state.note
        undo_again(stage)


def _states(fs: ForgetfulFileSystem, limit: int) -> Iterator[DiskState]:
    for point in fs.crash_points():
        yield from fs.states_at(point, limit=limit, seed=SEED)


def keeping(stage: Stage, skip_sync: int | None = None) -> ForgetfulFileSystem:
    """Run the round on a forgetful disk."""
    stage.set_up()
    fs = ForgetfulFileSystem(stage.root, skip_sync=skip_sync)
    stage.clean(fs)
    return fs


def undoing(stage: Stage, skip_sync: int | None = None) -> ForgetfulFileSystem:
    """Run the round on a good disk and the undo on a forgetful one."""
    stage.set_up()
    stage.is_undoing = True
    stage.clean()
    fs = ForgetfulFileSystem(stage.root, skip_sync=skip_sync)
    stage.undo(fs)
    return fs


RUNS = pytest.mark.parametrize("run", [keeping, undoing], ids=["keep", "undo"])
Run = Callable[..., ForgetfulFileSystem]


@RUNS
@pytest.mark.parametrize("limit", [3, pytest.param(40, marks=pytest.mark.slow)], ids=["short", "long"])
def test_power_cut_at_any_moment_can_be_undone(expected: Expected, root: Path, run: Run, limit: int) -> None:
    """Each group is old or new, in the order of the round, and `undo` leads back to where it began."""
    stage = Stage(root, len(expected.groups))
    seen = sweep(expected, stage, run(stage), limit=limit)
    count = len(expected.groups)
    assert {("new",) * number + ("old",) * (count - number) for number in range(count + 1)} <= {
        tuple("new" if word.startswith("new") else word for word in words) for words in seen
    }


def test_power_cut_after_an_undo_does_not_bring_the_manifest_back(expected: Expected, root: Path) -> None:
    """Else `clean --keep-old` would refuse the directory as soon as records are appended."""
    stage = Stage(root, len(expected.groups))
    assert_ended(stage, undoing(stage))


@RUNS
@pytest.mark.slow
def test_each_fsync_left_out_is_noticed(expected: Expected, root: Path, run: Run) -> None:
    """Of each place in the program that calls fsync at least one call is needed."""
    stage = Stage(root, len(expected.groups))
    whole = run(stage)
    noticed: dict[str, bool] = {}
    for number, (sync, site) in enumerate(zip(whole.syncs, whole.sync_sites, strict=True)):
        place = f"{site}: {sync.kind} {sync.path.name.lstrip('0123456789')}"
        if "kept" not in place and "keep" not in place and "undo" not in place and "apart" not in place:
            continue
        if not noticed.get(place):
            try:
                fs = run(stage, number)
                sweep(expected, stage, fs, limit=12)
                if run is undoing:
                    assert_ended(stage, fs)
                noticed[place] = False
            except (AssertionError, CleanerError):
                noticed[place] = True
    assert [place for place, was in noticed.items() if not was] == []
