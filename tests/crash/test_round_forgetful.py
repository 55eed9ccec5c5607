"""
A whole round on a disk that forgets: power cuts at every fsync, cuts during the recovery, and each fsync left out once.

The short form checks a few states for each moment; `slow` many, with other seeds.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.errors import CleanerError
from cleaner.storage.segment.names import CLEANER_CHECKPOINT, SEGMENT_SUFFIXES, SNAPSHOT
from tests.crash.rounds import PARTITION, Expected, clean, contents, recover, write_round
from tests.support.forgetful_fs import ForgetfulFileSystem
from tests.support.power_cut import DiskState

_DATA = (*SEGMENT_SUFFIXES, SNAPSHOT)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    """The round without a crash."""
    return Expected.of(tmp_path_factory.mktemp("expected"))


def _is_log_data(path: Path) -> bool:
    return path.parent.name == PARTITION and path.name.endswith(_DATA)


class _Sweep:
    """
    Recovers states one by one in a scratch directory and judges them; a repeated state is skipped.

    Args:
        judged: the states that did no harm, where several sweeps share them.
    """

    def __init__(self, expected: Expected, scratch: Path, seed: int, judged: set[DiskState] | None = None) -> None:
        self.expected = expected
        self.scratch = scratch
        self.seed = seed
        self.words: set[tuple[str, ...]] = set()
        self._judged = set() if judged is None else judged

    def check(self, state: DiskState) -> None:
        """Recover a state and judge it. AssertionError: harm was done."""
        if state in self._judged:
            return
        self.lay_out(state)
        try:
            recover(self.scratch)
            self.words.add(tuple(self.expected.judge(self.scratch)))
        except (AssertionError, CleanerError, ValueError) as error:
            raise AssertionError(f"seed {self.seed}, {state.note}: {error!r}") from error
        self._judged.add(state)

    def lay_out(self, state: DiskState) -> None:
        """Write a state to the scratch directory."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        state.write_to(self.scratch)


def _run_round(root: Path, *, unsynced: bool, skip_sync: int | None = None) -> ForgetfulFileSystem:
    write_round(root)
    fs = ForgetfulFileSystem(root, unsynced=lambda path: unsynced and _is_log_data(path), skip_sync=skip_sync)
    clean(root, fs)
    return fs


def _states(fs: ForgetfulFileSystem, *, limit: int, seed: int) -> Iterator[DiskState]:
    """
    Yield the states after power cuts, from the first change of a segment on.

    Before it a cut may lose sources that were never fsynced, which is not the round's fault.
    """
    first = next(place for place in range(fs.start, len(fs.journal)) if fs.journal[place].path.suffix == ".cleaned")
    for point in fs.crash_points():
        if point >= first:
            yield from fs.states_at(point, limit=limit, seed=seed)


def _assert_round_survives(expected: Expected, tmp_path: Path, *, unsynced: bool, limit: int, seed: int) -> None:
    fs = _run_round(tmp_path / "log-dir", unsynced=unsynced)
    sweep = _Sweep(expected, tmp_path / "crashed", seed)
    for state in _states(fs, limit=limit, seed=seed):
        sweep.check(state)
    count = len(expected.groups)
    steps = {("new",) * number + ("old",) * (count - number) for number in range(count + 1)}
    assert steps <= sweep.words, "some group was never seen swapped alone"
    assert any("new+superseded" in words for words in sweep.words)


