"""Memory that one round hands to the next: always zeros, never shared, and the system may have it in between."""

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
    """Hide what other tests of this process have given back."""
    monkeypatch.setattr(table_memory._Spare, "pieces", [])
    yield


def test_tables_are_zeros_and_lie_apart() -> None:
    """One behind the other, however many bytes each asks for."""
    memory = TableMemory(8 * PAGE)
    tables = [memory.take(size) for size in (24, PAGE, PAGE + 8, 3 * PAGE)]
    for number, table in enumerate(tables, 1):
        assert not table.any()
        table[:] = number
    assert [set(table.tolist()) for table in tables] == [{1}, {2}, {3}, {4}]
    assert [table.nbytes for table in tables] == [24, PAGE, PAGE + 8, 3 * PAGE]


def test_freed_memory_is_zeros_again() -> None:
    """Regardless of what was stored, and of where the new tables begin and end."""
    memory = TableMemory(6 * PAGE)
    for sizes in ((PAGE, 2 * PAGE), (3 * PAGE,), (24, 5 * PAGE), (6 * PAGE,)):
        memory.free_all()
        for size in sizes:
            table = memory.take(size)
            assert not table.any()
            table[:] = 2**64 - 1


@pytest.mark.parametrize(("first", "last"), [(0, 4 * PAGE), (1, 4 * PAGE - 1), (PAGE + 8, 3 * PAGE + 8), (8, 16)])
def test_forgotten_pages_are_zeros_and_the_others_stay(first: int, last: int) -> None:
    """Only whole pages go, and none of the tables beside it."""
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


def test_memory_given_back_is_lent_again_as_zeros() -> None:
    """To the next who needs no more than there is."""
    memory = borrow(4 * PAGE)
    memory.take(4 * PAGE)[:] = 9
    give_back(memory)
    again = borrow(3 * PAGE)
    assert again is memory
    assert not again.take(4 * PAGE).any()


def test_memory_that_is_too_small_is_not_lent() -> None:
    """Who needs more gets new memory."""
    small = borrow(PAGE)
    give_back(small)
    assert borrow(2 * PAGE).size == 2 * PAGE


def test_two_who_borrow_never_share() -> None:
    """What two have given back at the same time serves two again, each with the smallest piece that will do."""
    first, second = borrow(2 * PAGE), borrow(4 * PAGE)
    assert first is not second
    give_back(second)
    give_back(first)
    assert borrow(PAGE) is first
    assert borrow(PAGE) is second
    assert borrow(PAGE) not in (first, second)


def test_of_many_pieces_the_largest_are_kept() -> None:
    """And one that is too small makes way for the one that is made in its place."""
    for memory in [borrow(pages * PAGE) for pages in range(1, 7)]:
        give_back(memory)
    assert [piece.size for piece in table_memory._Spare.pieces] == [3 * PAGE, 4 * PAGE, 5 * PAGE, 6 * PAGE]
    borrow(7 * PAGE)
    assert [piece.size for piece in table_memory._Spare.pieces] == [3 * PAGE, 4 * PAGE, 5 * PAGE]


def test_pages_are_private() -> None:
    """Memory that could be shared gets no huge pages; a child's writes are not seen here."""
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
