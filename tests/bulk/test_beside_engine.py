"""Bulk rounds on random logs leave the same files, figures and errors as the engine, however the work is split."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cleaner
from cleaner.app.reports import CleanReport
from cleaner.base.model import TopicPartition
from cleaner.config.process_settings import KAFKA_VERSION_NAMES
from cleaner.config.values import CleanerConfig
from cleaner.errors import CleanerError, CorruptBatchError
from tests.bulk.local_jobs import bulk_clean
from tests.golden.comparison import contents, differences
from tests.property.logs import DAY_MS, FIRST_ROUND_MS, PARTITION, Case, cases
from tests.property.rounds import replicated_at, write_case
from tests.property.test_survivors import NUMBERS, with_numbers
from tests.scratch import scratch_directory
from tests.support.batch_reader import split_batches
from tests.support.log_builder import HIGH_WATERMARKS, LogBuilder, offset_checkpoint, write_log_dir

# Durations; figures that only the map of one process has; and what stays in place: a task reads and writes its group in
# any case.
UNLIKE = {
    *("map_seconds", "copy_seconds", "elapsed_seconds", "map_utilization", "map_bytes_read"),
    *("bytes_in_place", "bytes_read_once"),
}


class Cut(NamedTuple):
    """How the work is split; `is_unbounded` lets the round cover all, else it ends where the engine's map is full."""

    range_bytes: int | None
    task_memory_bytes: int
    groups_in_flight: int
    is_unbounded: bool


cuts = st.builds(
    Cut,
    range_bytes=st.sampled_from([None, 100, 400]),
    task_memory_bytes=st.sampled_from([1, 100, 1 << 20]),
    groups_in_flight=st.sampled_from([1, 3]),
    is_unbounded=st.booleans(),
)


def figures(report: CleanReport | CleanerError, log_dir: Path) -> object:
    """Return what two reports, or errors, must have in common."""
    if isinstance(report, CleanerError):
        return type(report).__name__, str(report).replace(str(log_dir), "")
    return {name: value for name, value in asdict(report).items() if name not in UNLIKE}


def files_and_times(log_dir: Path) -> dict[str, int]:
    """Return the times of the partition's `.log` files."""
    return {path.name: path.stat().st_mtime_ns for path in (log_dir / str(PARTITION)).glob("*.log")}


def clean_both(case: Case, cut: Cut, now_ms: int, engine_dir: Path, bulk_dir: Path, work_dir: Path) -> list[object]:
    """Clean one round with each and list what differs."""
    given_settings = dict(case.settings)
    if cut.is_unbounded:
        given_settings["log.cleaner.dedupe.buffer.size"] = str(16 << 20)
    entries = None if cut.is_unbounded else CleanerConfig.from_mapping(given_settings).key_limit
    results: list[CleanReport | CleanerError] = []
    try:
        results.append(cleaner.clean(engine_dir, str(PARTITION), given_settings, now_ms=now_ms))
    except CleanerError as error:
        results.append(error)
    try:
        report = bulk_clean(
            bulk_dir,
            str(PARTITION),
            given_settings,
            work_dir=work_dir,
            now_ms=now_ms,
            range_bytes=cut.range_bytes,
            task_memory_bytes=cut.task_memory_bytes,
            groups_in_flight=cut.groups_in_flight,
            map_entries=entries,
        )
        results.append(report)
    except CleanerError as error:
        results.append(error)
    found: list[object] = list(differences(contents(engine_dir), contents(bulk_dir)))
    mine, theirs = figures(results[1], bulk_dir), figures(results[0], engine_dir)
    if not cut.is_unbounded and isinstance(mine, dict) and isinstance(theirs, dict):
        for name in ("map_messages_read", "note", "rounds_remaining"):  # they concern records after the map's end
            del mine[name], theirs[name]
    found += [] if mine == theirs else [mine, theirs]
    found += [] if files_and_times(engine_dir) == files_and_times(bulk_dir) else ["times"]
    return found + sorted(work_dir.rglob("*"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), cuts)
def test_bulk_rounds_on_random_logs_leave_the_engines_files(case: Case, cut: Cut) -> None:
    """Three rounds: transactions, old formats, gaps, tiny groups; ranges cut at every index entry, maps of one key."""
    agree(case, cut)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), cuts, st.sampled_from([0, 2900, 3000, DAY_MS]))
def test_bulk_rounds_expire_what_the_engines_do(case: Case, cut: Cut, ttl_ms: int) -> None:
    """With `cleaner.record.ttl.ms`: the same tombstones, with the same horizons."""
    agree(case._replace(settings=case.settings | {"cleaner.record.ttl.ms": str(ttl_ms)}), cut)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), cuts, st.sampled_from(["timestamp", "header:n"]))
