"""Exports of random logs hold what the slow twin says, and changes turn one table into the next."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cleaner
from cleaner.errors import UncleanableError
from cleaner.exporting import iceberg
from cleaner.exporting.manifest import ExportedTable
from tests.property.logs import FIRST_ROUND_MS, PARTITION, Case, cases
from tests.property.rounds import offset_at, write_case
from tests.reference.table import Seen, Table, changes, seen_in, table_of
from tests.scratch import scratch_directory
from tests.support.iceberg import states_in
from tests.support.tables import changes_in, manifest_of, table_in


def written(case: Case, log_dir: Path) -> tuple[Table, Seen]:
    """Write a case's log dir anew; returns its table and what readers see."""
    shutil.rmtree(log_dir, ignore_errors=True)
    log_dir.mkdir()
    log = write_case(case, log_dir)
    directory = log_dir / str(PARTITION)
    seen = seen_in(directory, offset_at(log, case.start_percent or 0), log.next_offset)
    return table_of(directory, seen), seen


@given(
    case=cases(),
    cut=st.integers(0, 100),
    forms=st.tuples(*[st.sampled_from(["parquet", "jsonl"])] * 3),
    later_ms=st.sampled_from([0, 10**9]),
)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_exports_are_those_of_the_twin(case: Case, cut: int, forms: tuple[str, ...], later_ms: int) -> None:
    """A part of the log, then all of it, then what rounds have left of it; each with the changes since the last."""
    part = case._replace(operations=case.operations[: max(1, len(case.operations) * cut // 100)])
    with scratch_directory() as scratch:
        log_dir, target = scratch / "log_dir", scratch / "export"
        before, _ = written(part, log_dir)
        export = cleaner.export(log_dir, "topic", target, form=forms[0], changes=True)
        assert (export.number, export.since, export.rows) == (1, None, len(before))
        assert table_in(target) == before
        assert changes_in(target) == (before, set())

        table, seen = written(case, log_dir)
        export = cleaner.export(log_dir, "topic", target, form=forms[1], changes=True)
        assert (export.number, export.since) == (2, 1)
        assert manifest_of(target)["number"] == 2
        assert table_in(target) == table
        assert changes_in(target) == changes(before, table)

        with contextlib.suppress(UncleanableError):
            for now_ms in (FIRST_ROUND_MS, FIRST_ROUND_MS + later_ms):
                cleaner.clean(log_dir, str(PARTITION), case.settings, now_ms=now_ms)
        cleaned = table_of(log_dir / str(PARTITION), seen)
        export = cleaner.export(log_dir, "topic", target, form=forms[2], changes=True)
        assert (export.number, export.since) == (3, 2)
        assert table_in(target) == cleaned
        assert changes_in(target) == changes(table, cleaned)
        # A made-up checkpoint may call a section clean that still has a record and, past its horizon, its tombstone.
        if case.checkpoint_percent is None:
            assert {key: row.value for key, row in cleaned.items()} == {key: row.value for key, row in table.items()}


@given(case=cases(), cut=st.integers(0, 100), group_rows=st.sampled_from([1, 3, 1 << 20]))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_snapshots_are_those_of_the_twin(case: Case, cut: int, group_rows: int) -> None:
    """The same as an Iceberg table, in files of any length: the current snapshot, the one before, and the counts."""
    part = case._replace(operations=case.operations[: max(1, len(case.operations) * cut // 100)])
    with scratch_directory() as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setattr(iceberg, "GROUP_ROWS", group_rows)
        log_dir, target = scratch / "log_dir", scratch / "export"
        before: Table = {}
        for given_case, is_cleaned in ((part, False), (case, False), (case, True), (part, False)):
            table, seen = written(given_case, log_dir)
            if is_cleaned:
                with contextlib.suppress(UncleanableError):
                    cleaner.clean(log_dir, str(PARTITION), case.settings, now_ms=FIRST_ROUND_MS)
                table = table_of(log_dir / str(PARTITION), seen)
            export = cleaner.export(log_dir, "topic", target, form="iceberg")
            upserts, deletes = changes(before, table)
            assert isinstance(export, ExportedTable)
            assert (export.rows, export.upserts, export.deletes) == (len(table), len(upserts), len(deletes))
            *old, new = states_in(target)
            assert new.tables.get(0, {}) == table
            if old and export.number != export.since:
                assert old[0].tables.get(0, {}) == before
            before = table
