"""Where the tests of this directory write: in memory, as they write thousands of states of small logs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scratch import scratch_directory


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Give a directory that is gone afterwards. What a disk keeps is simulated, or an image's in a loop device."""
    with scratch_directory() as directory:
        yield directory
