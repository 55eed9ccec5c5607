"""Indexes built from batches: R-304, R-311, R-320, R-322, R-323."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.errors import OffsetsOutOfOrderError, UncleanableError
from cleaner.format.batch import BATCH_DTYPE, Batches
from cleaner.storage.segment.index_builder import IndexBuilder, OffsetOverflowError

SIZE = 100


def rows(*batches: tuple[int, int]) -> Batches:
    """Batches of 100 bytes from (last offset, maximum timestamp)."""
    table = np.zeros(len(batches), BATCH_DTYPE)
    table["last_offset"] = [last for last, _ in batches]
    table["max_timestamp"] = [timestamp for _, timestamp in batches]
    table["position"] = np.arange(len(batches)) * SIZE
    table["size"] = SIZE
    return table


def builder(base_offset: int = 0, interval_bytes: int = 150, max_index_bytes: int = 1200) -> IndexBuilder:
    """A builder with small limits."""
    return IndexBuilder(Path("x.log"), base_offset, interval_bytes=interval_bytes, max_index_bytes=max_index_bytes)


def test_entry_for_each_batch_more_than_the_interval_after_the_last() -> None:
    """R-320: strictly more; the first batch never gets one; the time entry is the maximum so far."""
    made = builder(100)
    made.append_checked(rows((109, 50), (119, 40), (129, 30), (139, 70), (149, 60)))
    offsets, times = made.finish()
    assert offsets.tolist() == [(29, 200), (49, 400)]
    assert times.tolist() == [(50, 9), (70, 39)]


def test_closing_entry_holds_the_maximum() -> None:
    """R-322: appended unless the last entry is the same."""
    made = builder()
    made.append_checked(rows((0, 50), (1, 90)))
    offsets, times = made.finish()
    assert (offsets.tolist(), times.tolist()) == ([], [(90, 1)])


def test_batches_without_timestamp_leave_the_time_index_empty() -> None:
    """R-313: the last entry of an empty index is (-1, base)."""
    made = builder()
    made.append_checked(rows(*((offset, -1) for offset in range(9))))
    assert made.finish()[1].tolist() == []


@pytest.mark.parametrize("last_offset", [99, 100 + 2**31])
def test_offset_that_does_not_fit_is_reported_with_its_batch(last_offset: int) -> None:
    """R-304: relative offsets are in [0, 2**31 - 1]."""
    with pytest.raises(OffsetOverflowError) as caught:
        builder(100).append_checked(rows((100, 1), (last_offset, 1)))
    assert caught.value.row == 1


def test_entries_that_would_not_ascend_are_refused() -> None:
    """R-312: InvalidOffset in Kafka."""
    made = builder()
    made.append_checked(rows((0, 1), (1, 1), (9, 1)))
    with pytest.raises(OffsetsOutOfOrderError, match=r"must ascend: offset 8 at position 400$"):
        made.append_checked(rows((3, 1), (8, 1)))


def test_closing_entry_that_would_not_ascend_is_refused() -> None:
    """R-312, R-322: the largest timestamp may be that of an offset below the last entry's."""
    made = builder()
    made.append_checked(rows((0, 1), (1, 1), (9, 5), (3, 9)))
    with pytest.raises(OffsetsOutOfOrderError, match=r"must ascend: offset 3 of the largest timestamp$"):
        made.close()


@pytest.mark.parametrize(
    ("max_index_bytes", "entries"),
    [
        pytest.param(24, 1, id="time-index-keeps-one-slot"),
        pytest.param(12, 0, id="time-index-full-at-once"),
    ],
)
def test_full_index_is_refused(max_index_bytes: int, entries: int) -> None:
    """R-311: the time index is full one entry early, even if there is no entry to write."""
    made = builder(interval_bytes=0, max_index_bytes=max_index_bytes)
    made.append_checked(rows(*((offset, 5) for offset in range(entries + 1))))
    with pytest.raises(UncleanableError):
        made.append_checked(_shifted(rows((entries + 1, 5)), entries + 1))


def _shifted(table: Batches, batches: int) -> Batches:
    table["position"] += batches * SIZE
    return table


