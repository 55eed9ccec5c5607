"""Index entries of batches written to a segment (R-311, R-313, R-320, R-322)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.kernels import index as kernel
from tests.support.batch_builder import NO_PRODUCER
from tests.support.batch_reader import BatchInfo
from tests.support.segment_builder import SegmentBuilder
from tests.unit.kernels.arrays import guarded

pytestmark = pytest.mark.kernels

_BATCH = np.dtype([("size", np.int64), ("last_offset", np.int64), ("max_timestamp", np.int64)])


@dataclass
class Written:
    """Index entries of some batches."""

    status: int
    offsets: list[tuple[int, int]]
    times: list[tuple[int, int]]
    state: np.ndarray


def write(
    *calls: list[tuple[int, int, int]], base: int = 100, interval: int = 50, max_bytes: int = 1000, close: bool = True
) -> Written:
    """Append calls of (size, last offset, maximum timestamp) batches."""
    state = np.zeros(kernel.STATE_CELLS, np.int64)
    state[[kernel.STATE_MAX_TIMESTAMP, kernel.STATE_MAX_TIMESTAMP_OFFSET, kernel.STATE_LAST_TIME]] = -1
    rows = sum(len(call) for call in calls) + 1
    with guarded() as guards:
        offset_index = guards.room(rows * kernel.OFFSET_ENTRY_BYTES)
        time_index = guards.room(rows * kernel.TIME_ENTRY_BYTES)
        status = kernel.INDEX_DONE
        for call in calls:
            batches = np.array(call, _BATCH)
            status = kernel.index_batches(batches, base, interval, max_bytes, offset_index, time_index, state)
            if status != kernel.INDEX_DONE:
                break
        if close and status == kernel.INDEX_DONE:
            status = kernel.append_time_entry(time_index, base, state)
    used = (
        offset_index[: state[kernel.STATE_OFFSET_BYTES]].tobytes(),
        time_index[: state[kernel.STATE_TIME_BYTES]].tobytes(),
    )
    return Written(
        int(status), list(struct.iter_unpack(">ii", used[0])), list(struct.iter_unpack(">qi", used[1])), state
    )


def test_first_batch_never_gets_an_entry() -> None:
    """Nothing lies behind it yet; even an interval of 0 wants bytes (R-320)."""
    assert write([(1000, 100, 5)], interval=0).offsets == []


def test_entry_is_written_after_more_than_the_interval() -> None:
    """Strictly more; the entry has the batch's last offset and its position (R-320)."""
    batches = [(50, 100, 1), (10, 105, 1), (60, 110, 1), (10, 120, 1)]
    assert write(batches).offsets == [(10, 60), (20, 120)]
    assert write(batches, interval=49).offsets == [(5, 50), (20, 120)]
    assert write(batches, interval=51).offsets == [(10, 60), (20, 120)]


def test_time_entry_names_the_maximum_so_far_with_its_batch_included() -> None:
    """The maximum takes in the very batch that gets the entry (R-320)."""
    found = write([(60, 100, 7), (60, 105, 9), (60, 110, 8), (60, 115, 11)])
    assert found.times == [(9, 5), (11, 15)]


def test_time_entry_of_equal_timestamp_is_left_out() -> None:
    """Only a larger timestamp makes an entry, and the first batch that has it is named (R-313)."""
    assert write([(60, 100, 7), (60, 105, 7), (60, 110, 7)]).times == [(7, 0)]


@pytest.mark.parametrize("timestamp", [-1, -5])
def test_time_index_without_timestamps_is_empty(timestamp: int) -> None:
    """-1 is what an empty index ends with (R-313)."""
    assert write([(60, 100, timestamp), (60, 105, timestamp)]).times == []


def test_closing_entry_is_added_once() -> None:
    """The maximum gets its entry at the close unless it has one (R-322)."""
    found = write([(60, 100, 7), (60, 105, 8), (10, 110, 9)])
    assert found.times == [(8, 5), (9, 10)]
    assert write([(60, 100, 9), (60, 105, 8)]).times == [(9, 0)]


