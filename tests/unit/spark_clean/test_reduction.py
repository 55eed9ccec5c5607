"""Rows are shared out by key, each share is reduced alone, and together they leave what one reduction would."""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.errors import CorruptCheckpointError
from cleaner.policy.survivor_rule import survivor_rule_of
from cleaner.spark.clean import spark_jobs
from cleaner.spark.clean.digest_task import DigestRows
from cleaner.spark.clean.plan import GROUP_SHIFT, PLACE_SHIFT, JobSettings
from cleaner.spark.clean.reduction import Shared, digest_in_memory, gather_codes, reduce_shares, share_rows
from cleaner.spark.clean.shares import Numbers, Run, ShareFile, ShareWriter, read_shares, runs_of
from cleaner.spark.clean.small_log import save_verdicts, surviving_codes
from cleaner.storage.fs.file_system import FileSystem
from tests.unit.spark_clean.test_small_log import keys, rows_of

_FS = FileSystem()
_GROUPS = 3


def _settings(work_dir: Path) -> JobSettings:
    return JobSettings(Path("t-0"), work_dir, "", 0, 0, 0, 0, 0, 1000, 1e9)


def _passed_on(found: list[Shared]) -> tuple[list[ShareFile], Numbers]:
    """Return the files, and the rows of each share in all of them."""
    return [file for file, _ in found], np.sum([counts for _, counts in found], axis=0, dtype=np.int64)


@given(
    st.lists(st.tuples(keys, st.booleans(), st.integers(0, _GROUPS - 1), st.integers(-1, 1)), max_size=40),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from(["offset", "timestamp"]),
)
def test_shares_reduced_alone_leave_what_one_reduction_leaves(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[tuple[tuple[int, int], bool, int, int]],
    parts: int,
    shares: int,
    tasks: int,
    survivor: str,
) -> None:
    """Whatever the number of files, shares, and tasks; by offsets and by numbers."""
    work_dir = tmp_path_factory.mktemp("work")
    rule = survivor_rule_of(survivor)
    settings = replace(_settings(work_dir), rule=rule)
    given_numbers = [number for *_, number in records]

    def rows_from(first: int, step: int) -> DigestRows:
        found = rows_of(rows[first::step])
        numbers = np.array(given_numbers[first::step], np.int64)
        return found if rule.numbers is None else found._replace(numbers=numbers)

    rows = [
        (key, group << GROUP_SHIFT | place << PLACE_SHIFT | puts) for place, (key, puts, group, _) in enumerate(records)
    ]
    files, counts = _passed_on([share_rows(_FS, work_dir, _pieces(rows_from(n, parts)), shares) for n in range(parts)])
    runs = runs_of(counts, max(1, int(counts.max(initial=0))), tasks) or []
    found = [reduce_shares(_FS, settings, files, shares, _GROUPS, run) for run in runs]
    files, counts = _passed_on(found) if found else ([], np.zeros(_GROUPS, np.int64))
    bases = (0, 5, 9)
    runs = runs_of(counts, max(1, len(rows)), tasks) or []
    bits = [each for run in runs for each in gather_codes(_FS, work_dir, files, bases, run)]
    wanted = save_verdicts(_FS, work_dir, bases, surviving_codes([rows_from(0, 1)], rule))
    assert [replace(each, name="") for each in bits] == [replace(each, name="") for each in wanted]


def _pieces(rows: DigestRows) -> list[DigestRows]:
    """Return rows as a task emits them whose map was full once."""
    half = len(rows.codes) // 2
    return [DigestRows(*(column[part] for column in rows)) for part in (slice(0, half), slice(half, None))]


def _written(work_dir: Path) -> tuple[ShareFile, Numbers]:
    """Return a file of two pieces with five rows in three of four shares."""
    with ShareWriter(_FS, work_dir, "rows-", 4) as writer:
        writer.add(np.array([0, 2, 2]), np.array([[1, 2], [3, 4], [5, 6]]))
        writer.add(np.array([2, 3]), np.array([[7, 8], [9, 10]]))
    return writer.file, writer.counts