@given(
    timestamps=st.lists(st.integers(-1, 20), min_size=1, max_size=40),
    interval_bytes=st.integers(0, 500),
    cut=st.integers(0, 40),
)
def test_entries_do_not_depend_on_how_batches_are_handed_over(
    timestamps: list[int], interval_bytes: int, cut: int
) -> None:
    """R-321: chunk borders leave no trace; the slow loop of R-323 agrees."""
    table = rows(*enumerate(timestamps))
    whole, parts = (builder(interval_bytes=interval_bytes, max_index_bytes=1 << 20) for _ in range(2))
    whole.append_checked(table)
    parts.append_checked(table[:cut])
    parts.append_checked(table[cut:])
    expected = slow_entries(timestamps, interval_bytes)
    assert [entries.tolist() for entries in whole.finish()] == expected
    assert [entries.tolist() for entries in parts.finish()] == expected


def slow_entries(timestamps: list[int], interval_bytes: int) -> list[list[tuple[int, int]]]:
    """R-323, one batch after the other."""
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    highest, of_offset, last_position = -1, 0, 0
    for offset, timestamp in enumerate(timestamps):
        if timestamp > highest:
            highest, of_offset = timestamp, offset
        if offset * SIZE - last_position > interval_bytes:
            offsets.append((offset, offset * SIZE))
            last_position = offset * SIZE
            if highest > (times[-1][0] if times else -1):
                times.append((highest, of_offset))
    if highest > (times[-1][0] if times else -1):
        times.append((highest, of_offset))
    return [offsets, times]


@given(
    before=st.lists(st.integers(-1, 20), max_size=30),
    behind=st.lists(st.integers(-1, 20), max_size=30),
    interval_bytes=st.integers(0, 500),
)
def test_loaded_segment_gets_the_entries_of_batches_appended_after_an_entry(
    before: list[int], behind: list[int], interval_bytes: int
) -> None:
    """R-320: bytes since the last entry are counted from the load on; batches that are undone leave no trace."""
    table = rows(*enumerate([*before, *behind]))
    first = builder(interval_bytes=interval_bytes, max_index_bytes=1 << 20)
    first.append(table[: len(before)])
    loaded = first.finish()
    whole = [entries.tolist() for entries in loaded]
    made = builder(interval_bytes=interval_bytes, max_index_bytes=1 << 20)
    made.go_on(len(before) * SIZE, *loaded)
    mark = made.mark()
    for _ in range(2):
        made.go_back(mark)
        for row in range(len(before), len(table)):
            made.append(table[row : row + 1])
    made.close()
    added = _appended_entries(whole, [*enumerate(behind, len(before))], interval_bytes)
    assert np.frombuffer(made.offset_index, ">i4").reshape(-1, 2).tolist() == added[0]
    assert [tuple(entry) for entry in np.frombuffer(made.time_index, [("t", ">i8"), ("o", ">i4")]).tolist()] == added[1]
    assert (made.offset_index_bytes, made.time_index_bytes) == (
        8 * (len(whole[0]) + len(added[0])),
        12 * (len(whole[1]) + len(added[1])),
    )


def _appended_entries(
    loaded: list[list[tuple[int, int]]], batches: list[tuple[int, int]], interval_bytes: int
) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """R-320, one batch after the other, after the loaded ones: the entries that are added."""
    highest, of_offset = loaded[1][-1] if loaded[1] else (-1, 0)
    last, since = highest, 0
    offsets: list[list[int]] = []
    times: list[tuple[int, int]] = []
    for offset, timestamp in batches:
        if timestamp > highest:
            highest, of_offset = timestamp, offset
        if since > interval_bytes:
            offsets.append([offset, offset * SIZE])
            since = 0
            if highest > last:
                times.append((highest, of_offset))
                last = highest
        since += SIZE
    if highest > last:
        times.append((highest, of_offset))
    return offsets, times


def test_one_module_decides_about_index_entries() -> None:
    """No other module calls the kernel, keeps a largest timestamp's offset, or makes an aborted transaction's entry."""
    homes = {
        r"\b(index_batches|append_time_entry)\b": {"kernels/index.py", "storage/segment/index_builder.py"},
        r"\bindex_interval_bytes\b.*[<>]": set(),
        r"\.lowest\(excluding=": {"storage/load/open_offsets.py"},
    }
    cleaner = Path(__file__).parents[3] / "cleaner"
    found = {
        pattern: {
            str(path.relative_to(cleaner)) for path in cleaner.rglob("*.py") if re.search(pattern, path.read_text())
        }
        for pattern in homes
    }
    assert found == homes
