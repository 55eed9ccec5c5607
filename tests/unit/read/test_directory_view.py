"""How far a log reaches, found out from its directory, while it grows."""

from __future__ import annotations

import errno
import os
from contextlib import closing, suppress
from pathlib import Path

from cleaner.base.clock import SystemClock
from cleaner.errors import CleanerError
from cleaner.read.directory_view import DirectoryView
from cleaner.read.partition_files import PartitionFiles
from cleaner.storage.fs.file_system import FileSystem
from tests.crash.interrupts import FaultyFileSystem
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder, write_log_dir


def test_view_that_lasts_keeps_aborted_transactions_of_the_active_segment_only(tmp_path: Path) -> None:
    """Those of closed segments are in their transaction indexes: what is kept does not grow with the log."""
    log = LogBuilder(segment_bytes=700)
    write_log_dir(tmp_path, log)
    files = PartitionFiles(FileSystem(), tmp_path, log.topic_partition, SystemClock())
    view = DirectoryView(files)
    segments, kept = 0, []
    for number in range(60):
        log.append((f"k{number}", "v"), producer=Producer(1, 0, 0, transactional=True))
        log.end_transaction(1, 0, commit=False)
        write_log_dir(tmp_path, log)
        assert view.last_stable_offset == log.next_offset
        segments = len(files.listing().places)
        aborts = view.unlisted_aborts()
        assert aborts is not None
        kept.append(len(aborts))
    view.close()
    files.close()
    assert segments > 10
    assert 0 < max(kept) <= 60 // segments + 1


def test_view_is_right_after_any_call_that_failed(tmp_path: Path) -> None:
    """In a new segment, or farther in the same one: the end is no mixture of what was read before and after."""
    log = LogBuilder(segment_bytes=700)
    log.append(("k", "v"))
    write_log_dir(tmp_path, log)
    fs, ends = FaultyFileSystem(), []
    fs.what = lambda: OSError(errno.EIO, os.strerror(errno.EIO))
    with (
        closing(PartitionFiles(fs, tmp_path, log.topic_partition, SystemClock())) as files,
        closing(DirectoryView(files)) as view,
    ):
        for number in range(1, 61):
            for key in range(number % 9):
                log.append((f"k{key}", "v" * 40), producer=Producer(1, 0, 0, transactional=True))
            log.end_transaction(1, 0, commit=True) if number % 9 else None
            write_log_dir(tmp_path, log)
            fs.calls, fs.fail_at = 0, 1 + number % 40
            with suppress(CleanerError):
                ends.append((view.log_end_offset, view.last_stable_offset))
            fs.fail_at = None
            assert (view.log_end_offset, view.last_stable_offset) == (log.next_offset, log.next_offset)
    assert 0 < len(ends) < 57
