"""What is in the page cache, seen from outside."""

from __future__ import annotations

import mmap
from pathlib import Path

from benchmarks.page_cache import resident_bytes


def test_resident_bytes_counts_pages_of_files_just_written(tmp_path: Path) -> None:
    """Files of all directories count, by whole pages; empty ones have none."""
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "two").write_bytes(bytes(mmap.PAGESIZE + 1))
    (tmp_path / "one").write_bytes(b"x")
    (tmp_path / "none").write_bytes(b"")
    assert resident_bytes(tmp_path) == 3 * mmap.PAGESIZE