def test_bulk_rounds_keep_the_same_survivors(case: Case, cut: Cut, survivor: str) -> None:
    """With `cleaner.survivor`: by numbers, whichever task has read them. The engine takes only what fits its map."""
    case = with_numbers(case, NUMBERS)
    agree(case._replace(settings=case.settings | {"cleaner.survivor": survivor}), cut._replace(is_unbounded=True))


def agree(case: Case, cut: Cut) -> None:
    """Clean a case's log three times with both, and compare."""
    with scratch_directory() as directory:
        engine_dir, bulk_dir = directory / "engine", directory / "bulk"
        log = write_case(case, engine_dir)
        shutil.copytree(engine_dir, bulk_dir)
        now_ms = FIRST_ROUND_MS
        for percent, advance in zip(case.replicated_percent, case.advances_ms, strict=True):
            now_ms += advance
            for log_dir in (engine_dir, bulk_dir):
                replicated = {PARTITION: replicated_at(case, log, percent)}
                (log_dir / HIGH_WATERMARKS).write_bytes(offset_checkpoint(replicated))
            assert clean_both(case, cut, now_ms, engine_dir, bulk_dir, directory / "work") == []


def test_bulk_round_refuses_a_batch_of_the_clean_section_that_reaches_into_the_next_segment(tmp_path: Path) -> None:
    """As the engine does, also where the next segment is in another group: the task is told where its group ends."""
    partition = TopicPartition("topic", 0)
    log = LogBuilder(partition)
    log.append(("a", "1"))
    log.append(("b", "1"))
    log.roll()
    log.append(("c", "1"), ("c", "2"))
    log.roll()
    log.append(("end", "v"))
    log_dir = write_log_dir(tmp_path / "logs", log, cleaner_offsets={partition: 2})
    path = log_dir / str(partition) / f"{0:020d}.log"
    first, last = split_batches(path.read_bytes())
    path.write_bytes(first + (2).to_bytes(8, "big") + last[8:])  # no checksum of magic 2 covers the base offset
    before = contents(log_dir / str(partition))
    given_settings = {"cleanup.policy": "compact", "internal.segment.bytes": "150", "min.cleanable.dirty.ratio": "0"}

    with pytest.raises(CorruptBatchError, match=rf"at byte {len(first)}: its offset lies beyond the segment's end, 2"):
        bulk_clean(log_dir, str(partition), given_settings, work_dir=tmp_path / "work", now_ms=FIRST_ROUND_MS)
    assert contents(log_dir / str(partition)) == before


@pytest.mark.parametrize("checkpoint", [None, 20], ids=["dirty", "clean"])
@pytest.mark.parametrize("version", KAFKA_VERSION_NAMES)
def test_bulk_round_reads_the_indexes_that_the_engine_reads(
    tmp_path: Path, version: str, checkpoint: int | None
) -> None:
    """R-538: in 4.4 a wrong last entry of a group's earlier source is neither checked nor used to cut the segment."""
    log = LogBuilder(index_interval_bytes=0)
    for segment in range(3):
        for batch in range(10):
            log.append((f"k{batch}", f"{segment}"))
        log.roll()
    log.append(("end", "v"))
    offsets = {} if checkpoint is None else {log.topic_partition: checkpoint}
    engine_dir = write_log_dir(tmp_path / "engine", log, cleaner_offsets=offsets)
    index = engine_dir / str(log.topic_partition) / f"{10:020d}.index"
    data = bytearray(index.read_bytes())
    data[-4:] = (int.from_bytes(data[-4:], "big") - 5).to_bytes(4, "big")
    index.write_bytes(data)
    bulk_dir = tmp_path / "bulk"
    shutil.copytree(engine_dir, bulk_dir)
    given_settings = {"cleanup.policy": "compact", "index.interval.bytes": "0", "cleaner.kafka.version": version}
    results: list[str] = []
    for log_dir in (engine_dir, bulk_dir):
        try:
            if log_dir is engine_dir:
                cleaner.clean(log_dir, str(PARTITION), given_settings, now_ms=FIRST_ROUND_MS)
            else:
                bulk_clean(
                    log_dir,
                    str(PARTITION),
                    given_settings,
                    work_dir=tmp_path / "work",
                    now_ms=FIRST_ROUND_MS,
                    range_bytes=100,
                )
            results.append("cleaned")
        except CleanerError as error:
            results.append(type(error).__name__)
    assert results == ["cleaned" if version == KAFKA_VERSION_NAMES[1] else "CorruptIndexError"] * 2
    assert differences(contents(engine_dir), contents(bulk_dir)) == []
