"""Properties of the cleaning of any log."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, assume, given, settings

import cleaner
from cleaner.base.model import TopicPartition
from cleaner.errors import UncleanableError
from tests.property.logs import FIRST_ROUND_MS, PARTITION, Case, cases, never_cleaned
from tests.property.rounds import cleaner_checkpoint, data_records, loaded, partition_files, run_rounds, write_case
from tests.scratch import scratch_directory
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir

common = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@common
@given(cases())
def test_no_key_occurs_twice_below_the_cleaner_checkpoint(case: Case) -> None:
    """After each round the clean section holds every key at most once."""
    case = never_cleaned(case)
    with scratch_directory() as directory:
        for _ in run_rounds(case, directory):
            end = cleaner_checkpoint(directory) or 0
            keys = [r.key for r in data_records(loaded(directory, case)) if r.offset < end and r.key is not None]
            assert len(keys) == len(set(keys))


@common
@given(cases())
def test_cleaning_a_clean_log_again_changes_nothing(case: Case) -> None:
    """When the range is clean, one more round at the same moment finds nothing to do and touches no file."""
    with scratch_directory() as directory:
        log_dir = directory
        write_case(case, log_dir)
        try:
            cleaner.clean(log_dir, str(PARTITION), case.settings, now_ms=FIRST_ROUND_MS, rounds="all")
        except UncleanableError:
            assume(False)
        before = partition_files(log_dir)
        report = cleaner.clean(log_dir, str(PARTITION), case.settings, now_ms=FIRST_ROUND_MS, rounds="all")

        assert partition_files(log_dir) == before
        assert report.bytes_written == 0


@common
@given(cases())
def test_cleaning_from_a_lost_checkpoint_keeps_every_value(case: Case) -> None:
    """A lost cleaner checkpoint costs work, never records: the whole log cleaned again keeps each key's value."""
    case = never_cleaned(case)
    with scratch_directory() as directory:
        log_dir = directory
        write_case(case, log_dir)
        try:
            cleaner.clean(log_dir, str(PARTITION), case.settings, now_ms=FIRST_ROUND_MS, rounds="all")
            first = [r for r in data_records(loaded(log_dir, case)) if r.key is not None and r.value is not None]
            (log_dir / "cleaner-offset-checkpoint").write_text("0\n0\n")
            cleaner.clean(log_dir, str(PARTITION), case.settings, now_ms=FIRST_ROUND_MS, rounds="all")
        except UncleanableError:
            assume(False)
        again = [r for r in data_records(loaded(log_dir, case)) if r.key is not None and r.value is not None]

        assert again == first


def test_one_key_in_two_partitions_survives_in_both(tmp_path: Path) -> None:
    """A key means something within its partition only."""
    logs = []
    for partition in (0, 1):
        log = LogBuilder(TopicPartition("topic", partition))
        log.append(("k", f"old {partition}"))
        log.append(("k", f"new {partition}"))
        log.roll()
        logs.append(log)
    write_log_dir(tmp_path, *logs)
    for partition in (0, 1):
        cleaner.clean(tmp_path, f"topic-{partition}", {"cleanup.policy": "compact"}, now_ms=START_MS + 5000)
    for partition in (0, 1):
        log_bytes = (tmp_path / f"topic-{partition}" / "00000000000000000000.log").read_bytes()
        assert b"old" not in log_bytes
        assert f"new {partition}".encode() in log_bytes
