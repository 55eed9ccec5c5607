"""The driver is killed at every change: the next job finishes the round, or starts it again, to the same bytes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.errors import CleaningAborted, PolicyRefusedError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.log_dir import LogDir, OffsetKind
from tests.bulk.local_jobs import LocalJobs, bulk_clean
from tests.golden.comparison import contents, differences
from tests.golden.scenario import Step, steps
from tests.integration.log_dirs import NOW, keyed_log
from tests.scratch import scratch_directory
from tests.support.log_builder import write_log_dir
from tests.support.watched_fs import Operation, WatchedFileSystem

# Cleaned before; aborted data and markers, some of which go now; several groups.
STEP = next(step for step in steps() if str(step) == "transactions-3")
SETTINGS = {**STEP.settings, "internal.segment.bytes": "6000", "log.cleaner.dedupe.buffer.size": str(1 << 20)}
KILLED = 9
TOPIC = TopicPartition("topic", 0)


class DyingFileSystem(WatchedFileSystem):
    """A disk whose process dies at the `die_at`-th change (from 0); None: changes are counted."""

    def __init__(self, die_at: int | None) -> None:
        self.changes = 0
        self._die_at = die_at

    def before(self, operation: Operation) -> None:
        """Count, or die."""
        if self.changes == self._die_at:
            os._exit(KILLED)
        self.changes += 1


def run(step: Step, log_dir: Path, work_dir: Path, fs: WatchedFileSystem | None = None) -> LocalJobs:
    """Clean the step's log, group by group."""
    jobs = LocalJobs() if fs is None else LocalJobs(fs)
    bulk_clean(
        log_dir,
        step.partition,
        SETTINGS,
        work_dir=work_dir,
        now_ms=step.now_ms,
        jobs=jobs,
        range_bytes=2000,
        groups_in_flight=1,
        fs=fs,
    )
    return jobs


