"""What a job and its tasks keep in files is read back as it was written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cleaner.base.json_values import WrongValueError, from_json, json_value
from cleaner.base.model import Removed
from cleaner.cleaning.recopy.group import RecopyRules
from cleaner.cleaning.recopy.retained import CopyCounts
from cleaner.policy.cleanable import Cleanable
from cleaner.spark.clean.digest_task import RangeReport
from cleaner.spark.clean.manifest import JOB_NAME, PROGRESS_NAME, Job, JobFiles, MapFigures, Progress
from cleaner.spark.clean.plan import CopyRules, GroupPlan, Source
from cleaner.spark.clean.recopy_task import GroupWork
from cleaner.spark.clean.transactions import PassState, PassSummary
from cleaner.spark.clean.verdicts import GroupBits
from cleaner.storage.fs.file_system import FileSystem

STATE = PassState(((5, 1, 0), (6, 0, 2)), ((9, 10, 12),))
GROUP = GroupPlan(0, (Source(0, 100, 7), Source(50, 80, 8)))
JOB = Job(
    directory="/logs/prices-0",
    digest_key=2**127 + 5,
    cleanable=Cleanable(50, 90, 100, 80, 0, False, "active segment"),
    end_offset=90,
    settings={"segment.bytes": 1000, "policy": "compact"},
    rules=CopyRules(RecopyRules(90, False, 0, 5, 4, 3), 4096, 1 << 20, 0, (0, 50), 50, 12),
    works=(GroupWork(GROUP, GroupBits(0, "bits", 3, 77), STATE, None), GroupWork(GROUP, None, PassState(), STATE)),
    expected_bytes=(150, 10),
    figures=MapFigures(180, 9, 0.5),
    damaged=1,
    damage={"kind": "CorruptBatchError", "path": "/logs/prices-0/0.log", "position": 9, "reason": "odd"},
)


@pytest.fixture
def files(tmp_path: Path) -> JobFiles:
    """Return the files of a job that has begun."""
    found = JobFiles(FileSystem(), tmp_path, Path(JOB.directory))
    found.begin()
    return found


def test_job_and_progress_are_read_back_as_saved(files: JobFiles) -> None:
    """Another process goes on with the same job."""
    files.save(JOB)
    counts = CopyCounts(1, 2, 3, 4, Removed(5, 6, 7, 8, 9))
    progress = Progress((70, 80), 1, counts, CopyCounts())
    files.save_progress(progress)
    assert files.load() == (JOB, progress)


def test_job_with_a_field_of_another_type_is_no_job(files: JobFiles) -> None:
    """It is renamed, and the round begins anew."""
    files.save(JOB)
    job = files.path / JOB_NAME
    job.write_text(job.read_text().replace('"end_offset": 90', '"end_offset": "90"'))
    assert files.load() is None
    assert [path.name for path in files.path.glob("job.json.*")] == ["job.json.damaged-1"]


def test_report_of_a_range_is_read_back_as_written() -> None:
    """Sets of producers, and an error with numbers and texts."""
    summary = PassSummary(STATE, frozenset((7, 3)), frozenset((4,)))
    report = RangeReport(9, 1, 50, 52, 89, summary, PassSummary(), JOB.damage and dict(JOB.damage))
    assert from_json(RangeReport, json_value(report)) == report
    with pytest.raises(WrongValueError, match="error"):
        from_json(RangeReport, {"error": {"position": 1.5}})


def test_progress_without_its_counts_is_no_progress(files: JobFiles) -> None:
    """A report with counts of nothing would look like a round that read nothing."""
    files.save(JOB)
    progress = files.path / PROGRESS_NAME
    whole = json.loads(progress.read_text())
    del whole["counts"]
    progress.write_text(json.dumps(whole))
    assert files.load() is None
