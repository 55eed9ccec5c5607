"""Names of files that several attempts may write: every loader removes them, and they undo no swap."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.storage.load.leftovers import find_leftovers
from cleaner.storage.segment.names import (
    SEGMENT_SUFFIXES,
    attempt_of,
    cleaned_file_name,
    name_in_place_of,
    segment_file_name,
)


@pytest.mark.parametrize("suffix", SEGMENT_SUFFIXES)
def test_attempt_name_tells_attempt_and_file(suffix: str) -> None:
    """Both ways; names of a swap belong to no attempt."""
    name = cleaned_file_name(139, suffix, "0af3-77")
    assert attempt_of(name) == "0af3-77"
    assert name_in_place_of(name) == segment_file_name(139, suffix, ".cleaned")
    assert attempt_of(name_in_place_of(name)) is None
    assert name_in_place_of(name_in_place_of(name)) == name_in_place_of(name)


def test_leftover_attempt_is_removed_and_does_not_fail_a_swap() -> None:
    """A `.cleaned` file of segment 0 would; any attempt's file for segment 0 does not."""
    swap = segment_file_name(0, ".log", ".swap")
    attempt = cleaned_file_name(0, ".log", "a")
    found = find_leftovers(Path("topic-0"), [attempt, swap])
    assert (found.swaps, found.condemned_swaps, found.unfinished) == ([swap], [], [attempt])
    condemned = find_leftovers(Path("topic-0"), [segment_file_name(0, ".log", ".cleaned"), swap])
    assert condemned.condemned_swaps == [swap]
