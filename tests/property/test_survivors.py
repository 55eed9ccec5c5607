"""`cleaner.survivor` and `cleaner.record.ttl.ms`: the engine and the slow twin make the same files."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cleaner
from cleaner.errors import UncleanableError
from tests.property.logs import DAY_MS, FIRST_ROUND_MS, PARTITION, Append, Case, cases, never_cleaned
from tests.property.rounds import cleaner_checkpoint, run_rounds, write_case
from tests.reference.batches import Batch, read_batches, read_records
from tests.scratch import scratch_directory
from tests.support.log_builder import HIGH_WATERMARKS

# The values of `logs.py`, as numbers in a header: decimal, 8 bytes, and what is neither.
NUMBERS = {
    None: None,
    b"": b"-7",
    b"v": struct.pack(">q", -3),
    b"value": b"20261123",
    b"a longer value " * 9: struct.pack(">q", 5),
}
OTHER_NUMBERS = {None: b"x", b"": b"9223372036854775808", b"v": b"12", b"value": b"-", b"a longer value " * 9: b"007"}
OWN = ("cleaner.survivor", "cleaner.record.ttl.ms")
ROOMY = {"log.cleaner.dedupe.buffer.size": str(32 * 1000)}


def with_numbers(case: Case, numbers: dict[bytes | None, bytes | None]) -> Case:
    """Return the case with a header `n` where it had any header; its value is the record's."""
    operations = tuple(
        each._replace(
            records=tuple((key, numbers.get(value, value)) for key, value in each.records),
            header=None if each.header is None else b"n",
        )
        if isinstance(each, Append)
        else each
        for each in case.operations
    )
    return case._replace(operations=operations)


def agree(case: Case) -> None:
    """
    Run the case's rounds with the engine and the twin, and prove each; the proof refutes what Kafka's rule leaves.

    The twin knows no rounds without anything dirty: the first one that it does not clean ends the case.
    """
    own = {name: case.settings[name] for name in OWN if name in case.settings}
    kafkas = {name: value for name, value in case.settings.items() if name not in own}
    now_ms = FIRST_ROUND_MS
    with scratch_directory() as directory, scratch_directory() as before, scratch_directory() as other:
        write_case(case, before)
        first = True
        for number, outcome in enumerate(run_rounds(case, directory), 1):
            now_ms += case.advances_ms[number - 1]
            if outcome.report is None or not outcome.twin.cleaned:
                assert outcome.found == [] or not outcome.twin.cleaned
                return
            assert outcome.found == [], f"round {number}"
            copy_of(directory, before, HIGH_WATERMARKS)
            if case != never_cleaned(case):
                continue  # a made-up checkpoint or log start may lie where none can, which the proof says
            proof = cleaner.verify(before, directory, str(PARTITION), case.settings, now_ms=now_ms)
            assert proof.is_proven, (number, proof.findings)
            if first:
                copy_of(before, other)
                try:
                    cleaner.clean(other, str(PARTITION), kafkas, now_ms=now_ms)
                except UncleanableError:
                    pass  # more stays by Kafka's rule, and an index of 60 bytes may be too small for that
                else:
                    refute(case, before, directory, other, now_ms)
            copy_of(directory, before)
            first = False


def refute(case: Case, before: Path, after: Path, other: Path, now_ms: int) -> None:
    """Prove that another round was not one by the case's settings, if it left other records."""
    records = [
        [(record.offset, record.value) for batch in batches_of(each) for record in read_records(batch)]
        for each in (after, other)
    ]
    same_end = cleaner_checkpoint(after) == cleaner_checkpoint(other)
    if records[0] != records[1] and same_end:
        assert not cleaner.verify(before, other, str(PARTITION), case.settings, now_ms=now_ms).is_proven


def batches_of(log_dir: Path) -> list[Batch]:
    """Return the partition's batches."""
    return [
        batch for path in sorted((log_dir / str(PARTITION)).glob("*.log")) for batch in read_batches(path.read_bytes())
    ]


def copy_of(source: Path, target: Path, *names: str) -> None:
    """Make the target what the source is, or only these files."""
    for name in names:
        shutil.copy2(source / name, target / name)
    if not names:
        shutil.rmtree(target)
        shutil.copytree(source, target)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), st.sampled_from(["timestamp", "header:n"]), st.sampled_from([NUMBERS, OTHER_NUMBERS]))
def test_engine_by_numbers_leaves_the_twins_files(
    case: Case, rule: str, numbers: dict[bytes | None, bytes | None]
) -> None:
    """Three rounds with transactions, tombstones and horizons: byte for byte as the twin has it."""
    case = with_numbers(case, numbers)
    agree(case._replace(settings=case.settings | ROOMY | {"cleaner.survivor": rule}))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), st.sampled_from([0, 2400, 2900, 3000, 5500, DAY_MS, 9 * DAY_MS]))
def test_engine_with_expiring_records_leaves_the_twins_files(case: Case, ttl_ms: int) -> None:
    """Records expire in the round that finds them too old, and their tombstones wait a horizon."""
    agree(case._replace(settings=case.settings | {"cleaner.record.ttl.ms": str(ttl_ms)}))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), st.sampled_from(["timestamp", "header:n"]), st.sampled_from([0, 2900, 9 * DAY_MS]))
def test_engine_with_both_leaves_the_twins_files(case: Case, rule: str, ttl_ms: int) -> None:
    """The record that stays by its number may expire."""
    both = {"cleaner.survivor": rule, "cleaner.record.ttl.ms": str(ttl_ms)}
    agree(with_numbers(case, NUMBERS)._replace(settings=case.settings | ROOMY | both))
