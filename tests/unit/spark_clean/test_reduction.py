"""Rows are shared out by key, each share is reduced alone, and together they leave what one reduction would."""

from __future__ import annotations

import gc
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.policy.survivor_rule import survivor_rule_of
from cleaner.spark.clean import spark_jobs
from cleaner.spark.clean.digest_task import DigestRows
from cleaner.spark.clean.plan import GROUP_SHIFT, JobSettings
from cleaner.spark.clean.reduction import Shared, gather_codes, reduce_rows, split_rows
from cleaner.spark.clean.small_log import surviving_codes
from cleaner.storage.fs.file_system import FileSystem
from tests.unit.spark_clean.test_small_log import keys, rows_of


def _settings(task_entries: int = 1000) -> JobSettings:
    return JobSettings(Path("t-0"), Path("work"), "", 0, 0, 0, 0, 0, task_entries, 1e9)


@given(
    st.lists(st.tuples(keys, st.booleans(), st.integers(0, 2), st.integers(-1, 1)), max_size=40),
    st.integers(1, 3),
    st.integers(1, 5),
    st.sampled_from(["offset", "timestamp"]),
)
def test_shares_reduced_alone_leave_what_one_reduction_leaves(
    records: list[tuple[tuple[int, int], bool, int, int]], parts: int, reducers: int, survivor: str
) -> None:
    """Whatever the number of tasks and reducers, and sorted by group; by offsets and by numbers."""
    rule = survivor_rule_of(survivor)
    given_numbers = [number for *_, number in records]

    def rows_from(first: int, step: int) -> DigestRows:
        found = rows_of(rows[first::step])
        numbers = np.array(given_numbers[first::step], np.int64)
        return found if rule.numbers is None else found._replace(numbers=numbers)

    rows = [(key, group << GROUP_SHIFT | place << 2 | puts) for place, (key, puts, group, _) in enumerate(records)]
    shares: dict[int, list[Shared]] = defaultdict(list)
    for first in range(parts):
        for share in split_rows(rows_from(first, parts), reducers):
            shares[share[0]].append(share)
    assert set(shares) <= set(range(reducers))
    found: list[int] = []
    for some in shares.values():
        for group, data in reduce_rows(replace(_settings(), rule=rule), iter(some)):
            codes = memoryview(data or b"").cast("q").tolist()
            assert {code >> GROUP_SHIFT for code in codes} == {group}
            found += codes
    assert sorted(found) == surviving_codes([rows_from(0, 1)], rule).tolist()


def test_reducer_with_too_many_rows_voids_the_result(tmp_path: Path) -> None:
    """Its memory is bounded; Spark's own aggregation spills."""
    shares = list(split_rows(rows_of([((n, n), n << 2 | 1) for n in range(10)]), 1))
    assert [data is None for _, data in reduce_rows(_settings(40), iter(shares))] == [False]
    assert list(reduce_rows(_settings(36), iter(shares))) == [(0, None)]
    assert list(gather_codes(FileSystem(), tmp_path, (0,), iter([(0, None)]))) == [None]
    assert list(tmp_path.iterdir()) == []


def test_group_without_codes_has_no_bits(tmp_path: Path) -> None:
    """As no record of it stays."""
    assert list(gather_codes(FileSystem(), tmp_path, (0,), iter(()))) == []
    (saved,) = gather_codes(FileSystem(), tmp_path, (0, 9), iter([(1, (1 << GROUP_SHIFT | 3).to_bytes(8, "little"))]))
    assert saved is not None
    assert (saved.group, saved.count) == (1, 1)


def test_there_may_be_more_reducers_than_16_bits_number() -> None:
    """Whoever fixes their number may have chosen any."""
    rows = rows_of([((n, 0), n << 1 | 1) for n in (0, 1, 65_536, 69_999)])
    assert [number for number, _ in split_rows(rows, 70_000)] == [0, 1, 65_536, 69_999]


def test_a_worker_is_frozen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector, which Spark calls after each task, then passes over what the first task has loaded."""
    calls: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(1))
    spark_jobs._spare_the_collector.cache_clear()
    for _ in range(2):
        assert list(spark_jobs._reduce_shares(_settings(), iter(split_rows(rows_of([((1, 1), 3)]), 1))))
    assert calls == [1]
