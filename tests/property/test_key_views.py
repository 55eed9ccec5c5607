"""`cleaner.key.view`: the engine and the slow twin make the same files of logs whose keys have several writings."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

import cleaner
from cleaner.app.plan_report import PlanEntry
from tests.property.logs import FIRST_ROUND_MS, PARTITION, Append, Case, cases, never_cleaned
from tests.property.rounds import run_round, run_rounds, write_case
from tests.scratch import scratch_directory

# The keys of `logs.py`, as keys of a registry's topic; and which of them are the same key, known here.
KEYS = {
    b"k0": b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
    b"k1": b'{"magic":1,"version":1,"subject":"a","keytype":"SCHEMA"}',
    b"k2": b' {"keytype": "SCHEMA", "subject": "\\u0061", "version": 1, "magic": 1}',
    b"k3": b'{"keytype":"SCHEMA","subject":"a","version":1.0,"magic":1}',
    b"k4": b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1,"magic":1}',
    b"k5": b'{"keytype":"NOOP","magic":0}',
    b"k6": b'{"magic":0,"keytype":"NOOP"}',
    b"k7": b'{"magic":0,"keytype":"NOOP"',
}
SAME = {KEYS[b"k1"]: KEYS[b"k0"], KEYS[b"k2"]: KEYS[b"k0"], KEYS[b"k6"]: KEYS[b"k5"]}
VIEW = {"cleaner.key.view": "schema-registry"}


def of_registry(case: Case, slots: int = 1000) -> Case:
    """Return the case with a registry's keys."""
    operations = tuple(
        each._replace(records=tuple((KEYS.get(key or b"", key), value) for key, value in each.records))
        if isinstance(each, Append)
        else each
        for each in case.operations
    )
    return case._replace(
        operations=operations, settings=case.settings | VIEW | {"log.cleaner.dedupe.buffer.size": str(24 * slots)}
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_engine_with_a_view_leaves_the_twins_files(case: Case) -> None:
    """Three rounds with transactions, tombstones, horizons and old checkpoints: byte for byte as the twin has it."""
    with scratch_directory() as directory:
        for number, outcome in enumerate(run_rounds(of_registry(case), directory, same_keys=SAME), 1):
            assert outcome.found == [], f"round {number}"


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_round_with_a_view_after_one_without_leaves_the_twins_files(case: Case) -> None:
    """What a cleaner without the view has left in the clean section is merged as well, and verify proves it."""
    case = of_registry(never_cleaned(case))
    plain = case._replace(settings=case.settings | {"cleaner.key.view": "none"})
    with scratch_directory() as directory:
        log = write_case(case, directory)
        now_ms = FIRST_ROUND_MS
        if run_round(plain, log, directory, log.next_offset, now_ms).report is None:
            return
        merged = counted(directory, case, now_ms + 1)
        outcome = run_round(case, log, directory, log.next_offset, now_ms + 1, same_keys=SAME)
        assert outcome.found == []
        assert outcome.report is None or outcome.report.merged_keys == merged
        lags = case.settings["min.compaction.lag.ms"] != "0"
        assert outcome.report is None or lags or counted(directory, case, now_ms + 2) == 0


def counted(directory: object, case: Case, now_ms: int) -> int:
    """Return what plan counts."""
    (entry,) = cleaner.plan(directory, settings=case.settings, now_ms=now_ms)  # type: ignore[arg-type]
    assert isinstance(entry, PlanEntry)
    assert entry.partition == str(PARTITION)
    assert entry.key_view == "schema-registry"
    return entry.merged_keys or 0
