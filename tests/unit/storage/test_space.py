"""The check of free space."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.errors import NoSpaceError
from cleaner.storage.fs.space import require_room
from tests.unit.small_disk import SmallDisk

OVERHEAD = 512 << 10


def test_room_for_output_and_overhead_is_enough(tmp_path: Path) -> None:
    """Exactly the output and the overhead of file system blocks is enough."""
    require_room(SmallDisk(1000 + OVERHEAD), tmp_path, 1000)


def test_room_one_byte_short_says_how_much_is_missing(tmp_path: Path) -> None:
    """The error names the directory and the bytes missing, and comes before anything is written (C-3)."""
    with pytest.raises(NoSpaceError) as caught:
        require_room(SmallDisk(1000 + OVERHEAD - 1), tmp_path, 1000)
    assert (caught.value.path, caught.value.missing_bytes) == (tmp_path, 1)
