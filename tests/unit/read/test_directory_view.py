"""How far a log reaches, found out from its directory, while it grows."""

from __future__ import annotations

from pathlib import Path

from cleaner.base.clock import SystemClock
from cleaner.read.directory_view import DirectoryView
from cleaner.read.partition_files import PartitionFiles
from cleaner.storage.fs.file_system import FileSystem
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
