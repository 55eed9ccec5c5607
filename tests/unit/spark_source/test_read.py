"""Tasks whose files were replaced, moved or removed between the plan and the reading."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.errors import CleanerError, LogDirOfflineError, OffsetOutOfRangeError
from cleaner.spark.source.options import read_options
from cleaner.spark.source.plan import Task
from cleaner.spark.source.task import run_task
from cleaner.storage.fs.file_system import FileSystem
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.unit.cleaning.logs import clean, context
from tests.unit.spark_source.reading import offsets_of, tasks_of

pytest.importorskip("pyarrow", reason="needs the extra `spark`")


def a_log_dir(path: Path) -> Path:
    """Write a log of forty records with ten keys, ten records a segment."""
    log = LogBuilder(index_interval_bytes=0)
    for number in range(40):
        if number and number % 10 == 0:
            log.roll()
        log.append((f"k{number % 10}", f"v{number}"))
    return write_log_dir(path, log)


def offsets(path: Path, tasks: list[Task], **options: str) -> list[int]:
    """Run tasks that were planned before."""
    read = read_options({"path": str(path), **options})
    batches = [batch for task in tasks for batch in run_task(FileSystem(), read, task)]
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_cleaned_segments_give_the_remaining_records_of_the_same_offsets(tmp_path: Path) -> None:
    """No record is read twice, and none that still exists is missed."""
    a_log_dir(tmp_path)
    tasks = tasks_of(tmp_path, maxPartitionBytes="200")
    clean(tmp_path / "topic-0", context())
    assert offsets(tmp_path, tasks) == offsets_of(tmp_path) == list(range(20, 40))


@pytest.mark.parametrize("options", [{}, {"latestPerKey": "true"}, {"isolationLevel": "read_committed"}], ids=str)
def test_directory_that_is_not_where_it_was_planned_is_an_error_with_what_to_do(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """As on an executor with another disk at this path, or none."""
    a_log_dir(tmp_path)
    tasks = tasks_of(tmp_path, **options)
    (tmp_path / "topic-0").rename(tmp_path / "elsewhere")
    with pytest.raises(LogDirOfflineError, match=r"topic-0: No such .*; executors need the logs under the path"):
        offsets(tmp_path, tasks, **options)
    (tmp_path / "topic-0").mkdir()
    with pytest.raises(CleanerError, match=r"topic-0: (offset \d+ is not within|its segments have gone)"):
        offsets(tmp_path, tasks, **options)


def test_segments_under_other_names_are_found_again(tmp_path: Path) -> None:
    """A swap that was interrupted leaves names with a suffix."""
    a_log_dir(tmp_path)
    tasks = tasks_of(tmp_path)
    log = tmp_path / "topic-0" / f"{10:020d}.log"
    log.rename(log.with_name(log.name + ".swap"))
    assert offsets(tmp_path, tasks) == list(range(40))


def _remove_first(directory: Path) -> None:
    (directory / f"{0:020d}.log").unlink()


def _cut_last(directory: Path) -> None:
    log = directory / f"{30:020d}.log"
    log.write_bytes(log.read_bytes()[:300])


@pytest.mark.parametrize(("loss", "left"), [(_remove_first, range(10, 40)), (_cut_last, range(34))])
def test_missing_offsets_are_an_error_by_default(tmp_path: Path, loss: Callable[[Path], None], left: range) -> None:
    """Removed by retention at the start, or by a writer that truncated its log at the end."""
    a_log_dir(tmp_path)
    tasks = tasks_of(tmp_path)
    loss(tmp_path / "topic-0")
    with pytest.raises(OffsetOutOfRangeError, match="failOnDataLoss=false reads the rest"):
        offsets(tmp_path, tasks)
    assert offsets(tmp_path, tasks, failOnDataLoss="false") == list(left)
