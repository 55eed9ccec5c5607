"""A log by names, sizes and checkpoints alone: R-118, R-120, D-03."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import cleaner
from cleaner.errors import LogDirOfflineError, NotCleanlyShutDownError
from cleaner.policy.reasons import Reason
from cleaner.read.summary import TemporaryFiles, list_log_files, summarize
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.leftovers import SwapState
from tests.integration.log_dirs import keyed_log
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.unit.daemon.watching import Watch

FS = FileSystem()


def written(tmp_path: Path, segments: int = 3) -> Path:
    """Segments of five offsets each."""
    log = LogBuilder()
    for segment in range(segments):
        if segment:
            log.roll()
        for number in range(5):
            log.append((f"k{number}", "v"))
    return log.write(tmp_path)


def test_listing_finds_segments_snapshots_and_leavings(tmp_path: Path) -> None:
    """Only names Kafka writes count; directories and links beside segments do not."""
    directory = written(tmp_path)
    for name in ("5.log", "notes.log", f"{0:020d}.log.cleaned", f"{0:020d}.log.swap", f"{5:020d}.snapshot.deleted"):
        (directory / name).touch()
    (directory / f"{90:020d}.index").symlink_to(directory / "5.log")
    (directory / f"{91:020d}.log").mkdir()
    files = list_log_files(FS, directory)
    assert [(s.base_offset, s.size) for s in files.segments] == [
        (base, (directory / f"{base:020d}.log").stat().st_size) for base in (0, 5, 10)
    ]
    assert [offset for offset, _ in files.snapshots] == [5, 10, 15]
    assert files.temporary_files == TemporaryFiles(SwapState.TAKEN_BACK, deleted=1)


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe"])
def test_segment_that_is_no_regular_file_is_refused_by_all(tmp_path: Path, kind: str) -> None:
    """A load, readers and `check` cannot open it; a listing that left it out would find a log with a hole."""
    log = keyed_log()
    path = write_log_dir(tmp_path / "logs", log) / "topic-0" / f"{20:020d}.log"
    path.rename(tmp_path / "moved")
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / ("moved" if kind == "link" else "nowhere"))
    with pytest.raises(LogDirOfflineError, match=f"{path.name}: not a regular file"):
        list_log_files(FS, path.parent)
    settings = {"cleanup.policy": "compact"}
    (entry,) = cleaner.plan(tmp_path / "logs", settings)
    assert (entry.why, path.name in entry.error) == (Reason.UNREADABLE, True)
    looked = Watch(tmp_path / "logs").log()
    assert (looked.held_by, path.name in looked.error) == (Reason.UNREADABLE, True)
    assert not cleaner.check([tmp_path / "logs"]).is_sound
    with pytest.raises(LogDirOfflineError, match=path.name):
        cleaner.clean(tmp_path / "logs", "topic-0", settings)


def test_listing_keeps_segments_that_are_the_same(tmp_path: Path) -> None:
    """And with them what was read of them; a file that was replaced is another segment."""
    directory = written(tmp_path)
    before = list_log_files(FS, directory)
    path = directory / f"{5:020d}.log"
    times = path.stat().st_mtime_ns
    data = path.read_bytes()
    path.rename(directory / "old")
    path.write_bytes(data)
    os.utime(path, ns=(times, times))
    after = list_log_files(FS, directory, before)
    assert [a is b for a, b in zip(after.segments, before.segments, strict=True)] == [True, False, True]


@pytest.mark.parametrize(
    ("log_start", "high_watermark", "unstable", "expected"),
    [
        pytest.param(0, None, None, (0, 10, 0, 0), id="no-high-watermark-nothing-replicated"),
        pytest.param(0, 12, None, (0, 12, 12, 12), id="log-end-is-at-least-the-high-watermark"),
        pytest.param(0, 7, None, (0, 10, 7, 7), id="log-end-is-at-least-the-active-base"),
        pytest.param(3, 1, None, (3, 10, 3, 3), id="high-watermark-not-below-the-start"),
        pytest.param(0, 12, 6, (0, 12, 12, 6), id="open-transaction"),
        pytest.param(8, 12, 6, (8, 12, 12, 8), id="open-transaction-from-below-the-start"),
        pytest.param(0, 5, 6, (0, 10, 5, 5), id="open-transaction-above-the-high-watermark"),
    ],
)
def test_summary_holds_offsets_within_the_log(
    tmp_path: Path, log_start: int, high_watermark: int | None, unstable: int | None, expected: tuple[int, ...]
) -> None:
    """Start, end, high watermark and last stable offset, each within what the files prove."""
    directory = written(tmp_path)
    log = summarize(
        directory,
        list_log_files(FS, directory).segments,
        log_start_offset=log_start,
        high_watermark=high_watermark,
    ).unstable_from(unstable)
    found = (log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset)
    assert found == expected


def test_summary_without_segments_is_refused(tmp_path: Path) -> None:
    """Only a recovery can tell what such a directory is."""
    with pytest.raises(NotCleanlyShutDownError, match="no segments"):
        summarize(tmp_path, (), log_start_offset=0, high_watermark=None)