@pytest.mark.parametrize("unsynced", [False, True], ids=["sources-durable", "sources-never-fsynced"])
def test_power_cut_in_a_round_leaves_groups_old_or_new(expected: Expected, tmp_path: Path, unsynced: bool) -> None:
    """C-1 for a whole round: groups old or new, in order, and the checkpoint after all of them."""
    _assert_round_survives(expected, tmp_path, unsynced=unsynced, limit=14, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("unsynced", [False, True], ids=["sources-durable", "sources-never-fsynced"])
def test_power_cut_in_a_round_long_form(expected: Expected, tmp_path: Path, unsynced: bool, seed: int) -> None:
    """The same with many more states."""
    _assert_round_survives(expected, tmp_path, unsynced=unsynced, limit=200, seed=seed)


def test_power_cut_after_the_round_returned_loses_nothing(expected: Expected, tmp_path: Path) -> None:
    """Once `clean` has returned, every group and the checkpoint are durable, and no recovery is needed for it."""
    fs = _run_round(tmp_path / "log-dir", unsynced=True)
    for number, state in enumerate(fs.states_at(len(fs.journal), limit=60, seed=3)):
        root = tmp_path / str(number)
        state.write_to(root)
        expected.assert_finished(contents(root / PARTITION), (root / CLEANER_CHECKPOINT).read_bytes())
        recover(root)
        assert expected.judge(root) == ["new"] * len(expected.groups)


def _assert_recovery_survives(expected: Expected, tmp_path: Path, *, every: int, limit: int) -> None:
    """Cut the power once in the round, again in the recovery, and recover."""
    fs = _run_round(tmp_path / "log-dir", unsynced=False)
    sweep = _Sweep(expected, tmp_path / "crashed-twice", seed=5)
    once = tmp_path / "crashed-once"
    # Before a fence of a swap: there the recovery has most to do.
    points = [point for point in fs.crash_points()[:-1] if fs.journal[point].kind == "fsync_dir"]
    states = itertools.chain.from_iterable(fs.states_at(point, limit=6, seed=5) for point in points)
    for state in itertools.islice(states, 0, None, every):
        shutil.rmtree(once, ignore_errors=True)
        state.write_to(once)
        second = ForgetfulFileSystem(once)
        recover(once, second)
        for point in second.crash_points():
            for again in second.states_at(point, limit=limit, seed=5):
                try:
                    sweep.check(again)
                except AssertionError as error:
                    raise AssertionError(f"first {state.note}; then, in the recovery, {error}") from error


def test_power_cut_in_the_recovery_leaves_groups_old_or_new(expected: Expected, tmp_path: Path) -> None:
    """A recovery from a crash can itself crash, anywhere."""
    _assert_recovery_survives(expected, tmp_path, every=7, limit=6)


@pytest.mark.slow
def test_power_cut_in_the_recovery_long_form(expected: Expected, tmp_path: Path) -> None:
    """The same, for every first crash."""
    _assert_recovery_survives(expected, tmp_path, every=1, limit=12)


def _is_noticed(expected: Expected, tmp_path: Path, skip_sync: int, judged: set[DiskState]) -> bool:
    """Run the round with one fsync left out; tell whether some power cut then does harm."""
    fs = _run_round(tmp_path / str(skip_sync), unsynced=True, skip_sync=skip_sync)
    sweep = _Sweep(expected, tmp_path / "crashed", seed=7, judged=judged)
    try:
        for state in fs.states_at(len(fs.journal), limit=10, seed=7):
            files = {str(path): file.data for path, file in state.files}
            held = {name.removeprefix(PARTITION + "/"): data for name, data in files.items()}
            expected.assert_finished(held, files[CLEANER_CHECKPOINT])
        for state in _states(fs, limit=10, seed=7):
            sweep.check(state)
    except AssertionError:
        return True
    finally:
        shutil.rmtree(fs.root)
    return False


def test_each_fsync_of_a_round_left_out_is_noticed(expected: Expected, tmp_path: Path) -> None:
    """
    Every fsync of a round is needed: without it some power cut does harm.

    Fences are in one place of the program and every group passes them, but not every group needs every fence; so
    for each place and kind of file one noticed omission is enough.
    """
    whole = _run_round(tmp_path / "whole", unsynced=True)
    noticed: dict[str, bool] = {}
    judged: set[DiskState] = set()
    for number, (sync, site) in enumerate(zip(whole.syncs, whole.sync_sites, strict=True)):
        place = f"{site}: {sync.kind} {sync.path.name.lstrip('0123456789')}"
        if not noticed.get(place):
            noticed[place] = _is_noticed(expected, tmp_path, number, judged)
    assert [place for place, was in noticed.items() if not was] == []
    assert len(noticed) >= 18  # sources 6, cleaned files 5, swap 5, checkpoint 2