def run_and_die(step: Step, log_dir: Path, work_dir: Path, die_at: int) -> int:
    """Clean in a child that dies; returns how it ended."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            run(step, log_dir, work_dir, DyingFileSystem(die_at))
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def logs_of(log_dir: Path) -> dict[str, bytes]:
    """Return all files except producer snapshots, which the loader removes when it completes a swap (R-631)."""
    return {name: data for name, data in contents(log_dir).items() if not name.endswith(".snapshot")}


def kill_and_restart(home: Path, die_at: int, expected: dict[str, bytes]) -> tuple[int, list[str], list[str]]:
    """Kill one job and run the next; returns how the first ended, what the second did, and what differs."""
    with scratch_directory() as directory:
        log_dir, work_dir = STEP.prepare(home, directory / "logs"), directory / "work"
        ended = run_and_die(STEP, log_dir, work_dir, die_at)
        jobs = run(STEP, log_dir, work_dir)
        found = differences(expected, logs_of(log_dir))
        # The partition's next job removes the files of a job that died after its checkpoint.
        left = [str(path) for path in sorted(work_dir.rglob("*"))] if jobs.told else []
        return ended, jobs.told, found + left


def sweep(home: Path, every: int) -> tuple[int, int]:
    """Kill at every `every`-th change; returns how many jobs were killed, and how many of the next ones continued."""
    with scratch_directory() as directory:
        fs = DyingFileSystem(None)
        log_dir = STEP.prepare(home, directory / "logs")
        groups = run(STEP, log_dir, directory / "work", fs).told.count("recopy")
        expected = logs_of(log_dir)
    assert groups >= 3
    assert fs.changes > 100
    killed = went_on = 0
    for die_at in range(0, fs.changes, every):
        ended, told, found = kill_and_restart(home, die_at, expected)
        assert found == [], f"killed at change {die_at} of {fs.changes}, then {told}"
        assert ended == KILLED
        killed += 1
        went_on += "digest" not in told
    return killed, went_on


def test_killed_driver_is_followed_by_one_that_finishes(unpacked: Callable[[str], Path]) -> None:
    """For a sample of all moments; some of the next jobs need not find the survivors again."""
    killed, went_on = sweep(unpacked(STEP.scenario), every=29)
    assert 0 < went_on < killed


@pytest.mark.slow
def test_killed_driver_is_followed_by_one_that_finishes_whatever_the_moment(unpacked: Callable[[str], Path]) -> None:
    """Every single one."""
    killed, went_on = sweep(unpacked(STEP.scenario), every=1)
    assert 0 < went_on < killed


def stop_at_recopy(what: str) -> None:
    """Stop the job after its first pass."""
    if what == "recopy":
        raise CleaningAborted("stopped")


def test_resumed_job_of_a_log_that_has_grown_says_what_ended_the_round(tmp_path: Path) -> None:
    """Its range is that of the plan; segments that were rolled since are for another round."""
    log_dir, longer, settings = tmp_path / "logs", tmp_path / "longer", {"cleanup.policy": "compact"}
    write_log_dir(log_dir, keyed_log(segments=2))
    write_log_dir(longer, keyed_log(segments=3))
    stopped, resumed = LocalJobs(on_job=stop_at_recopy), LocalJobs()
    with pytest.raises(CleaningAborted):
        bulk_clean(log_dir, "topic-0", settings, work_dir=tmp_path / "work", now_ms=NOW, jobs=stopped)
    for path in longer.rglob("*"):
        target = log_dir / path.relative_to(longer)
        if path.is_file() and (path.parent == longer or not target.exists()):
            shutil.copy2(path, target)
    report = bulk_clean(log_dir, "topic-0", settings, work_dir=tmp_path / "work", now_ms=NOW, jobs=resumed)
    assert set(resumed.told) == {"recopy"}
    assert report.note.startswith("the resumed job had been planned for less at offset 40 of 60: ")


@pytest.mark.parametrize(
    "changed",
    [
        {"delete.retention.ms": "1000"},
        {"internal.segment.bytes": "5000"},
        {"segment.index.bytes": "4096"},
        {"index.interval.bytes": "1"},
        {"max.decompressed.message.bytes": "100000"},
        {"cleaner.record.ttl.ms": "1000"},
        {"log start": "5"},
        {"checkpoint": "0"},
        {"keep tombstones": "true"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_job_of_other_terms_is_not_resumed(changed: dict[str, str], tmp_path: Path) -> None:
    """What it has found out is of a round that is not wanted any more: the next one looks for itself."""
    log_dir, settings = tmp_path / "logs", {"cleanup.policy": "compact"}
    write_log_dir(log_dir, keyed_log(segments=3), cleaner_offsets={TOPIC: 20})
    stopped, next_one = LocalJobs(on_job=stop_at_recopy), LocalJobs()
    with pytest.raises(CleaningAborted):
        bulk_clean(log_dir, "topic-0", settings, work_dir=tmp_path / "work", now_ms=NOW, jobs=stopped)
    terms = {**settings, **changed}
    for name, kind in (("log start", OffsetKind.LOG_START), ("checkpoint", OffsetKind.CLEANER)):
        if name in terms:
            LogDir(FileSystem(), log_dir).put(kind, TOPIC, int(terms.pop(name)))
    keeps = terms.pop("keep tombstones", None) is not None
    work_dir = tmp_path / "work"
    bulk_clean(log_dir, "topic-0", terms, work_dir=work_dir, now_ms=NOW, jobs=next_one, keep_tombstones=keeps)
    assert next_one.told[0] == "digest"


def test_job_of_a_named_log_with_keyless_records_is_not_resumed_for_a_default_policy(tmp_path: Path) -> None:
    """Who named the log allowed that they go; who cleans all by a default did not. The job stays."""
    log = keyed_log(segments=1)
    log.append((None, "no key"))
    log.roll()
    log.append(("k", "v"))
    log_dir, settings = write_log_dir(tmp_path / "logs", log), {"cleanup.policy": "compact"}
    stopped, refused, resumed = LocalJobs(on_job=stop_at_recopy), LocalJobs(), LocalJobs()
    with pytest.raises(CleaningAborted):
        bulk_clean(log_dir, "topic-0", settings, work_dir=tmp_path / "work", now_ms=NOW, jobs=stopped)
    before = contents(log_dir)
    config = {"log.cleanup.policy": "compact"}
    with pytest.raises(PolicyRefusedError, match="1 records without a key"):
        bulk_clean(log_dir, "topic-0", {}, work_dir=tmp_path / "work", now_ms=NOW, jobs=refused, config=config)
    assert (refused.told, contents(log_dir)) == ([], before)
    report = bulk_clean(log_dir, "topic-0", settings, work_dir=tmp_path / "work", now_ms=NOW, jobs=resumed)
    assert (set(resumed.told), report.invalid_messages) == ({"recopy"}, 1)


def test_sources_are_on_disk_before_the_first_of_them_is_replaced(tmp_path: Path) -> None:
    """A swap drops older values for newer ones, which may be in the page cache alone (D-10); so may all names."""

    class Noting(WatchedFileSystem):
        def before(self, operation: Operation) -> None:
            if operation.path.parent == directory:
                done.append(f"{operation.kind} {operation.path.name[20:]}")
            elif operation.path == directory:
                done.append(operation.kind)

    log_dir, done = write_log_dir(tmp_path / "logs", keyed_log(segments=3)), list[str]()
    directory, fs = log_dir / "topic-0", Noting()
    settings = {"cleanup.policy": "compact"}
    bulk_clean(log_dir, "topic-0", settings, work_dir=tmp_path / "work", now_ms=NOW, jobs=LocalJobs(), fs=fs)
    before = done[: done.index("rename .log.cleaned")]
    assert before.count("fsync .log") == 4
    # The names of all of them, and those of the new files.
    assert before.count("fsync_dir") == 2
    assert before[-1] == "fsync_dir"
