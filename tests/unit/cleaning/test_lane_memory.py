"""The memory of lanes, borrowed by rounds and kept between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cleaner.cleaning.passes import lane_memory
from cleaner.cleaning.passes.lane_memory import USUAL_OUTPUT_BYTES, borrowed_lanes

LIMIT = 1 << 20


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lane_memory._Spare, "lanes", [])
    yield


def test_returned_lanes_are_reused_in_the_same_order() -> None:
    """A small log uses the same lane each time; the borrower sets the limit for unpacking."""
    with borrowed_lanes(3, LIMIT, max_kept=3) as first:
        pass
    with borrowed_lanes(2, 2 * LIMIT, max_kept=3) as second:
        assert [id(lane) for lane in second] == [id(lane) for lane in first[:2]]
        assert {lane.unpacker.limit_bytes for lane in second} == {2 * LIMIT}


def test_lanes_in_use_are_not_shared() -> None:
    """Each worker has its own lanes."""
    with borrowed_lanes(2, LIMIT, max_kept=4) as mine, borrowed_lanes(2, LIMIT, max_kept=4) as others:
        assert len({id(lane) for lane in (*mine, *others)}) == 4
    assert len(lane_memory._Spare.lanes) == 4


def test_lanes_above_the_limit_are_freed() -> None:
    """If there are fewer workers or threads than before, unused memory is freed."""
    with borrowed_lanes(4, LIMIT, max_kept=4):
        pass
    with borrowed_lanes(1, LIMIT, max_kept=2):
        pass
    assert len(lane_memory._Spare.lanes) == 2


def test_lanes_after_a_round_that_failed_are_kept_too() -> None:
    """Their content is useless, but the memory is not."""
    with pytest.raises(ValueError, match="damage"), borrowed_lanes(1, LIMIT, max_kept=1) as lanes:
        raise ValueError("damage")
    assert [id(lane) for lane in lane_memory._Spare.lanes] == [id(lane) for lane in lanes]


def test_lane_after_a_huge_chunk_shrinks_to_the_usual_size() -> None:
    """One hostile chunk does not cost memory forever."""
    with borrowed_lanes(1, LIMIT, max_kept=1) as (lane,):
        for buffer in (lane.digests, lane.output, lane.rebuilt):
            buffer.ensure(10 * USUAL_OUTPUT_BYTES)
    assert max(buffer.capacity for buffer in (lane.digests, lane.output, lane.rebuilt)) <= USUAL_OUTPUT_BYTES
