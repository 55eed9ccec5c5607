"""Growing buffers: what survives growth, and how far it goes."""

from __future__ import annotations

from cleaner.format.buffers import GrowingBuffer
from cleaner.kernels import PAD_BYTES


def test_buffer_that_grows_keeps_the_bytes_asked_for() -> None:
    """The first `keep` bytes move along."""
    buffer = GrowingBuffer(8)
    buffer.view[:8] = b"01234567"
    buffer.ensure(9, keep=4)
    assert bytes(buffer.view[:4]) == b"0123"
    assert buffer.capacity == 16


def test_buffer_large_enough_stays_where_it_is() -> None:
    """Views taken before remain good while nothing grows."""
    buffer = GrowingBuffer(8)
    before = buffer.array
    buffer.ensure(8)
    assert buffer.array is before


def test_buffer_growth_doubles_but_not_beyond_its_bound() -> None:
    """Doubling stops at the caller's bound; a larger request is still granted."""
    buffer = GrowingBuffer(64)
    buffer.ensure(65, at_most=100)
    assert buffer.capacity == 100
    buffer.ensure(150, at_most=100)
    assert buffer.capacity == 150


def test_buffer_array_ends_with_padding_that_view_shares() -> None:
    """Kernels may load whole words at the last byte of the data."""
    buffer = GrowingBuffer(10)
    buffer.view[9] = 7
    assert buffer.array.size == 10 + PAD_BYTES
    assert buffer.array[9] == 7


def test_buffer_shrunk_frees_the_memory_of_a_large_batch() -> None:
    """One large batch must not hold memory forever; a small buffer stays."""
    buffer = GrowingBuffer(10)
    buffer.ensure(1000)
    buffer.shrink(100)
    assert buffer.capacity == 100
    kept = buffer.array
    buffer.shrink(100)
    assert buffer.array is kept
