"""Repairs: what intact logs determine, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.app.check_log_dir import CheckOptions
from cleaner.errors import LogDirLockedError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.log_dir_lock import LockMode, LockRole, LogDirLock
from tests.integration.log_dirs import contents, flip_bit
from tests.support.batch_builder import Producer
from tests.support.forgetful_fs import ForgetfulFileSystem
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.unit.verification_check.checking import check

pytestmark = pytest.mark.kernels

REPAIR = CheckOptions(repair=True)


def some_log() -> LogBuilder:
    """Three segments with producers and transactions, and an active one."""
    log = LogBuilder()
    for segment in range(4):
        if segment:
            log.roll()
        for number in range(40):
            producer = Producer(7, 0, 40 * segment + number, transactional=True)
            log.append((f"k{segment}.{number}", "v" * 400), producer=producer)
            if number % 10 == 9:
                log.end_transaction(7, 0, commit=number != 9)
                log.append((f"p{segment}.{number}", "v"), producer=Producer(9, 0, 4 * segment + number // 10))
    return log


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return write_log_dir(tmp_path / "logs", some_log())


def damage_all(directory: Path) -> list[str]:
    """Damage one file of every kind that can be made anew; returns their names."""
    second = sorted(directory.glob("*.log"))[1].stem
    snapshot = sorted(directory.glob("*.snapshot"))[1].name
    found = [f"{second}.index", f"{second}.timeindex", f"{second}.txnindex", snapshot]
    flip_bit(directory / found[0], 10)
    (directory / found[1]).unlink()
    (directory / found[2]).write_bytes(b"")
    flip_bit(directory / found[3], 20)
    return found


def test_damaged_indexes_and_snapshots_become_what_they_were(log_dir: Path) -> None:
    """Byte for byte, and no other file changes."""
    before = contents(log_dir)
    damaged = damage_all(log_dir / "topic-0")
    assert {name for _, name, *_ in check(log_dir).damages} == set(damaged)
    checked = check(log_dir, options=REPAIR)
    assert checked.damages == []
    assert sorted(file.path.name for file in checked.repaired) == sorted(damaged)
    assert (checked.totals.repaired, checked.totals.not_repaired) == (4, 0)
    after = contents(log_dir)
    after.pop(".cleaner-generations", None)
    assert after == before


def test_segment_with_a_damaged_log_is_left_as_it_is(log_dir: Path) -> None:
    """What would be made of it is what is in doubt; so is what depends on it."""
    directory = log_dir / "topic-0"
    damaged = damage_all(directory)
    flip_bit(directory / damaged[0].replace(".index", ".log"), 100)
    before = contents(directory)
    checked = check(log_dir, options=REPAIR)
    assert {file.path.name for file in checked.repaired if file.error} == set(damaged)
    assert checked.totals.not_repaired == 4
    assert contents(directory) == before


def test_repair_of_a_log_dir_in_use_is_refused(log_dir: Path) -> None:
    """As `clean` is."""
    damage_all(log_dir / "topic-0")
    before = contents(log_dir)
    with (
        LogDirLock(FileSystem(), log_dir, LockMode.EXCLUSIVE, LockRole.CLEANER),
        pytest.raises(LogDirLockedError),
    ):
        check(log_dir, options=REPAIR)
    assert contents(log_dir) == before


def test_power_cut_during_a_repair_leaves_each_file_old_or_new(log_dir: Path, tmp_path: Path) -> None:
    """At any moment, whatever the disk forgets: a second repair ends it."""
    whole = contents(log_dir)
    damage_all(log_dir / "topic-0")
    old = contents(log_dir)
    fs = ForgetfulFileSystem(log_dir)
    check(log_dir, fs=fs, options=REPAIR)
    states = [state for point in fs.crash_points() for state in fs.states_at(point, limit=6, seed=point)]
    assert len(states) > 30
    for number, state in enumerate(states):
        target = tmp_path / str(number)
        state.write_to(target)
        found = contents(target)
        for name, digest in old.items():
            assert found[name] in (digest, whole[name]), (name, state.note)
