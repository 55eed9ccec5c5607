"""The swap alone on a disk that forgets: every crash leaves old or new, and every fsync is needed for it."""

from __future__ import annotations

import errno
import itertools
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.errors import LogDirOfflineError
from tests.crash.swap_cases import CASES, NEW_MTIME_MS, Case, run
from tests.support.forgetful_fs import ForgetfulFileSystem
from tests.support.power_cut import DiskState
from tests.support.watched_fs import Operation

SEED = 20_26
STATES_PER_POINT = 120


def _files(state: DiskState, directory: Path, root: Path) -> dict[str, bytes]:
    return {path.name: file.data for path, file in state.files if path.parent == directory.relative_to(root)}


def _is_segment_file(path: Path) -> bool:
    return path.name[:20].isdigit()


def _sweep(root: Path, case: Case, *, unsynced: Callable[[Path], bool], skip_sync: int | None = None) -> set[str]:
    """Run the swaps and judge the state after each power cut; returns the verdicts. AssertionError: it did harm."""
    directory = root / "topic-0"
    case.write(directory)
    fs = ForgetfulFileSystem(root, unsynced=unsynced, skip_sync=skip_sync)
    durable: list[int] = []
    run(fs, directory, case, lambda: durable.append(len(fs.journal)))
    # Before the sources are fsynced a power cut may lose unsynced data of others; that is not the swap's fault.
    first_change = next(number for number, one in enumerate(fs.journal[fs.start :]) if one.kind == "create")
    seen = set()
    for point in fs.crash_points():
        if point < fs.start + first_change:
            continue
        for state in fs.states_at(point, limit=STATES_PER_POINT, seed=SEED):
            found = _files(state, directory, root)
            try:
                words = case.verdicts(found)
            except (AssertionError, KeyError, ValueError) as error:
                raise AssertionError(f"{case.name}, seed {SEED}, {state.note}: {error!r}") from error
            seen.add(" ".join(words))
            for number, length in enumerate(durable):
                if point >= length:
                    _assert_finished(case, number, state)
    return seen


def _assert_finished(case: Case, number: int, state: DiskState) -> None:
    """A group whose swap returned has its final names and times, before any loader looks at it."""
    held = {path.name: file for path, file in state.files}
    for name, data in case.groups[number].new.items():
        assert name in held, f"{case.name}, {state.note}: {name} is not there though the swap had returned"
        assert held[name].data == data, f"{case.name}, {state.note}: {name} is not the new one though the swap returned"
        if not name.endswith(".txnindex"):
            assert held[name].mtime_ns == NEW_MTIME_MS * 1_000_000, f"{case.name}, {state.note}: mtime of {name}"
    assert not [name for name in held if name.endswith(".swap") and int(name[:20]) == case.groups[number].base]


@pytest.mark.parametrize("sources", ["sources-durable", "sources-never-fsynced"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_power_cut_at_any_moment_leaves_each_group_old_or_new(tmp_path: Path, case: Case, sources: str) -> None:
    """C-1: whatever a power cut makes the disk forget, a broker finds every group old or new, in order."""
    seen = _sweep(tmp_path, case, unsynced=lambda path: sources != "sources-durable" and _is_segment_file(path))
    assert {"old old", "new old", "new new"} <= seen
    assert any("superseded" in words for words in seen) == (case.name != "merged")


def _labels(syncs: list[Operation]) -> list[str]:
    """Name each fsync of a run by what is synced: `fsync .log.cleaned`, or the number of the directory's fence."""
    fences = itertools.count(1)
    return [f"fence {next(fences)}" if sync.kind == "fsync_dir" else f"fsync {sync.path.name[20:]}" for sync in syncs]


def test_each_fsync_left_out_is_noticed(tmp_path: Path) -> None:
    """Every single fsync around the swaps is needed: without it a power cut does harm in one of the cases."""
    noticed: dict[str, bool] = {}
    for case in CASES:
        case.write(tmp_path / case.name / "topic-0")
        whole = ForgetfulFileSystem(tmp_path / case.name)
        run(whole, tmp_path / case.name / "topic-0", case)
        for number, label in enumerate(_labels(whole.syncs)):
            if noticed.get(label):
                continue
            root = tmp_path / f"{case.name}-{number}"
            root.mkdir()
            try:
                _sweep(root, case, unsynced=_is_segment_file, skip_sync=number)
                noticed[label] = False
            except (AssertionError, struct.error):
                noticed[label] = True
    assert [label for label, was in noticed.items() if not was] == []
    assert len(noticed) == 4 + 1 + 4 + 2 * 6 + 1


class _Refusing(ForgetfulFileSystem):
    """A disk that does not rename one of the files of a swap."""

    def before(self, operation: Operation) -> None:
        if operation.kind == "rename" and operation.path.name.endswith(".timeindex.cleaned"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_swap_that_is_taken_back_never_looks_decided(tmp_path: Path) -> None:
    """Its files go only when no `.swap` can come back: a `.log.swap` alone would count as a complete swap."""
    case, directory = CASES[0], tmp_path / "topic-0"
    case.write(directory)
    fs = _Refusing(tmp_path)
    with pytest.raises(LogDirOfflineError):
        run(fs, directory, case)
    tried = 0
    for point in fs.crash_points():
        for state in fs.states_at(point, limit=STATES_PER_POINT, seed=SEED):
            found = _files(state, directory, tmp_path)
            assert case.verdicts(found) == ["old", "old"], f"seed {SEED}, {state.note}"
            tried += 1
    assert tried > 20