def test_shares_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Any neighbours, of all pieces of all files."""
    file, counts = _written(tmp_path)
    assert counts.tolist() == [1, 0, 3, 1]
    rows = {0: [[1, 2]], 1: [], 2: [[3, 4], [5, 6], [7, 8]], 3: [[9, 10]]}
    for first, end in itertools.combinations(range(5), 2):
        wanted = [row for share in range(first, end) for row in rows[share]]
        found = read_shares(_FS, tmp_path, [file, file], Run(first, end, 2 * len(wanted)), shares=4, columns=2)
        assert sorted(np.concatenate(found).tolist()) == sorted(2 * wanted)


def test_no_changed_bit_and_no_lost_byte_of_a_file_goes_unseen(tmp_path: Path) -> None:
    """A row that is lost would lose a record: each share is read alone, and all together."""
    file, counts = _written(tmp_path)
    path = tmp_path / file.name
    sound = path.read_bytes()

    def read_all() -> list[list[object]]:
        runs = [Run(share, share + 1, count) for share, count in enumerate(counts.tolist())]
        return [
            np.concatenate(read_shares(_FS, tmp_path, [file], run, shares=4, columns=2)).tolist()
            for run in [*runs, Run(0, 4, 5)]
        ]

    wanted, harmless = read_all(), 0
    for place in range(8 * len(sound)):
        spoilt = bytearray(sound)
        spoilt[place // 8] ^= 1 << place % 8
        path.write_bytes(spoilt)
        with contextlib.suppress(CorruptCheckpointError):
            assert read_all() == wanted, place  # as nobody asks for the checksum of a share without rows
            harmless += 1
    assert harmless == 4 * 64, "the checksums of shares without rows, in both pieces"
    for size in range(len(sound)):
        path.write_bytes(sound[:size])
        with pytest.raises(CorruptCheckpointError):
            read_all()
    path.write_bytes(bytes(len(sound)))
    with pytest.raises(CorruptCheckpointError, match="0 rows of shares"):
        read_all()
    path.write_bytes(sound)
    assert read_all() == wanted


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 20), st.integers(1, 6))
def test_runs_have_all_shares_with_rows_once(counts: list[int], max_rows: int, at_least: int) -> None:
    """None has too many rows; a share that has is for Spark's own aggregation, which spills."""
    runs = runs_of(np.array(counts, np.int64), max_rows, at_least)
    if max(counts, default=0) > max_rows:
        assert runs is None
        return
    assert runs is not None
    seen = [share for run in runs for share in range(run.first, run.end)]
    assert len(seen) == len(set(seen))
    assert {share for share, count in enumerate(counts) if count} <= set(seen)
    assert all(run.rows == sum(counts[run.first : run.end]) and 0 < run.rows <= max_rows for run in runs)


def test_runs_are_few_and_enough() -> None:
    """As large as they may be, but not fewer than there are processors."""
    even = np.full(100, 10)
    assert [run.end - run.first for run in runs_of(even, 250, 2) or []] == [25] * 4
    assert [run.end - run.first for run in runs_of(even, 10_000, 2) or []] == [50] * 2


def test_group_without_codes_has_no_bits(tmp_path: Path) -> None:
    """As no record of it stays."""
    with ShareWriter(_FS, tmp_path, "codes-", 2) as writer:
        writer.add(np.array([1]), np.array([[1 << GROUP_SHIFT | 3]]))
    files = [writer.file]
    assert gather_codes(_FS, tmp_path, files, (0, 9), Run(0, 1, 0)) == ()
    (saved,) = gather_codes(_FS, tmp_path, files, (0, 9), Run(0, 2, 1))
    assert (saved.group, saved.count) == (1, 1)


def test_log_without_rows_leaves_nothing(tmp_path: Path) -> None:
    """Without ranges, or with ranges of which no record has a key."""

    def in_tasks(task: Callable[[Any], Any], works: Sequence[Any]) -> list[Any]:
        assert not works
        return []

    assert digest_in_memory(_settings(tmp_path), [], (0,), slots=2, in_tasks=in_tasks) == ()


def test_there_may_be_more_shares_than_16_bits_number(tmp_path: Path) -> None:
    """In logs of two terabytes."""
    _, counts = share_rows(_FS, tmp_path, [rows_of([((n, 0), n << 1 | 1) for n in (0, 1, 65_536, 69_999)])], 70_000)
    assert np.flatnonzero(counts).tolist() == [0, 1, 65_536, 69_999]


def test_a_worker_is_frozen_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector, which Spark calls after each task, then passes over what the first task has loaded."""
    calls: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(1))
    monkeypatch.setattr(spark_jobs, "_tasks", itertools.count(1))
    for _ in range(5):
        spark_jobs._spare_the_collector()
    assert len(calls) == 2
