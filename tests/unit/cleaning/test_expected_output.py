"""The size of a group's output, estimated from the map (rule C-3)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.recopy.expected_output import ExpectedOutput
from cleaner.errors import NoSpaceError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.segment import Segment
from tests.unit.small_disk import SmallDisk

pytestmark = pytest.mark.kernels

SIZE = 4 << 20


class FixedMap(OffsetMap):
    """A map with given offsets."""

    def __init__(self, survivors: Mapping[int, int]) -> None:
        super().__init__(1, 1)
        self._offsets = np.concatenate([np.arange(base, base + count) for base, count in survivors.items()])
        self.asked = 0

    def offsets(self) -> npt.NDArray[np.int64]:
        """Return them, and count the calls."""
        self.asked += 1
        return self._offsets


def segments(directory: Path, *bases: int) -> list[Segment]:
    """Make segments of 4 MiB, all holes."""
    for base in bases:
        with (directory / f"{base:020d}.log").open("wb") as file:
            file.truncate(SIZE)
    return [Segment.open(FileSystem(), directory, base) for base in bases]


def missing(expected: ExpectedOutput, group: list[Segment], free_bytes: int) -> int:
    """Return how many bytes are missing, 0 when there is room."""
    try:
        expected.require_room(SmallDisk(free_bytes), group)
    except NoSpaceError as error:
        return error.missing_bytes
    return 0


def test_large_free_space_needs_no_estimate(tmp_path: Path) -> None:
    """If twice the sources fit, the map is not read."""
    offset_map = FixedMap({0: 100})
    assert missing(ExpectedOutput(offset_map, {0: 100}), segments(tmp_path, 0), 3 * SIZE) == 0
    assert offset_map.asked == 0


@pytest.mark.parametrize("survivors", [0, 1, 250, 500, 1000])
def test_expected_output_is_in_proportion_to_the_records_that_stay(tmp_path: Path, survivors: int) -> None:
    """A segment of which a tenth stays needs a tenth of its size."""
    group = segments(tmp_path, 0, 5000)
    expected = ExpectedOutput(FixedMap({0: survivors, 5000: 1000}), {0: 1000, 5000: 1000})
    tight = missing(expected, group, 1)
    whole = missing(ExpectedOutput(FixedMap({0: 1000, 5000: 1000}), {0: 1000, 5000: 1000}), group, 1)
    assert whole - tight == SIZE - SIZE * survivors // 1000


def test_segment_the_map_does_not_cover_counts_whole(tmp_path: Path) -> None:
    """The clean section, and a segment in which the map ended."""
    group = segments(tmp_path, 0, 5000, 9000)
    expected = ExpectedOutput(FixedMap({5000: 10}), {5000: 1000})
    none = missing(ExpectedOutput(FixedMap({0: 0}), {}), group, 1)
    assert none - missing(expected, group, 1) == SIZE - SIZE * 10 // 1000


def test_map_is_looked_through_once_a_round(tmp_path: Path) -> None:
    """The survivors of all segments are counted in one pass over the map, for any number of groups."""
    offset_map = FixedMap({0: 10, 5000: 10})
    expected = ExpectedOutput(offset_map, {0: 1000, 5000: 1000})
    for segment in segments(tmp_path, 0, 5000):
        assert missing(expected, [segment], SIZE // 2 + (1 << 20)) == 0
    assert offset_map.asked == 1