@pytest.mark.parametrize("cuts", [1, 2, 3, 7])
def test_entries_do_not_depend_on_how_appends_are_cut(cuts: int) -> None:
    """One call with all batches or one call each: the same bytes (R-321)."""
    batches = [(17 + 13 * i % 50, 100 + 3 * i, 1000 + 7 * i % 40) for i in range(40)]
    calls = [batches[i : i + cuts] for i in range(0, len(batches), cuts)]
    whole, parts = write(batches), write(*calls)
    assert (whole.offsets, whole.times) == (parts.offsets, parts.times)
    assert len(whole.offsets) > 10


@given(
    st.lists(st.tuples(st.integers(61, 400), st.integers(1, 9), st.integers(-1, 50)), min_size=1, max_size=40),
    st.sampled_from([0, 61, 200, 1000]),
)
def test_entries_of_any_batches_equal_slow_builder(steps: list[tuple[int, int, int]], interval: int) -> None:
    """The same bytes as the builder of test logs, which the golden data has proven."""
    builder = SegmentBuilder(100, interval, 1 << 20)
    batches, offset = [], 99
    for size, step, time in steps:
        offset += step
        batches.append((size, offset, time))
        builder.append(bytes(size), BatchInfo(offset, offset, time, 0, 0, NO_PRODUCER, 2, 1))
    found = write(batches, interval=interval)
    assert found.offsets == list(struct.iter_unpack(">ii", builder.index))
    assert found.times == list(struct.iter_unpack(">qi", builder.time_index + builder.closing_entry()))


def test_full_offset_index_stops_before_the_batch() -> None:
    """No entry beyond `segment.index.bytes`, rounded down to whole entries (R-310, R-311)."""
    batches = [(60, 100 + i, 1) for i in range(6)]
    found = write(batches, max_bytes=39)
    assert found.status == kernel.INDEX_OFFSET_FULL
    assert found.offsets == [(1, 60), (2, 120), (3, 180), (4, 240)]
    assert write(batches, max_bytes=40).status == kernel.INDEX_DONE


def test_full_time_index_stops_even_without_anything_to_write() -> None:
    """One slot is reserved for closing, and fullness is checked before the entry is needed (R-311)."""
    batches = [(60, 100 + i, 5) for i in range(3)]
    found = write(batches, max_bytes=24)
    assert found.status == kernel.INDEX_TIME_FULL
    assert found.times == [(5, 0)]
    assert write(batches, max_bytes=36).status == kernel.INDEX_DONE


def test_closing_entry_takes_the_reserved_slot() -> None:
    """Closing does not ask whether the index is full (R-322)."""
    found = write([(60, 100, 5), (60, 101, 6), (60, 102, 7)], max_bytes=36)
    assert found.status == kernel.INDEX_DONE
    assert found.times == [(6, 1), (7, 2)]
    tight = write([(60, 100, 5), (10, 101, 6), (10, 102, 7)], max_bytes=24)
    assert (tight.status, tight.times) == (kernel.INDEX_DONE, [(6, 1), (7, 2)])


@pytest.mark.parametrize("last_offset", [100 + 2**31, 99])
def test_offset_that_does_not_fit_an_entry_is_refused(last_offset: int) -> None:
    """Relative offsets lie in [0, 2**31 - 1] (R-304)."""
    assert write([(60, 100, 1), (60, last_offset, 1)]).status == kernel.INDEX_OVERFLOW


def test_offset_at_the_limit_fits() -> None:
    """2**31 - 1 is the largest distance (R-304)."""
    found = write([(60, 100, 1), (60, 100 + 2**31 - 1, 2)])
    assert (found.status, found.offsets, found.times) == (kernel.INDEX_DONE, [(2**31 - 1, 60)], [(2, 2**31 - 1)])


def test_offset_beyond_the_limit_is_refused_at_the_close() -> None:
    """A batch without an entry of its own may still hold the maximum timestamp."""
    assert write([(60, 100 + 2**31, 1)]).status == kernel.INDEX_OVERFLOW
