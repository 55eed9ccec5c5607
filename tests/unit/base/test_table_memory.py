"""Memory passed from one round to the next: always zeros, never shared, and offered to the system in between."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cleaner.base import table_memory
from cleaner.base.table_memory import TableMemory, borrow, give_back, zero_pages

PAGE = mmap.PAGESIZE


@pytest.fixture(autouse=True)
def nothing_spare(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide memory that other tests of this process have returned."""
    monkeypatch.setattr(table_memory._Spare, "pieces", [])
    yield


def test_tables_are_zeros_and_do_not_overlap() -> None:
    """One after the other, of any size."""
    memory = TableMemory(8 * PAGE)
    tables = [memory.take(size) for size in (24, PAGE, PAGE + 8, 3 * PAGE)]
    for number, table in enumerate(tables, 1):
        assert not table.any()
        table[:] = number
    assert [set(table.tolist()) for table in tables] == [{1}, {2}, {3}, {4}]
    assert [table.nbytes for table in tables] == [24, PAGE, PAGE + 8, 3 * PAGE]


def test_freed_memory_is_zeros_again() -> None:
    """Whatever was stored, and wherever the new tables begin and end."""
    memory = TableMemory(6 * PAGE)
    for sizes in ((PAGE, 2 * PAGE), (3 * PAGE,), (24, 5 * PAGE), (6 * PAGE,)):
        memory.free_all()
        for size in sizes:
            table = memory.take(size)
            assert not table.any()
            table[:] = 2**64 - 1


@pytest.mark.parametrize(("first", "last"), [(0, 4 * PAGE), (1, 4 * PAGE - 1), (PAGE + 8, 3 * PAGE + 8), (8, 16)])
def test_dropped_pages_are_zeros_and_the_others_stay(first: int, last: int) -> None:
    """Only whole pages are dropped, and none of the neighbouring tables."""
    memory = TableMemory(6 * PAGE)
    before, table, behind = memory.take(PAGE), memory.take(4 * PAGE), memory.take(PAGE)
    for each in (before, table, behind):
        each[:] = 7
    memory.forget(table, first, last)
    expected = np.full(4 * PAGE // 8, 7, np.uint64)
    expected[-(-first // PAGE) * PAGE // 8 : max(last // PAGE, -(-first // PAGE)) * PAGE // 8] = 0
    assert np.array_equal(table, expected)
    assert (before == 7).all()
    assert (behind == 7).all()


def test_returned_memory_is_reused_as_zeros() -> None:
    """For a request that is not larger than the piece."""
    memory = borrow(4 * PAGE)
    memory.take(4 * PAGE)[:] = 9
    give_back(memory)
    again = borrow(3 * PAGE)
    assert again is memory
    assert not again.take(4 * PAGE).any()


def test_memory_that_is_too_small_is_not_reused() -> None:
    """A larger request gets new memory."""
    small = borrow(PAGE)
    give_back(small)
    assert borrow(2 * PAGE).size == 2 * PAGE


def test_two_borrowers_never_share_memory() -> None:
    """Pieces returned at the same time serve two requests again, each with the smallest that fits."""
    first, second = borrow(2 * PAGE), borrow(4 * PAGE)
    assert first is not second
    give_back(second)
    give_back(first)
    assert borrow(PAGE) is first
    assert borrow(PAGE) is second
    assert borrow(PAGE) not in (first, second)


def test_of_many_pieces_the_largest_are_kept() -> None:
    """A piece that is too small is dropped for the one made instead."""
    for memory in [borrow(pages * PAGE) for pages in range(1, 7)]:
        give_back(memory)
    assert [piece.size for piece in table_memory._Spare.pieces] == [3 * PAGE, 4 * PAGE, 5 * PAGE, 6 * PAGE]
    borrow(7 * PAGE)
    assert [piece.size for piece in table_memory._Spare.pieces] == [3 * PAGE, 4 * PAGE, 5 * PAGE]


def test_pages_are_private() -> None:
    """Shared memory would get no huge pages; writes of a child process are not visible here."""
    memory = zero_pages(PAGE)
    table = np.frombuffer(memory, np.uint64)
    assert not table.any()
    kinds = [
        line.split()[1] for line in Path("/proc/self/maps").read_text().splitlines() if _holds(line, table.ctypes.data)
    ]
    assert kinds == ["rw-p"]


def _holds(line: str, address: int) -> bool:
    first, last = (int(bound, 16) for bound in line.split()[0].split("-"))
    return first <= address < last
